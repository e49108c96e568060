"""torch: state dicts from one process to all others, and the backend ``rdmc`` of torch.distributed, which importing this registers.

``import rdmc.torch; torch.distributed.init_process_group("rdmc")`` is for tensors on the CPU: broadcast, all_reduce, reduce, all_gather,
gather, scatter, reduce_scatter, and barrier, with what is made of them. ``pg_options=rdmc.torch.Options(...)`` chooses fabric and protection.

Needs torch, which this package does not install.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rdmc.errors import InvalidUse, Refused
from rdmc.group import Group
from rdmc.messages import Messages

torch: Any = importlib.import_module("torch")

if importlib.import_module("torch.distributed").is_available():
    from rdmc._torch_backend import Options as Options
    from rdmc._torch_backend import register

    register()

# Shorter tensors are sent together, up to this length in bytes.
_PACK_BYTES = 4 << 20
# Of other values only those that JSON has: what a program makes of pickled ones is the sender's to say.
_PLAIN = (str, int, float, bool, type(None))


def broadcast_state_dict(
    state_dict: Mapping[str, Any] | None,
    group: Group,
    root: int = 0,
    *,
    ready: Callable[[str, Any], None] | None = None,
    timeout: float | None = None,
) -> dict[str, Any]:
    """Gives all processes of a group the tensors of the root's state dict, as one stream.

    All call this, in the same order as other operations. Others than the root give a state dict of the same names, types and shapes, into
    whose tensors it is received without a copy where they are on the CPU and contiguous; or None, for new tensors. Tensors that share
    memory at the root are sent once, and new ones share memory, too.

    ``ready(name, tensor)`` is called on this thread for each tensor as soon as it is there, while later ones arrive. What it raises
    ends the group of messages at all. ``timeout``: for each tensor, in seconds.

    Returns the names with their tensors and values. Raises InvalidUse where state dicts differ (Refused at the others), and MemberLost.
    """
    with group.messages(root, posted=True, timeout=timeout) as messages:
        is_root = group.rank == root
        entries = _agreed(state_dict, group, root, timeout)
        whole = dict(state_dict) if state_dict is not None and is_root else _prepared(state_dict, entries)
        packs = list(_packs(entry for entry in entries if entry.is_sent()))
        if is_root:
            _send(messages, whole, packs)
        else:
            _receive(messages, whole, packs, ready)
        for entry in entries:
            if entry.same_as is not None and not is_root:
                _copy(whole[entry.name], whole[entry.same_as])
            if ready is not None and entry.kind is not None and (is_root or not entry.is_sent()):
                ready(entry.name, whole[entry.name])
        return whole


@dataclass
class _Entry:
    """A value of a state dict: a tensor of this type and shape, or (without a type) a plain value."""

    name: str
    kind: str | None
    shape: list[int]
    nbytes: int
    # The name of an earlier tensor in the same memory.
    same_as: str | None
    value: Any = None

    def is_sent(self) -> bool:
        """Whether it is in a message: a tensor with contents of its own."""
        return self.kind is not None and self.nbytes > 0 and self.same_as is None

    def matches(self, value: Any) -> bool:
        if self.kind is None:
            return not isinstance(value, torch.Tensor)
        return isinstance(value, torch.Tensor) and str(value.dtype) == self.kind and list(value.shape) == self.shape

    def new(self) -> Any:
        kind = getattr(torch, str(self.kind).removeprefix("torch."), None)
        if not isinstance(kind, torch.dtype):
            raise InvalidUse(f"{self.name} is of type {self.kind}, which this version of torch has not")
        return torch.empty(self.shape, dtype=kind)


def _agreed(state_dict: Mapping[str, Any] | None, group: Group, root: int, timeout: float | None) -> list[_Entry]:
    """What the root sends. Raises at all if it cannot be sent."""
    header, problem = None, None
    if group.rank == root:
        try:
            if state_dict is None:
                raise InvalidUse("the root gives a state dict")
            header = json.dumps(_describe(state_dict)).encode()
        except InvalidUse as error:
            header, problem = json.dumps(str(error)).encode(), error
    described = json.loads(group.broadcast_bytes(header, root, timeout=timeout))
    if problem is not None:
        raise problem
    if isinstance(described, str):
        raise Refused(root, f"the root has refused: {described}")
    return [_Entry(*fields) for fields in described]


def _describe(state_dict: Mapping[str, Any]) -> list[list[Any]]:
    described: list[list[Any]] = []
    places: dict[Any, str] = {}
    for name, value in state_dict.items():
        if isinstance(value, torch.Tensor):
            nbytes = value.numel() * value.element_size()
            place = (value.data_ptr(), value.device, value.dtype, value.shape, value.stride())
            first = places.setdefault(place, name) if nbytes > 0 else name
            described.append([name, str(value.dtype), list(value.shape), nbytes, None if first == name else first])
        elif isinstance(value, _PLAIN):
            described.append([name, None, [], 0, None, value])
        else:
            raise InvalidUse(f"{name} is a {type(value).__name__}: only tensors, numbers and texts can be sent")
    return described


def _prepared(given: Mapping[str, Any] | None, entries: list[_Entry]) -> dict[str, Any]:
    """Where it is received."""
    if given is None:
        made: dict[str, Any] = {}
        for entry in entries:
            if entry.kind is None:
                made[entry.name] = entry.value
            else:
                made[entry.name] = entry.new() if entry.same_as is None else made[entry.same_as]
        return made
    names = [entry.name for entry in entries]
    if set(names) != set(given):
        raise InvalidUse(f"the root's state dict differs in {', '.join(sorted(set(names) ^ set(given))[:5])}")
    for entry in entries:
        if not entry.matches(given[entry.name]):
            raise InvalidUse(f"{entry.name} is {entry.kind or 'no tensor'} {entry.shape} at the root, and not here")
    return {entry.name: entry.value if entry.kind is None else given[entry.name] for entry in entries}


def _packs(entries: Iterator[_Entry]) -> Iterator[list[_Entry]]:
    """Which tensors are one message, in order."""
    pack: list[_Entry] = []
    for entry in entries:
        if pack and sum(one.nbytes for one in pack) + entry.nbytes > _PACK_BYTES:
            yield pack
            pack = []
        pack.append(entry)
    if pack:
        yield pack


def _send(messages: Messages, tensors: Mapping[str, Any], packs: list[list[_Entry]]) -> None:
    for pack in packs:
        parts = [tensors[entry.name].detach().cpu().contiguous() for entry in pack]
        messages.send(parts[0] if len(parts) == 1 else torch.cat([_bytes_of(part) for part in parts]))


def _receive(
    messages: Messages, tensors: Mapping[str, Any], packs: list[list[_Entry]], ready: Callable[[str, Any], None] | None
) -> None:
    # Posted memory is taken in order, so that either all messages have it or none.
    if all(tensors[entry.name].device.type == "cpu" for pack in packs for entry in pack):
        places = [_place(tensors, pack) for pack in packs]
        for place in places:
            messages.post(place)
    for pack in packs:
        message = messages.receive()
        if message is None or message.nbytes != sum(entry.nbytes for entry in pack):
            raise InvalidUse("the root's messages are not those that it has announced: do all have the same version?")
        _spread(tensors, pack, message.data())
        for entry in pack:
            if ready is not None:
                ready(entry.name, tensors[entry.name])


def _place(tensors: Mapping[str, Any], pack: list[_Entry]) -> Any:
    """The memory for a message: that of its only tensor, if it can be used."""
    only = tensors[pack[0].name]
    if len(pack) == 1 and only.is_contiguous():
        return only
    return torch.empty(sum(entry.nbytes for entry in pack), dtype=torch.uint8)


def _spread(tensors: Mapping[str, Any], pack: list[_Entry], data: memoryview) -> None:
    """Copies a message to its tensors, unless it has been received there."""
    start = 0
    arrived = _frombuffer(data)
    for entry in pack:
        target = tensors[entry.name].detach()
        if target.data_ptr() != arrived.data_ptr() + start:
            # Of any alignment.
            part = arrived[start : start + entry.nbytes].clone().view(target.dtype).reshape(target.shape)
            target.copy_(part)
        start += entry.nbytes


def _frombuffer(data: memoryview) -> Any:
    """A tensor of bytes on memory that is not written: torch has none that is read-only, and warns."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(data, dtype=torch.uint8)


def _bytes_of(tensor: Any) -> Any:
    return tensor.reshape(-1).view(torch.uint8)


def _copy(target: Any, source: Any) -> None:
    if target.data_ptr() != source.data_ptr():
        target.detach().copy_(source.detach())

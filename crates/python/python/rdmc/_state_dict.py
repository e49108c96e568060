"""Broadcast of torch state dicts."""

from __future__ import annotations

import importlib
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rdmc.errors import InvalidUse, Refused
from rdmc.group import Group
from rdmc.messages import Messages

torch: Any = importlib.import_module("torch")

# Shorter tensors are sent together, up to this length in bytes; 1 to 64 MiB are equally fast. Longer tensors are faster alone, because
# they are not copied.
_PACK_BYTES = 4 << 20
# The maximum memory in bytes for messages that are received before they are copied to tensors.
_SPARE_BYTES = 256 << 20
# Other values are limited to JSON's types: with pickle, the sender could run code at the receivers.
_PLAIN = (str, int, float, bool, type(None))
_DEPTH_MAX = 50

# The keys and positions that lead to a value.
_Path = tuple[str | int, ...]


def broadcast_state_dict(
    state_dict: Mapping[str, Any] | None,
    group: Group,
    root: int = 0,
    *,
    ready: Callable[[str, Any], None] | None = None,
    device: Any = "cpu",
    timeout: float | None = None,
) -> dict[str, Any]:
    """Broadcasts the root's state dict of a model or optimizer: nested dicts with string or integer keys, lists and tuples, of tensors,
    numbers, strings and None.

    All members call this, in the same order as other operations. Members other than the root pass a state dict with the same names, types
    and shapes. Its tensors receive the contents on the device where they are, without a copy if they are contiguous and on the CPU. Or
    they pass None, for new tensors on ``device``. Tensors that share memory at the root are sent once; new tensors then share memory too.

    ``ready(name, tensor)`` is called on this thread for each tensor once it has arrived, while later ones arrive; names in nested dicts
    are joined by dots. An exception from it ends the remaining messages at all members. ``timeout``: for each message, in seconds.

    Returns the state dict, with these tensors and the root's other values. Raises InvalidUse where the state dicts differ (Refused at the
    other members), and MemberLost.
    """
    is_root, tree, tensors, problem = group.rank == root, None, {}, None
    try:
        if is_root:
            if state_dict is None:
                raise InvalidUse("the root must pass a state dict")
            tree = _Description().of(state_dict, ())
    except InvalidUse as error:
        problem = error
    tree = json.loads(group.broadcast_bytes(json.dumps(tree).encode() if is_root else None, root, timeout=timeout))
    entries: list[_Entry] = []
    try:
        if tree is not None:
            entries = list(_entries(tree, ()))
            tensors = _prepared(state_dict, tree, entries, device)
    except InvalidUse as error:
        problem = error
    _agree(group, problem, timeout)
    packs = list(_packs(entries))
    if len(packs) > 1:
        with group.messages(root, posted=True, timeout=timeout) as messages:
            if is_root:
                _send(messages, tensors, packs)
            else:
                _receive(messages, tensors, packs, ready)
    elif packs:
        # As one operation, which needs no additional connections.
        place = _contents(tensors, packs[0]) if is_root else _place(tensors, packs[0])
        group.broadcast(place, root, timeout=timeout)
        if not is_root:
            _spread(tensors, packs[0], _bytes_of(place.detach()), ready)
    for entry in entries:
        if entry.same_as is not None and not is_root:
            _copy(tensors[entry.path], tensors[entries[entry.same_as].path])
        if ready is not None and (is_root or not entry.is_sent()):
            ready(entry.name, tensors[entry.path])
    built: dict[str, Any] = _built(tree, (), tensors)
    return built


@dataclass(frozen=True)
class _Entry:
    """A tensor of a state dict: its path, type and shape."""

    path: _Path
    kind: str
    shape: tuple[int, ...]
    # The number of an earlier tensor in the same memory.
    same_as: int | None

    @property
    def name(self) -> str:
        """The path, joined by dots."""
        return _name(self.path)

    @property
    def nbytes(self) -> int:
        """The length in bytes."""
        return math.prod(self.shape) * int(torch.empty(0, dtype=self._type()).element_size())

    def is_sent(self) -> bool:
        """Whether its contents are sent: it is not empty and shares no memory with an earlier tensor."""
        return self.nbytes > 0 and self.same_as is None

    def new(self, device: Any) -> Any:
        """Returns a new tensor for it."""
        return torch.empty(self.shape, dtype=self._type(), device=device)

    def _type(self) -> Any:
        kind = getattr(torch, self.kind.removeprefix("torch."), None)
        if not isinstance(kind, torch.dtype):
            raise InvalidUse(f"{self.name} is of type {self.kind}, which this version of torch does not have")
        return kind


class _Description:
    """Describes a state dict in JSON's types: ["tensor", type, shape, number of an earlier tensor in the same memory], ["plain", value],
    ["dict", [[key, value] ...]], ["list", [value ...]] or ["tuple", [value ...]]."""

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}
        self._count = 0

    def of(self, value: Any, path: _Path) -> list[Any]:
        """Returns the description of a value. Raises InvalidUse if the value cannot be sent."""
        if len(path) > _DEPTH_MAX:
            raise InvalidUse(f"{_name(path[:5])} is nested more than {_DEPTH_MAX} levels deep")
        if isinstance(value, torch.Tensor):
            return self._of_tensor(value, path)
        if isinstance(value, _PLAIN):
            return ["plain", value]
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str | int):
                    raise InvalidUse(f"{_name(path) or 'the state dict'} has the key {key!r}: use strings and integers")
            return ["dict", [[key, self.of(one, (*path, key))] for key, one in value.items()]]
        if isinstance(value, list | tuple):
            found = [self.of(one, (*path, number)) for number, one in enumerate(value)]
            return ["list" if isinstance(value, list) else "tuple", found]
        raise InvalidUse(f"{_name(path)} is a {type(value).__name__}: use tensors, numbers, strings, and dicts and lists of them")

    def _of_tensor(self, tensor: Any, path: _Path) -> list[Any]:
        if tensor.layout is not torch.strided:
            raise InvalidUse(f"{_name(path)} is a tensor of layout {tensor.layout}: use to_dense()")
        number, self._count = self._count, self._count + 1
        place = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        first = self._places.setdefault(place, number) if tensor.numel() > 0 else number
        return ["tensor", str(tensor.dtype), list(tensor.shape), None if first == number else first]


def _name(path: _Path) -> str:
    return ".".join(str(part) for part in path)


def _children(node: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    kind, found = node
    pairs = found if kind == "dict" else enumerate(found)
    return (((*path, key), child) for key, child in pairs)


def _entries(node: Any, path: _Path) -> Iterator[_Entry]:
    """Yields the tensors, in the order of their numbers."""
    if node[0] == "tensor":
        yield _Entry(path, node[1], tuple(node[2]), node[3])
    elif node[0] != "plain":
        for below, child in _children(node, path):
            yield from _entries(child, below)


def _outline(node: Any, path: _Path) -> Iterator[tuple[_Path, str]]:
    """Yields each path with a text that describes its value."""
    if node[0] == "tensor":
        yield path, f"{node[1]} {node[2]}"
    elif node[0] == "plain":
        yield path, "no tensor"
    else:
        yield path, f"a {node[0]}"
        for below, child in _children(node, path):
            yield from _outline(child, below)


def _built(node: Any, path: _Path, tensors: Mapping[_Path, Any]) -> Any:
    """Returns the value that a description stands for."""
    kind, *found = node
    if kind == "tensor":
        return tensors[path]
    if kind == "plain":
        return found[0]
    below = {inner[-1]: _built(child, inner, tensors) for inner, child in _children(node, path)}
    return below if kind == "dict" else list(below.values()) if kind == "list" else tuple(below.values())


def _prepared(given: Mapping[str, Any] | None, tree: Any, entries: list[_Entry], device: Any) -> dict[_Path, Any]:
    """Returns the tensors to send or to receive into. Raises InvalidUse if the given state dict differs from the root's."""
    if given is not None:
        expected, found = dict(_outline(tree, ())), dict(_outline(_Description().of(given, ()), ()))
        different = [_name(path) for path in expected.keys() ^ found.keys()]
        if different:
            raise InvalidUse(f"the root's state dict differs from this one in {', '.join(sorted(different)[:5])}")
        for path, words in expected.items():
            if found[path] != words:
                raise InvalidUse(f"{_name(path)} is {words} at the root, but {found[path]} here")
        return {entry.path: _value(given, entry.path) for entry in entries}
    tensors: dict[_Path, Any] = {}
    for entry in entries:
        tensors[entry.path] = entry.new(device) if entry.same_as is None else tensors[entries[entry.same_as].path]
    return tensors


def _value(given: Any, path: _Path) -> Any:
    for key in path:
        given = given[key]
    return given


def _agree(group: Group, problem: InvalidUse | None, timeout: float | None) -> None:
    """Raises at all members if one has a problem."""
    flags = bytearray(group.size)
    flags[group.rank] = problem is not None
    group.all_gather_in_place(flags, timeout=timeout)
    who = flags.find(1)
    if who < 0:
        return
    said = group.broadcast_bytes(str(problem).encode("utf-8", "replace") if group.rank == who else None, who, timeout=timeout)
    if problem is not None:
        raise problem
    raise Refused(who, f"rank {who} refused: {said.decode()}")


def _packs(entries: list[_Entry]) -> Iterator[list[_Entry]]:
    """Yields the tensors of each message, in order."""
    pack: list[_Entry] = []
    for entry in entries:
        if not entry.is_sent():
            continue
        if pack and sum(one.nbytes for one in pack) + entry.nbytes > _PACK_BYTES:
            yield pack
            pack = []
        pack.append(entry)
    if pack:
        yield pack


def _send(messages: Messages, tensors: Mapping[_Path, Any], packs: list[list[_Entry]]) -> None:
    for pack in packs:
        messages.send(_contents(tensors, pack))


def _receive(
    messages: Messages, tensors: Mapping[_Path, Any], packs: list[list[_Entry]], ready: Callable[[str, Any], None] | None
) -> None:
    posted, spare = 0, 0
    for pack in packs:
        while posted < len(packs) and spare < _SPARE_BYTES:
            messages.post(_place(tensors, packs[posted]))
            spare += _spare_bytes(tensors, packs[posted])
            posted += 1
        message = messages.receive()
        if message is None or message.nbytes != sum(entry.nbytes for entry in pack):
            raise InvalidUse("the root's messages are not those that it announced: do all ranks run the same version of rdmc?")
        _spread(tensors, pack, _frombuffer(message.data()), ready)
        spare -= _spare_bytes(tensors, pack)


def _contents(tensors: Mapping[_Path, Any], pack: list[_Entry]) -> Any:
    """Returns the contents of a pack to send: the memory of its only tensor, if possible."""
    parts = [tensors[entry.path].detach().cpu().contiguous() for entry in pack]
    return parts[0] if len(parts) == 1 else torch.cat([_bytes_of(part) for part in parts])


def _place(tensors: Mapping[_Path, Any], pack: list[_Entry]) -> Any:
    """Returns the memory to receive a pack into: that of its only tensor, if possible."""
    spare = _spare_bytes(tensors, pack)
    return torch.empty(spare, dtype=torch.uint8) if spare > 0 else tensors[pack[0].path]


def _spare_bytes(tensors: Mapping[_Path, Any], pack: list[_Entry]) -> int:
    """Returns how much memory a pack needs that is received first and then copied to its tensors; 0 if it is received in place."""
    only = tensors[pack[0].path]
    is_in_place = len(pack) == 1 and only.device.type == "cpu" and only.is_contiguous()
    return 0 if is_in_place else sum(entry.nbytes for entry in pack)


def _spread(tensors: Mapping[_Path, Any], pack: list[_Entry], arrived: Any, ready: Callable[[str, Any], None] | None) -> None:
    """Copies bytes to tensors, unless they were received in place."""
    start = 0
    for entry in pack:
        target = tensors[entry.path].detach()
        if target.data_ptr() != arrived.data_ptr() + start:
            # The part may be unaligned.
            part = arrived[start : start + entry.nbytes].clone().view(target.dtype).reshape(target.shape)
            target.copy_(part)
        start += entry.nbytes
    for entry in pack:
        if ready is not None:
            ready(entry.name, tensors[entry.path])


def _frombuffer(data: memoryview) -> Any:
    """Returns a tensor of bytes on memory that is not written. Torch has no read-only tensors, and warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(data, dtype=torch.uint8)


def _bytes_of(tensor: Any) -> Any:
    return tensor.reshape(-1).view(torch.uint8)


def _copy(target: Any, source: Any) -> None:
    if target.data_ptr() != source.data_ptr():
        target.detach().copy_(source.detach())

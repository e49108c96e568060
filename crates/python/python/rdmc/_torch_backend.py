"""A backend of torch.distributed, for tensors on the CPU: groups of this library behind torch's interface."""

from __future__ import annotations

import atexit
import importlib
import inspect
import multiprocessing.util
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, NoReturn

import rdmc.group
from rdmc._calls import on_a_thread
from rdmc._meeting import Meeting
from rdmc._network import Network
from rdmc._text import reason_of
from rdmc.errors import InvalidUse, RdmcError
from rdmc.group import Group

torch: Any = importlib.import_module("torch")
_distributed: Any = importlib.import_module("torch.distributed")
_c10d: Any = importlib.import_module("torch._C._distributed_c10d")

# How long a process waits, in seconds, for others to destroy their process group, too, or for operations under way when it ends.
_END_SECONDS = 10.0

# How many operations are held for torch's own code, at most.
_HELD_MAX = 4096

_NO_TIMEOUT = timedelta(0)


@dataclass(frozen=True)
class Options:
    """``pg_options`` of init_process_group and new_group: ``fabric`` and ``protection``, as of rdmc.Group."""

    fabric: str | None = None
    protection: str | None = None


class Work(_c10d.Work):  # type: ignore[misc]
    """An operation that was started, as torch has them. Calls are allowed on any thread."""

    def __init__(self, work: rdmc.group.Work, outputs: list[Any], finish: Callable[[], None] | None, held: dict[int, Work]) -> None:
        super().__init__()
        self._work = work
        self._outputs = outputs
        # What is left to do when the operation has succeeded, once: on the first thread that learns of it.
        self._finish = finish
        self._lock = threading.RLock()
        self._future: Any = None
        # Older versions of torch keep no reference to this object where C++ has started the operation, but look for it when they
        # wait: it is held until then.
        self._held = held
        held[id(self)] = self
        if len(held) > _HELD_MAX:
            del held[next(iter(held))]

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Waits for its end. Raises what has failed; a TimedOut goes on."""
        self._work.wait(timeout.total_seconds() if timeout > _NO_TIMEOUT else None)
        self._settle()
        return True

    def synchronize(self) -> None:
        """As wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it has ended, well or not. Does not block."""
        if self._work.is_completed() and self._work._future.exception() is None:
            self._settle()
        return self._work.is_completed()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What has failed, if it has ended."""
        return self._work._future.exception() if self._work.is_completed() else None

    def result(self) -> list[Any]:
        """The tensors that the operation has written, when it has ended."""
        self.wait()
        return self._outputs

    def get_future(self) -> Any:
        """A torch.futures.Future of the tensors. Callbacks run on a thread of their own: they may start other operations, in the same
        order at all members, and wait for them, as PowerSGD's hook does."""
        with self._lock:
            if self._future is None:
                ended = torch.futures.Future()
                self._future = ended.then(lambda _: self.result())
                if self._work.is_completed():
                    ended.set_result(None)
                else:
                    self._work._future.add_done_callback(lambda _: on_a_thread(lambda: ended.set_result(None)))
            self._held.pop(id(self), None)
            return self._future

    def _settle(self) -> None:
        with self._lock:
            finish, self._finish = self._finish, None
            if finish is not None:
                finish()
            self._held.pop(id(self), None)


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: ProcessGroup, *given: Any, **named: Any) -> NoReturn:
        raise InvalidUse(f"the backend rdmc has no {name}: use a group of another backend for it, such as new_group(backend='gloo')")

    return refuse


class ProcessGroup(_c10d.ProcessGroup):  # type: ignore[misc]
    """The backend ``rdmc`` of torch.distributed. Its methods are called by torch's functions, with their arguments; all return at once.

    Tensors are on the CPU, of any strides. Wrong arguments raise InvalidUse before anything is sent.
    """

    def __init__(self, group: Group) -> None:
        super().__init__(group.rank, group.size)
        self._group = group
        self._held: dict[int, Work] = {}
        self._name, self._description = "", "undefined"
        # torch drops its references when the group is destroyed.
        weakref.finalize(self, _destroyed, group).atexit = False
        _watch_the_end()
        _live[group] = None
        # Starts the thread of its operations, which closes it: a program that ends starts none.
        group._calls.start(lambda: None)

    def getBackendName(self) -> str:
        """The name in init_process_group."""
        return "rdmc"

    # Newer versions of torch give a name and a description, and ask for them.

    def setGroupName(self, name: str) -> None:
        """Called by torch."""
        self._name = name

    def getGroupName(self) -> str:
        """What torch has given."""
        return self._name

    def setGroupDesc(self, description: str) -> None:
        """Called by torch."""
        self._description = description

    def getGroupDesc(self) -> str:
        """What torch has given."""
        return self._description

    def broadcast(self, tensors: list[Any], opts: Any = None) -> Work:
        """torch.distributed.broadcast."""
        opts = _c10d.BroadcastOptions() if opts is None else opts
        tensor = _only(tensors)
        dense = _dense(tensor, is_written=opts.rootRank != self._group.rank)
        work = self._group.broadcast(dense, opts.rootRank, timeout=_limit(opts), async_op=True)
        return self._work(work, [tensor], [] if opts.rootRank == self._group.rank else [(tensor, dense)])

    def allreduce(self, tensors: list[Any], opts: Any = None) -> Work:
        """torch.distributed.all_reduce."""
        return self.allreduce_coalesced([_only(tensors)], opts)

    def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> Work:
        """torch.distributed.all_reduce_coalesced: several tensors of one type, by one operation."""
        opts = _c10d.AllreduceOptions() if opts is None else opts
        flat = _flat(tensors, is_written=True)
        work = self._group.all_reduce(flat, opts.reduceOp, timeout=_limit(opts), async_op=True)
        return self._work(work, tensors, _parts_of(flat, tensors))

    def reduce(self, tensors: list[Any], opts: Any = None) -> Work:
        """torch.distributed.reduce."""
        opts = _c10d.ReduceOptions() if opts is None else opts
        tensor = _only(tensors)
        dense = _dense(tensor, is_written=True)
        work = self._group.reduce(dense, opts.rootRank, opts.reduceOp, timeout=_limit(opts), async_op=True)
        return self._work(work, [tensor], [(tensor, dense)] if opts.rootRank == self._group.rank else [])

    def allgather(self, output_lists: list[list[Any]], inputs: list[Any], opts: Any = None) -> Work:
        """torch.distributed.all_gather."""
        return self.allgather_coalesced([[output] for output in _only(output_lists)], [_only(inputs)], opts)

    def allgather_coalesced(self, output_lists: list[list[Any]], inputs: list[Any], opts: Any = None) -> Work:
        """torch.distributed.all_gather_coalesced: a list for each rank, of as many tensors as there are inputs."""
        part, whole, outputs = self._gathered(output_lists, inputs)
        work = self._group.all_gather(whole, part, timeout=_limit(opts), async_op=True)
        return self._work(work, outputs, _parts_of(whole, outputs))

    def gather(self, output_lists: list[list[Any]], inputs: list[Any], opts: Any = None) -> Work:
        """torch.distributed.gather."""
        opts = _c10d.GatherOptions() if opts is None else opts
        if opts.rootRank != self._group.rank:
            work = self._group.gather(_dense(_only(inputs)), None, opts.rootRank, timeout=_limit(opts), async_op=True)
            return self._work(work, [], [])
        part, whole, outputs = self._gathered([[output] for output in _only(output_lists)], inputs)
        work = self._group.gather(part, whole, opts.rootRank, timeout=_limit(opts), async_op=True)
        return self._work(work, outputs, _parts_of(whole, outputs))

    def gather_single(self, output: Any, input: Any, opts: Any = None) -> Work:
        """torch.distributed.gather_single, of newer versions: as gather, into one tensor."""
        opts = _c10d.GatherOptions() if opts is None else opts
        is_root = opts.rootRank == self._group.rank
        dense = _dense(output, is_written=True) if is_root else None
        work = self._group.gather(_dense(input), dense, opts.rootRank, timeout=_limit(opts), async_op=True)
        return self._work(work, [output] if is_root else [], [(output, dense)] if is_root else [])

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> Work:
        """torch.distributed.all_gather_into_tensor."""
        dense = _dense(output, is_written=True)
        work = self._group.all_gather(dense, _dense(input), timeout=_limit(opts), async_op=True)
        return self._work(work, [output], [(output, dense)])

    def scatter(self, outputs: list[Any], input_lists: list[list[Any]], opts: Any = None) -> Work:
        """torch.distributed.scatter."""
        opts = _c10d.ScatterOptions() if opts is None else opts
        output = _only(outputs)
        dense = _dense(output, is_written=True)
        parts = self._of_all_ranks(_only(input_lists), output) if opts.rootRank == self._group.rank else None
        work = self._group.scatter(dense, parts, opts.rootRank, timeout=_limit(opts), async_op=True)
        return self._work(work, [output], [(output, dense)])

    def reduce_scatter(self, outputs: list[Any], input_lists: list[list[Any]], opts: Any = None) -> Work:
        """torch.distributed.reduce_scatter."""
        output = _only(outputs)
        return self.reduce_scatter_single(output, self._of_all_ranks(_only(input_lists), output), opts)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> Work:
        """torch.distributed.reduce_scatter_tensor."""
        opts = _c10d.ReduceScatterOptions() if opts is None else opts
        dense = _dense(output, is_written=True)
        work = self._group.reduce_scatter(dense, _dense(input), opts.reduceOp, timeout=_limit(opts), async_op=True)
        return self._work(work, [output], [(output, dense)])

    def barrier(self, opts: Any = None) -> Work:
        """torch.distributed.barrier."""
        return self._work(self._group.barrier(timeout=_limit(opts), async_op=True), [], [])

    def shutdown(self) -> None:
        """destroy_process_group, of newer versions; older ones drop their references."""
        _destroyed(self._group)

    def abort(self) -> None:
        """Makes all operations fail, at all members."""
        self._group._calls.abort_quietly("its process group was aborted")

    # Names of older versions of torch, and of newer ones.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    send = _refusing("send")
    recv = _refusing("recv")
    recv_anysource = recvAnysource = _refusing("recv")
    alltoall = _refusing("all_to_all")
    alltoall_base = all_to_all_single = _refusing("all_to_all_single")
    allgather_into_tensor_coalesced = all_gather_single_coalesced = _refusing("coalesced all_gather_into_tensor")
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced = _refusing("coalesced reduce_scatter_tensor")
    monitored_barrier = _refusing("monitored_barrier")

    def _work(self, work: rdmc.group.Work, outputs: list[Any], copies: Sequence[tuple[Any, Any]]) -> Work:
        """``copies``: tensors of the caller's, and the memory that was used instead of theirs, or is theirs."""
        left = [(tensor, memory) for tensor, memory in copies if tensor.data_ptr() != memory.data_ptr()]

        def finish() -> None:
            for tensor, memory in left:
                tensor.detach().copy_(memory.reshape(tensor.shape))

        return Work(work, outputs, finish if left else None, self._held)

    def _gathered(self, output_lists: list[list[Any]], inputs: list[Any]) -> tuple[Any, Any, list[Any]]:
        """This rank's part, memory for all parts, and the tensors to which these are copied then."""
        size = self._group.size
        if len(output_lists) != size:
            raise InvalidUse(f"there are {len(output_lists)} outputs; give one for each of {size} ranks")
        for outputs in output_lists:
            _check_alike(outputs, inputs)
            for output in outputs:
                _check(output, is_written=True)
        part = _flat(inputs)
        return part, torch.empty(size * part.numel(), dtype=part.dtype), [output for outputs in output_lists for output in outputs]

    def _of_all_ranks(self, inputs: list[Any], output: Any) -> Any:
        """A tensor for each rank, one after another in one."""
        size = self._group.size
        if len(inputs) != size:
            raise InvalidUse(f"there are {len(inputs)} inputs; give one for each of {size} ranks")
        _check_alike(inputs, [output] * size)
        return _flat(inputs)


def _only(given: Sequence[Any]) -> Any:
    if len(given) != 1:
        raise InvalidUse(f"there are {len(given)} tensors or lists of them: give one, as each process has one device")
    return given[0]


def _check_alike(tensors: Sequence[Any], others: Sequence[Any]) -> None:
    """Raises InvalidUse unless the tensors have the types and lengths of others."""
    found, expected = ([(tensor.numel(), tensor.dtype) for tensor in some] for some in (tensors, others))
    if found != expected:
        raise InvalidUse(f"tensors of {found} elements and types are given for {expected}: all ranks' have to be alike")


def _check(tensor: Any, is_written: bool) -> None:
    """Raises InvalidUse for what cannot be sent, or not be received into."""
    if tensor.layout is not torch.strided:
        raise InvalidUse(f"the tensor's layout is {tensor.layout}: use tensor.to_dense()")
    if tensor.device.type != "cpu":
        raise InvalidUse(f"the tensor is on {tensor.device}, and the backend rdmc is for the CPU: use tensor.cpu(), or nccl")
    if is_written and any(length > 1 and stride == 0 for length, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise InvalidUse("elements of the tensor are in the same memory, as it was expanded: use tensor.contiguous()")


def _dense(tensor: Any, is_written: bool = False) -> Any:
    """The tensor if it is contiguous, or else a copy that is. Raises InvalidUse for what cannot be sent."""
    _check(tensor, is_written)
    return tensor.detach().contiguous()


def _flat(tensors: Sequence[Any], is_written: bool = False) -> Any:
    """The elements of all, in one tensor: that of the only one, if it is contiguous."""
    flat = [_dense(tensor, is_written).reshape(-1) for tensor in tensors]
    if len({tensor.dtype for tensor in flat}) != 1:
        raise InvalidUse(f"the tensors are of types {', '.join(sorted({str(tensor.dtype) for tensor in flat}))}: give those of one")
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def _parts_of(flat: Any, tensors: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True))


def _limit(opts: Any) -> float | None:
    timeout = getattr(opts, "timeout", _NO_TIMEOUT)
    return timeout.total_seconds() if timeout > _NO_TIMEOUT else None


# Of process groups that have not ended, with the threads that end those that were destroyed.
_live: dict[Group, threading.Thread | None] = {}


@cache
def _watch_the_end() -> None:
    # Not sooner than a group was made: what is registered later runs first, and groups end at once when the program does. Processes of
    # multiprocessing end without this, but by that.
    atexit.register(_program_ends)
    multiprocessing.util.Finalize(None, _program_ends, exitpriority=100)


def _destroyed(group: Group) -> None:
    """Ends a group that torch has dropped. Not here: this may be in the middle of anything. The program waits for the thread."""
    if group not in _live or _live[group] is not None:
        return
    thread = threading.Thread(target=_end, args=(group,), name="rdmc-end")
    _live[group] = thread
    try:
        thread.start()
    except RuntimeError:
        # The program ends, and starts no threads any more.
        _end(group)


def _program_ends() -> None:
    for group, thread in list(_live.items()):
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)
        if thread is not None:
            thread.join(3 * _END_SECONDS)
        elif error is None or (isinstance(error, SystemExit) and not error.code):
            _end(group)
        else:
            group._calls.leave(reason_of(type(error), error))
    _live.clear()


def _end(group: Group) -> None:
    """Ends a group with the others, if they come in time: what they still wait for has been sent then. All operations of this process have
    told their outcome, so that what others do afterwards is no error here."""
    with suppress(RdmcError):
        group._calls.start(lambda: None).wait(_END_SECONDS)
        group.close(_END_SECONDS)
    group._calls.leave("its process group was destroyed, or its program ended")
    _live.pop(group, None)


def _make(given: Any, options: Options | None = None) -> ProcessGroup:
    """Called by torch in init_process_group and new_group, at all members."""
    limit = given.timeout.total_seconds()
    settings = Options() if options is None else options
    network = Network(1, settings.fabric, settings.protection, limit)
    meeting = Meeting(given.store, network.number, limit, (given.group_rank, given.group_size))
    return ProcessGroup(Group._of(meeting, network))


def register() -> None:
    """Makes ``rdmc`` a backend of torch.distributed. Nothing happens the second time."""
    registering = _distributed.Backend.register_backend
    if not hasattr(_distributed.Backend, "RDMC"):
        # Newer versions of torch ask for the devices.
        devices = {"devices": ["cpu"]} if "devices" in inspect.signature(registering).parameters else {}
        registering("rdmc", _make, extended_api=True, **devices)

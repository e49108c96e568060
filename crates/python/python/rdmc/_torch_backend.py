"""A torch.distributed backend for tensors on the CPU, built on this library's groups."""

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

# How long a process that destroys its process group waits for the others to do so, and for running operations, in seconds.
_END_SECONDS = 10.0

# The maximum number of operations kept alive for torch's own code.
_HELD_MAX = 4096

_NO_TIMEOUT = timedelta(0)


@dataclass(frozen=True)
class Options:
    """``pg_options`` of init_process_group and new_group: ``fabric`` and ``protection``, as for rdmc.Group."""

    fabric: str | None = None
    protection: str | None = None


class Work(_c10d.Work):  # type: ignore[misc]
    """A started operation, with torch's interface. Calls are allowed on any thread."""

    def __init__(self, work: rdmc.group.Work, outputs: list[Any], finish: Callable[[], None] | None, held: dict[int, Work]) -> None:
        super().__init__()
        self._work = work
        self._outputs = outputs
        # Called once after the operation has succeeded, on the first thread that sees it.
        self._finish = finish
        self._lock = threading.RLock()
        self._future: Any = None
        # Older versions of torch keep no reference to this object if C++ started the operation, but look it up when they wait; it is
        # kept alive until then.
        self._held = held
        held[id(self)] = self
        if len(held) > _HELD_MAX:
            del held[next(iter(held))]

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Waits until the operation ends, and raises its exception. After TimedOut the operation continues."""
        self._work.wait(timeout.total_seconds() if timeout > _NO_TIMEOUT else None)
        self._settle()
        return True

    def synchronize(self) -> None:
        """As wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the operation has ended, successfully or not. Does not block."""
        if self._work.is_completed() and self._work._future.exception() is None:
            self._settle()
        return self._work.is_completed()

    def is_success(self) -> bool:
        """Whether the operation has succeeded."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The exception of the operation, if it has ended with one."""
        return self._work._future.exception() if self._work.is_completed() else None

    def result(self) -> list[Any]:
        """Waits until the operation ends, and returns the tensors that it wrote."""
        self.wait()
        return self._outputs

    def get_future(self) -> Any:
        """Returns a torch.futures.Future of the tensors. Callbacks run on a separate thread: they may start other operations, in the same
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
        raise InvalidUse(f"the backend rdmc has no {name}: use a group of another backend, such as new_group(backend='gloo')")

    return refuse


class ProcessGroup(_c10d.ProcessGroup):  # type: ignore[misc]
    """The torch.distributed backend ``rdmc``. Torch's functions call its methods with their arguments; all return at once.

    Tensors are on the CPU, with any strides. Invalid arguments raise InvalidUse before anything is sent.
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
        # Starts the group's thread, which also closes the group: a program that ends can start no thread.
        group._calls.start(lambda: None)

    def getBackendName(self) -> str:
        """Returns the name for init_process_group."""
        return "rdmc"

    # Newer versions of torch set a name and a description, and read them.

    def setGroupName(self, name: str) -> None:
        """Called by torch."""
        self._name = name

    def getGroupName(self) -> str:
        """Returns the value that torch has set."""
        return self._name

    def setGroupDesc(self, description: str) -> None:
        """Called by torch."""
        self._description = description

    def getGroupDesc(self) -> str:
        """Returns the value that torch has set."""
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
        """torch.distributed.all_reduce_coalesced: several tensors of one type, in one operation."""
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
        """torch.distributed.all_gather_coalesced: a list for each rank, each with as many tensors as ``inputs``."""
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
        """torch.distributed.gather_single, in newer versions: as gather, into one tensor."""
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
        """destroy_process_group, in newer versions; older versions drop their references."""
        _destroyed(self._group)

    def abort(self) -> None:
        """Fails all operations, at all members."""
        self._group._calls.abort_quietly("its process group was aborted")

    # Names in older and newer versions of torch.
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
        """``copies``: the caller's tensors, each with the memory that the operation used, which may be the tensor's own."""
        left = [(tensor, memory) for tensor, memory in copies if tensor.data_ptr() != memory.data_ptr()]

        def finish() -> None:
            for tensor, memory in left:
                tensor.detach().copy_(memory.reshape(tensor.shape))

        return Work(work, outputs, finish if left else None, self._held)

    def _gathered(self, output_lists: list[list[Any]], inputs: list[Any]) -> tuple[Any, Any, list[Any]]:
        """Returns this rank's part, memory for all parts, and the tensors to which the parts are then copied."""
        size = self._group.size
        if len(output_lists) != size:
            raise InvalidUse(f"there are {len(output_lists)} outputs; pass one for each of {size} ranks")
        for outputs in output_lists:
            _check_alike(outputs, inputs)
            for output in outputs:
                _check(output, is_written=True)
        part = _flat(inputs)
        return part, torch.empty(size * part.numel(), dtype=part.dtype), [output for outputs in output_lists for output in outputs]

    def _of_all_ranks(self, inputs: list[Any], output: Any) -> Any:
        """Returns one tensor that contains the tensors of all ranks, in rank order."""
        size = self._group.size
        if len(inputs) != size:
            raise InvalidUse(f"there are {len(inputs)} inputs; pass one for each of {size} ranks")
        _check_alike(inputs, [output] * size)
        return _flat(inputs)


def _only(given: Sequence[Any]) -> Any:
    if len(given) != 1:
        raise InvalidUse(f"there are {len(given)} tensors or lists of them: pass one, as each process has one device")
    return given[0]


def _check_alike(tensors: Sequence[Any], others: Sequence[Any]) -> None:
    """Raises InvalidUse unless the tensors have the same types and lengths as the others."""
    found, expected = ([(tensor.numel(), tensor.dtype) for tensor in some] for some in (tensors, others))
    if found != expected:
        raise InvalidUse(f"the tensors have elements and types {found}, not {expected}: those of all ranks must be alike")


def _check(tensor: Any, is_written: bool) -> None:
    """Raises InvalidUse for a tensor that cannot be sent, or with ``is_written`` not be received into."""
    if tensor.layout is not torch.strided:
        raise InvalidUse(f"the tensor's layout is {tensor.layout}: use tensor.to_dense()")
    if tensor.device.type != "cpu":
        raise InvalidUse(f"the tensor is on {tensor.device}, and the backend rdmc is for the CPU: use tensor.cpu(), or nccl")
    if is_written and any(length > 1 and stride == 0 for length, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise InvalidUse("the tensor was expanded, so that its elements share memory: use tensor.contiguous()")


def _dense(tensor: Any, is_written: bool = False) -> Any:
    """Returns the tensor if it is contiguous, otherwise a contiguous copy. Raises InvalidUse as _check."""
    _check(tensor, is_written)
    return tensor.detach().contiguous()


def _flat(tensors: Sequence[Any], is_written: bool = False) -> Any:
    """Returns the elements of all tensors in one tensor, without a copy if there is only one and it is contiguous."""
    flat = [_dense(tensor, is_written).reshape(-1) for tensor in tensors]
    if len({tensor.dtype for tensor in flat}) != 1:
        raise InvalidUse(f"the tensors are of types {', '.join(sorted({str(tensor.dtype) for tensor in flat}))}: pass tensors of one type")
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def _parts_of(flat: Any, tensors: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True))


def _limit(opts: Any) -> float | None:
    timeout = getattr(opts, "timeout", _NO_TIMEOUT)
    return timeout.total_seconds() if timeout > _NO_TIMEOUT else None


# Process groups that have not ended, with the threads that end destroyed ones.
_live: dict[Group, threading.Thread | None] = {}


@cache
def _watch_the_end() -> None:
    # Only after a group was created: handlers registered later run first, and the group's own handler would abort it. Processes of
    # multiprocessing do not run atexit handlers, but run finalizers.
    atexit.register(_program_ends)
    multiprocessing.util.Finalize(None, _program_ends, exitpriority=100)


def _destroyed(group: Group) -> None:
    """Ends a group that torch has dropped, on a thread, because this may interrupt any code. The program waits for the thread."""
    if group not in _live or _live[group] is not None:
        return
    thread = threading.Thread(target=_end, args=(group,), name="rdmc-end")
    _live[group] = thread
    try:
        thread.start()
    except RuntimeError:
        # The program ends, and can start no thread.
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
    """Closes a group with the other members if they close it in time, so that all data that they wait for is sent. All operations of this
    process have reported their results, so a later failure of other members is no error here."""
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
    """Registers ``rdmc`` as a torch.distributed backend. Does nothing the second time."""
    registering = _distributed.Backend.register_backend
    if not hasattr(_distributed.Backend, "RDMC"):
        # Newer versions of torch take the devices.
        devices = {"devices": ["cpu"]} if "devices" in inspect.signature(registering).parameters else {}
        registering("rdmc", _make, extended_api=True, **devices)

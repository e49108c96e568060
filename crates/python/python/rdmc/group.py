"""Groups of processes that broadcast and reduce arrays in place."""

from __future__ import annotations

import os
import struct
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from rdmc._arrays import OnDevice, allocating, memory_of, on_device, reduction_of
from rdmc._calls import Calls, Work, integer, seconds
from rdmc._meeting import Meeting, Store
from rdmc._network import Network, addresses_of
from rdmc._rdmc import Endpoint
from rdmc._rdmc import Messages as _Messages
from rdmc._text import reason_of
from rdmc.errors import InvalidUse
from rdmc.messages import Message, Messages, MessagesSettings, Region

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["DEFAULT_TIMEOUT", "Counters", "Group", "Work"]

# The default timeout of an operation, in seconds.
DEFAULT_TIMEOUT = 600.0

# Each member's entry in Group.split: whether it has a color, the color, its key, and its address.
_ENTRY = struct.Struct("<?qq64s")
_KEY_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class Counters:
    """Counters of a group in this process. ``operations``: completed operations on arrays. ``bytes_sent``, ``bytes_received``: payload to
    and from other members, without messages so small that they are sent to all members at once."""

    operations: int
    bytes_sent: int
    bytes_received: int


class Group:
    """A group of processes that call operations together: all in the same order, with arrays of the same length.

    Arrays are numpy arrays, torch tensors on the CPU, or any object with a writable, contiguous buffer or DLPack. They are changed in
    place and must not be used or resized while an operation runs. Calls block and release the interpreter. An exception from a signal
    handler (Ctrl-C) ends the call and the group. A call that has raised an exception no longer uses its array. An operation
    that fails at one member fails at all, with MemberLost and the rank; the group is unusable afterwards. InvalidUse is raised before
    anything is sent.

    broadcast and all_reduce also take arrays in memory of NVIDIA GPUs: torch tensors, and objects with ``__cuda_array_interface__`` and
    ``__dlpack_device__``. In that case the arrays of all members are on GPUs. An operation runs after work queued on the array's stream
    before, and work queued after the call (or Work.wait) sees the result; the host does not wait for the last copies.

    Calls are allowed on any thread; concurrent calls are serialized. Calls are refused in a child of fork, and in a
    signal handler that interrupted a call on its thread; such a handler may abort the group or raise an exception. A group that is not
    closed ends with the program, which does not wait for its operations.
    """

    def __init__(
        self,
        rank: int,
        members: Sequence[str],
        secret: str,
        *,
        number: int = 1,
        fabric: str | None = None,
        protection: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Joins a group, together with all other members; blocks until all have joined.

        ``members``: the address of each rank ("10.0.0.1:7000"), the same at all members. ``secret``: 64 hexadecimal digits that only the
        members know (rdmc.random_secret). ``number``: below 2**32, unique among the groups of these addresses. ``fabric``: tcp,
        verbs, shm ... ``protection``: encrypt, which refuses networks that do not encrypt, or none; by default blocks over TCP are
        encrypted. ``timeout``: for joining and for each operation, in seconds; None: 600.
        """
        addresses = addresses_of(members)
        rank = integer("rank", rank, 0, len(addresses) - 1)
        network = Network(number, fabric, protection, seconds(timeout, DEFAULT_TIMEOUT), secret)
        self._set_up(network, network.listen(addresses[rank]), rank, len(addresses))
        self._join(addresses, network.timeout)

    @classmethod
    def from_env(
        cls,
        store: Store | str | os.PathLike[str] | Any | None = None,
        *,
        number: int = 1,
        fabric: str | None = None,
        protection: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Group:
        """Joins the processes started by torchrun, mpirun or srun.

        Members meet through a store: an object with ``set`` and ``get`` (torch.distributed.TCPStore ...), an mpi4py communicator, or the
        path of a directory that all members can reach (default: the environment variable RDMC_STORE). A store may be used for several
        groups in succession, in later runs as well; groups formed at the same time, by threads, need different numbers. Anyone who can
        read the store learns the secret, unless RDMC_SECRET is set. Each member listens on its own port, at RDMC_IP or the address
        toward MASTER_ADDR or other networks; at a loopback address only if all members are on one host.
        """
        network = Network(number, fabric, protection, seconds(timeout, DEFAULT_TIMEOUT))
        return cls._of(Meeting(store, network.number, network.timeout), network)

    @classmethod
    def _of(cls, meeting: Meeting, network: Network) -> Group:
        """Joins the processes of a meeting."""

        def exchanged(address: str) -> tuple[int, list[str]]:
            return meeting.rank, meeting.exchange("address", address)

        with meeting.telling("address"):
            return cls._meet(replace(network, secret=meeting.secret), meeting.ip, exchanged, network.timeout)

    @classmethod
    def _meet(cls, network: Network, ip: str, exchanged: Callable[[str], tuple[int, list[str]]], limit: float) -> Group:
        """Joins processes within ``limit`` seconds. ``exchanged`` takes this process's address and returns its rank and all addresses."""
        until = time.monotonic() + limit
        endpoint = network.listen(f"[{ip}]:0" if ":" in ip else f"{ip}:0")
        try:
            rank, members = exchanged(endpoint.address)
        except BaseException:
            endpoint.drop()
            raise
        group = cls.__new__(cls)
        group._set_up(network, endpoint, rank, len(members))
        group._join(members, until - time.monotonic())
        return group

    def _set_up(self, network: Network, endpoint: Endpoint, rank: int, size: int) -> None:
        self._network = network
        self._endpoint = endpoint
        self._calls = Calls(endpoint)
        self._timeout = network.timeout
        # Messages whose receive loop was left; the next call ends them.
        self._left: list[Messages] = []
        self.rank = rank
        self.size = size
        weakref.finalize(self, self._calls.at_exit)

    def _join(self, members: list[str], limit: float) -> None:
        self._members, self._opened = members, 0
        try:
            self._calls.run(lambda: self._endpoint.join(self._network.number, members, self.rank, limit))
        except BaseException:
            self._endpoint.drop()
            raise

    @overload
    def broadcast(self, array: Any, root: int = 0, *, timeout: float | None = None, async_op: Literal[False] = False) -> None: ...
    @overload
    def broadcast(self, array: Any, root: int = 0, *, timeout: float | None = None, async_op: Literal[True]) -> Work: ...
    def broadcast(self, array: Any, root: int = 0, *, timeout: float | None = None, async_op: bool = False) -> Work | None:
        """Replaces the array at all members by the root's, which may be read-only. ``async_op``: returns a Work at once."""
        root = self._rank_of(root)
        is_written = root != self.rank
        if (found := on_device(array, is_written)) is not None:
            return self._run([], lambda limit: self._on_device(found, root, None, limit), timeout, async_op)
        memory, _ = memory_of(array, is_written)
        return self._run([memory], lambda limit: self._endpoint.broadcast(memory, root, limit), timeout, async_op)

    @overload
    def all_reduce(self, array: Any, op: Any = "sum", *, timeout: float | None = None, async_op: Literal[False] = False) -> None: ...
    @overload
    def all_reduce(self, array: Any, op: Any = "sum", *, timeout: float | None = None, async_op: Literal[True]) -> Work: ...
    def all_reduce(self, array: Any, op: Any = "sum", *, timeout: float | None = None, async_op: bool = False) -> Work | None:
        """Replaces each element at all members by its combination over all members.

        ``op``: sum, prod, min or max; for integers also band, bor and bxor; for floating point also avg (the sum, which must not overflow,
        divided by the number of members); or a torch.distributed.ReduceOp. For bool, sum and max are "or", prod and min are "and".
        The result has the same bits at all members.
        """
        if (found := on_device(array)) is not None:
            device = reduction_of(found.element, op)
            if device.is_mean:
                raise InvalidUse("op is avg, and the array is on a GPU: use sum, and divide")
            return self._run([], lambda limit: self._on_device(found, None, device.codes, limit), timeout, async_op)
        memory, element = memory_of(array, is_written=True)
        reduction = reduction_of(element, op)

        def operation(limit: float) -> None:
            self._endpoint.reduce(memory, reduction.codes, reduction.is_mean, None, False, limit)
            reduction.finish(memory, self.size)

        return self._run([memory], operation, timeout, async_op)

    @overload
    def reduce(
        self, array: Any, root: int = 0, op: Any = "sum", *, timeout: float | None = None, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def reduce(
        self, array: Any, root: int = 0, op: Any = "sum", *, timeout: float | None = None, async_op: Literal[True]
    ) -> Work: ...
    def reduce(
        self, array: Any, root: int = 0, op: Any = "sum", *, timeout: float | None = None, async_op: bool = False
    ) -> Work | None:
        """As all_reduce, with the result at the root only; at other members the array does not change."""
        root = self._rank_of(root)
        memory, element = memory_of(array, is_written=True)
        reduction = reduction_of(element, op)

        def operation(limit: float) -> None:
            self._endpoint.reduce(memory, reduction.codes, reduction.is_mean, root, False, limit)
            if root == self.rank:
                reduction.finish(memory, self.size)

        return self._run([memory], operation, timeout, async_op)

    @overload
    def all_gather_in_place(self, parts: Any, *, timeout: float | None = None, async_op: Literal[False] = False) -> None: ...
    @overload
    def all_gather_in_place(self, parts: Any, *, timeout: float | None = None, async_op: Literal[True]) -> Work: ...
    def all_gather_in_place(self, parts: Any, *, timeout: float | None = None, async_op: bool = False) -> Work | None:
        """Collects the parts of all members in an array, in rank order. This member's part is in its place before the call.

        All parts have the same length: the array's length divided by the number of members.
        """
        memory, _ = memory_of(parts, is_written=True)
        if memory.nbytes % self.size != 0:
            raise InvalidUse(f"the array has {memory.nbytes} bytes, which are not {self.size} parts of equal length, one for each rank")
        return self._run([memory], lambda limit: self._endpoint.all_gather(memory, limit), timeout, async_op)

    @overload
    def all_gather(self, out: Any, part: Any, *, timeout: float | None = None, async_op: Literal[False] = False) -> None: ...
    @overload
    def all_gather(self, out: Any, part: Any, *, timeout: float | None = None, async_op: Literal[True]) -> Work: ...
    def all_gather(self, out: Any, part: Any, *, timeout: float | None = None, async_op: bool = False) -> Work | None:
        """Collects the parts of all members in ``out``, in rank order.

        Costs as much as all_gather_in_place and a copy of this member's part.
        """
        whole, own, place, _ = self._whole_and_part(memory_of(out, is_written=True), memory_of(part))

        def operation(limit: float) -> None:
            whole[place] = own
            self._endpoint.all_gather(whole, limit)

        return self._run([whole, own], operation, timeout, async_op)

    @overload
    def gather(
        self, part: Any, out: Any = None, root: int = 0, *, timeout: float | None = None, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def gather(
        self, part: Any, out: Any = None, root: int = 0, *, timeout: float | None = None, async_op: Literal[True]
    ) -> Work: ...
    def gather(
        self, part: Any, out: Any = None, root: int = 0, *, timeout: float | None = None, async_op: bool = False
    ) -> Work | None:
        """As all_gather, with the result at the root only; other members pass no ``out``."""
        found = memory_of(part)
        own, root = found[0], self._rank_of(root)
        if root != self.rank:
            return self._run([own], lambda limit: self._endpoint.gather(own, root, limit), timeout, async_op)
        if out is None:
            raise InvalidUse("the root must pass memory for the parts: gather(part, out)")
        whole, own, place, _ = self._whole_and_part(memory_of(out, is_written=True), found)

        def operation(limit: float) -> None:
            whole[place] = own
            self._endpoint.gather(whole, root, limit)

        return self._run([whole, own], operation, timeout, async_op)

    @overload
    def scatter(
        self, out: Any, parts: Any = None, root: int = 0, *, timeout: float | None = None, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def scatter(
        self, out: Any, parts: Any = None, root: int = 0, *, timeout: float | None = None, async_op: Literal[True]
    ) -> Work: ...
    def scatter(
        self, out: Any, parts: Any = None, root: int = 0, *, timeout: float | None = None, async_op: bool = False
    ) -> Work | None:
        """Sends each member its part of the root's array, in rank order; other members pass no ``parts``."""
        found = memory_of(out, is_written=True)
        own, root = found[0], self._rank_of(root)
        if root != self.rank:
            return self._run([own], lambda limit: self._endpoint.scatter(own, root, limit), timeout, async_op)
        if parts is None:
            raise InvalidUse("the root must pass the parts: scatter(out, parts)")
        whole, own, place, _ = self._whole_and_part(memory_of(parts), found)

        def operation(limit: float) -> None:
            self._endpoint.scatter(whole, root, limit)
            own[:] = whole[place]

        return self._run([whole, own], operation, timeout, async_op)

    @overload
    def reduce_scatter(
        self, out: Any, parts: Any, op: Any = "sum", *, timeout: float | None = None, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def reduce_scatter(
        self, out: Any, parts: Any, op: Any = "sum", *, timeout: float | None = None, async_op: Literal[True]
    ) -> Work: ...
    def reduce_scatter(
        self, out: Any, parts: Any, op: Any = "sum", *, timeout: float | None = None, async_op: bool = False
    ) -> Work | None:
        """Combines the arrays of all members; each member gets its part of the result, in rank order. ``op`` as in all_reduce.

        Takes temporary memory for a copy of the whole array.
        """
        found = memory_of(out, is_written=True)
        whole, own, place, element = self._whole_and_part(memory_of(parts), found)
        reduction = reduction_of(element, op)

        def operation(limit: float) -> None:
            with allocating(whole.nbytes):
                combined = memoryview(bytearray(whole))
            self._endpoint.reduce(combined, reduction.codes, reduction.is_mean, None, True, limit)
            own[:] = combined[place]
            reduction.finish(own, self.size)

        return self._run([whole, own], operation, timeout, async_op)

    def _whole_and_part(
        self, whole: tuple[memoryview, str], part: tuple[memoryview, str]
    ) -> tuple[memoryview, memoryview, slice, str]:
        """Returns the array of all parts, this member's part, the part's slice of the array, and the element type of both.

        Raises InvalidUse if their types or lengths do not match.
        """
        (all_parts, element), (own, own_element) = whole, part
        if own_element != element:
            raise InvalidUse(f"the part has elements of type {own_element}, the array of all parts of type {element}: use one type")
        if all_parts.nbytes != own.nbytes * self.size:
            raise InvalidUse(f"the array of all parts has {all_parts.nbytes} bytes, which are not {self.size} parts of {own.nbytes} bytes")
        return all_parts, own, slice(self.rank * own.nbytes, (self.rank + 1) * own.nbytes), element

    @overload
    def barrier(self, *, timeout: float | None = None, async_op: Literal[False] = False) -> None: ...
    @overload
    def barrier(self, *, timeout: float | None = None, async_op: Literal[True]) -> Work: ...
    def barrier(self, *, timeout: float | None = None, async_op: bool = False) -> Work | None:
        """Waits until all members have called this."""
        return self._run([], lambda limit: self._endpoint.barrier(limit), timeout, async_op)

    def broadcast_bytes(self, data: ReadableBuffer | None = None, root: int = 0, *, timeout: float | None = None) -> bytes:
        """Returns the root's bytes, passed as any buffer; other members pass none and need not know the length.

        Raises MemoryError, which ends the group, at a member that cannot allocate memory for the bytes.
        """
        found: list[bytes] = []
        self._broadcast_bytes(data, root, found.append, timeout, async_op=False)
        return found[0]

    def _broadcast_bytes(
        self, data: ReadableBuffer | None, root: int, take: Callable[[bytes], None], timeout: float | None, async_op: bool
    ) -> Work | None:
        """As broadcast_bytes; ``take`` is called with the bytes before the operation ends."""
        is_root = self._rank_of(root) == self.rank
        if is_root and data is None:
            raise InvalidUse("the root must pass the bytes: broadcast_bytes(data)")
        memory = memory_of(data)[0] if is_root else memoryview(b"")

        def operation(limit: float) -> None:
            told = bytearray(memory.nbytes.to_bytes(8, "little"))
            self._endpoint.broadcast(told, root, limit)
            length = int.from_bytes(told, "little")
            with allocating(length):
                content = memory if is_root else bytearray(length)
            self._endpoint.broadcast(content, root, limit)
            with allocating(length):
                take(bytes(content))

        return self._run([memory], operation, timeout, async_op)

    def split(self, color: int | None, key: int = 0, *, timeout: float | None = None) -> Group | None:
        """Returns a group of the members with the same color, ordered by key, and by rank where keys are equal; None for color None.

        All members call this, in the same order as operations. The new group has its own connections, on new ports, and the secret,
        fabric, protection and timeout of this group; either group may end first. ``timeout``: for this call, joining included. A failure
        before all members have exchanged their colors also ends this group; a later failure does not.
        """
        color = None if color is None else integer("color", color, -_KEY_MAX, _KEY_MAX)
        key = integer("key", key, -_KEY_MAX, _KEY_MAX)
        limit = seconds(timeout, self._timeout)
        if color is None:
            self._tell_color(None, 0, "", limit)
            return None
        is_told = False

        def exchanged(address: str) -> tuple[int, list[str]]:
            nonlocal is_told
            is_told = True
            chosen = self._tell_color(color, key, address, limit)
            return [rank for _, rank, _ in chosen].index(self.rank), [at for _, _, at in chosen]

        try:
            ip = self._endpoint.address.rpartition(":")[0].strip("[]")
            return Group._meet(self._network, ip, exchanged, limit)
        except BaseException as error:
            if not is_told:
                # The other members wait for this one.
                self._calls.abort_quietly(reason_of(type(error), error))
            raise

    def _tell_color(self, color: int | None, key: int, address: str, limit: float) -> list[tuple[int, int, str]]:
        """Exchanges colors; returns keys, ranks and addresses of the members with the same color, in order."""
        entries = bytearray(_ENTRY.size * self.size)
        _ENTRY.pack_into(entries, _ENTRY.size * self.rank, color is not None, color or 0, key, address.encode())
        self.all_gather_in_place(entries, timeout=limit)
        return sorted(
            (other_key, rank, at.rstrip(b"\0").decode())
            for rank, (has_color, other, other_key, at) in enumerate(_ENTRY.iter_unpack(entries))
            if has_color and other == color
        )

    def messages(
        self,
        root: int = 0,
        *,
        algorithm: str = "auto",
        message_bytes: int | None = None,
        block_bytes: int | None = None,
        posted: bool = False,
        verify: bool = False,
        timeout: float | None = None,
    ) -> Messages:
        """Connects all processes for messages from one of them, the root.

        All members call this, in the same order as operations, and close the result before the group. ``algorithm``: a name as printed by
        `rdmc plan`; with ``auto`` the root chooses the fastest. ``block_bytes``: the block length; by default the root chooses the fastest.
        ``message_bytes``: the length of a typical message, for the root's choices (default 16 MiB). ``messages.algorithm`` and
        ``messages.block_bytes`` have the choices. ``posted``: each message waits for memory that this process passes to post; otherwise
        messages get memory as soon as they are announced, possibly before a post. ``verify``, the same at all members: each process
        compares its copies with the root's by a digest, and rdmc.Differs names the one whose copy differs. ``timeout``: for joining, and
        the default for the calls of the result.
        """
        settings = MessagesSettings(root, algorithm, message_bytes, block_bytes, bool(posted), bool(verify))
        limit = seconds(timeout, self._timeout)
        self._end_left()
        messages = Messages(self, self._open_messages(settings, limit), root, limit)
        self._calls.messages.add(messages)
        return messages

    def receive(self, root: int = 0, *, timeout: float | None = None) -> Iterator[Message]:
        """Iterates over messages from the root, which sends them through messages(), until the root closes its messages.

        A member that leaves the loop early still relays: the next call of the group waits until the root has sent all messages.
        """
        messages = self.messages(root, timeout=timeout)
        try:
            yield from messages
        except GeneratorExit:
            # Possibly because of an exception, which the other members learn when the group ends.
            self._left.append(messages)
        except BaseException as error:
            messages.__exit__(type(error), error, None)
            raise
        else:
            messages.close()

    def register(self, array: Any) -> Region:
        """Registers an array's memory with the network, so that no message waits for that. send and post accept the result and its parts.

        Pins the memory, about 100 ms per GB, until the result and its parts are freed. Without this call, memory is registered when a
        message first uses it. Over TCP nothing is registered. Operations on arrays do not need it: they use memory of the library.
        """
        memory, _ = memory_of(array)
        self._calls.check()
        return Region(self._endpoint.register(memory, not memory.readonly), memory.readonly)

    def _open_messages(self, settings: MessagesSettings, limit: float) -> _Messages:
        self._rank_of(settings.root)

        def join() -> _Messages:
            number = self._network.number << 32 | (self._opened + 1)
            try:
                inner = self._endpoint.messages(number, self._members, self.rank, settings, limit)
            except InvalidUse:
                # The other members have not seen this number.
                raise
            except BaseException:
                self._opened += 1
                raise
            self._opened += 1
            return inner

        return self._calls.open(join)

    def _end_left(self) -> None:
        self._calls.check()
        while self._left:
            self._left.pop().close()

    def _rank_of(self, root: int) -> int:
        return integer("root", root, 0, self.size - 1)

    def counters(self) -> Counters:
        """Returns the counters, without an operation that is running. Raises InvalidUse once the group is closed."""
        self._calls.check()
        return Counters(*self._endpoint.counters())

    def abort(self, reason: str = "its program gave up") -> None:
        """Fails the group at all members, with this reason. Operations on other threads end."""
        self._calls.abort(reason)

    def close(self, timeout: float | None = None) -> None:
        """Closes the group once all members have called this. Success means that all operations have succeeded at all members.

        After an operation has raised MemberLost, close only frees the group's resources.
        """
        limit = seconds(timeout, self._timeout)
        if not self._calls.is_open():
            return
        try:
            self._end_left()
        except BaseException as error:
            self._calls.leave(reason_of(type(error), error))
            raise
        self._calls.close(limit)

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        # The other members learn why this member leaves, instead of waiting for it.
        self._calls.leave(reason_of(kind, error))
        self._left.clear()

    def _on_device(self, array: OnDevice, root: int | None, codes: tuple[int, int] | None, limit: float) -> None:
        self._endpoint.on_device(array.place, root, codes, limit, os.environ.get("RDMC_CUDA_LIBRARY"))

    def _run(
        self, memories: Sequence[memoryview], operation: Callable[[float], None], timeout: float | None, async_op: bool
    ) -> Work | None:
        limit = seconds(timeout, self._timeout)
        self._end_left()

        def call() -> None:
            try:
                operation(limit)
            finally:
                # The arrays may be resized once the operation has ended.
                for memory in memories:
                    memory.release()

        if async_op:
            return self._calls.start(call)
        self._calls.run(call)
        return None

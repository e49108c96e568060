"""Groups of processes that broadcast and reduce arrays in place."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from types import TracebackType
from typing import Any

from rdmc._arrays import OnDevice, codes_of, memory_of, on_device
from rdmc._meeting import Meeting, Store
from rdmc._rdmc import Endpoint
from rdmc._rdmc import Messages as _Messages
from rdmc.errors import InvalidUse, TimedOut
from rdmc.messages import Message, Messages, MessagesSettings

# What an operation may take, in seconds, unless something else is said.
DEFAULT_TIMEOUT = 600.0


class Work:
    """An operation that was started; see ``async_op``."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    def is_completed(self) -> bool:
        """Whether it has ended, well or not. Does not block."""
        return self._future.done()

    def wait(self, timeout: float | None = None) -> None:
        """Waits for its end, for at most so many seconds. Raises what has failed, or TimedOut (it goes on then)."""
        try:
            self._future.result(timeout)
        except FutureTimeout:
            if self._future.done():
                raise
            raise TimedOut(f"an operation has not ended in {timeout} s") from None


class Group:
    """Processes, one of each rank, that call operations together: all in the same order, with arrays of the same length.

    Arrays are numpy's, torch's (CPU), or anything with a writable, contiguous buffer or DLPack. They are changed in place, and must not be
    used or resized while an operation runs. Calls block, with the interpreter released; Ctrl-C ends them, and the group. An
    operation that fails at one member fails at all, as MemberLost with the rank; the group is of no use after that.

    broadcast and all_reduce also take arrays in memory of NVIDIA GPUs: tensors of torch, and what has ``__cuda_array_interface__`` and
    ``__dlpack_device__``. All members' are on GPUs then. What was queued on the array's stream comes first, and what is queued
    there after the call (after Work.wait) sees the result; the host does not wait for the last copies.

    Calls are allowed on any thread; those of several threads are made one after another.
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
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Joins a group, together with all other members; blocks until all are there.

        ``members``: the address of each rank ("10.0.0.1:7000"), the same everywhere. ``secret``: 64 hexadecimal digits that
        all members know and nobody else (rdmc.random_secret). ``number``: below 2**32, other than that of other groups of these
        addresses. ``fabric``: tcp, verbs, shm ... ``protection``: of TCP: none, authenticate
        or encrypt. ``timeout``: what joining and each operation may take, in seconds.
        """
        if not 0 <= rank < len(members):
            raise InvalidUse(f"rank is {rank}; use 0 to {len(members) - 1}")
        endpoint = Endpoint(members[rank], secret, fabric, protection, timeout)
        self._set_up(endpoint, rank, len(members), timeout)
        self._join(number, list(members))

    @classmethod
    def from_env(
        cls,
        store: Store | str | os.PathLike[str] | Any | None = None,
        *,
        number: int = 1,
        fabric: str | None = None,
        protection: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> Group:
        """Joins the processes that torchrun, mpirun or srun has started.

        Members meet by a store: an object with ``set`` and ``get`` (torch.distributed.TCPStore ...), a communicator of mpi4py, or the
        path of a directory that all can reach (default: the environment variable RDMC_STORE). Several groups may be made with one,
        one after another, also by another run; those that are made at the same time, by threads, need different numbers. Who can read the store
        learns the secret, unless RDMC_SECRET has it. Each member listens on a port of its own, on RDMC_IP or the address by which it
        reaches MASTER_ADDR or other networks; on one of loopback only if all are on one host.
        """
        meeting = Meeting(store, number, timeout)

        def exchanged(address: str) -> list[str]:
            return meeting.exchange("address", address)

        with meeting.telling("address"):
            return cls._meet(
                meeting.secret, meeting.ip, meeting.rank, meeting.size, exchanged, number, fabric, protection, timeout
            )

    @classmethod
    def _meet(
        cls,
        secret: str,
        ip: str,
        rank: int,
        size: int,
        exchanged: Callable[[str], list[str]],
        number: int,
        fabric: str | None,
        protection: str | None,
        timeout: float,
    ) -> Group:
        """Joins the processes whose addresses ``exchanged`` returns for that of this one."""
        listen = f"[{ip}]:0" if ":" in ip else f"{ip}:0"
        group = cls.__new__(cls)
        group._set_up(Endpoint(listen, secret, fabric, protection, timeout), rank, size, timeout)
        try:
            group._join(number, exchanged(group._endpoint.address))
        except BaseException:
            group._endpoint.drop()
            raise
        return group

    def _set_up(self, endpoint: Endpoint, rank: int, size: int, timeout: float) -> None:
        self._endpoint = endpoint
        self._timeout = timeout
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._has_failed = False
        self.rank = rank
        self.size = size

    def _join(self, number: int, members: list[str]) -> None:
        self._number, self._members, self._opened = number, members, 0
        try:
            self._endpoint.join(number, members, self.rank)
        except BaseException:
            self._endpoint.drop()
            raise

    def broadcast(self, array: Any, root: int = 0, *, timeout: float | None = None, async_op: bool = False) -> Work | None:
        """Replaces an array at all members by that of the root. ``async_op``: returns a Work at once."""
        if (found := on_device(array)) is not None:
            return self._run(lambda limit: self._on_device(found, root, None, limit), timeout, async_op)
        memory, _ = memory_of(array)
        return self._run(lambda limit: self._endpoint.broadcast(memory, root, limit), timeout, async_op)

    def all_reduce(self, array: Any, op: str = "sum", *, timeout: float | None = None, async_op: bool = False) -> Work | None:
        """Replaces each element at all members by its combination over all: sum, prod, min, max; integers: band, bor, bxor.

        All members have the same bits afterwards.
        """
        if (found := on_device(array)) is not None:
            device_codes = codes_of(found.element, op)
            return self._run(lambda limit: self._on_device(found, None, device_codes, limit), timeout, async_op)
        memory, element = memory_of(array)
        codes = codes_of(element, op)
        return self._run(lambda limit: self._endpoint.reduce(memory, codes, None, limit), timeout, async_op)

    def reduce(
        self, array: Any, root: int = 0, op: str = "sum", *, timeout: float | None = None, async_op: bool = False
    ) -> Work | None:
        """As all_reduce, with the result at the root; elsewhere the array does not change."""
        memory, element = memory_of(array)
        codes = codes_of(element, op)
        return self._run(lambda limit: self._endpoint.reduce(memory, codes, root, limit), timeout, async_op)

    def all_gather(self, array: Any, *, timeout: float | None = None, async_op: bool = False) -> Work | None:
        """Collects parts of an array: that of this member is at its place, and those of all others come to theirs.

        All parts have the same length: the array's, divided by the number of members.
        """
        memory, _ = memory_of(array)
        return self._run(lambda limit: self._endpoint.all_gather(memory, limit), timeout, async_op)

    def barrier(self, *, timeout: float | None = None, async_op: bool = False) -> Work | None:
        """Waits until all members have called this."""
        return self._run(self._endpoint.barrier, timeout, async_op)

    def broadcast_bytes(self, data: bytes | None = None, root: int = 0, *, timeout: float | None = None) -> bytes:
        """The bytes that the root has given; other members give none, and need not know the length."""
        if self.rank == root and data is None:
            raise InvalidUse("the root gives the bytes: broadcast_bytes(data)")
        length = bytearray(8)
        if data is not None and self.rank == root:
            length[:] = len(data).to_bytes(8, "little")
        self.broadcast(length, root, timeout=timeout)
        content = bytearray(int.from_bytes(length, "little"))
        if data is not None and self.rank == root:
            content[:] = data
        self.broadcast(content, root, timeout=timeout)
        return bytes(content)

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
        """Connects all processes for messages from one of them. All call this, in the same order as operations, and close it
        before the group.

        ``algorithm``: the name of one, as `rdmc plan` prints them; with ``auto`` the root takes the fastest. ``block_bytes``: how much
        is relayed at a time; otherwise what is fastest. ``message_bytes``: the length of a typical message, for these choices at the
        root (16 MiB). What was taken is in ``messages.algorithm`` and ``messages.block_bytes``. ``posted``: messages wait for memory
        that this process gives by post, one each; otherwise they get memory as soon as they are announced, which may be before.
        ``verify``, the same everywhere: each process compares its copies with the root's by a digest, and rdmc.Differs names one whose
        copy is another. ``timeout``: of its calls.
        """
        settings = MessagesSettings(root, algorithm, message_bytes, block_bytes, posted, verify)
        inner = self._open_messages(settings)
        return Messages(inner, self.rank, root, self._timeout if timeout is None else timeout)

    def receive(self, root: int = 0, *, timeout: float | None = None) -> Iterator[Message]:
        """Messages of the root, which sends them by messages(), until it closes that."""
        with self.messages(root, timeout=timeout) as messages:
            yield from messages

    def _open_messages(self, settings: MessagesSettings) -> _Messages:
        if not 0 <= settings.root < self.size:
            raise InvalidUse(f"root is {settings.root}; use 0 to {self.size - 1}")
        with self._lock:
            if self._is_closed:
                raise InvalidUse("the group is closed")
            self._opened += 1
            number = self._number << 32 | self._opened
        return self._endpoint.messages(number, self._members, self.rank, settings)

    def abort(self, reason: str = "its program gave up") -> None:
        """Makes the group fail at all members, for this reason. Operations on other threads end."""
        self._endpoint.abort(reason)

    def close(self, timeout: float | None = None) -> None:
        """Ends the group when all members have called this; success means that all operations have succeeded everywhere.

        After an operation has raised that the group has failed, it only frees what the group has.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self._executor is not None:
            self._executor.shutdown()
        if self._has_failed:
            self._endpoint.drop()
        else:
            self._endpoint.close(self._timeout if timeout is None else timeout)

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
        if not is_closed:
            # Others learn why this member leaves, instead of waiting for it.
            if not self._has_failed:
                self._endpoint.abort(f"{kind.__name__}: {error}")
            self._endpoint.drop()
            if self._executor is not None:
                self._executor.shutdown(wait=False)

    def _on_device(self, array: OnDevice, root: int | None, codes: tuple[int, int] | None, limit: float) -> None:
        self._endpoint.on_device(array.place, root, codes, limit, os.environ.get("RDMC_CUDA_LIBRARY"))

    def _run(self, operation: Callable[[float], None], timeout: float | None, async_op: bool) -> Work | None:
        limit = self._timeout if timeout is None else timeout

        def run() -> None:
            try:
                operation(limit)
            except InvalidUse:
                raise
            except BaseException:
                self._has_failed = True
                raise

        with self._lock:
            if self._is_closed:
                raise InvalidUse("the group is closed")
            if async_op and self._executor is None:
                # One thread: operations keep the order of their calls.
                self._executor = ThreadPoolExecutor(1, thread_name_prefix="rdmc")
            executor = self._executor
            future = None if executor is None else executor.submit(run)
        if future is None:
            run()
            return None
        if async_op:
            return Work(future)
        try:
            future.result()
        except KeyboardInterrupt:
            self._has_failed = True
            self._endpoint.abort("its application was interrupted")
            raise
        return None

"""Groups with one copy per host, in memory that the host's processes share."""

from __future__ import annotations

import copy
import fcntl
import mmap
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from io import FileIO
from types import TracebackType
from typing import Any

from rdmc._arrays import memory_of
from rdmc._calls import integer, seconds
from rdmc._channel import SHORTEST_WAIT, Channel, is_own
from rdmc._meeting import Meeting, Store
from rdmc._network import Network
from rdmc._text import as_utf8, reason_of
from rdmc.errors import Aborted, InvalidUse, MemberLost, Stalled, TimedOut
from rdmc.group import DEFAULT_TIMEOUT, Group

# The longest wait, some 24 days: the system counts milliseconds in 31 bits.
_WAIT_MAX = float((1 << 31) // 1000)


@dataclass(frozen=True)
class _Operation:
    """A call that all processes make. ``call``: its number in this process, so that an answer to another call is refused."""

    call: int
    name: str
    root: int
    seconds: float
    until: float

    def as_message(self) -> dict[str, Any]:
        """The message with which processes of one host announce the call."""
        return {"call": self.call, "operation": self.name, "root": self.root}

    def left(self) -> float:
        """The remaining time in seconds."""
        return max(self.until - time.monotonic(), SHORTEST_WAIT)


class HostGroup:
    """A group of processes on several hosts. Each host receives one copy, in memory that its processes share.

    On each host the process with the lowest rank, the leader, receives and relays, and passes the memory to the others over a Unix
    socket. The memory has no name in the file system and is freed with its last user, even after a crash.

    All processes make the same calls in the same order. Calls block, and only one thread at a time may call (any thread may call abort).
    A call that fails at one process, or is ended there by a signal or timeout, fails at all, with MemberLost and the rank; later calls
    raise the same. A child of fork cannot use the group.

    ``rank``, ``size``: the rank of this process, and the number of processes. ``host``, ``hosts``: the number of this process's host, and
    how many hosts there are. ``is_leader``: whether this process is the leader of its host.
    """

    rank: int
    size: int
    host: int
    hosts: int
    is_leader: bool
    _timeout: float
    _pid: int
    # Held by the call that runs.
    _running: threading.Lock
    # Held by the thread that ends the group; its signal handlers may take it again.
    _ending: threading.RLock
    _calls: int
    _is_closed: bool
    _failure: MemberLost | None
    # By host: the rank of its leader; by rank: its host.
    _leaders: list[int]
    _host_of: list[int]
    # At a leader: the connections to the other processes of its host, and the leaders' group. At others: the connection to the leader.
    _channels: list[Channel]
    _group: Group | None

    def __init__(self, *_: Any) -> None:
        raise InvalidUse("use HostGroup.from_env()")

    @classmethod
    def from_env(
        cls,
        store: Store | str | os.PathLike[str] | Any | None = None,
        *,
        number: int = 1,
        fabric: str | None = None,
        protection: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> HostGroup:
        """Joins the processes started by torchrun, mpirun or srun; as Group.from_env.

        Processes are on one host if they have the same kernel, network namespace and RDMC_HOST (unset counts as empty). Timeouts of more
        than 24 days, for calls as well, are reduced to 24 days.
        """
        limit = _seconds(timeout, DEFAULT_TIMEOUT)
        network = Network(number, fabric, protection, limit)
        meeting = Meeting(store, network.number, limit)
        self = cls.__new__(cls)
        self._set_up(meeting.rank, meeting.hosts, limit)
        try:
            with meeting.telling("leader"):
                if self.is_leader:
                    self._lead_host(meeting, replace(network, secret=meeting.secret))
                else:
                    self._follow(meeting)
            with self._operation("join", 0, timeout) as operation:
                self._run(operation, None, lambda _: None)
        except BaseException as error:
            self._end(error)
            self._free()
            raise
        return self

    def _set_up(self, rank: int, hosts: list[str], timeout: float) -> None:
        self.rank, self.size = rank, len(hosts)
        names = list(dict.fromkeys(hosts))
        self.hosts, self.host = len(names), names.index(hosts[rank])
        self._leaders = [hosts.index(name) for name in names]
        self._host_of = [names.index(host) for host in hosts]
        self.is_leader = self._leaders[self.host] == rank
        self._timeout, self._pid = timeout, os.getpid()
        self._running, self._ending = threading.Lock(), threading.RLock()
        self._calls, self._is_closed, self._failure = 0, False, None
        self._channels, self._group = [], None

    def _lead_host(self, meeting: Meeting, network: Network) -> None:
        followers = [rank for rank in range(self.size) if self._host_of[rank] == self.host and rank != self.rank]
        name = "rdmc-" + secrets.token_hex(16)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("\0" + name)
            listener.listen(len(followers) + 1)

            def exchanged(address: str) -> tuple[int, list[str]]:
                given = meeting.exchange("leader", f"{name} {address}")
                return self.host, [given[leader].split()[1] for leader in self._leaders]

            try:
                self._group = Group._meet(network, meeting.ip, exchanged, network.timeout)
                self._accept(listener, followers, time.monotonic() + self._timeout)
            except BaseException:
                # Processes that have connected receive the reason.
                with suppress(TimedOut):
                    self._accept(listener, followers, time.monotonic())
                raise

    def _accept(self, listener: socket.socket, followers: list[int], until: float) -> None:
        while missing := sorted(set(followers) - {channel.rank for channel in self._channels}):
            listener.settimeout(max(until - time.monotonic(), SHORTEST_WAIT))
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                raise TimedOut(f"ranks {', '.join(map(str, missing))} of this host have not joined") from None
            rank = _rank_of(connection, until)
            if rank in missing:
                self._channels.append(Channel(connection, rank))
            else:
                connection.close()

    def _follow(self, meeting: Meeting) -> None:
        leader = self._leaders[self.host]
        name = meeting.exchange("leader", "")[leader].split()[0]
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channels.append(Channel(connection, leader))
        connection.settimeout(self._timeout)
        try:
            connection.connect("\0" + name)
            connection.send(self.rank.to_bytes(8, "little"))
        except OSError as error:
            raise MemberLost(leader, f"rank {leader}, the leader of this host, has ended ({error})") from None
        if not is_own(connection):
            raise InvalidUse("the leader of this host runs as another user")

    def broadcast(self, data: Any | None = None, root: int = 0, *, writable: bool = False, timeout: float | None = None) -> memoryview:
        """Returns the bytes of the root's data (bytes or an array; other members pass none), in memory shared by the processes of a host.

        The memory is read-only; with ``writable``, pages that this process writes become private to it. It is valid as long as it is used.
        """
        root = integer("root", root, 0, self.size - 1)
        if (self.rank == root) != (data is not None):
            raise InvalidUse(f"the root, rank {root}, must pass the data, and no other rank")
        memory = None if data is None else memory_of(data)[0]
        with ExitStack() as files, self._operation("broadcast", root, timeout) as operation:
            if memory is not None:
                # The caller may resize the array afterwards, even if an exception still refers to this frame.
                files.enter_context(memory)
            own = None if memory is None else files.enter_context(_file_of(memory))
            received = self._run(operation, own, lambda given: self._broadcast(given, operation))
            if received is None:
                leader = self._channels[0].rank
                raise MemberLost(leader, f"rank {leader} sent no memory")
            return _mapped(files.enter_context(received), writable)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Waits until all processes have called this."""
        with self._operation("barrier", 0, timeout) as operation:
            self._run(operation, None, lambda _: self._barrier(operation))

    def abort(self, reason: str = "its program gave up") -> None:
        """Fails the group at all processes, with this reason. A call on another thread ends."""
        self._check_process()
        if self._is_closed:
            return
        self._end(Aborted(self.rank, as_utf8(f"rank {self.rank} ended the group: {reason}")))
        # Otherwise the running call frees the group's resources.
        if self._running.acquire(blocking=False):
            self._free()
            self._running.release()

    def close(self, timeout: float | None = None) -> None:
        """Closes the group once all processes have called this. Received memory remains valid. After a failure, only frees resources."""
        self._check_process()
        if self._is_closed:
            return
        with self._operation("close", 0, timeout) as operation:
            self._run(operation, None, lambda _: self._close(operation))
            self._is_closed = True
            self._free()

    def __enter__(self) -> HostGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif os.getpid() == self._pid:
            self.abort(reason_of(kind, error))

    @contextmanager
    def _operation(self, name: str, root: int, timeout: float | None) -> Iterator[_Operation]:
        """Runs a call that all processes make. An exception in it ends the group at all processes."""
        limit = _seconds(timeout, self._timeout)
        self._check_process()
        if not self._running.acquire(blocking=False):
            raise InvalidUse("another call of this group is running: make one call at a time")
        try:
            if self._failure is not None:
                raise copy.copy(self._failure)
            if self._is_closed:
                raise InvalidUse("the group is closed")
            self._calls += 1
            try:
                yield _Operation(self._calls, name, root, limit, time.monotonic() + limit)
            except BaseException as error:
                known = self._failure
                self._end(error)
                self._free()
                if known is not None:
                    # Another thread ended the group, which ended this call.
                    raise copy.copy(known) from error
                raise
        finally:
            self._running.release()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise InvalidUse("a group cannot be used in a child of fork: use multiprocessing's spawn")

    def _run(self, operation: _Operation, own: FileIO | None, lead: Callable[[FileIO | None], FileIO | None]) -> FileIO | None:
        """Runs an operation. Leaders call ``lead`` once all processes of their host have called it, and send them the result."""
        if not self.is_leader:
            return self._ask(operation, own)
        given = self._requested(operation)
        result = lead(own if own is not None else given)
        for channel in self._channels:
            channel.send(operation.as_message(), result, operation.left())
        return result

    def _requested(self, operation: _Operation) -> FileIO | None:
        """Waits until all processes of this host have called it; returns the root's file if the root is one of them."""
        given = None
        waiting = {channel.rank for channel in self._channels}
        with selectors.DefaultSelector() as selector:
            for channel in self._channels:
                selector.register(channel, selectors.EVENT_READ, channel)
            # A process that has called it sends no more, unless it ends the group.
            while ready := selector.select(operation.left() if waiting else 0):
                for key, _ in ready:
                    message, file = key.data.receive(operation.left())
                    self._check_message(key.data.rank, message, operation)
                    if (file is not None) != (operation.name == "broadcast" and key.data.rank == operation.root):
                        raise MemberLost(key.data.rank, f"rank {key.data.rank} sent no data, or data that was not requested")
                    given = given if file is None else file
                    waiting.discard(key.data.rank)
        if waiting:
            raise Stalled(min(waiting), f"rank {min(waiting)} did not call within {operation.seconds} s")
        return given

    def _ask(self, operation: _Operation, own: FileIO | None) -> FileIO | None:
        """At other processes than leaders: sends the call to the leader, and waits for its answer."""
        leader = self._channels[0]
        leader.send(operation.as_message(), own, operation.left())
        message, received = leader.receive(operation.left())
        self._check_message(leader.rank, message, operation)
        return received

    def _check_message(self, rank: int, message: dict[str, Any], operation: _Operation) -> None:
        own = operation.as_message()
        if message != own:
            raise Aborted(rank, f"rank {rank} called {_call_of(message)}, but rank {self.rank} called {_call_of(own)}")

    def _broadcast(self, file: FileIO | None, operation: _Operation) -> FileIO:
        """At a leader: broadcasts to the other leaders. ``file``: the data, on the root's host."""
        source = self._host_of[operation.root]
        length = bytearray(8)
        if file is not None:
            length[:] = _nbytes_of(file).to_bytes(8, "little")
        with self._leaders_named() as leaders:
            leaders.broadcast(length, source, timeout=operation.left())
        nbytes = int.from_bytes(length, "little")
        if file is None:
            file = _new_file(nbytes)
        if nbytes > 0:
            with mmap.mmap(file.fileno(), nbytes) as memory, self._leaders_named() as leaders:
                leaders.broadcast(memory, source, timeout=operation.left())
        _seal(file)
        return file

    def _barrier(self, operation: _Operation) -> None:
        with self._leaders_named() as leaders:
            leaders.barrier(timeout=operation.left())

    def _close(self, operation: _Operation) -> None:
        with self._leaders_named() as leaders:
            leaders.close(operation.left())

    @contextmanager
    def _leaders_named(self) -> Iterator[Group]:
        """Provides the leaders' group, and replaces host numbers in its errors by the leaders' ranks."""
        assert self._group is not None
        try:
            yield self._group
        except MemberLost as error:
            leader = None if error.rank is None else self._leaders[error.rank]
            raise type(error)(leader, f"rank {leader}: {error.reason}") from None

    def _end(self, error: BaseException) -> None:
        """Ends the group at all processes; the first cause is kept. When this returns, all have been notified."""
        with self._ending:
            if self._failure is not None:
                return
            told = Aborted(self.rank, as_utf8(f"rank {self.rank} ended the group: {reason_of(type(error), error)}"))
            self._failure = error if isinstance(error, MemberLost) else told
            self._is_closed = True
            for channel in self._channels:
                # A leader forwards any failure. Other processes got it from the leader, unless they caused it themselves.
                is_said = self.is_leader or (isinstance(error, MemberLost) and error.rank == self.rank)
                channel.end(self._failure if is_said else told)
            if self._group is not None:
                self._group.abort(self._failure.reason)

    def _free(self) -> None:
        if self._failure is not None and self._group is not None:
            self._group.__exit__(type(self._failure), self._failure, None)
        for channel in self._channels:
            channel.close()


def _seconds(timeout: float | None, default: float) -> float:
    """Returns a timeout that the system accepts, in seconds. Raises InvalidUse unless it is a number that is not negative."""
    found = seconds(timeout, default)
    if found < 0:
        raise InvalidUse(f"timeout is {timeout!r}; use 0 or more seconds")
    return min(found, _WAIT_MAX)


def _rank_of(connection: socket.socket, until: float) -> int:
    """Receives the rank of a process that has connected; -1 if it belongs to another user or has ended."""
    connection.settimeout(max(until - time.monotonic(), SHORTEST_WAIT))
    try:
        return int.from_bytes(connection.recv(8), "little") if is_own(connection) else -1
    except OSError:
        return -1


def _call_of(message: dict[str, Any]) -> str:
    return f"{message.get('operation')} with root {message.get('root')} as call {message.get('call')}"


def _new_file(nbytes: int) -> FileIO:
    file = FileIO(os.memfd_create("rdmc host", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+b")
    file.truncate(nbytes)
    return file


def _file_of(data: Any) -> FileIO:
    """Returns a memory file with these bytes."""
    content = memoryview(data).cast("B")
    file = _new_file(content.nbytes)
    if content.nbytes > 0:
        with mmap.mmap(file.fileno(), content.nbytes) as memory:
            memory[:] = content
    return file


def _nbytes_of(file: FileIO) -> int:
    return os.fstat(file.fileno()).st_size


def _seal(file: FileIO) -> None:
    """Seals a file: its bytes and its length can no longer change."""
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    try:
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_WRITE)
    except OSError:
        # An adapter may still have the memory registered for writing.
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)


def _mapped(file: FileIO, writable: bool) -> memoryview:
    nbytes = _nbytes_of(file)
    if nbytes == 0:
        return memoryview(bytearray() if writable else b"")
    if writable:
        return memoryview(mmap.mmap(file.fileno(), nbytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    return memoryview(mmap.mmap(file.fileno(), nbytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))

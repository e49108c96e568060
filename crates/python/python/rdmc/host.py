"""Groups with one copy for each host: its processes share memory."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import secrets
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rdmc import errors
from rdmc._arrays import memory_of
from rdmc._meeting import Store, exchange, rank_and_size, share_secret, store_of
from rdmc.errors import InvalidUse, MemberLost, Refused, TimedOut
from rdmc.group import DEFAULT_TIMEOUT, Group

# Longest message between processes of a host, in bytes; a longer reason is cut.
_MESSAGE_BYTES = 4096
_CREDENTIALS = struct.Struct("3i")


class HostGroup:
    """Processes on several hosts, of which each host receives one copy, in memory that its processes share.

    On each host the process with the lowest rank is the member that receives and relays; it hands the memory to the others, by a
    Unix socket. The memory has no name in the file system and is freed with its last user, also after a crash.

    All call the same operations in the same order; calls block and are made by one thread at a time. What fails at one process fails at
    all, as MemberLost with the rank.

    ``rank``, ``size``: of this process, and how many there are. ``host``, ``hosts``: the number of this process's host, and how many there
    are. ``is_leader``: whether this is the process that receives.
    """

    rank: int
    size: int
    host: int
    hosts: int
    is_leader: bool
    _timeout: float
    _is_closed: bool
    # By host: the rank of its leader; by rank: its host.
    _leaders: list[int]
    _host_of: list[int]
    # At a leader: the connections to the others of its host, by rank, and the group of the leaders.
    _followers: dict[int, socket.socket]
    _group: Group | None
    # At others.
    _leader: socket.socket | None

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
        timeout: float = DEFAULT_TIMEOUT,
    ) -> HostGroup:
        """Joins the processes that torchrun, mpirun or srun has started; as Group.from_env.

        Processes are on one host if they have the same kernel and network namespace, and the same RDMC_HOST, if that is set.
        """
        self = cls.__new__(cls)
        self.rank, self.size = rank_and_size(store)
        self._timeout, self._is_closed = timeout, False
        store = store_of(store, timeout)
        secret = share_secret(store, f"rdmc-{number}-secret", self.rank)
        hosts = exchange(store, f"rdmc-{number}-host", self.rank, self.size, _host())
        names = list(dict.fromkeys(hosts))
        self.hosts, self.host = len(names), names.index(hosts[self.rank])
        self._leaders = [hosts.index(name) for name in names]
        self._host_of = [names.index(host) for host in hosts]
        self.is_leader = self._leaders[self.host] == self.rank
        self._followers, self._leader, self._group = {}, None, None
        if self.is_leader:
            own = [rank for rank in range(self.size) if hosts[rank] == hosts[self.rank] and rank != self.rank]
            self._lead(store, secret, own, number, fabric, protection)
        else:
            self._follow(exchange(store, f"rdmc-{number}-leader", self.rank, self.size, "")[self._leaders[self.host]])
        return self

    def _lead(
        self, store: Any, secret: str, followers: list[int], number: int, fabric: str | None, protection: str | None
    ) -> None:
        name = "rdmc-" + secrets.token_hex(16)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("\0" + name)
            listener.listen(len(followers) + 1)

            def exchanged(address: str) -> list[str]:
                given = exchange(store, f"rdmc-{number}-leader", self.rank, self.size, f"{name} {address}")
                return [given[leader].split()[1] for leader in self._leaders]

            self._group = Group._meet(
                secret, self.host, self.hosts, exchanged, number, fabric, protection, self._timeout
            )
            try:
                while len(self._followers) < len(followers):
                    self._accept(listener, followers)
            except BaseException as error:
                self._group.__exit__(type(error), error, None)
                raise

    def _accept(self, listener: socket.socket, followers: list[int]) -> None:
        listener.settimeout(self._timeout)
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            missing = [str(rank) for rank in followers if rank not in self._followers]
            raise TimedOut(f"ranks {', '.join(missing)} of this host have not come") from None
        connection.settimeout(self._timeout)
        rank = int.from_bytes(connection.recv(8), "little") if _is_own(connection) else -1
        if rank in followers and rank not in self._followers:
            self._followers[rank] = connection
        else:
            connection.close()

    def _follow(self, leader: str) -> None:
        self._leader = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._leader.settimeout(self._timeout)
        self._leader.connect("\0" + leader.split()[0])
        if not _is_own(self._leader):
            raise InvalidUse("the leader of this host runs as another user")
        self._leader.send(self.rank.to_bytes(8, "little"))

    def broadcast(self, data: Any | None = None, root: int = 0, *, writable: bool = False, timeout: float | None = None) -> memoryview:
        """The bytes of the root's data (bytes or an array; others give none), in memory that the processes of a host share.

        Read-only, or with ``writable`` as a private copy of the pages that this process writes. It stays as long as it is used.
        """
        if not 0 <= root < self.size:
            raise InvalidUse(f"root is {root}; use 0 to {self.size - 1}")
        if (self.rank == root) != (data is not None):
            raise InvalidUse(f"the root, rank {root}, gives the data, and nobody else")
        file = None if data is None else _file_of(memory_of(data)[0])
        limit = self._timeout if timeout is None else timeout
        try:
            if self.is_leader:
                received = self._call("broadcast", root, limit, lambda given: self._broadcast(given or file, root, limit))
            else:
                received = self._ask("broadcast", root, file, limit)
        finally:
            if file is not None:
                os.close(file)
        assert received is not None
        try:
            return _mapped(received, writable)
        finally:
            os.close(received)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Waits until all have called this."""
        limit = self._timeout if timeout is None else timeout
        if self.is_leader:
            self._call("barrier", 0, limit, lambda _: self._barrier(limit))
        else:
            self._ask("barrier", 0, None, limit)

    def abort(self, reason: str = "its program gave up") -> None:
        """Ends the group at all, for this reason."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._group is not None:
            error = Refused(self.rank, f"rank {self.rank} has ended the group: {reason}")
            self._tell_failed(error)
            self._group.__exit__(Refused, Refused(None, str(error)), None)
        self._disconnect(reason)

    def close(self, timeout: float | None = None) -> None:
        """Ends the group when all have called this. Memory that was received stays."""
        if self._is_closed:
            return
        self.barrier(timeout=timeout)
        self._is_closed = True
        if self._group is not None:
            self._group.close(timeout)
        self._disconnect(None)

    def __enter__(self) -> HostGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort(f"{kind.__name__}: {error}")

    def _broadcast(self, file: int | None, root: int, limit: float) -> int:
        """At a leader, with the data's file on the root's host."""
        source = self._host_of[root]
        length = bytearray(8)
        if file is not None:
            length[:] = os.fstat(file).st_size.to_bytes(8, "little")
        with self._leaders_named() as leaders:
            leaders.broadcast(length, source, timeout=limit)
        nbytes = int.from_bytes(length, "little")
        file = os.dup(file) if file is not None else _new_file(nbytes)
        try:
            if nbytes > 0:
                with mmap.mmap(file, nbytes) as memory, self._leaders_named() as leaders:
                    leaders.broadcast(memory, source, timeout=limit)
            _seal(file)
        except BaseException:
            os.close(file)
            raise
        return file

    def _barrier(self, limit: float) -> None:
        with self._leaders_named() as leaders:
            leaders.barrier(timeout=limit)

    def _call(self, operation: str, root: int, limit: float, run: Callable[[int | None], int | None]) -> int | None:
        """At a leader: an operation, when all processes of this host have called it. What it returns is handed to them."""
        if self._is_closed:
            raise InvalidUse("the group is closed")
        given = None
        try:
            for rank, follower in self._followers.items():
                file = self._requested(rank, follower, operation, root, limit)
                given = file if file is not None else given
            result = run(given)
            for rank, follower in self._followers.items():
                self._send(rank, follower, {"done": operation}, result)
            return result
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            if given is not None:
                os.close(given)

    def _requested(self, rank: int, follower: socket.socket, operation: str, root: int, limit: float) -> int | None:
        message, file = self._receive(rank, follower, limit)
        if "abort" in message:
            raise Refused(rank, f"rank {rank} has ended the group: {message['abort']}")
        if message != {"operation": operation, "root": root}:
            raise Refused(rank, f"rank {rank} has called {message}, and rank {self.rank} {operation} with root {root}")
        return file

    def _ask(self, operation: str, root: int, file: int | None, limit: float) -> int | None:
        """At others: an operation, by the leader."""
        if self._is_closed or self._leader is None:
            raise InvalidUse("the group is closed")
        leader = self._leaders[self.host]
        try:
            _put(self._leader, {"operation": operation, "root": root}, file)
        except ConnectionError:
            # What the leader has said before it ended is received below.
            pass
        except OSError as error:
            raise MemberLost(leader, f"rank {leader} has ended ({error})") from None
        message, received = self._receive(leader, self._leader, limit)
        if "failed" in message:
            self._is_closed = True
            self._leader.close()
            kind = getattr(errors, message["failed"], MemberLost)
            raise kind(message["rank"], message["text"])
        return received

    def _send(self, rank: int, connection: socket.socket, message: dict[str, Any], file: int | None = None) -> None:
        try:
            _put(connection, message, file)
        except OSError as error:
            raise MemberLost(rank, f"rank {rank} has ended ({error})") from None

    def _receive(self, rank: int, connection: socket.socket, limit: float) -> tuple[dict[str, Any], int | None]:
        connection.settimeout(limit)
        try:
            try:
                content, files, _, _ = socket.recv_fds(connection, 2 * _MESSAGE_BYTES, 1)
            except ConnectionError:
                # Of an end that has not read all, the system tells before what came from it.
                content, files, _, _ = socket.recv_fds(connection, 2 * _MESSAGE_BYTES, 1)
        except TimeoutError:
            raise errors.Stalled(rank, f"rank {rank} was waited for longer than {limit} s") from None
        except OSError as error:
            raise MemberLost(rank, f"rank {rank} has ended ({error})") from None
        if not content:
            raise MemberLost(rank, f"rank {rank} has ended")
        return json.loads(content), files[0] if files else None

    @contextmanager
    def _leaders_named(self) -> Iterator[Group]:
        """The group of the leaders, whose errors name hosts by their numbers; with ranks instead."""
        assert self._group is not None
        try:
            yield self._group
        except MemberLost as error:
            leader = None if error.rank is None else self._leaders[error.rank]
            raise type(error)(leader, f"rank {leader}: {error.reason}") from None

    def _fail(self, error: BaseException) -> None:
        self._is_closed = True
        self._tell_failed(error)
        assert self._group is not None
        self._group.__exit__(type(error), error, None)
        self._disconnect(None)

    def _tell_failed(self, error: BaseException) -> None:
        is_known = isinstance(error, MemberLost)
        kind = type(error).__name__ if is_known else "Refused"
        rank = error.rank if isinstance(error, MemberLost) else self.rank
        text = str(error) if is_known else f"{type(error).__name__}: {error}"
        for connection in self._followers.values():
            try:
                self._send(-1, connection, {"failed": kind, "rank": rank, "text": text[:_MESSAGE_BYTES]})
            except MemberLost:
                # It learns of it by the connection.
                pass

    def _disconnect(self, reason: str | None) -> None:
        if self._leader is not None:
            if reason is not None:
                try:
                    self._send(-1, self._leader, {"abort": reason[:_MESSAGE_BYTES]})
                except MemberLost:
                    pass
            self._leader.close()
        for follower in self._followers.values():
            follower.close()


def _put(connection: socket.socket, message: dict[str, Any], file: int | None) -> None:
    socket.send_fds(connection, [json.dumps(message).encode()], [] if file is None else [file])


def _host() -> str:
    """What processes of one host have in common: the kernel, and the network namespace in which they find each other."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return f"{boot} {os.stat('/proc/self/ns/net').st_ino} {os.environ.get('RDMC_HOST', '')}"


def _is_own(connection: socket.socket) -> bool:
    """Whether the other end is of the same user. Names of abstract sockets are no secret."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def _new_file(nbytes: int) -> int:
    file = os.memfd_create("rdmc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, nbytes)
    except BaseException:
        os.close(file)
        raise
    return file


def _file_of(data: Any) -> int:
    """A file in memory with these bytes."""
    content = memoryview(data).cast("B")
    file = _new_file(content.nbytes)
    if content.nbytes > 0:
        with mmap.mmap(file, content.nbytes) as memory:
            memory[:] = content
    return file


def _seal(file: int) -> None:
    """From now on nobody changes it: neither its bytes nor its length."""
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    try:
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_WRITE)
    except OSError:
        # An adapter may still have it registered for writing.
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)


def _mapped(file: int, writable: bool) -> memoryview:
    nbytes = os.fstat(file).st_size
    if nbytes == 0:
        return memoryview(bytearray() if writable else b"")
    if writable:
        return memoryview(mmap.mmap(file, nbytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    return memoryview(mmap.mmap(file, nbytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))

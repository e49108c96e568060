"""Messages of any length, from one process of a group to all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from rdmc._arrays import READ_ONLY, memory_of
from rdmc._calls import INTERRUPTED, integer, seconds
from rdmc._rdmc import Message as _Message
from rdmc._rdmc import Messages as _Messages
from rdmc._rdmc import Pending
from rdmc._rdmc import Region as _Region
from rdmc._text import as_utf8, reason_of
from rdmc.errors import InvalidUse, RdmcError, TimedOut

# Counts and lengths have 64 bits.
_COUNT_MAX = (1 << 64) - 1


@dataclass(frozen=True)
class MessagesSettings:
    """The arguments of rdmc.Group.messages."""

    root: int
    algorithm: str
    message_bytes: int | None
    block_bytes: int | None
    posted: bool
    verify: bool

    def __post_init__(self) -> None:
        if not isinstance(self.algorithm, str) or not self.algorithm.isascii():
            raise InvalidUse(f"algorithm is {self.algorithm!r}; use a name that `rdmc plan` prints, or auto")
        for name, value in [("message_bytes", self.message_bytes), ("block_bytes", self.block_bytes)]:
            if value is not None:
                integer(name, value, 0, _COUNT_MAX)


class Ranked(Protocol):
    """A group of processes."""

    rank: int


class Role(Protocol):
    """A member's role: whether it is the root."""

    root: int
    is_root: bool


class Region:
    """Memory of an array, registered with a group's network (Group.register) until the region and its parts are freed."""

    def __init__(self, inner: _Region, readonly: bool) -> None:
        self._inner = inner
        self._readonly = readonly

    @property
    def nbytes(self) -> int:
        """The length in bytes."""
        return self._inner.bytes

    @property
    def readonly(self) -> bool:
        """Whether the region can only be sent, because the array is read-only."""
        return self._readonly

    def part(self, start: int, end: int) -> Region:
        """Returns the bytes from ``start`` to ``end``, which remain registered as well."""
        end = integer("end", end, 0, self.nbytes)
        return Region(self._inner.part(integer("start", start, 0, end), end), self._readonly)


def to_send(data: Any, member: Role) -> Any:
    """Returns the memory to send. Raises InvalidUse if the member is not the root."""
    if not member.is_root:
        raise InvalidUse(f"only the root, rank {member.root}, can send")
    return data._inner if isinstance(data, Region) else memory_of(data)[0]


def to_post(array: Any) -> Any:
    """Returns the memory to receive into. Raises InvalidUse if it is read-only."""
    if not isinstance(array, Region):
        return memory_of(array, is_written=True)[0]
    if array.readonly:
        raise InvalidUse(READ_ONLY)
    return array._inner


def check_receives(member: Role) -> None:
    """Raises InvalidUse at the root."""
    if member.is_root:
        raise InvalidUse("the root cannot receive its own messages")


def count_of(count: int) -> int:
    """Returns a number of messages. Raises InvalidUse for any other value."""
    return integer("count", count, 0, _COUNT_MAX)


def check_asks(member: Role) -> None:
    """Raises InvalidUse if the member is not the root."""
    if not member.is_root:
        raise InvalidUse(f"only the root, rank {member.root}, learns what was delivered")


class Message:
    """A received message. Its bytes may still be arriving, and this process may be relaying them to other members."""

    def __init__(self, inner: _Message, wait: Callable[[Pending, float | None], Any]) -> None:
        self._inner = inner
        self._wait = wait

    @property
    def number(self) -> int:
        """The number of messages before this one."""
        return self._inner.number

    @property
    def nbytes(self) -> int:
        """The length in bytes."""
        return self._inner.bytes

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the whole message has arrived."""
        self._wait(self._inner.wait(), timeout)

    def data(self, timeout: float | None = None) -> memoryview:
        """Waits for the whole message and returns it, read-only and without a copy."""
        self.wait(timeout)
        return self._inner.view(0, self.nbytes)

    def blocks(self, timeout: float | None = None) -> Iterator[tuple[int, memoryview]]:
        """Yields offsets and contents of the message's blocks as they arrive; each byte once. ``timeout``: for each block."""
        while (found := self._wait(self._inner.next_block(), timeout)) is not None:
            start, end = found
            yield start, self._inner.view(start, end)


class Messages:
    """Messages of any length from one process of a group, the root, to all others, in the order in which they were sent.

    Members relay them in blocks along the schedule, several messages at a time. Closing, also by the end of a ``with`` block, waits
    until all members have all messages, and raises MemberLost otherwise. Calls are allowed on any thread.
    """

    def __init__(self, group: Ranked, inner: _Messages, root: int, timeout: float) -> None:
        # Keeps the group alive, which ends when nothing refers to it.
        self._group = group
        self._inner = inner
        self._algorithm, self._block_bytes = inner.algorithm, inner.block_bytes
        self._timeout = timeout
        self._is_closed = False
        self.root = root
        self.is_root = group.rank == root

    @property
    def algorithm(self) -> str:
        """The name of the algorithm; the same at all processes."""
        return self._algorithm

    @property
    def block_bytes(self) -> int:
        """The block length in bytes; the same at all processes."""
        return self._block_bytes

    def send(self, data: Any, *, timeout: float | None = None) -> int:
        """At the root: queues bytes, an array or a Region as a message, and returns its number. Waits while the queue is full.

        The data is not copied: do not change it before wait_complete(number + 1) or close returns.
        """
        memory = to_send(data, self)
        return int(self._wait(self._inner.send(memory), timeout))

    def post(self, array: Any) -> None:
        """At receivers: provides memory for one of the next messages, an array or a Region of at least the message's length.

        Messages take posted memory in order, one each. Messages announced before the call have memory already, except with ``posted``
        (Group.messages). Do not read the memory before its message has arrived, nor change it before wait_complete or close. A Region
        that an earlier message still uses is refused.
        """
        self._inner.post(to_post(array))

    def receive(self, *, timeout: float | None = None) -> Message | None:
        """Returns the next message once it is announced; None once the root has closed and all messages were received.

        The message uses posted memory if there is any, otherwise the library allocates it.
        """
        check_receives(self)
        received = self._wait(self._inner.receive(), timeout)
        return None if received is None else Message(received, self._wait)

    def __iter__(self) -> Iterator[Message]:
        """Yields messages until the root closes."""
        while (message := self.receive()) is not None:
            yield message

    def wait_complete(self, count: int, *, timeout: float | None = None) -> None:
        """Waits until this process is done with the first ``count`` messages (sent, received, relayed): their memory may be changed.

        Other members may still be receiving them.
        """
        self._wait(self._inner.wait_complete(count_of(count)), timeout)

    def wait_delivered(self, count: int, *, timeout: float | None = None) -> None:
        """At the root: waits until every process has the first ``count`` messages."""
        check_asks(self)
        self._wait(self._inner.wait_delivered(count_of(count)), timeout)

    @property
    def delivered(self) -> int:
        """How many messages every process has, as known to the root from wait_delivered; 0 at other members."""
        return self._inner.delivered

    def close(self, timeout: float | None = None) -> None:
        """Closes the messages. Success means that all processes have all messages.

        The root waits for delivery, but not until other members call close. Other members wait until the root has closed, and drop
        messages that they have not received. TimedOut fails the messages at all members.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            while not self.is_root and self._wait(self._inner.receive(), timeout) is not None:
                pass
            self._wait(self._inner.close(), timeout)
        except TimedOut:
            limit = seconds(timeout, self._timeout)
            self._inner.abort(f"closing messages took longer than {limit:g} s")
            raise
        finally:
            self._inner.drop()

    def abort(self, reason: str = "its program gave up") -> None:
        """Fails the messages at all processes, with this reason."""
        self._inner.abort(as_utf8(reason))

    def __enter__(self) -> Messages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif not self._is_closed:
            self._is_closed = True
            self.abort(reason_of(kind, error))
            self._inner.drop()

    def _wait(self, pending: Pending, timeout: float | None) -> Any:
        limit = seconds(timeout, self._timeout)
        try:
            return pending.wait(limit)
        except RdmcError:
            raise
        except BaseException:
            # A signal handler has raised: the other members learn of it instead of waiting.
            self._inner.abort(INTERRUPTED)
            raise

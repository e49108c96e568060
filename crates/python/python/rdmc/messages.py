"""Messages of any length from one process of a group to all others."""

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
            raise InvalidUse(f"algorithm is {self.algorithm!r}; use the name of one, or auto")
        for name, value in [("message_bytes", self.message_bytes), ("block_bytes", self.block_bytes)]:
            if value is not None:
                integer(name, value, 0, _COUNT_MAX)


class Ranked(Protocol):
    """A group of processes."""

    rank: int


class Role(Protocol):
    """What is known of a member."""

    root: int
    is_root: bool


class Region:
    """Memory of an array that stays registered with the network of a group (Group.register), until this and its parts are freed."""

    def __init__(self, inner: _Region, readonly: bool) -> None:
        self._inner = inner
        self._readonly = readonly

    @property
    def nbytes(self) -> int:
        """Its length in bytes."""
        return self._inner.bytes

    @property
    def readonly(self) -> bool:
        """Whether it can only be sent, as the array."""
        return self._readonly

    def part(self, start: int, end: int) -> Region:
        """These bytes of it, which stay registered, too."""
        end = integer("end", end, 0, self.nbytes)
        return Region(self._inner.part(integer("start", start, 0, end), end), self._readonly)


def to_send(data: Any, member: Role) -> Any:
    """The memory of what is sent."""
    if not member.is_root:
        raise InvalidUse(f"only the root, rank {member.root}, can send")
    return data._inner if isinstance(data, Region) else memory_of(data)[0]


def to_post(array: Any) -> Any:
    """The memory of what is received into."""
    if not isinstance(array, Region):
        return memory_of(array, is_written=True)[0]
    if array.readonly:
        raise InvalidUse(READ_ONLY)
    return array._inner


def check_receives(member: Role) -> None:
    """Raises InvalidUse at the root."""
    if member.is_root:
        raise InvalidUse("the root cannot receive: it has what it sends")


def count_of(count: int) -> int:
    """A number of messages. Raises InvalidUse for any other."""
    return integer("count", count, 0, _COUNT_MAX)


def check_asks(member: Role) -> None:
    """Raises InvalidUse at others than the root."""
    if not member.is_root:
        raise InvalidUse(f"only the root, rank {member.root}, learns what all have")


class Message:
    """A message that was received. Its bytes may still be arriving, and this process may be relaying them to others."""

    def __init__(self, inner: _Message, wait: Callable[[Pending, float | None], Any]) -> None:
        self._inner = inner
        self._wait = wait

    @property
    def number(self) -> int:
        """How many messages precede it."""
        return self._inner.number

    @property
    def nbytes(self) -> int:
        """Its length in bytes."""
        return self._inner.bytes

    def wait(self, timeout: float | None = None) -> None:
        """Waits until all of it has arrived."""
        self._wait(self._inner.wait(), timeout)

    def data(self, timeout: float | None = None) -> memoryview:
        """All of it, read-only and without a copy, once it has arrived."""
        self.wait(timeout)
        return self._inner.view(0, self.nbytes)

    def blocks(self, timeout: float | None = None) -> Iterator[tuple[int, memoryview]]:
        """Its parts in the order in which they arrive, with their offsets; each byte once. ``timeout``: for each."""
        while (found := self._wait(self._inner.next_block(), timeout)) is not None:
            start, end = found
            yield start, self._inner.view(start, end)


class Messages:
    """Messages of any length from one process of a group, the root, to all others, in the order in which they were sent.

    They are relayed in blocks along the schedule, several messages at a time. Closing waits until all have all of them, with
    success or a MemberLost; in a ``with`` block that is the end of the block. Calls are allowed on any thread.
    """

    def __init__(self, group: Ranked, inner: _Messages, root: int, timeout: float) -> None:
        # Which ends when nothing refers to it.
        self._group = group
        self._inner = inner
        self._algorithm, self._block_bytes = inner.algorithm, inner.block_bytes
        self._timeout = timeout
        self._is_closed = False
        self.root = root
        self.is_root = group.rank == root

    @property
    def algorithm(self) -> str:
        """Which algorithm is used, by its name: the same at all processes."""
        return self._algorithm

    @property
    def block_bytes(self) -> int:
        """How much is relayed at a time: the same at all processes."""
        return self._block_bytes

    def send(self, data: Any, *, timeout: float | None = None) -> int:
        """Queues bytes, an array or a Region, at the root, and returns the message's number. Waits while many are queued.

        It is not copied: do not change it before wait_complete(number + 1) or close.
        """
        memory = to_send(data, self)
        return int(self._wait(self._inner.send(memory), timeout))

    def post(self, array: Any) -> None:
        """Gives memory for one of the next messages, an array or a Region, at others than the root: in order, one each, as long as the
        message or longer.

        Messages that were announced before have memory already, unless they are ``posted`` ones (Group.messages). It must not be
        read before its message has arrived, nor changed before wait_complete or close. A Region that an earlier message still uses is
        refused.
        """
        self._inner.post(to_post(array))

    def receive(self, *, timeout: float | None = None) -> Message | None:
        """The next message, once it is announced; None when the root has closed and all were received.

        Its memory is what was posted, or else allocated.
        """
        check_receives(self)
        received = self._wait(self._inner.receive(), timeout)
        return None if received is None else Message(received, self._wait)

    def __iter__(self) -> Iterator[Message]:
        """Messages until the root closes."""
        while (message := self.receive()) is not None:
            yield message

    def wait_complete(self, count: int, *, timeout: float | None = None) -> None:
        """Waits until this process is done with so many messages (received, sent, relayed): their memory may be changed.

        Others may still be receiving them.
        """
        self._wait(self._inner.wait_complete(count_of(count)), timeout)

    def wait_delivered(self, count: int, *, timeout: float | None = None) -> None:
        """Waits, at the root, until every process has so many messages, counted from the first."""
        check_asks(self)
        self._wait(self._inner.wait_delivered(count_of(count)), timeout)

    @property
    def delivered(self) -> int:
        """How many messages every process has, as far as the root has learned in wait_delivered; 0 elsewhere."""
        return self._inner.delivered

    def close(self, timeout: float | None = None) -> None:
        """Ends the messages; success means that all processes have all of them. At the root it waits until that is so, not for others to
        call it; at others it waits until the root has closed, and drops what this process has not received. After a TimedOut they have
        failed at all.
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
            self._inner.abort(f"closing messages has taken longer than {limit:g} s")
            raise
        finally:
            self._inner.drop()

    def abort(self, reason: str = "its program gave up") -> None:
        """Ends it at all processes, as a failure for this reason."""
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
            # A signal's handler has raised it: others learn of that instead of waiting.
            self._inner.abort(INTERRUPTED)
            raise

"""Groups for asyncio: calls are awaited on the application's event loop.

Waits for messages use a descriptor that the loop watches. Operations on arrays, joining and closing run on a daemon thread, for which
the end of the program does not wait. Cancelling a wait for a message loses nothing. Cancelling an operation, the opening of messages or
closing (Ctrl-C cancels the main task) ends the group, because other members have started it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

import rdmc.group
from rdmc._calls import on_a_thread, seconds
from rdmc._meeting import Store
from rdmc._rdmc import Message as _Message
from rdmc._rdmc import Messages as _Messages
from rdmc._rdmc import Notifier, Pending
from rdmc._text import as_utf8, reason_of
from rdmc.errors import InvalidUse, RdmcError, TimedOut
from rdmc.messages import MessagesSettings, Region, check_asks, check_receives, count_of, to_post, to_send

_T = TypeVar("_T")


class _Waiting:
    """The calls on one event loop that wait for the library."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._notifier = Notifier()
        self._sleepers: set[asyncio.Future[None]] = set()
        self._loop.add_reader(self._notifier.fileno(), self._notified)

    def close(self) -> None:
        self._loop.remove_reader(self._notifier.fileno())

    def _notified(self) -> None:
        self._notifier.clear()
        sleepers, self._sleepers = self._sleepers, set()
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    async def wait(self, pending: Pending, timeout: float) -> Any:
        try:
            async with asyncio.timeout(timeout):
                while (answer := pending.poll(self._notifier)) is None:
                    # An event since the poll is reported by the loop, so only after this call has started to wait.
                    sleeper = self._loop.create_future()
                    self._sleepers.add(sleeper)
                    try:
                        await sleeper
                    finally:
                        self._sleepers.discard(sleeper)
                return answer[0]
        except TimeoutError as error:
            if isinstance(error, TimedOut):
                raise
            raise TimedOut(f"a call took longer than {timeout} s") from None


class Message:
    """As rdmc.Message."""

    def __init__(self, inner: _Message, waiting: _Waiting, timeout: float) -> None:
        self._inner = inner
        self._waiting = waiting
        self._timeout = timeout

    @property
    def number(self) -> int:
        """The number of messages before this one."""
        return self._inner.number

    @property
    def nbytes(self) -> int:
        """The length in bytes."""
        return self._inner.bytes

    async def wait(self, timeout: float | None = None) -> None:
        """Waits until the whole message has arrived."""
        await self._waiting.wait(self._inner.wait(), seconds(timeout, self._timeout))

    async def data(self, timeout: float | None = None) -> memoryview:
        """Waits for the whole message and returns it, read-only and without a copy."""
        await self.wait(timeout)
        return self._inner.view(0, self.nbytes)

    async def blocks(self, timeout: float | None = None) -> AsyncIterator[tuple[int, memoryview]]:
        """Yields offsets and contents of the message's blocks as they arrive; each byte once. ``timeout``: for each block."""
        limit = seconds(timeout, self._timeout)
        while (found := await self._waiting.wait(self._inner.next_block(), limit)) is not None:
            start, end = found
            yield start, self._inner.view(start, end)


class Messages:
    """As rdmc.Messages."""

    def __init__(self, inner: _Messages, waiting: _Waiting, rank: int, root: int, timeout: float) -> None:
        self._inner = inner
        self._waiting = waiting
        self._timeout = timeout
        self.algorithm = inner.algorithm
        self.block_bytes = inner.block_bytes
        self.root = root
        self.is_root = rank == root

    async def send(self, data: Any, *, timeout: float | None = None) -> int:
        """At the root: queues bytes, an array or a Region as a message, and returns its number. Waits while the queue is full.

        The data is not copied: do not change it before wait_complete(number + 1) or the end of the ``async with`` block.
        """
        return int(await self._wait(self._inner.send(to_send(data, self)), timeout))

    def post(self, array: Any) -> None:
        """At receivers: provides memory for one of the next messages, as rdmc.Messages.post."""
        self._inner.post(to_post(array))

    async def receive(self, *, timeout: float | None = None) -> Message | None:
        """Returns the next message once it is announced; None once the root has closed and all messages were received."""
        check_receives(self)
        received = await self._wait(self._inner.receive(), timeout)
        return None if received is None else Message(received, self._waiting, self._timeout)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yields messages until the root closes."""
        while (message := await self.receive()) is not None:
            yield message

    async def wait_complete(self, count: int, *, timeout: float | None = None) -> None:
        """Waits until this process is done with the first ``count`` messages: their memory may be changed."""
        await self._wait(self._inner.wait_complete(count_of(count)), timeout)

    async def wait_delivered(self, count: int, *, timeout: float | None = None) -> None:
        """At the root: waits until every process has the first ``count`` messages."""
        check_asks(self)
        await self._wait(self._inner.wait_delivered(count_of(count)), timeout)

    @property
    def delivered(self) -> int:
        """As rdmc.Messages.delivered."""
        return self._inner.delivered

    def abort(self, reason: str = "its program gave up") -> None:
        """Fails the messages at all processes, with this reason."""
        self._inner.abort(as_utf8(reason))

    async def _close(self) -> None:
        while not self.is_root and await self._wait(self._inner.receive(), None) is not None:
            pass
        await self._wait(self._inner.close(), None)

    async def _wait(self, pending: Pending, timeout: float | None) -> Any:
        return await self._waiting.wait(pending, seconds(timeout, self._timeout))


class Group:
    """As rdmc.Group, for use in an ``async with`` block, whose start joins the group. Before that, calls raise InvalidUse."""

    _waiting: _Waiting

    def __init__(self, rank: int, members: Sequence[str], secret: str, **settings: Any) -> None:
        """Takes the arguments of rdmc.Group. Nothing happens before ``async with``."""
        self._set_up(lambda: rdmc.group.Group(rank, members, secret, **settings))

    @classmethod
    def from_env(cls, store: Store | str | os.PathLike[str] | Any | None = None, **settings: Any) -> Group:
        """Takes the arguments of rdmc.Group.from_env. Nothing happens before ``async with``."""
        group = cls.__new__(cls)
        group._set_up(lambda: rdmc.group.Group.from_env(store, **settings))
        return group

    def _set_up(self, join: Callable[[], rdmc.group.Group]) -> None:
        self._join = join
        self._joined: rdmc.group.Group | None = None
        # Messages whose receive loop was left; the next call ends them.
        self._left: list[AsyncExitStack] = []

    @property
    def _group(self) -> rdmc.group.Group:
        if self._joined is None:
            raise InvalidUse("the group is not joined: use it in its `async with` block")
        return self._joined

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return self._group.rank

    @property
    def size(self) -> int:
        """The number of processes."""
        return self._group.size

    async def broadcast(self, array: Any, root: int = 0, *, timeout: float | None = None) -> None:
        """Replaces the array at all members by the root's."""
        await self._run(lambda: self._group.broadcast(array, root, timeout=timeout, async_op=True))

    async def all_reduce(self, array: Any, op: Any = "sum", *, timeout: float | None = None) -> None:
        """Replaces each element at all members by its combination over all members."""
        await self._run(lambda: self._group.all_reduce(array, op, timeout=timeout, async_op=True))

    async def reduce(self, array: Any, root: int = 0, op: Any = "sum", *, timeout: float | None = None) -> None:
        """As all_reduce, with the result at the root only."""
        await self._run(lambda: self._group.reduce(array, root, op, timeout=timeout, async_op=True))

    async def all_gather_in_place(self, parts: Any, *, timeout: float | None = None) -> None:
        """Collects the parts of all members in an array that has this member's part in its place."""
        await self._run(lambda: self._group.all_gather_in_place(parts, timeout=timeout, async_op=True))

    async def all_gather(self, out: Any, part: Any, *, timeout: float | None = None) -> None:
        """Collects the parts of all members in ``out``."""
        await self._run(lambda: self._group.all_gather(out, part, timeout=timeout, async_op=True))

    async def gather(self, part: Any, out: Any = None, root: int = 0, *, timeout: float | None = None) -> None:
        """As all_gather, with the result at the root only."""
        await self._run(lambda: self._group.gather(part, out, root, timeout=timeout, async_op=True))

    async def scatter(self, out: Any, parts: Any = None, root: int = 0, *, timeout: float | None = None) -> None:
        """Sends each member its part of the root's array."""
        await self._run(lambda: self._group.scatter(out, parts, root, timeout=timeout, async_op=True))

    async def reduce_scatter(self, out: Any, parts: Any, op: Any = "sum", *, timeout: float | None = None) -> None:
        """Combines the arrays of all members; each member gets its part of the result."""
        await self._run(lambda: self._group.reduce_scatter(out, parts, op, timeout=timeout, async_op=True))

    async def barrier(self, *, timeout: float | None = None) -> None:
        """Waits until all members have called this."""
        await self._run(lambda: self._group.barrier(timeout=timeout, async_op=True))

    async def broadcast_bytes(self, data: Any = None, root: int = 0, *, timeout: float | None = None) -> bytes:
        """Returns the root's bytes, passed as any buffer; other members pass none and need not know the length."""
        found: list[bytes] = []
        await self._run(lambda: self._group._broadcast_bytes(data, root, found.append, timeout, async_op=True))
        return found[0]

    async def split(self, color: int | None, key: int = 0, *, timeout: float | None = None) -> Group | None:
        """As rdmc.Group.split. The new group has joined already; it ends with its ``async with`` block."""
        part = await self._made(lambda: self._group.split(color, key, timeout=timeout))
        if part is None:
            return None
        group = Group.__new__(Group)
        group._set_up(lambda: part)
        return group

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
    ) -> AbstractAsyncContextManager[Messages]:
        """Connects all processes for messages, as rdmc.Group.messages: ``async with group.messages() as messages``."""
        settings = MessagesSettings(root, algorithm, message_bytes, block_bytes, bool(posted), bool(verify))
        return self._messages(settings, seconds(timeout, self._group._timeout))

    @asynccontextmanager
    async def _messages(self, settings: MessagesSettings, timeout: float) -> AsyncIterator[Messages]:
        inner = await self._made(lambda: self._group._open_messages(settings, timeout))
        messages = Messages(inner, self._waiting, self.rank, settings.root, timeout)
        self._group._calls.messages.add(messages)
        try:
            yield messages
            await messages._close()
        except BaseException as error:
            inner.abort(reason_of(type(error), error))
            raise
        finally:
            inner.drop()

    def receive(self, root: int = 0, *, timeout: float | None = None) -> AsyncIterator[Message]:
        """Iterates over messages from the root, which sends them through messages(), until the root closes its messages.

        A member that leaves the loop early still relays: the next call of the group waits until the root has sent all messages.
        """
        return _Receiving(self.messages(root, timeout=timeout), self._left)

    async def register(self, array: Any) -> Region:
        """Registers an array's memory for messages, as rdmc.Group.register."""
        return await self._made(lambda: self._group.register(array))

    def counters(self) -> rdmc.group.Counters:
        """Returns the counters, as rdmc.Group.counters. Does not block."""
        return self._group.counters()

    def abort(self, reason: str = "its program gave up") -> None:
        """Fails the group at all members, with this reason. Operations of other tasks end."""
        self._group.abort(reason)

    async def __aenter__(self) -> Group:
        self._joined = await _on_a_thread(self._join, lambda group: group._calls.leave("its task was cancelled"))
        self._waiting = _Waiting()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self._end_left()
        except BaseException as problem:
            kind, error = type(problem), problem
            raise
        finally:
            self._waiting.close()
            # After an error it does not wait for the other members.
            await self._ended(on_a_thread(lambda: self._group.__exit__(kind, error, None)))
            self._left.clear()

    async def _run(self, start: Callable[[], rdmc.group.Work | None]) -> None:
        await self._end_left()
        work = start()
        assert work is not None, "it was started with async_op"
        await self._ended(work._future)

    async def _made(self, call: Callable[[], _T]) -> _T:
        """Runs a call that blocks, on a thread."""
        await self._end_left()
        done = on_a_thread(call)
        await self._ended(done)
        return done.result()

    async def _end_left(self) -> None:
        self._group._calls.check()
        while self._left:
            await self._left.pop().aclose()

    async def _ended(self, call: Future[Any]) -> None:
        """Waits for the end of a call, even after a cancellation: its array is in use until then."""
        ended = asyncio.wrap_future(call)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._group._calls.abort_quietly("its task was cancelled")
            while not ended.done():
                try:
                    await asyncio.wait([ended])
                except asyncio.CancelledError:
                    continue
            ended.exception()
            raise


class _Receiving:
    """An iterator over messages. Once it is dropped, the group's next call ends the messages."""

    def __init__(self, entering: AbstractAsyncContextManager[Messages], left: list[AsyncExitStack]) -> None:
        self._entering: AbstractAsyncContextManager[Messages] | None = entering
        self._entered = AsyncExitStack()
        self._messages: Messages | None = None
        self._left = left

    def __aiter__(self) -> _Receiving:
        return self

    async def __anext__(self) -> Message:
        if self._entering is not None:
            entering, self._entering = self._entering, None
            self._messages = await self._entered.enter_async_context(entering)
        if self._messages is None:
            raise StopAsyncIteration
        try:
            message = await self._messages.receive()
        except RdmcError as error:
            self._messages = None
            await self._entered.__aexit__(type(error), error, None)
            raise
        if message is None:
            self._messages = None
            await self._entered.aclose()
            raise StopAsyncIteration
        return message

    def __del__(self) -> None:
        self._left.append(self._entered.pop_all())


async def _on_a_thread(call: Callable[[], _T], undo: Callable[[_T], object]) -> _T:
    """Runs a call that blocks, on a thread. After a cancellation the call continues, and its result is undone."""
    done = on_a_thread(call)
    try:
        return await asyncio.shield(asyncio.wrap_future(done))
    except asyncio.CancelledError:
        # Runs even if the event loop has ended by then.
        done.add_done_callback(lambda done: None if done.exception() else undo(done.result()))
        raise

"""The calls of a group: their threads, their order, and what ends them."""

from __future__ import annotations

import math
import operator
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, Protocol, SupportsIndex, TypeVar

from rdmc._rdmc import Endpoint
from rdmc._text import as_utf8, reason_of
from rdmc.errors import InvalidUse, MemberLost, RdmcError, TimedOut

INTERRUPTED = "its application was interrupted"

# How often a waiting thread checks for signals.
_SIGNALS_SECONDS = 0.1

# How long the end of the program waits for calls of other threads after aborting them: more than the library needs to end them.
_EXIT_SECONDS = 10.0

_T = TypeVar("_T")


def integer(name: str, value: SupportsIndex, least: int, most: int) -> int:
    """Returns an integer argument of this range. Raises InvalidUse for any other value."""
    try:
        found = operator.index(value)
    except TypeError:
        found = least - 1
    if not least <= found <= most:
        raise InvalidUse(f"{name} is {value!r}; use {least} to {most}")
    return found


def seconds(timeout: float | None, default: float) -> float:
    """Returns a timeout in seconds. Raises InvalidUse unless it is a number."""
    if timeout is None:
        return default
    try:
        # Unlike float, refuses strings.
        found = math.fsum([timeout])
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if math.isnan(found):
        raise InvalidUse(f"timeout is {timeout!r}; use a number of seconds, or None for the default")
    return found


class Abortable(Protocol):
    """An operation that waits for other processes until it is aborted."""

    def abort(self, reason: str) -> None:
        """Fails it at all processes, with this reason."""


class Work:
    """An operation started with ``async_op``."""

    def __init__(self, calls: Calls, future: Future[None]) -> None:
        self._calls = calls
        self._future = future

    def is_completed(self) -> bool:
        """Whether the operation has ended, successfully or not. Does not block."""
        return self._future.done()

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the operation ends. Raises its exception, or TimedOut after ``timeout`` seconds; the operation then continues.

        An exception from a signal handler meanwhile, such as KeyboardInterrupt, ends the operation and the group, and is then raised.
        Raises InvalidUse in a signal handler that interrupted a call of the group, because the operation may wait for that call.
        """
        limit = None if timeout is None else seconds(timeout, 0.0)
        self._calls.check_process()
        if not self._future.done():
            self._calls.check_thread()
        if not self._calls.has_ended(self._future, limit):
            raise TimedOut(f"an operation has not ended in {timeout} s")
        self._future.result()


def _wait(call: Future[Any], limit: float | None) -> bool:
    """Waits until a call ends, and returns whether it has ended within ``limit`` seconds. Signal handlers run meanwhile, whichever
    thread receives the signal."""
    until = None if limit is None else time.monotonic() + limit
    while True:
        left = _SIGNALS_SECONDS if until is None else until - time.monotonic()
        if not wait([call], max(0.0, min(left, _SIGNALS_SECONDS))).not_done:
            return True
        if left <= 0:
            return False


class _Turn:
    """Lets one thread at a time make calls, each of which has a deadline.

    A signal handler interrupts its thread at any point. A call in the handler would deadlock with the interrupted call: it would wait
    for this lock, or for the group's thread, which waits for this lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # Threads that make a call or wait for their turn. A signal handler finds its own thread here at any line below.
        self._callers: set[int] = set()

    def is_on_this_thread(self) -> bool:
        """Whether this is a signal handler that interrupted a call."""
        return threading.get_ident() in self._callers

    def check(self) -> None:
        """Raises InvalidUse in a signal handler that interrupted a call."""
        if self.is_on_this_thread():
            raise InvalidUse("a call of the group is in progress on this thread: a signal handler may call abort, but nothing else")

    def enter(self, call: Callable[[], _T]) -> _T:
        """Runs a call that takes the turn on this thread or on the group's thread. Raises InvalidUse as check."""
        self.check()
        try:
            self._callers.add(threading.get_ident())
            return call()
        finally:
            self._callers.discard(threading.get_ident())

    def take(self, call: Callable[[], _T]) -> _T:
        """Runs a call while no other thread runs one."""
        with self._lock:
            return call()

    def wait(self, limit: float) -> None:
        """Waits until no other thread runs a call, for at most ``limit`` seconds."""
        if self._lock.acquire(timeout=limit):
            self._lock.release()


class _Worker:
    """A daemon thread that runs operations in order. The end of the program does not wait for them."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = SimpleQueue()
        threading.Thread(target=_work, args=(self._queue,), name="rdmc", daemon=True).start()

    def submit(self, call: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        # Cannot be cancelled: other members have started the operation.
        future.set_running_or_notify_cancel()
        self._queue.put((future, call))
        return future

    def stop(self) -> None:
        """Ends the thread once all submitted calls have ended."""
        self._queue.put(None)


def _work(queue: SimpleQueue[tuple[Future[None], Callable[[], None]] | None]) -> None:
    while (submitted := queue.get()) is not None:
        _settle(*submitted)
        # Drops the references before the wait for the next call.
        del submitted


def _settle(future: Future[_T], call: Callable[[], _T]) -> None:
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def on_a_thread(call: Callable[[], _T]) -> Future[_T]:
    """Runs a call that blocks on a new daemon thread."""
    future: Future[_T] = Future()
    future.set_running_or_notify_cancel()
    threading.Thread(target=_settle, args=(future, call), name="rdmc-call", daemon=True).start()
    return future


class Calls:
    """The calls of a group on its endpoint. All calls pass through this class, so that

    - a fork of the process that created the group is refused before it takes a lock or waits for a thread that it does not have,
    - calls run one after another: on the caller's thread, or, once an operation was started with ``async_op``, on the group's thread,
    - a call raises only once it no longer uses its caller's memory: an exception from a signal handler ends the group first,
    - the end of the program ends all calls.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        # The messages that were opened.
        self.messages: weakref.WeakSet[Any] = weakref.WeakSet()
        self._process = os.getpid()
        # Protects the fields below. Reentrant for signal handlers, which may end the group.
        self._lock = threading.RLock()
        self._is_closed = False
        self._has_failed = False
        self._worker: _Worker | None = None
        # Held by the running operation, and while messages are opened.
        self._turn = _Turn()
        self._opening = _Turn()

    def is_open(self) -> bool:
        """Whether the group can be closed: it is not closed, and this process is not a fork."""
        return os.getpid() == self._process and not self._is_closed

    def check_process(self) -> None:
        """Raises InvalidUse in a fork."""
        if os.getpid() != self._process:
            raise InvalidUse("this process is a fork of the one that made the group: use spawn, or make a group in the child")

    def check(self) -> None:
        """Raises InvalidUse in a fork, and once the group is closed."""
        self.check_process()
        if self._is_closed:
            raise InvalidUse("the group is closed")

    def check_thread(self) -> None:
        """Raises InvalidUse in a signal handler that interrupted a call of the group."""
        self._turn.check()

    def run(self, operation: Callable[[], None]) -> None:
        """Runs a call and waits until it ends. Raises InvalidUse as check and check_thread."""
        self.check()
        self._turn.enter(lambda: self._make(operation))

    def start(self, operation: Callable[[], None]) -> Work:
        """Starts a call on the group's thread. Raises InvalidUse as run."""
        self.check()
        return self._turn.enter(lambda: self._start(operation))

    def open(self, join: Callable[[], _T]) -> _T:
        """Opens messages; operations of other threads may run meanwhile. Raises InvalidUse as run."""
        self.check()
        return self._or_abort(lambda: self._turn.enter(lambda: self._opening.take(join)))

    def has_ended(self, call: Future[Any], limit: float | None) -> bool:
        """Waits until a call on the group's thread ends, and returns whether it has ended within ``limit`` seconds."""
        try:
            return _wait(call, limit)
        except BaseException:
            self.end_of(call, INTERRUPTED)
            raise

    def abort(self, reason: str) -> None:
        """Fails the group and its messages at all members. Raises InvalidUse in a fork, and once the group is closed."""
        self.check_process()
        reason = as_utf8(reason)
        for messages in list(self.messages):
            try:
                messages.abort(reason)
            except InvalidUse:
                # These messages are closed.
                pass
        self.endpoint.abort(reason)

    def abort_quietly(self, reason: str) -> None:
        """As abort; does nothing once the group is closed."""
        self._has_failed = True
        try:
            self.abort(reason)
        except InvalidUse:
            pass

    def end_of(self, call: Future[Any], reason: str) -> None:
        """Aborts, and returns once the call has ended, whatever signal handlers raise meanwhile: until then, for at most some seconds,
        the call uses its caller's memory."""
        while True:
            try:
                self.abort_quietly(reason)
                wait([call])
                return
            except BaseException:
                continue

    def close(self, timeout: float) -> None:
        """Closes the group together with all members, after the operations that were started. Raises InvalidUse as check_thread, which
        leaves the group open."""
        self.check_thread()
        if not self._begin_end():
            return
        try:
            # Once an operation has raised MemberLost, no member waits for this one.
            self._turn.enter(lambda: self._make(lambda: None if self._has_failed else self.endpoint.close(timeout)))
        finally:
            self.endpoint.drop()
            self._stop()

    def leave(self, reason: str) -> None:
        """Ends the group at once, which fails at all other members with this reason. Returns once no operation is running."""
        if not self._begin_end():
            return
        try:
            self.abort_quietly(reason)
        finally:
            self.endpoint.drop()
            # The group's thread may be waiting for a call that this signal handler interrupted.
            if self._worker is not None and not self._turn.is_on_this_thread():
                self.end_of(self._worker.submit(lambda: None), reason)
            self._stop()

    def at_exit(self) -> None:
        """Called when the group is dropped or the program ends. Calls of daemon threads end before the interpreter does."""
        if os.getpid() != self._process:
            return
        # Has no effect if the group was closed; ends a close on another thread.
        self._begin_end()
        self.abort_quietly("its program ended, or dropped the group")
        self.endpoint.drop()
        self._stop()
        self._turn.wait(_EXIT_SECONDS)
        self._opening.wait(_EXIT_SECONDS)

    def _start(self, operation: Callable[[], None]) -> Work:
        with self._lock:
            if self._worker is None:
                self._worker = _Worker()
            return Work(self, self._worker.submit(lambda: self._in_turn(operation)))

    def _make(self, operation: Callable[[], None]) -> None:
        with self._lock:
            worker = self._worker
            call = None if worker is None else worker.submit(lambda: self._in_turn(operation))
        if call is None:
            self._in_turn(operation)
            return
        self.has_ended(call, None)
        call.result()

    def _in_turn(self, operation: Callable[[], None]) -> None:
        try:
            self._or_abort(lambda: self._turn.take(operation))
        except MemberLost:
            self._has_failed = True
            raise

    def _or_abort(self, call: Callable[[], _T]) -> _T:
        """Runs a call. The other members learn of its exception instead of waiting, unless the library raised it: then they already
        know, or nothing was sent."""
        try:
            return call()
        except RdmcError:
            raise
        except BaseException as error:
            # Raised by a signal handler, or for lack of memory.
            self.abort_quietly(reason_of(type(error), error) if isinstance(error, MemoryError) else INTERRUPTED)
            raise

    def _begin_end(self) -> bool:
        """Marks the group as closed; returns False in a fork, and if the group was closed already."""
        if os.getpid() != self._process:
            return False
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        return not was_closed

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()

"""The calls of one group: on which thread they run, in which order, and what ends them."""

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

# How often a thread that waits looks for signals.
_SIGNALS_SECONDS = 0.1

# How long the end of the program waits for calls of other threads that it has ended: above what the library needs for that.
_EXIT_SECONDS = 10.0

_T = TypeVar("_T")


def integer(name: str, value: SupportsIndex, least: int, most: int) -> int:
    """An argument that is an integer of this range. Raises InvalidUse for any other."""
    try:
        found = operator.index(value)
    except TypeError:
        found = least - 1
    if not least <= found <= most:
        raise InvalidUse(f"{name} is {value!r}; use {least} to {most}")
    return found


def seconds(timeout: float | None, default: float) -> float:
    """A timeout in seconds. Raises InvalidUse for what is no number."""
    if timeout is None:
        return default
    try:
        # Refuses texts, unlike float.
        found = math.fsum([timeout])
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if math.isnan(found):
        raise InvalidUse(f"timeout is {timeout!r}; use a number of seconds, or None for the default")
    return found


class Abortable(Protocol):
    """What waits for other processes until it is aborted."""

    def abort(self, reason: str) -> None:
        """Ends it at all, for this reason."""


class Work:
    """An operation that was started; see ``async_op``."""

    def __init__(self, calls: Calls, future: Future[None]) -> None:
        self._calls = calls
        self._future = future

    def is_completed(self) -> bool:
        """Whether it has ended, well or not. Does not block."""
        return self._future.done()

    def wait(self, timeout: float | None = None) -> None:
        """Waits for its end, for at most so many seconds. Raises what has failed, or TimedOut (it goes on then).

        What a signal's handler raises meanwhile, such as KeyboardInterrupt, is raised when the operation has ended, and the group with it.
        Raises InvalidUse in a signal's handler that has interrupted a call of the group, which may wait for that call.
        """
        limit = None if timeout is None else seconds(timeout, 0.0)
        self._calls.check_process()
        if not self._future.done():
            self._calls.check_thread()
        if not self._calls.has_ended(self._future, limit):
            raise TimedOut(f"an operation has not ended in {timeout} s")
        self._future.result()


def _wait(call: Future[Any], limit: float | None) -> bool:
    """Waits for the end of a call, and returns whether it has come within so many seconds. Handlers of signals are run meanwhile,
    whichever thread a signal comes to."""
    until = None if limit is None else time.monotonic() + limit
    while True:
        left = _SIGNALS_SECONDS if until is None else until - time.monotonic()
        if not wait([call], max(0.0, min(left, _SIGNALS_SECONDS))).not_done:
            return True
        if left <= 0:
            return False


class _Turn:
    """Lets one thread at a time make calls, each of which has a deadline.

    A signal's handler runs in the middle of what its thread does. If it made a call in a call, it would wait for itself: for this
    lock, or for the group's thread, which waits for this lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # Threads that make a call, or wait for their turn. Handlers of signals find their own also between two of the lines below.
        self._callers: set[int] = set()

    def is_on_this_thread(self) -> bool:
        """Whether this is a signal's handler that has interrupted a call."""
        return threading.get_ident() in self._callers

    def check(self) -> None:
        """Raises InvalidUse in a signal's handler that has interrupted a call."""
        if self.is_on_this_thread():
            raise InvalidUse("a call of the group is under way on this thread: a signal's handler may abort, but not make another")

    def enter(self, call: Callable[[], _T]) -> _T:
        """Calls what takes the turn on this thread, or lets the group's thread take it. Raises InvalidUse as check."""
        self.check()
        try:
            self._callers.add(threading.get_ident())
            return call()
        finally:
            self._callers.discard(threading.get_ident())

    def take(self, call: Callable[[], _T]) -> _T:
        """Makes a call when no other thread does."""
        with self._lock:
            return call()

    def wait(self, limit: float) -> None:
        """Waits until no other thread makes a call, for so many seconds at most."""
        if self._lock.acquire(timeout=limit):
            self._lock.release()


class _Worker:
    """A thread that calls one operation after another. It is a daemon: the end of the program does not wait for operations."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = SimpleQueue()
        threading.Thread(target=_work, args=(self._queue,), name="rdmc", daemon=True).start()

    def submit(self, call: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        # It is not cancelled: others have begun the operation.
        future.set_running_or_notify_cancel()
        self._queue.put((future, call))
        return future

    def stop(self) -> None:
        """Ends the thread when all that was submitted has ended."""
        self._queue.put(None)


def _work(queue: SimpleQueue[tuple[Future[None], Callable[[], None]] | None]) -> None:
    while (submitted := queue.get()) is not None:
        _settle(*submitted)
        # What it refers to is not kept until the next one comes.
        del submitted


def _settle(future: Future[_T], call: Callable[[], _T]) -> None:
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def on_a_thread(call: Callable[[], _T]) -> Future[_T]:
    """Calls what blocks on a daemon thread of its own."""
    future: Future[_T] = Future()
    future.set_running_or_notify_cancel()
    threading.Thread(target=_settle, args=(future, call), name="rdmc-call", daemon=True).start()
    return future


class Calls:
    """The calls of a group on its endpoint. All of them pass here, so that

    - a fork of the process that has made the group is refused before it takes a lock or waits for a thread that it has not,
    - they are made one after another: on the caller's thread, or on one of the group's once an operation was started without
      waiting for it,
    - a call raises only when it uses no memory of its caller any more: what a signal's handler raises ends the group first,
    - the end of the program ends them.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        # Groups of messages that were opened.
        self.messages: weakref.WeakSet[Any] = weakref.WeakSet()
        self._process = os.getpid()
        # Of the fields below. Again by handlers of signals, which may end the group.
        self._lock = threading.RLock()
        self._is_closed = False
        self._has_failed = False
        self._worker: _Worker | None = None
        # Held by the operation that is under way, and while messages are joined.
        self._turn = _Turn()
        self._opening = _Turn()

    def is_open(self) -> bool:
        """Whether there is something to close: not in a fork, nor after the end."""
        return os.getpid() == self._process and not self._is_closed

    def check_process(self) -> None:
        """Raises InvalidUse in a fork."""
        if os.getpid() != self._process:
            raise InvalidUse("this process is a fork of the one that made the group: use spawn, or make a group in the child")

    def check(self) -> None:
        """Raises InvalidUse in a fork, and after the end."""
        self.check_process()
        if self._is_closed:
            raise InvalidUse("the group is closed")

    def check_thread(self) -> None:
        """Raises InvalidUse in a signal's handler that has interrupted a call of the group."""
        self._turn.check()

    def run(self, operation: Callable[[], None]) -> None:
        """Makes a call, and waits for its end. Raises InvalidUse as check and check_thread."""
        self.check()
        self._turn.enter(lambda: self._make(operation))

    def start(self, operation: Callable[[], None]) -> Work:
        """Makes a call on the group's thread. Raises InvalidUse as run."""
        self.check()
        return self._turn.enter(lambda: self._start(operation))

    def open(self, join: Callable[[], _T]) -> _T:
        """Joins a group of messages, while operations of other threads may run. Raises InvalidUse as run."""
        self.check()
        return self._or_abort(lambda: self._turn.enter(lambda: self._opening.take(join)))

    def has_ended(self, call: Future[Any], limit: float | None) -> bool:
        """Waits for the end of a call on the group's thread, and returns whether it has come within so many seconds."""
        try:
            return _wait(call, limit)
        except BaseException:
            self.end_of(call, INTERRUPTED)
            raise

    def abort(self, reason: str) -> None:
        """Makes the group and its messages fail at all. Raises InvalidUse in a fork, and after the end."""
        self.check_process()
        reason = as_utf8(reason)
        for messages in list(self.messages):
            try:
                messages.abort(reason)
            except InvalidUse:
                # They are closed.
                pass
        self.endpoint.abort(reason)

    def abort_quietly(self, reason: str) -> None:
        """As abort; nothing happens after the end."""
        self._has_failed = True
        try:
            self.abort(reason)
        except InvalidUse:
            pass

    def end_of(self, call: Future[Any], reason: str) -> None:
        """Aborts, and returns when the call has ended, whatever handlers of signals raise meanwhile: it uses its caller's memory until
        then, some seconds at most."""
        while True:
            try:
                self.abort_quietly(reason)
                wait([call])
                return
            except BaseException:
                continue

    def close(self, timeout: float) -> None:
        """Ends the group with all others, after the operations that were started. Raises InvalidUse as check_thread; the group goes on
        then."""
        self.check_thread()
        if not self._begin_end():
            return
        try:
            # After an operation has raised that the group has failed, no member waits for this one.
            self._turn.enter(lambda: self._make(lambda: None if self._has_failed else self.endpoint.close(timeout)))
        finally:
            self.endpoint.drop()
            self._stop()

    def leave(self, reason: str) -> None:
        """Ends the group at once, a failure at all others for this reason. Returns when no operation is under way."""
        if not self._begin_end():
            return
        try:
            self.abort_quietly(reason)
        finally:
            self.endpoint.drop()
            # A signal's handler may have interrupted the call that the group's thread waits for.
            if self._worker is not None and not self._turn.is_on_this_thread():
                self.end_of(self._worker.submit(lambda: None), reason)
            self._stop()

    def at_exit(self) -> None:
        """The group is referred to no more, or the program ends. Calls of daemon threads end before the interpreter does."""
        if os.getpid() != self._process:
            return
        # Nothing happens if it was closed; closing on another thread ends.
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
        """Makes a call. Others learn of what it raises instead of waiting, unless the library has raised it: then they know already,
        or nothing was sent."""
        try:
            return call()
        except RdmcError:
            raise
        except BaseException as error:
            # A signal's handler has raised it, or there is not enough memory.
            self.abort_quietly(reason_of(type(error), error) if isinstance(error, MemoryError) else INTERRUPTED)
            raise

    def _begin_end(self) -> bool:
        """Whether there is something to end: not in a fork, nor the second time."""
        if os.getpid() != self._process:
            return False
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        return not was_closed

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()

"""What ends the waits of a group: each kind of wait against each interruption, with the installed package."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
import unittest
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import members
import numpy

import rdmc
import rdmc.aio

# What waits may take at most: far beyond what a test may.
_TIMEOUT = 3600.0
# How long a wait has gone on when something happens to it. If it comes earlier, the test passes as well.
_BEFORE = 0.4

# Waits of rank 0 for rank 1, which does not come.
_SYNC = ["sync", "after async_op", "async_op", "messages", "joining messages", "close"]
_AIO = ["aio", "aio messages", "aio close"]
_JOINS = ["join", "aio join"]


def _note(name: str, text: str = "") -> None:
    """Tells the other rank that something has happened."""
    store = Path(os.environ["RDMC_STORE"])
    (store / f"new-{name}").write_text(text)
    (store / f"new-{name}").rename(store / f"note-{name}")


def _wait_for(name: str) -> None:
    until = time.monotonic() + members.PATIENCE
    while not (Path(os.environ["RDMC_STORE"]) / f"note-{name}").exists():
        assert time.monotonic() < until, name
        time.sleep(0.01)


def _wait(kind: str, number: int, array: Any, begin: Callable[[Any], None]) -> None:
    """Waits. ``begin`` is called with the group before."""
    if kind.startswith("aio"):
        asyncio.run(_wait_in_a_loop(kind, number, array, begin))
        return
    if kind == "join":
        begin(None)
        rdmc.Group(0, _nowhere(number), "ab" * 32, timeout=_TIMEOUT)
        return
    group = rdmc.Group.from_env(number=number, timeout=_TIMEOUT)
    if kind == "after async_op":
        group.barrier(async_op=True).wait()
    if kind == "async_op":
        work = group.broadcast(array, root=1, async_op=True)
        begin(group)
        work.wait()
    elif kind == "messages":
        messages = group.messages(root=1)
        begin(group)
        messages.receive()
    else:
        begin(group)
        if kind == "close":
            group.close()
        elif kind == "joining messages":
            group.messages(root=1)
        else:
            group.broadcast(array, root=1)


async def _wait_in_a_loop(kind: str, number: int, array: Any, begin: Callable[[Any], None]) -> None:
    if kind == "aio join":
        begin(None)
        async with rdmc.aio.Group(0, _nowhere(number), "ab" * 32, timeout=_TIMEOUT):
            return
    async with rdmc.aio.Group.from_env(number=number, timeout=_TIMEOUT) as group:
        if kind == "aio":
            begin(group)
            await group.broadcast(array, root=1)
        elif kind == "aio messages":
            async with group.messages(root=1) as messages:
                begin(group)
                await messages.receive()
        else:
            begin(group)


def _nowhere(number: int) -> list[str]:
    """Addresses of which only the first is used."""
    pid = os.getpid()
    return [f"127.{64 | (pid >> 16) & 63}.{(pid >> 8) & 255}.{max(pid & 255, 1)}:{7400 + 2 * number + rank}" for rank in range(2)]


def _wait_for_its_end() -> None:
    """Waits until the process of rank 0 is gone."""
    _wait_for("ends")
    process = int((Path(os.environ["RDMC_STORE"]) / "note-ends").read_text())
    until = time.monotonic() + members.PATIENCE
    try:
        while True:
            os.kill(process, 0)
            assert time.monotonic() < until, "the program does not end"
            time.sleep(0.01)
    except ProcessLookupError:
        pass


def _partner(kind: str, number: int, said: str, wait: Callable[[], None]) -> None:
    """Rank 1: it does not come before rank 0 has ended its wait, and learns of that then."""
    if kind in _JOINS:
        return
    group = rdmc.Group.from_env(number=number, timeout=_TIMEOUT)
    if kind == "after async_op":
        group.barrier(async_op=True).wait()
    messages = group.messages(root=1) if kind in ("messages", "aio messages") else None
    _note(f"{number}-is-there")
    wait()
    try:
        until = time.monotonic() + members.PATIENCE
        # An abort reaches others in its own time.
        while messages is not None and time.monotonic() < until:
            messages.send(b"")
            time.sleep(0.01)
        if messages is None:
            group.broadcast(numpy.full(4, 99.0), root=1)
            # The root does not wait for others.
            group.barrier()
        raise AssertionError(f"{kind}: nothing was noticed")
    except rdmc.MemberLost as error:
        assert error.rank == 0 and said in error.reason, (kind, error)
    _note(f"{number}-has-called")


def _raised(event: str, kind: str, number: int) -> str:
    """What has ended a wait; afterwards its array is not written."""
    array = numpy.zeros(4)

    def begin(group: Any) -> None:
        if kind not in _JOINS:
            _wait_for(f"{number}-is-there")
        signal.signal(signal.SIGUSR1, lambda *_: group.abort("enough"))
        threading.Timer(_BEFORE, _EVENTS[event], [group]).start()

    try:
        _wait(kind, number, array, begin)
        raise AssertionError(f"{kind}: it has ended")
    except (KeyboardInterrupt, TimeoutError, rdmc.Aborted) as error:
        raised = f"{type(error).__name__}: {error}"
    array[:] = 7
    _note(f"{number}-has-ended")
    if kind not in _JOINS:
        _wait_for(f"{number}-has-called")
    assert (array == 7).all(), (kind, array)
    return raised


_EVENTS: dict[str, Callable[[Any], None]] = {
    "ctrl-c": lambda _: os.kill(os.getpid(), signal.SIGINT),
    "handler": lambda _: os.kill(os.getpid(), signal.SIGALRM),
    "abort": lambda group: group.abort("enough"),
    "abort in a handler": lambda _: os.kill(os.getpid(), signal.SIGUSR1),
}


def _watchdog(*_: object) -> None:
    raise TimeoutError("watchdog")


def _event_in_all(event: str, kinds: list[str], said: str) -> list[str]:
    signal.signal(signal.SIGALRM, _watchdog)
    if os.environ["RANK"] == "1":
        for number, kind in enumerate(kinds, 1):
            _partner(kind, number, said, partial(_wait_for, f"{number}-has-ended"))
        return []
    return [_raised(event, kind, number) for number, kind in enumerate(kinds, 1)]


def _end_in(kind: str, event: str) -> None:
    """The program of rank 0 ends while a thread of it waits."""
    if os.environ["RANK"] == "1":
        _partner(kind, 1, "", _wait_for_its_end)
    else:
        # A program of its own: multiprocessing ends its processes without what is registered to run at the end.
        os.execv(sys.executable, [sys.executable, __file__, "end", kind, event])


def _end(kind: str, event: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    has_begun = threading.Event()

    def begin(_: Any) -> None:
        if kind not in _JOINS:
            _wait_for("1-is-there")
        has_begun.set()

    threading.Thread(target=_wait, args=(kind, 1, numpy.zeros(4), begin), daemon=True).start()
    assert has_begun.wait(members.PATIENCE)
    time.sleep(_BEFORE)
    _note("ends", str(os.getpid()))
    if event == "exit":
        sys.exit(3)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(members.PATIENCE)


def _refused_in_a_fork(kind: str) -> str:
    """What a child of fork gets in a wait, while its parent goes on."""
    group = rdmc.Group.from_env(timeout=_TIMEOUT)
    if kind != "before async_op":
        group.barrier(async_op=True).wait()
    array = numpy.full(4, float(group.rank))
    work = group.broadcast(array, root=1, async_op=True) if kind == "async_op" else None
    messages = group.messages(root=1) if kind == "messages" else None
    calls: dict[str, Callable[[], object]] = {
        "async_op": lambda: None if work is None else work.wait(),
        "new async_op": lambda: group.broadcast(array, root=1, async_op=True),
        "messages": lambda: messages and (messages.send(b"") if messages.is_root else messages.receive()),
        "joining messages": lambda: group.messages(root=1),
        "abort": lambda: group.abort("a child gives up"),
    }
    call = calls.get(kind, lambda: group.broadcast(array, root=1))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            call()
        except rdmc.InvalidUse as error:
            code = 0 if "fork" in str(error) else 2
            # The end of a child ends nothing of the parent's.
            group.close()
        finally:
            os._exit(code)
    until = time.monotonic() + members.PATIENCE / 2
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError(f"{kind}: the child hangs")
    if work is not None:
        work.wait()
    if messages is not None:
        messages.close()
    group.broadcast(array, root=1)
    assert (array == 1).all()
    group.close()
    return f"child {os.waitstatus_to_exitcode(ended[1])}"


def _wait_for_a_call(group: rdmc.Group) -> None:
    """Waits until another thread makes a call."""
    until = time.monotonic() + members.PATIENCE
    while not group._calls._turn._callers:
        assert time.monotonic() < until, "no call"
        time.sleep(0.01)


def _handle_in_a_call(does_leave: bool) -> list[str]:
    """What a signal's handler, which goes on, is refused while its thread makes a call, and another thread's operation waits for that."""
    group = rdmc.Group.from_env(timeout=members.PATIENCE)
    if group.rank == 1:
        _wait_for("0-has-handled")
        return _two_barriers(group)
    refused: list[str] = []
    started: list[rdmc.Work] = []

    def handle(*_: object) -> None:
        calls: list[Callable[[], object]] = [group.barrier, lambda: group.barrier(async_op=True), started[0].wait, group.messages]
        calls.append(group.close)
        if does_leave:
            calls = [lambda: group.__exit__(ValueError, ValueError("enough"), None)]
        for call in calls:
            try:
                call()
            except rdmc.InvalidUse as error:
                refused.append(str(error))
        _note("0-has-handled")

    def interrupt() -> None:
        _wait_for_a_call(group)
        started.append(group.barrier(async_op=True))
        os.kill(os.getpid(), signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, handle)
    threading.Thread(target=interrupt, daemon=True).start()
    return [*_two_barriers(group, started), *refused]


def _two_barriers(group: rdmc.Group, started: list[rdmc.Work] | None = None) -> list[str]:
    try:
        group.barrier()
        if started is None:
            group.barrier()
        else:
            started[0].wait()
        group.close()
    except rdmc.Aborted as error:
        return [error.reason]
    return []


def _call_in_a_handler() -> str:
    group = rdmc.Group.from_env(timeout=_TIMEOUT)
    if group.rank == 1:
        _note("1-is-there")
        _wait_for("1-has-ended")
        try:
            # The interrupted member has come to the first.
            group.barrier()
            group.barrier()
        except rdmc.MemberLost as error:
            return error.reason
    _wait_for("1-is-there")
    signal.signal(signal.SIGUSR1, lambda *_: group.all_reduce(numpy.zeros(3)))

    def signal_in_the_call() -> None:
        _wait_for_a_call(group)
        os.kill(os.getpid(), signal.SIGUSR1)

    threading.Thread(target=signal_in_the_call, daemon=True).start()
    try:
        group.barrier()
    except rdmc.InvalidUse as error:
        _note("1-has-ended")
        return str(error)
    return "nothing"


class _WithoutAText(Exception):
    """An exception of an application whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def _fail_with(kind: str) -> str:
    """Rank 1 ends the group, or its messages, with a text that is no UTF-8."""
    name = os.fsdecode(b"\xff.bin")
    error: Exception = _WithoutAText() if kind == "no text" else ValueError(name)
    group = members.group()
    try:
        if kind.startswith("aio"):
            asyncio.run(_fail_in_a_loop(kind, group.rank, error))
        elif kind.startswith("messages"):
            _fail_in_messages(kind, group, error)
        elif group.rank == 0:
            group.barrier()
        elif kind == "abort":
            group.abort(name)
            group.barrier()
        else:
            with group:
                raise error
    except (ValueError, _WithoutAText, rdmc.Aborted) as raised:
        if raised is error:
            return "its own"
        assert isinstance(raised, rdmc.Aborted) and raised.rank == 1, raised
        return raised.reason
    finally:
        # The other rank learns of the failure, not of the end of this process.
        _note(f"{group.rank}-has-ended")
        _wait_for(f"{1 - group.rank}-has-ended")
    return "nothing"


def _fail_in_messages(kind: str, group: rdmc.Group, error: Exception) -> None:
    with group.messages() as messages:
        if messages.is_root:
            messages.wait_delivered(1)
        elif kind == "messages abort":
            messages.abort(str(error))
            messages.receive()
        else:
            raise error


async def _fail_in_a_loop(kind: str, rank: int, error: Exception) -> None:
    async with rdmc.aio.Group.from_env(number=2, timeout=members.PATIENCE) as group:
        if kind == "aio":
            if rank == 1:
                raise error
            await group.barrier()
            return
        async with group.messages() as messages:
            if messages.is_root:
                await messages.wait_delivered(1)
            elif kind == "aio messages abort":
                messages.abort(str(error))
                await messages.receive()
            else:
                raise error


class Calls(unittest.TestCase):
    def _raises(self, event: str, kinds: list[str], said: str, expected: list[str]) -> None:
        found = members.returned(members.run(_event_in_all, 2, event, kinds, said))[0]
        for kind, raised, start in zip(kinds, found, expected, strict=True):
            self.assertTrue(raised.startswith(start), (kind, raised))

    def test_ctrl_c_ends_every_wait(self) -> None:
        self._raises("ctrl-c", [*_SYNC, "join"], "interrupted", ["KeyboardInterrupt: "] * 7)

    def test_ctrl_c_ends_every_wait_in_an_event_loop(self) -> None:
        kinds = [*_AIO, "aio join"]
        self._raises("ctrl-c", kinds, "ancelled", ["KeyboardInterrupt: "] * 4)

    def test_what_a_handler_of_a_signal_raises_ends_every_wait(self) -> None:
        self._raises("handler", [*_SYNC, "join"], "interrupted", ["TimeoutError: watchdog"] * 7)

    def test_what_a_handler_of_a_signal_raises_ends_every_wait_in_an_event_loop(self) -> None:
        self._raises("handler", [*_AIO, "aio join"], "", ["TimeoutError: watchdog"] * 4)

    def test_another_thread_ends_every_wait(self) -> None:
        kinds = [*_SYNC, *_AIO]
        self._raises("abort", kinds, "enough", ["Aborted: the group has failed: rank 0: enough"] * len(kinds))

    def test_a_handler_of_a_signal_that_aborts_ends_every_wait(self) -> None:
        kinds = [*_SYNC, *_AIO]
        expected = ["Aborted: the group has failed: rank 0: enough"] * len(kinds)
        self._raises("abort in a handler", kinds, "enough", expected)

    def test_a_handler_of_a_signal_makes_no_other_call(self) -> None:
        # The other process learns that the call was interrupted.
        kind, said = members.run(_call_in_a_handler, 2)[0]
        self.assertEqual(kind, "returned", said)
        self.assertIn("in progress on this thread", said)

    def test_a_handler_of_a_signal_that_is_refused_calls_ends_nothing(self) -> None:
        refused, others = members.returned(members.run(_handle_in_a_call, 2, False))
        self.assertEqual(len(refused), 5, refused)
        for said in refused:
            self.assertIn("in progress on this thread", said)
        self.assertEqual(others, [])

    def test_a_handler_of_a_signal_can_leave_the_group(self) -> None:
        for found in members.returned(members.run(_handle_in_a_call, 2, True)):
            self.assertEqual(len(found), 1, found)
            self.assertIn("ValueError: enough", found[0])

    def test_others_learn_of_a_failure_whose_text_is_no_utf_8(self) -> None:
        for kind in ("with", "abort", "messages", "messages abort", "aio", "aio messages", "aio messages abort"):
            with self.subTest(kind):
                found = members.returned(members.run(_fail_with, 2, kind))
                self.assertIn("\\udcff.bin", found[0])
                self.assertIn("\\udcff.bin" if kind.endswith("abort") else "its own", found[1])

    def test_others_learn_of_an_exception_that_has_no_text(self) -> None:
        found = members.returned(members.run(_fail_with, 2, "no text"))
        self.assertIn("_WithoutAText", found[0])
        self.assertEqual(found[1], "its own")

    def test_the_end_of_the_program_ends_every_wait(self) -> None:
        for kind in [*_SYNC, *_AIO, *_JOINS]:
            with self.subTest(kind):
                outcomes = members.run(_end_in, 2, kind, "exit")
                self.assertEqual(outcomes, [("died", 3), ("returned", None)])

    def test_sigterm_ends_every_wait(self) -> None:
        for kind in [*_SYNC, *_AIO, *_JOINS]:
            with self.subTest(kind):
                outcomes = members.run(_end_in, 2, kind, "sigterm")
                self.assertEqual(outcomes, [("died", -signal.SIGTERM), ("returned", None)])

    def test_every_call_is_refused_in_a_fork(self) -> None:
        for kind in ("before async_op", "after async_op", "async_op", "new async_op", "messages", "joining messages", "abort"):
            with self.subTest(kind):
                self.assertEqual(members.returned(members.run(_refused_in_a_fork, 2, kind)), ["child 0", "child 0"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["end"]:
        _end(*sys.argv[2:])
    else:
        unittest.main()

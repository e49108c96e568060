"""Groups with one copy for each host. Hosts are names here: RDMC_HOST."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import members
import numpy

import rdmc
from rdmc._channel import Channel


def _group(hosts: int) -> rdmc.HostGroup:
    # Ranks 0, hosts, 2 * hosts ... are on one host.
    os.environ["RDMC_HOST"] = f"host{int(os.environ['RANK']) % hosts}"
    return rdmc.HostGroup.from_env(timeout=members.PATIENCE)


def _inodes() -> list[str]:
    """Of the memory of groups that this process has mapped."""
    with open("/proc/self/maps") as file:
        return [line.split()[4] for line in file if "/memfd:rdmc host" in line]


def _share(hosts: int) -> list[str]:
    with _group(hosts) as group:
        assert (group.hosts, group.host) == (hosts, group.rank % hosts)
        assert group.is_leader == (group.rank < hosts)
        for root in range(group.size):
            for length in (0, 1, 5_000_000):
                expected = random.Random(root).randbytes(length)
                view = group.broadcast(expected if group.rank == root else None, root)
                assert view.readonly and view == expected
        view = group.broadcast(numpy.arange(1000.0) if group.rank == 0 else None)
        values = numpy.frombuffer(view)
        assert (values == numpy.arange(1000)).all()
        own = numpy.frombuffer(group.broadcast(b"x" * 10_000 if group.rank == 0 else None, writable=True), dtype="u1")
        # A private copy of pages.
        own[:] = group.rank
        group.barrier()
        assert (own == group.rank).all()
        group.barrier()
        places = _inodes()
    assert (values == numpy.arange(1000)).all()
    return places


def _wrong_use() -> None:
    with _group(2) as group:
        other = (group.rank + 1) % group.size
        wrong: list[tuple[Any, int]] = [(None, group.rank), (b"", other), (b"", 9)]
        no_roots: list[Any] = [1.0, None, "0", -1]
        wrong += [(None, root) for root in no_roots]
        for data, root in wrong:
            _assert_refused(group.broadcast, data, root)
        no_times: list[Any] = ["5", 1j, float("nan"), [1], numpy.zeros(2), -1]
        for timeout in no_times:
            _assert_refused(group.barrier, timeout=timeout)
            _assert_refused(group.close, timeout=timeout)
        group.barrier(timeout=float("inf"))


def _assert_refused(call: Callable[..., object], *given: Any, **named: Any) -> None:
    try:
        call(*given, **named)
    except rdmc.InvalidUse:
        return
    raise AssertionError(f"{given} {named} were not refused")


def _die_at(rank: int) -> None:
    with _group(2) as group:
        group.barrier()
        if group.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            group.broadcast(b"some" if group.rank == 0 else None)


def _raise_at(rank: int) -> None:
    with _group(2) as group:
        group.barrier()
        if group.rank == rank:
            raise KeyError("a bug of the program")
        while True:
            group.barrier()


def _differ() -> None:
    with _group(1) as group:
        if group.rank == 1:
            group.barrier()
        else:
            group.broadcast(b"some" if group.rank == 0 else None)


class _Alarm(Exception):
    """What a watchdog's signal handler raises."""


def _say(what: str) -> None:
    """Tells the other processes of a test, which wait for it by _await."""
    (Path(os.environ["RDMC_STORE"]) / what).touch()


def _await(what: str) -> None:
    until = time.monotonic() + members.PATIENCE
    while not (Path(os.environ["RDMC_STORE"]) / what).exists():
        assert time.monotonic() < until, what
        time.sleep(0.01)


def _raise_after(seconds: float, error: BaseException) -> None:
    def handle(_number: int, _frame: FrameType | None) -> None:
        raise error

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _failed(call: Callable[[], object]) -> tuple[str, str, int | None]:
    """How a call has failed."""
    try:
        call()
    except BaseException as error:
        return type(error).__name__, str(error), getattr(error, "rank", None)
    raise AssertionError("it has not failed")


def _give_up_waiting(operation: str, error: type[BaseException] | None) -> list[tuple[str, str, int | None]]:
    """Rank 1 waits for its leader and stops, by its timeout or a signal; then all call what they call."""
    os.environ["RDMC_HOST"] = "host"
    # Nothing below takes this long.
    group = rdmc.HostGroup.from_env(timeout=10 * members.PATIENCE)
    group.barrier()
    call: Callable[..., object] = group.broadcast if operation == "broadcast" else group.barrier
    if group.rank == 1:
        if error is not None:
            _raise_after(0.3, error("the watchdog"))
        first = _failed(lambda: call(timeout=0.3 if error is None else None))
        _say("given up")
        return [first, _failed(group.broadcast)]
    _await("given up")
    if group.rank == 0 and operation == "broadcast":
        return [_failed(lambda: group.broadcast(b"version 1")), _failed(group.barrier)]
    return [_failed(call), _failed(group.barrier)]


def _interrupt_leader(error: type[BaseException]) -> tuple[str, str, int | None]:
    """Rank 0 waits for rank 2 and is stopped by a signal; rank 1 waits for rank 0."""
    os.environ["RDMC_HOST"] = "host"
    group = rdmc.HostGroup.from_env(timeout=10 * members.PATIENCE)
    if group.rank == 2:
        _await("given up")
    if group.rank == 0:
        _raise_after(0.3, error("the watchdog"))
    failed = _failed(group.barrier)
    if group.rank == 0:
        _say("given up")
    return failed


def _fork_at(rank: int, way: str) -> list[Any]:
    """A child of one process uses the group in all ways, or leaves its block by an exception; the processes notice nothing."""
    os.environ["RDMC_HOST"] = "host"
    with rdmc.HostGroup.from_env(timeout=members.PATIENCE) as group:
        group.barrier()
        found: list[Any] = []
        if group.rank == rank:
            child = os.fork()
            if child == 0:
                os._exit(_use_in_child(group, way))
            found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        for version in (b"version 1", b"version 2"):
            assert bytes(group.broadcast(version if group.rank == 0 else None)) == version
        return found


def _use_in_child(group: rdmc.HostGroup, way: str) -> int:
    calls: list[Callable[[], object]] = [group.barrier, group.close, group.abort]
    calls.append(lambda: group.broadcast(b"" if group.rank == 0 else None))
    refusals = [_failed(call) for call in calls] if way == "calls" else []
    if way == "exception":
        try:
            with group:
                raise KeyError("of the child")
        except KeyError:
            pass
    # As a child that ends without os._exit.
    group.__dict__.clear()
    return 0 if all(kind == "InvalidUse" and "fork" in text for kind, text, _ in refusals) else 1


_LONG = "größer als \U0001f600 \x00\udc80 " * 5000


def _raise_long(rank: int) -> None:
    with _group(2) as group:
        group.barrier()
        if group.rank == rank:
            raise RuntimeError(_LONG)
        group.barrier()


def _abort_from_a_thread(rank: int) -> tuple[str, str, int | None]:
    """One process waits, and a thread of it ends the group; the others wait for another one."""
    group = _group(1)
    group.barrier()
    if group.rank == rank:
        threading.Timer(0.3, group.abort, ["enough"]).start()
    if group.rank == 1:
        _await("ended")
    failed = _failed(group.barrier)
    if group.rank == rank:
        _say("ended")
    return failed


def _interrupt_relay(error: type[BaseException]) -> tuple[str, str, int | None]:
    """Rank 1 is another host, and does not come: the leader of rank 0 and 2 waits in the group of leaders."""
    group = _group(2)
    group.barrier()
    if group.rank == 1:
        _await("given up")
    data = bytearray(b"x" * 3_000_000)
    if group.rank == 0:
        _raise_after(0.3, error("the watchdog"))
    failed = _failed(lambda: group.broadcast(data if group.rank == 0 else None))
    if group.rank == 0:
        # It is of no other process afterwards.
        data.append(1)
        _say("given up")
    return failed


def _interrupt_joining(late: int, waiting: int) -> tuple[str, str, int | None]:
    """One process is late; another one, which waits for it, is stopped by a signal."""
    os.environ["RDMC_HOST"] = "host"
    if int(os.environ["RANK"]) == late:
        _await("given up")
        return "", "", None
    if int(os.environ["RANK"]) == waiting:
        _raise_after(0.5, _Alarm())
        failed = _failed(lambda: rdmc.HostGroup.from_env(timeout=10 * members.PATIENCE))
        _say("given up")
        return failed
    raise AssertionError("two processes")


def _follower() -> tuple[rdmc.HostGroup, socket.socket, socket.socket]:
    """One of two processes, its end of the connection, and the other, which a test has."""
    own, leader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    group = rdmc.HostGroup.__new__(rdmc.HostGroup)
    group._set_up(1, ["host", "host"], members.PATIENCE)
    group._channels = [Channel(own, 0)]
    return group, own, leader


class HostGroups(unittest.TestCase):
    def test_a_fork_is_refused_and_changes_nothing(self) -> None:
        for rank in (0, 1):
            for way in ("calls", "exception"):
                outcomes = members.returned(members.run(_fork_at, 2, rank, way))
                self.assertEqual(outcomes[rank], [0], (rank, way))

    def test_a_long_reason_that_is_not_ascii_is_told(self) -> None:
        for culprit in (0, 2):
            outcomes: list[Any] = members.run(_raise_long, 4, culprit)
            for rank in {0, 1, 2, 3} - {culprit}:
                kind, (error, text, _) = outcomes[rank]
                self.assertEqual((kind, error), ("raised", "Aborted"), text)
                self.assertIn("größer", text)

    def test_another_thread_can_abort(self) -> None:
        for rank in (0, 2):
            for kind, text, culprit in members.returned(members.run(_abort_from_a_thread, 3, rank)):
                self.assertEqual((kind, culprit), ("Aborted", rank), text)
                self.assertIn("enough", text)

    def test_a_leader_that_waits_for_other_hosts_is_stopped(self) -> None:
        for error in (_Alarm, KeyboardInterrupt, SystemExit):
            outcomes = members.returned(members.run(_interrupt_relay, 3, error))
            self.assertEqual(outcomes[0][0], error.__name__)
            for kind, text, culprit in outcomes[1:]:
                self.assertEqual((kind, culprit), ("Aborted", 0), text)
            self.assertIn(error.__name__, outcomes[2][1])

    def test_joining_is_stopped(self) -> None:
        for late, waiting in ((0, 1), (1, 0)):
            outcomes = members.returned(members.run(_interrupt_joining, 2, late, waiting))
            self.assertEqual(outcomes[waiting][0], "_Alarm")

    def test_a_process_that_stops_waiting_ends_the_group(self) -> None:
        ways = [("broadcast", None), ("barrier", None), ("broadcast", _Alarm), ("broadcast", KeyboardInterrupt), ("barrier", SystemExit)]
        for operation, error in ways:
            outcomes = members.returned(members.run(_give_up_waiting, 3, operation, error))
            name = "Stalled" if error is None else error.__name__
            own, again = outcomes[1]
            self.assertEqual(own[0], name)
            self.assertIn(again[0], ("Stalled", "Aborted"), again)
            for rank in (0, 2):
                for kind, text, culprit in outcomes[rank]:
                    self.assertEqual((kind, culprit), ("Aborted", 1), text)
                    self.assertIn(name, text)

    def test_a_leader_that_stops_waiting_ends_the_group(self) -> None:
        for error in (_Alarm, KeyboardInterrupt, SystemExit):
            outcomes = members.returned(members.run(_interrupt_leader, 3, error))
            self.assertEqual(outcomes[0][0], error.__name__)
            for kind, text, culprit in outcomes[1:]:
                self.assertEqual((kind, culprit), ("Aborted", 0), text)
                self.assertIn(error.__name__, text)

    def test_processes_of_a_host_share_one_copy(self) -> None:
        outcomes = members.returned(members.run(_share, 5, 2))
        by_host = [outcomes[0], outcomes[1]]
        self.assertEqual(outcomes, [by_host[rank % 2] for rank in range(5)])
        self.assertNotEqual(*by_host)

    def test_hosts_with_one_process_and_a_single_host(self) -> None:
        members.returned(members.run(_share, 3, 3))
        members.returned(members.run(_share, 3, 1))

    def test_wrong_use_is_refused(self) -> None:
        members.returned(members.run(_wrong_use, 3))

    def test_a_process_that_is_killed_is_named(self) -> None:
        for victim in (1, 3):
            outcomes: list[Any] = members.run(_die_at, 4, victim)
            self.assertEqual(outcomes[victim], ("died", -signal.SIGKILL))
            for rank in {0, 1, 2, 3} - {victim}:
                kind, (error, text, culprit) = outcomes[rank]
                self.assertEqual(kind, "raised", text)
                self.assertIn(f"rank {victim}", text)

    def test_a_process_that_raises_ends_the_group_at_all(self) -> None:
        for culprit in (0, 2):
            outcomes: list[Any] = members.run(_raise_at, 4, culprit)
            self.assertEqual(outcomes[culprit][1][0], "KeyError")
            for rank in {0, 1, 2, 3} - {culprit}:
                kind, (error, text, _) = outcomes[rank]
                self.assertEqual(kind, "raised", text)
                self.assertIn("KeyError", text)

    def test_what_a_leader_has_said_before_it_ended_is_the_reason(self) -> None:
        for has_unread in (False, True):
            group, own, leader = _follower()
            if has_unread:
                own.send(b"a request")
            leader.send(b'{"ended": "Aborted", "rank": 2, "reason": "a bug of the program"}')
            leader.close()
            for _ in range(2):
                # The cause stays.
                with self.assertRaisesRegex(rdmc.Aborted, "a bug of the program") as raised:
                    group.barrier(timeout=members.PATIENCE)
                self.assertEqual(raised.exception.rank, 2)
            group.close()

    def test_an_answer_to_another_call_is_refused(self) -> None:
        answers: list[tuple[bytes, str]] = [
            (b'{"call": 7, "operation": "barrier", "root": 0}', "as call 7"),
            (b'{"call": 1, "operation": "broadcast", "root": 0}', "broadcast with root 0"),
            (b"{}", "as call None"),
            (b"[]", "not a message"),
            (b"\xff", "not a message"),
            (b'{"ended": "make", "rank": "x", "reason": 3}', "3"),
        ]
        for answer, words in answers:
            group, _, leader = _follower()
            with leader:
                leader.send(answer)
                with self.assertRaisesRegex(rdmc.MemberLost, words):
                    group.barrier(timeout=members.PATIENCE)

    def test_processes_that_call_different_operations_are_named(self) -> None:
        outcomes: list[Any] = members.run(_differ, 3)
        for kind, (error, text, rank) in outcomes:
            self.assertEqual((kind, error, rank), ("raised", "Aborted", 1), text)
            self.assertIn("barrier", text)


if __name__ == "__main__":
    unittest.main()

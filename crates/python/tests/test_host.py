"""Groups with one copy for each host. Hosts are names here: RDMC_HOST."""

from __future__ import annotations

import os
import random
import signal
import socket
import unittest
from typing import Any

import members
import numpy

import rdmc


def _group(hosts: int) -> rdmc.HostGroup:
    # Ranks 0, hosts, 2 * hosts ... are on one host.
    os.environ["RDMC_HOST"] = f"host{int(os.environ['RANK']) % hosts}"
    return rdmc.HostGroup.from_env(timeout=members.PATIENCE)


def _inodes() -> list[str]:
    """Of the memory of groups that this process has mapped."""
    with open("/proc/self/maps") as file:
        return [line.split()[4] for line in file if "/memfd:rdmc" in line]


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
        for data, root in wrong:
            try:
                group.broadcast(data, root)
            except rdmc.InvalidUse:
                pass
            else:
                raise AssertionError("it was not refused")
        group.barrier()


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


class HostGroups(unittest.TestCase):
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
            group = rdmc.HostGroup.__new__(rdmc.HostGroup)
            group._leader, leader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            group.is_leader, group._is_closed, group.host, group._leaders = False, False, 0, [0]
            if has_unread:
                group._leader.send(b"a request")
            leader.send(b'{"failed": "Refused", "rank": 2, "text": "a bug of the program"}')
            leader.close()
            with self.assertRaisesRegex(rdmc.errors.Refused, "a bug of the program"):
                group.barrier(timeout=60)

    def test_processes_that_call_different_operations_are_named(self) -> None:
        outcomes: list[Any] = members.run(_differ, 3)
        for kind, (error, text, rank) in outcomes:
            self.assertEqual((kind, error, rank), ("raised", "Refused", 1), text)
            self.assertIn("barrier", text)


if __name__ == "__main__":
    unittest.main()

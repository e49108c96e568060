"""Groups of processes, with the installed package."""

from __future__ import annotations

import array
import os
import resource
import signal
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any

import members
import numpy

import rdmc


def _operations() -> int:
    with members.group() as group:
        rank, size = group.rank, group.size
        for length in (0, 1, 1000, 3_000_000):
            values = numpy.arange(length, dtype="f4") + rank
            group.broadcast(values, root=size - 1)
            assert (values == numpy.arange(length, dtype="f4") + size - 1).all()
        for kind in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"):
            values = numpy.full(7, rank + 1, dtype=kind)
            group.all_reduce(values, op="prod")
            assert (values == numpy.prod(numpy.arange(1, size + 1)).astype(kind)).all(), kind
        values = numpy.full((2, 3), rank)
        group.reduce(values, root=size // 2, op="max")
        assert (values == (size - 1 if rank == size // 2 else rank)).all()
        parts = numpy.zeros((size, 5), dtype="i4")
        parts[rank] = rank + 10
        group.all_gather_in_place(parts)
        assert (parts == numpy.arange(10, 10 + size).reshape(size, 1)).all()
        plain = array.array("d", [float(rank)] * 3)
        group.all_reduce(plain, op="sum")
        assert list(plain) == [size * (size - 1) / 2] * 3
        data = b"of any length" * 1000 if rank == 0 else None
        assert group.broadcast_bytes(data) == b"of any length" * 1000
        works = [group.all_reduce(numpy.full(10, rank), async_op=True) for _ in range(20)]
        group.barrier()
        for work in works:
            assert work is not None
            work.wait(members.PATIENCE)
            assert work.is_completed()
        return rank


def _refused() -> None:
    with members.group() as group:
        values = numpy.zeros((4, 4), dtype="f4")
        fixed = values.copy()
        fixed.setflags(write=False)
        for bad, word in ((values[:, 1], "contiguous"), (fixed, "read-only")):
            try:
                group.broadcast(bad, root=1 - group.rank)
            except rdmc.InvalidUse as error:
                assert word in str(error), error
            else:
                raise AssertionError(word)
        calls: tuple[Callable[[], object], ...] = (
            lambda: group.all_reduce(values, op="mean"),
            lambda: group.all_reduce(values, op="bxor"),
            lambda: group.all_reduce(numpy.zeros(3, dtype="c16")),
            lambda: group.broadcast(values, root=group.size),
        )
        for call in calls:
            try:
                call()
            except rdmc.InvalidUse:
                pass
            else:
                raise AssertionError("it was not refused")
        group.barrier()


def _die_at(rank: int) -> None:
    with members.group() as group:
        values = numpy.zeros(1_000_000)
        group.broadcast(values)
        if group.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            group.all_reduce(values)


def _raise_at(rank: int) -> None:
    with members.group() as group:
        group.barrier()
        if group.rank == rank:
            raise KeyError("a bug of the program")
        group.barrier()


def _broadcast_without_memory(length: int, is_async: bool) -> None:
    """Rank 0 tells a length for which no process has memory."""
    with members.group() as group:
        if is_async:
            group.barrier(async_op=True).wait()
        else:
            group.barrier()
        if group.rank == 1:
            group.broadcast_bytes()
        group.broadcast(bytearray(length.to_bytes(8, "little")))
        group.barrier()


def _learns_of_the_end(group: rdmc.Group, rank: int) -> str:
    try:
        # The interrupted member may have come to the first before.
        group.barrier()
        group.barrier()
    except rdmc.MemberLost as error:
        assert error.rank == rank, error
        return "learned of it"
    return "nothing"


def _interrupt_at(rank: int) -> str:
    with members.group() as group:
        group.barrier()
        if group.rank == rank:
            threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
            try:
                # The others do not come.
                group.barrier()
            except KeyboardInterrupt:
                return "interrupted"
            return "not interrupted"
        time.sleep(1.0)
        return _learns_of_the_end(group, rank)


def _interrupt_after_async_at(rank: int) -> str:
    with members.group() as group:
        work = group.barrier(async_op=True)
        assert work is not None
        work.wait(members.PATIENCE)
        if group.rank != rank:
            time.sleep(1.0)
            return _learns_of_the_end(group, rank)
        threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
        try:
            group.barrier()
        except KeyboardInterrupt:
            return "interrupted"
        return "not interrupted"


def _abort_from_a_thread() -> str:
    with members.group() as group:
        group.barrier()
        if group.rank == 0:
            threading.Timer(0.3, group.abort, ["enough"]).start()
        try:
            # Rank 1 does not come before rank 0 has given up.
            if group.rank == 1:
                time.sleep(1.0)
            group.barrier()
            group.barrier()
        except rdmc.Aborted as error:
            assert "enough" in error.reason and error.rank == 0
            return "refused"
        return "nothing"


def _fork() -> str:
    with members.group() as group:
        group.barrier()
        child = os.fork()
        if child == 0:
            try:
                group.barrier()
            except rdmc.InvalidUse as error:
                # What the child frees is left to the parent.
                del group._endpoint, group._calls
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        _, status = os.waitpid(child, 0)
        group.barrier()
        return f"child {os.waitstatus_to_exitcode(status)}"


def _with_addresses(addresses: list[str], secret: str) -> int:
    rank = int(os.environ["RANK"])
    with rdmc.Group(rank, addresses, secret, timeout=members.PATIENCE) as group:
        values = numpy.full(5, rank)
        group.all_reduce(values)
        return int(values[0])


def _over_fabric(fabric: str) -> None:
    with members.group(fabric=fabric) as group:
        values = numpy.full(300_000, group.rank, dtype="f4")
        group.broadcast(values, root=1)
        group.all_reduce(values)
        assert (values == group.size).all()
        with group.messages() as messages:
            if messages.is_root:
                messages.send(values)
            else:
                assert [bytes(message.data()) for message in messages] == [values.tobytes()]


def _wrong_arguments() -> None:
    """They are refused before anything is sent, so that nothing has happened if that is caught."""
    group = members.group()
    values: Any = numpy.zeros(4)
    wrong: list[Any] = [-1, group.size, 1 << 32, "0", 0.5, None]
    times: list[Any] = ["3", float("nan"), b"1", 1j, numpy.zeros(2), [1], 10**400]
    other: Any = 5
    calls: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = [
        (group.messages, (), {"algorithm": other}),
        (group.messages, (), {"algorithm": "none of them"}),
        (group.messages, (), {"algorithm": "\udcff"}),
        (rdmc.Group, (0, [other], rdmc.random_secret()), {}),
        (rdmc.Group, (0, ["127.0.0.1:\udcff"], rdmc.random_secret()), {}),
        (rdmc.Group, (0, ["127.0.0.1:0"], "\udcff"), {}),
        (rdmc.Group, (0, ["127.0.0.1:0"], rdmc.random_secret()), {"fabric": "\udcff"}),
        (rdmc.Group, (0, ["127.0.0.1:0"], rdmc.random_secret()), {"protection": other}),
        (group.messages, (), {"block_bytes": -1}),
        (group.messages, (), {"message_bytes": 1 << 64}),
        (group.all_reduce, (values,), {"op": other}),
        (group.broadcast, ("text",), {}),
    ]
    for root in wrong:
        calls += [
            (group.broadcast, (values, root), {}),
            (group.broadcast, (values, root), {"async_op": True}),
            (group.reduce, (values, root), {}),
            (group.broadcast_bytes, (b"", root), {}),
            (group.messages, (root,), {}),
        ]
    for timeout in times:
        calls += [
            (group.barrier, (), {"timeout": timeout}),
            (group.all_reduce, (values,), {"timeout": timeout}),
            (group.all_gather_in_place, (values,), {"timeout": timeout, "async_op": True}),
            (group.messages, (), {"timeout": timeout}),
            (group.close, (timeout,), {}),
        ]
    # At one member alone: others do not notice it.
    for call, given, named in calls if group.rank == 0 else []:
        try:
            call(*given, **named)
        except rdmc.InvalidUse:
            continue
        raise AssertionError("it was not refused")
    with group.messages() as messages:
        for count in (-1, 1 << 64):
            try:
                messages.wait_complete(count)
            except rdmc.InvalidUse:
                continue
            raise AssertionError("it was not refused")
    group.broadcast(values, root=1)
    group.barrier()
    group.close()


def _number(number: Any) -> str:
    try:
        with members.group(number=number):
            return "joined"
    except rdmc.InvalidUse as error:
        return str(error)


def _one_more_barrier(rank: int) -> str:
    group = rdmc.Group.from_env(timeout=3600)
    try:
        if group.rank == rank:
            group.barrier()
        group.close()
    except rdmc.Aborted as error:
        return error.reason
    return "nothing"


def _differ_at(rank: int) -> str:
    with members.group() as group:
        try:
            group.all_reduce(numpy.zeros(3 if group.rank == rank else 2, dtype="f4"))
            group.barrier()
        except rdmc.Aborted as error:
            return error.reason
        return "nothing"


def _split() -> list[tuple[int, int, list[int]] | None]:
    """By color: even and odd ranks, in the reverse order; then all but rank 0."""
    with members.group() as group:
        found: list[tuple[int, int, list[int]] | None] = []
        for color, key in ((group.rank % 2, -group.rank), (None if group.rank == 0 else -5, 0)):
            part = group.split(color, key)
            if part is None:
                found.append(None)
                continue
            with part:
                ranks = numpy.full(part.size, -1)
                part.all_gather(ranks, numpy.array([group.rank]))
                found.append((part.rank, part.size, ranks.tolist()))
                # Both at a time.
                group_of_one = part.split(part.rank)
                assert group_of_one is not None and group_of_one.size == 1
                group_of_one.close()
        group.barrier()
        wrong: list[tuple[Any, Any]] = [(1 << 63, 0), (0, 1.5)]
        for color, key in wrong:
            try:
                group.split(color, key)
            except rdmc.InvalidUse:
                continue
            raise AssertionError("it was taken")
        return found


def _split_without_a_port() -> str:
    with members.group() as group:
        if group.rank == 1:
            resource.setrlimit(resource.RLIMIT_NOFILE, (1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        group.split(0)
        return "formed"


def _end_a_part() -> bool:
    """The failure of a part is not one of the group."""
    with members.group() as group:
        part = group.split(0)
        assert part is not None
        if group.rank == 0:
            part.abort("enough")
        try:
            part.barrier()
        except rdmc.Aborted:
            group.barrier()
            return True
        return False


def _count() -> list[rdmc.Counters]:
    with members.group() as group:
        counted = [group.counters()]
        for length in (1000, 3_000_000):
            group.broadcast(bytearray(length))
            counted.append(group.counters())
        with group.messages(message_bytes=5_000_000) as messages:
            if messages.is_root:
                messages.send(bytes(5_000_000))
            else:
                for message in messages:
                    message.wait()
        counted.append(group.counters())
    try:
        group.counters()
    except rdmc.InvalidUse:
        return counted
    raise AssertionError("a group that is closed has counters")


class Groups(unittest.TestCase):
    def test_a_group_is_split_by_colors(self) -> None:
        of_rank = members.returned(members.run(_split, 4))
        self.assertEqual([found[0] for found in of_rank], [(1, 2, [2, 0]), (1, 2, [3, 1]), (0, 2, [2, 0]), (0, 2, [3, 1])])
        self.assertEqual([found[1] for found in of_rank], [None, (0, 3, [1, 2, 3]), (1, 3, [1, 2, 3]), (2, 3, [1, 2, 3])])

    def test_a_member_that_cannot_be_split_off_is_named(self) -> None:
        outcomes: list[Any] = members.run(_split_without_a_port, 3)
        for rank in (0, 2):
            kind, (error, text, culprit) = outcomes[rank]
            self.assertEqual((kind, error, culprit), ("raised", "Aborted", 1), text)

    def test_the_end_of_a_part_is_not_that_of_the_group(self) -> None:
        self.assertEqual(members.returned(members.run(_end_a_part, 2)), [True] * 2)

    def test_what_was_done_is_counted(self) -> None:
        for rank, counted in enumerate(members.returned(members.run(_count, 2))):
            self.assertEqual([each.operations for each in counted], [0, 1, 2, 2])
            sums = [0, 1000, 3_001_000, 8_001_000]
            self.assertEqual([each.bytes_sent if rank == 0 else each.bytes_received for each in counted], sums)
            self.assertEqual([each.bytes_received if rank == 0 else each.bytes_sent for each in counted], [0] * 4)

    def test_wrong_arguments_are_refused_and_change_nothing(self) -> None:
        members.returned(members.run(_wrong_arguments, 2))

    def test_wrong_arguments_of_a_new_group_are_named(self) -> None:
        secret, address = rdmc.random_secret(), "127.0.0.1:0"
        valid: dict[str, Any] = {"rank": 0, "members": [address], "secret": secret, "timeout": members.PATIENCE}
        wrong: list[tuple[dict[str, Any], str]] = [
            *[({"rank": rank}, "rank is ") for rank in (1, -1, None, "0")],
            *[({"members": given}, "members is ") for given in (None, 5, "abc", b"abc")],
            ({"members": []}, "members is "),
            ({"members": [address, 2]}, r"members\[1\] is of type int"),
            ({"members": ["127.0.0.1"]}, "not an address"),
            ({"members": [address, address]}, "rank 0 and rank 1 have the same address, 127.0.0.1:0"),
            *[({"secret": given}, "secret is of type") for given in (None, 5, secret.encode())],
            ({"secret": "abc"}, "64"),
            *[({name: 5}, f"{name} is of type int") for name in ("fabric", "protection")],
            ({"fabric": "none such"}, "none such"),
            ({"protection": "none such"}, "none such"),
            *[({"timeout": given}, "timeout is ") for given in ("5", 1j, float("nan"), numpy.zeros(2))],
            *[({"number": given}, "number is ") for given in ("x", None, -1, 1 << 32)],
        ]
        for given, words in wrong:
            with self.assertRaisesRegex(rdmc.InvalidUse, words):
                rdmc.Group(**{**valid, **given})
        for timeout in (None, float("inf")):
            rdmc.Group(**{**valid, "timeout": timeout}).close()

    def test_numbers_of_groups(self) -> None:
        for number, said in ((0, "joined"), ((1 << 32) - 1, "joined"), (1 << 32, "number is 4294967296"), (-1, "number is -1")):
            for outcome in members.returned(members.run(_number, 2, number)):
                self.assertIn(said, outcome)

    def test_a_barrier_of_one_that_meets_closing_is_named(self) -> None:
        for said in members.returned(members.run(_one_more_barrier, 2, 0)):
            self.assertRegex(said, "it called (close, not barrier|barrier, not close)")

    def test_all_learn_what_differs(self) -> None:
        for said in members.returned(members.run(_differ_at, 5, 3)):
            self.assertRegex(said, "the group has failed: rank [0-9]: it called all_reduce of (12 bytes, not 8|8 bytes, not 12)")

    def test_fabrics_of_libfabric(self) -> None:
        for fabric in ("ofi-tcp", "shm"):
            outcomes = members.run(_over_fabric, 3, fabric)
            if "libfabric" in str(outcomes[0]) and outcomes[0][0] == "raised":
                self.skipTest(f"{fabric}: {outcomes[0]}")
            members.returned(outcomes)

    def test_operations_of_all_kinds(self) -> None:
        for size in (1, 2, 4):
            self.assertEqual(members.returned(members.run(_operations, size)), list(range(size)))

    def test_arrays_that_cannot_be_used_are_refused_and_change_nothing(self) -> None:
        members.returned(members.run(_refused, 2))

    def test_a_member_that_is_killed_is_named(self) -> None:
        members.assert_killed(members.run(_die_at, 4, 2), 2)

    def test_a_member_that_raises_ends_the_group_at_all(self) -> None:
        members.assert_gave_up(members.run(_raise_at, 3, 1), 1, "KeyError")

    def test_bytes_for_which_there_is_no_memory_are_named_at_all(self) -> None:
        for length in (1 << 62, 1 << 63):
            for is_async in (False, True):
                outcomes: list[Any] = members.run(_broadcast_without_memory, 2, length, is_async)
                members.assert_gave_up(outcomes, 1, "MemoryError")
                for _, raised in outcomes:
                    self.assertIn(f"no memory for {length} bytes", raised[1])

    def test_ctrl_c_ends_a_wait(self) -> None:
        outcomes = members.returned(members.run(_interrupt_at, 3, 0))
        self.assertEqual(outcomes, ["interrupted", "learned of it", "learned of it"])

    def test_ctrl_c_ends_a_wait_for_the_thread_of_the_group(self) -> None:
        outcomes = members.returned(members.run(_interrupt_after_async_at, 2, 1))
        self.assertEqual(outcomes, ["learned of it", "interrupted"])

    def test_another_thread_can_abort(self) -> None:
        self.assertEqual(members.returned(members.run(_abort_from_a_thread, 2)), ["refused", "refused"])

    def test_a_fork_is_refused(self) -> None:
        self.assertEqual(members.returned(members.run(_fork, 2)), ["child 0", "child 0"])

    def test_members_with_known_addresses(self) -> None:
        pid = os.getpid()
        ip = f"127.{64 | (pid >> 16) & 63}.{(pid >> 8) & 255}.{max(pid & 255, 1)}"
        addresses = [f"{ip}:{7300 + rank}" for rank in range(3)]
        outcomes = members.run(_with_addresses, 3, addresses, rdmc.random_secret())
        self.assertEqual(members.returned(outcomes), [3, 3, 3])

    def test_without_a_launcher_it_is_said_what_is_missing(self) -> None:
        with self.assertRaisesRegex(rdmc.InvalidUse, "torchrun"):
            rdmc.Group.from_env("store")


if __name__ == "__main__":
    unittest.main()

"""Operations on the parts of arrays, averages, and truth values."""

from __future__ import annotations

import array
import asyncio
import importlib.util
import sys
import unittest
from collections.abc import Callable
from typing import Any

import members
import numpy

import rdmc
import rdmc.aio


def _parts() -> None:
    with members.group() as group:
        rank, size = group.rank, group.size
        for length in (0, 1, 7, 100_000):
            for root in range(size):
                part = numpy.arange(length, dtype="f4") + rank
                whole = numpy.array([numpy.arange(length) + other for other in range(size)], dtype="f4")
                out = numpy.full((size, length), -1, dtype="f4")
                group.all_gather(out, part)
                assert (out == whole).all()
                out[:] = -1
                group.gather(part, out if rank == root else None, root)
                assert (out == (whole if rank == root else -1)).all()
                own = numpy.full(length, -1, dtype="f4")
                group.scatter(own, whole if rank == root else None, root)
                assert (own == part).all()
                parts = whole * (rank + 1)
                group.reduce_scatter(own, parts)
                assert (own == part * sum(range(1, size + 1))).all() and (parts == whole * (rank + 1)).all()
                group.reduce_scatter(own, parts, op="max", async_op=True).wait()
                assert (own == part * size).all()


def _other_memory() -> None:
    """Parts in other kinds of arrays, also those with a byte order of their own, and in the array of all."""
    with members.group() as group:
        rank, size = group.rank, group.size
        own = array.array("i", [rank, rank])
        out = numpy.zeros(2 * size, dtype="i4")
        group.all_gather(out, own)
        assert out.tolist() == [other for other in range(size) for _ in range(2)]
        out = numpy.zeros(2 * size, dtype="i4")
        out[2 * rank : 2 * rank + 2] = rank
        group.all_gather(out, out[2 * rank : 2 * rank + 2])
        assert out.tolist() == [other for other in range(size) for _ in range(2)]
        structure = numpy.zeros(size, dtype=">i4")
        group.all_gather(memoryview(structure.data), memoryview(numpy.full(1, rank, dtype=">i4").data))
        assert structure.tolist() == list(range(size))
        grows = bytearray(size)
        group.all_gather(grows, bytes([rank]))
        grows += b"d"
        assert bytes(grows) == bytes(range(size)) + b"d"


def _wrong_parts() -> None:
    with members.group() as group:
        three, four = numpy.zeros(3), numpy.zeros(4)
        # At one member alone: others do not notice it.
        calls: list[tuple[Callable[[], object], str]] = [
            (lambda: group.all_gather(three, four), "24 bytes, which are not 2 parts of 32"),
            (lambda: group.all_gather(four, numpy.zeros(2, dtype="i8")), "type"),
            (lambda: group.gather(four), "gather(part, out)"),
            (lambda: group.gather(four, four), "not 2 parts"),
            (lambda: group.scatter(four), "scatter(out, parts)"),
            (lambda: group.scatter(four, three), "not 2 parts"),
            (lambda: group.scatter(b"ab", b"abcd"), "read-only"),
            (lambda: group.scatter(four, root=2), "root"),
            (lambda: group.reduce_scatter(four, three), "not 2 parts"),
            (lambda: group.reduce_scatter(numpy.zeros(1), numpy.zeros(2), "other"), "avg"),
            (lambda: group.reduce_scatter(numpy.zeros(1, dtype="c8"), numpy.zeros(2, dtype="c8")), "complex64"),
            (lambda: group.all_reduce(numpy.zeros(1, dtype="i4"), "avg"), "i4"),
            (lambda: group.all_reduce(numpy.zeros(1, dtype="?"), "avg"), "bool"),
        ]
        for call, word in calls if group.rank == 0 else []:
            try:
                call()
            except rdmc.InvalidUse as error:
                assert word in str(error), error
            else:
                raise AssertionError(word)
        group.barrier()


def _averages() -> None:
    with members.group() as group:
        rank, size = group.rank, group.size
        mean = (size - 1) / 2
        for kind in ("f2", "f4", "f8"):
            values = numpy.full(5, rank, dtype=kind)
            group.all_reduce(values, "avg")
            assert (values == mean).all(), kind
            values = numpy.full(5, rank, dtype=kind)
            group.reduce(values, 1, "avg")
            assert (values == (mean if rank == 1 else rank)).all(), kind
            own = numpy.zeros(2, dtype=kind)
            group.reduce_scatter(own, numpy.full((size, 2), rank, dtype=kind), "avg")
            assert (own == mean).all(), kind
        group.all_reduce(numpy.zeros(0), "avg")
        if importlib.util.find_spec("ml_dtypes"):
            # Untyped: the environment in which types are checked does not have it.
            ml_dtypes: Any = importlib.import_module("ml_dtypes")
            short = numpy.full(5, rank, dtype=ml_dtypes.bfloat16)
            group.all_reduce(short, "avg")
            assert (short == mean).all()


def _averages_without_numpy() -> list[str]:
    """Buffers of the standard library give the bits that numpy gives."""
    with members.group() as group:
        given = numpy.array([0.1, 1e-30, 3e38, -7], dtype="f4") / (group.rank + 1)
        plain, values = array.array("f", given), given.copy()
        group.all_reduce(values, "avg")
        hidden = {name: sys.modules.pop(name) for name in ("numpy", "torch") if name in sys.modules}
        try:
            group.all_reduce(plain, "avg")
        finally:
            for name, module in hidden.items():
                sys.modules[name] = module
        assert plain.tobytes() == values.tobytes(), (plain, values)
        return [value.hex() for value in plain]


def _average_beside_sum(name: str) -> str:
    """Rank 0 wants averages, the other sums."""
    with members.group() as group:
        op = "avg" if group.rank == 0 else "sum"
        out, values = numpy.zeros(50), numpy.ones(100)
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: group.all_reduce(values, op),
            "reduce": lambda: group.reduce(values, 1, op),
            "reduce_scatter": lambda: group.reduce_scatter(out, values, op),
        }
        try:
            calls[name]()
            group.barrier()
        except rdmc.Aborted as error:
            return error.reason
        return "nothing"


def _truth_values() -> None:
    with members.group() as group:
        rank = group.rank
        # Of two members: both, the first, the second, neither.
        for op, expected in {
            "sum": [True, True, True, False],
            "max": [True, True, True, False],
            "bor": [True, True, True, False],
            "prod": [True, False, False, False],
            "min": [True, False, False, False],
            "band": [True, False, False, False],
            "bxor": [False, True, True, False],
        }.items():
            values = numpy.array([True, rank == 0, rank == 1, False])
            group.all_reduce(values, op)
            assert values.tolist() == expected, op


async def _asynchronously() -> None:
    async with rdmc.aio.Group.from_env(timeout=members.PATIENCE) as group:
        rank, size = group.rank, group.size
        part, out = numpy.full(2, rank), numpy.zeros((size, 2), dtype="i8")
        await group.all_gather(out, part)
        assert (out == numpy.arange(size).reshape(size, 1)).all()
        await group.all_gather_in_place(out)
        await group.gather(part, out if rank == 1 else None, root=1)
        await group.scatter(part, out if rank == 1 else None, root=1)
        assert (part == rank).all()
        assert await group.broadcast_bytes(b"of any length" if rank == 1 else None, 1) == b"of any length"
        await group.reduce_scatter(part, out)
        assert (part == rank * size).all()


def _run_asynchronously() -> None:
    asyncio.run(_asynchronously())


class Parts(unittest.TestCase):
    def test_parts_are_gathered_scattered_and_combined(self) -> None:
        for size in (1, 2, 3):
            members.returned(members.run(_parts, size))

    def test_parts_in_memory_of_all_kinds(self) -> None:
        members.returned(members.run(_other_memory, 3))

    def test_what_is_no_part_is_refused_and_changes_nothing(self) -> None:
        members.returned(members.run(_wrong_parts, 2))

    def test_averages(self) -> None:
        members.returned(members.run(_averages, 3))

    def test_averages_without_other_packages_have_the_same_bits(self) -> None:
        first, second = members.returned(members.run(_averages_without_numpy, 2))
        self.assertEqual(first, second)

    def test_an_average_at_one_and_a_sum_at_others_are_named(self) -> None:
        for name in ("all_reduce", "reduce", "reduce_scatter"):
            for said in members.returned(members.run(_average_beside_sum, 2, name)):
                self.assertRegex(said, "rank [01]: it called (all_reduce|reduce|reduce_scatter) by (sum of f64, not a funct|a function, not sum)", name)

    def test_truth_values_are_combined(self) -> None:
        members.returned(members.run(_truth_values, 2))

    def test_parts_with_asyncio(self) -> None:
        members.returned(members.run(_run_asynchronously, 3))


if __name__ == "__main__":
    unittest.main()

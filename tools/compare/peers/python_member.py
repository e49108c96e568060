"""A member of `./dev bench python`: python_member.py PROGRAM RANK MEMBERS ADDRESS MEETING WORK...

PROGRAM is rdmc, rdmc-default, rdmc-shared, gloo or mpi. A WORK is OPERATION:COUNT:BYTES:REPEATS: COUNT arrays, one after another,
REPEATS times; OPERATION is broadcast, from rank 0, or all_reduce, the sum of floats.
It prints a line of times for each, as the other programs of this benchmark do.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any

import numpy

_TIMEOUT = 120.0


class Rdmc:
    """By rdmc."""

    fabric = "tcp"
    # What is measured beside it does not protect what it sends either.
    protection: str | None = "none"

    def __init__(self, rank: int, members: int, address: str, meeting: str) -> None:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(members), RDMC_IP=address)
        library: Any = importlib.import_module("rdmc")
        self._group = library.Group.from_env(meeting, fabric=self.fabric, protection=self.protection, timeout=_TIMEOUT)
        self.barrier = self._group.barrier
        self.broadcast = self._group.broadcast
        self.all_reduce = self._group.all_reduce

    def taken(self, array: Any) -> Any:
        """What it takes for an array."""
        return array


class RdmcDefault(Rdmc):
    """By rdmc as it protects if nothing is said."""

    protection = None


class RdmcShared(Rdmc):
    """By rdmc over shared memory."""

    fabric = "shm"


class Gloo:
    """By torch.distributed."""

    def __init__(self, rank: int, members: int, address: str, meeting: str) -> None:
        self._torch: Any = importlib.import_module("torch")
        # As torchrun has it for several processes on a machine.
        self._torch.set_num_threads(1)
        distributed: Any = importlib.import_module("torch.distributed")
        distributed.init_process_group("gloo", init_method=f"file://{meeting}/gloo", rank=rank, world_size=members)
        self.barrier = distributed.barrier
        self._broadcast = distributed.broadcast
        self.all_reduce = distributed.all_reduce

    def taken(self, array: Any) -> Any:
        """What it takes for an array."""
        return self._torch.from_numpy(array)

    def broadcast(self, tensor: Any) -> None:
        """From rank 0."""
        self._broadcast(tensor, 0)


class Mpi:
    """By mpi4py."""

    def __init__(self, rank: int, members: int, address: str, meeting: str) -> None:
        mpi: Any = importlib.import_module("mpi4py.MPI")
        self._world = mpi.COMM_WORLD
        assert self._world.Get_size() == members
        self.barrier = self._world.Barrier
        self.broadcast = self._world.Bcast
        self._in_place, self._sum = mpi.IN_PLACE, mpi.SUM

    def taken(self, array: Any) -> Any:
        """What it takes for an array."""
        return array

    def all_reduce(self, array: Any) -> None:
        """The sum of all members'."""
        self._world.Allreduce(self._in_place, array, op=self._sum)

    def gathered(self, lines: list[str]) -> list[str]:
        """All members' lines, at rank 0: mpirun mixes long lines of several."""
        found = self._world.gather(lines, root=0)
        return [] if found is None else [line for lines in found for line in lines]


# A prime: no block of a message is a multiple of it, so that one at another's place is noticed.
_PERIOD = 1_000_003


def _check_sum(program: Any, rank: int, members: int, arrays: list[Any], taken: list[Any]) -> None:
    """Sums contents once that differ by place, by array and by member, and compares all of it; leaves zeros."""
    pattern = (((numpy.arange(_PERIOD, dtype="u8") * 2654435761) >> 7) % 1000).astype("f4")
    for index, array in enumerate(arrays):
        for start in range(0, array.size, _PERIOD):
            piece = array[start : start + _PERIOD]
            piece[:] = pattern[: piece.size] + numpy.float32(index % 16 + rank)
    for array in taken:
        program.all_reduce(array)
    ranks = members * (members - 1) // 2
    for index, array in enumerate(arrays):
        for start in range(0, array.size, _PERIOD):
            piece = array[start : start + _PERIOD]
            if not (piece == (pattern[: piece.size] + numpy.float32(index % 16)) * numpy.float32(members) + numpy.float32(ranks)).all():
                sys.exit(f"member {rank} has wrong sums in array {index}, after {start}")
        array[:] = 0


def _check(program: Any, rank: int, arrays: list[Any], taken: list[Any]) -> None:
    """Broadcasts contents once that differ by place and by array, and compares all of it."""
    pattern = ((numpy.arange(_PERIOD, dtype="u8") * 2654435761) >> 7).astype("u1")
    for index, array in enumerate(arrays):
        for start in range(0, array.size, _PERIOD):
            piece = array[start : start + _PERIOD]
            piece[:] = pattern[: piece.size] + numpy.uint8(index % 256) if rank == 0 else 0
    for array in taken:
        program.broadcast(array)
    for index, array in enumerate(arrays):
        for start in range(0, array.size, _PERIOD):
            piece = array[start : start + _PERIOD]
            if not (piece == pattern[: piece.size] + numpy.uint8(index % 256)).all():
                sys.exit(f"member {rank} has wrong bytes in array {index}, after {start}")


def _measure(program: Any, rank: int, members: int, work: str) -> list[int]:
    """Starts and ends of all repeats, in ns."""
    name, *numbers = work.split(":")
    count, length, repeats = map(int, numbers)
    is_sum = name == "all_reduce"
    arrays = [numpy.zeros(length // 4, dtype="f4") if is_sum else numpy.zeros(length, dtype="u1") for _ in range(count)]
    taken = [program.taken(array) for array in arrays]

    def check() -> None:
        if is_sum:
            _check_sum(program, rank, members, arrays, taken)
        else:
            _check(program, rank, arrays, taken)

    check()
    barrier, operation, now = program.barrier, program.all_reduce if is_sum else program.broadcast, time.monotonic_ns
    times = []
    for _ in range(repeats):
        barrier()
        times.append(now())
        for array in taken:
            operation(array)
        times.append(now())
    check()
    return times


def main() -> None:
    """Joins, measures, and prints in the end: printing takes processor time, which others need."""
    name, rank, members, address, meeting, *works = sys.argv[1:]
    if name == "mpi":
        rank = os.environ["OMPI_COMM_WORLD_RANK"]
    programs: dict[str, Any] = {"rdmc": Rdmc, "rdmc-default": RdmcDefault, "rdmc-shared": RdmcShared, "gloo": Gloo, "mpi": Mpi}
    program = programs[name](int(rank), int(members), address, meeting)
    measured = [_measure(program, int(rank), int(members), work) for work in works]
    program.barrier()
    lines = [f"cell {index} {rank} {' '.join(map(str, times))}\n" for index, times in enumerate(measured)]
    if isinstance(program, Mpi):
        lines = program.gathered(lines)
    for line in lines:
        # In one write, so that lines of several members do not mix.
        sys.stdout.write(line)
    sys.stdout.flush()
    # Others may still need the connections.
    program.barrier()


if __name__ == "__main__":
    main()

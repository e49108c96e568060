"""A member of `rdmc-bench python`: python_member.py PROGRAM RANK MEMBERS ADDRESS MEETING WORK...

PROGRAM is rdmc, rdmc-shared, gloo or mpi. A WORK is COUNT:BYTES:REPEATS: so many arrays, broadcast from rank 0 one after another, so often.
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
    """Broadcasts by rdmc."""

    fabric = "tcp"

    def __init__(self, rank: int, members: int, address: str, meeting: str) -> None:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(members), RDMC_IP=address)
        # What is measured beside it does not protect what it sends either.
        library: Any = importlib.import_module("rdmc")
        self._group = library.Group.from_env(meeting, fabric=self.fabric, protection="none", timeout=_TIMEOUT)
        self.barrier = self._group.barrier
        self.broadcast = self._group.broadcast

    def taken(self, array: Any) -> Any:
        """What it takes for an array."""
        return array


class RdmcShared(Rdmc):
    """Broadcasts by rdmc over shared memory."""

    fabric = "shm"


class Gloo:
    """Broadcasts by torch.distributed."""

    def __init__(self, rank: int, members: int, address: str, meeting: str) -> None:
        self._torch: Any = importlib.import_module("torch")
        # As torchrun has it for several processes on a machine.
        self._torch.set_num_threads(1)
        distributed: Any = importlib.import_module("torch.distributed")
        distributed.init_process_group("gloo", init_method=f"file://{meeting}/gloo", rank=rank, world_size=members)
        self.barrier = distributed.barrier
        self._broadcast = distributed.broadcast

    def taken(self, array: Any) -> Any:
        """What it takes for an array."""
        return self._torch.from_numpy(array)

    def broadcast(self, tensor: Any) -> None:
        """From rank 0."""
        self._broadcast(tensor, 0)


class Mpi:
    """Broadcasts by mpi4py."""

    def __init__(self, rank: int, members: int, address: str, meeting: str) -> None:
        mpi: Any = importlib.import_module("mpi4py.MPI")
        self._world = mpi.COMM_WORLD
        assert self._world.Get_size() == members
        self.barrier = self._world.Barrier
        self.broadcast = self._world.Bcast

    def taken(self, array: Any) -> Any:
        """What it takes for an array."""
        return array

    def gathered(self, lines: list[str]) -> list[str]:
        """All members' lines, at rank 0: mpirun mixes long lines of several."""
        found = self._world.gather(lines, root=0)
        return [] if found is None else [line for lines in found for line in lines]


# A prime: no block of a message is a multiple of it, so that one at another's place is noticed.
_PERIOD = 1_000_003


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


def _measure(program: Any, rank: int, work: str) -> list[int]:
    """Starts and ends of all repeats, in ns."""
    count, length, repeats = map(int, work.split(":"))
    arrays = [numpy.zeros(length, dtype="u1") for _ in range(count)]
    taken = [program.taken(array) for array in arrays]
    _check(program, rank, arrays, taken)
    barrier, broadcast, now = program.barrier, program.broadcast, time.monotonic_ns
    times = []
    for _ in range(repeats):
        barrier()
        times.append(now())
        for array in taken:
            broadcast(array)
        times.append(now())
    _check(program, rank, arrays, taken)
    return times


def main() -> None:
    """Joins, measures, and prints in the end: printing takes processor time, which others need."""
    name, rank, members, address, meeting, *works = sys.argv[1:]
    if name == "mpi":
        rank = os.environ["OMPI_COMM_WORLD_RANK"]
    programs: dict[str, Any] = {"rdmc": Rdmc, "rdmc-shared": RdmcShared, "gloo": Gloo, "mpi": Mpi}
    program = programs[name](int(rank), int(members), address, meeting)
    measured = [_measure(program, int(rank), work) for work in works]
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

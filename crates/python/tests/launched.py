"""One member of those that torchrun or mpirun has started, beside that library's own group: ``launched.py torch|backend|mpi``."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import members
import numpy

import rdmc


def _torch() -> None:
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    # The group of torch's own listens on MASTER_PORT.
    distributed.init_process_group("gloo")
    port = int(os.environ["MASTER_PORT"])
    store = distributed.TCPStore(os.environ["MASTER_ADDR"], port, is_master=False)
    with rdmc.Group.from_env(store, timeout=members.PATIENCE) as group:
        for turn in range(5):
            root = turn % group.size
            ours = torch.arange(100_000, dtype=torch.float32) * (group.rank + turn)
            theirs = ours.clone()
            group.broadcast(ours, root=root)
            distributed.broadcast(theirs, root)
            assert torch.equal(ours, theirs)
            assert torch.equal(ours, torch.arange(100_000, dtype=torch.float32) * (root + turn))
            group.all_reduce(ours)
            distributed.all_reduce(theirs)
            assert torch.equal(ours, theirs)
    # The same store again.
    for kind in (rdmc.Group, rdmc.HostGroup):
        with kind.from_env(store, timeout=members.PATIENCE) as again:
            again.barrier()
    distributed.destroy_process_group()


def _backend() -> None:
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    importlib.import_module("rdmc.torch")
    distributed.init_process_group("rdmc")
    values = torch.full((1000,), float(distributed.get_rank()))
    distributed.all_reduce(values)
    assert (values == sum(range(distributed.get_world_size()))).all()
    distributed.destroy_process_group()


def _mpi() -> None:
    mpi: Any = importlib.import_module("mpi4py.MPI")
    world = mpi.COMM_WORLD
    with rdmc.Group.from_env(world, timeout=members.PATIENCE) as group:
        assert (group.rank, group.size) == (world.Get_rank(), world.Get_size())
        for turn in range(5):
            root = turn % group.size
            ours = numpy.arange(100_000, dtype="f8") * (group.rank + turn)
            theirs = ours.copy()
            group.broadcast(ours, root=root)
            world.Bcast(theirs, root)
            assert (ours == theirs).all()
            assert (ours == numpy.arange(100_000) * (root + turn)).all()
            group.all_reduce(ours)
            world.Allreduce(mpi.IN_PLACE, theirs)
            assert (ours == theirs).all()
    # A part of all, with ranks of its own.
    part = world.Split(color=world.Get_rank() % 2, key=-world.Get_rank())
    with rdmc.Group.from_env(part, number=2, timeout=members.PATIENCE) as group:
        assert (group.rank, group.size) == (part.Get_rank(), part.Get_size())
        values = numpy.full(10, world.Get_rank())
        group.broadcast(values, root=group.size - 1)
        assert (values == world.Get_rank() % 2).all()


if __name__ == "__main__":
    {"torch": _torch, "backend": _backend, "mpi": _mpi}[sys.argv[1]]()
    # In one write, so that lines of several members do not mix.
    sys.stdout.write("a member has ended well\n")

"""Tensors on the CPU, and groups beside torch's own in the same processes."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from typing import Any

import members

import rdmc

# Untyped: the environment in which types are checked does not have it.
torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


def _types() -> None:
    with members.group() as group:
        rank, size = group.rank, group.size
        total = size * (size + 1) // 2
        for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"):
            kind = getattr(torch, name)
            values = torch.arange(50, dtype=kind) * (rank + 1)
            group.broadcast(values, root=1)
            assert torch.equal(values, torch.arange(50, dtype=kind) * 2), name
            values = torch.full((4, 5), rank + 1, dtype=kind)
            group.all_reduce(values)
            assert torch.equal(values, torch.full((4, 5), total, dtype=kind)), name
            parts = torch.zeros((size, 3), dtype=kind)
            parts[rank] = rank + 1
            group.all_gather_in_place(parts)
            assert torch.equal(parts, torch.arange(1, size + 1, dtype=kind).reshape(size, 1).repeat(1, 3)), name
        for kind in (torch.bool, torch.complex64):
            values = torch.tensor([rank, 1, 0, rank], dtype=kind)
            group.broadcast(values, root=size - 1)
            assert torch.equal(values, torch.tensor([size - 1, 1, 0, size - 1], dtype=kind)), kind
        group.broadcast(torch.empty(0))
        scalar = torch.tensor(float(rank))
        group.broadcast(scalar, root=1)
        group.all_reduce(scalar)
        assert scalar.item() == size


def _parameters() -> None:
    with members.group() as group:
        layer = torch.nn.Linear(30, 20)
        torch.nn.init.constant_(layer.weight, group.rank + 1.0)
        group.broadcast(layer.weight, root=1)
        assert layer.weight.requires_grad and torch.equal(layer.weight, torch.full((20, 30), 2.0))
        layer(torch.ones(1, 30)).sum().backward()
        group.all_reduce(layer.weight.grad)
        assert torch.equal(layer.weight.grad, torch.full((20, 30), float(group.size)))
        # A part of a tensor, in its place.
        whole = torch.zeros(10, 10)
        whole[3] = group.rank
        group.broadcast(whole[3], root=1)
        assert whole.sum().item() == 10.0 and whole[3].sum().item() == 10.0


def _refused() -> None:
    with members.group() as group:
        square = torch.zeros(4, 4)
        for bad, word in ((square.t(), "contiguous"), (square[:, 1], "contiguous"), (square.to("meta"), "CPU")):
            try:
                group.broadcast(bad)
            except rdmc.InvalidUse as error:
                assert word in str(error), error
            else:
                raise AssertionError(word)
        try:
            group.all_reduce(torch.zeros(3, dtype=torch.complex64))
        except rdmc.InvalidUse as error:
            assert "torch.complex64" in str(error), error
        else:
            raise AssertionError("it was not refused")
        group.barrier()


def _operators() -> None:
    """Those of torch.distributed mean what they mean there."""
    operators: Any = importlib.import_module("torch.distributed").ReduceOp
    with members.group() as group:
        for name, expected in {"SUM": 5, "PRODUCT": 6, "MIN": 2, "MAX": 3, "BAND": 2, "BOR": 3, "BXOR": 1}.items():
            values = torch.full((3,), group.rank + 2, dtype=torch.int32)
            group.all_reduce(values, op=getattr(operators, name))
            assert values.tolist() == [expected] * 3, name
        for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            values = torch.full((3,), group.rank + 2, dtype=kind)
            group.all_reduce(values, op=operators.AVG)
            assert values.tolist() == [2.5] * 3, kind
        truths = torch.tensor([True, group.rank == 0, False])
        group.all_reduce(truths, op=operators.SUM)
        assert truths.tolist() == [True, True, False]


def _port(own: Any | None) -> int:
    """The port of rank 0's store, by a file."""
    file = Path(os.environ["RDMC_STORE"], "port")
    if own is not None:
        file.with_suffix(".new").write_text(str(own.port))
        file.with_suffix(".new").rename(file)
    until = time.monotonic() + members.PATIENCE
    while not file.exists():
        assert time.monotonic() < until, "rank 0 has no store"
        time.sleep(0.01)
    return int(file.read_text())


def _die_beside_gloo() -> None:
    distributed: Any = importlib.import_module("torch.distributed")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    served = distributed.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False) if rank == 0 else None
    port = _port(served)
    store = served if rank == 0 else distributed.TCPStore("127.0.0.1", port, size, False)
    distributed.init_process_group("gloo", store=distributed.PrefixStore("gloo", store), rank=rank, world_size=size)
    with rdmc.Group.from_env(distributed.PrefixStore("rdmc", store), timeout=members.PATIENCE) as group:
        values = torch.zeros(100_000)
        group.broadcast(values)
        distributed.broadcast(values, 0)
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            group.all_reduce(values)


@unittest.skipIf(torch is None, "torch is not installed")
class Tensors(unittest.TestCase):
    def test_tensors_of_all_types(self) -> None:
        members.returned(members.run(_types, 3))

    def test_operators_of_torch_distributed(self) -> None:
        members.returned(members.run(_operators, 2))

    def test_tensors_with_gradients_and_parts_of_tensors(self) -> None:
        members.returned(members.run(_parameters, 2))

    def test_tensors_that_cannot_be_used_are_refused_and_change_nothing(self) -> None:
        members.returned(members.run(_refused, 2))

    def test_the_first_member_is_killed_beside_gloo_and_is_named(self) -> None:
        members.assert_killed(members.run(_die_beside_gloo, 3), 0)

    def test_members_that_torchrun_starts_meet_by_its_store(self) -> None:
        # torch 1.13 with Python 3.11 fails without such options.
        options = ["--standalone", "--nproc_per_node=3", "--redirects=1", "--tee=1"]
        for kind in ("torch", "backend"):
            member = [str(Path(__file__).with_name("launched.py")), kind]
            command = [sys.executable, "-m", "torch.distributed.run", *options, *member]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=members.PATIENCE)
            self.assertEqual((ended.returncode, ended.stdout.count("a member has ended well")), (0, 3), ended)


if __name__ == "__main__":
    unittest.main()

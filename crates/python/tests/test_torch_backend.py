"""The backend rdmc of torch.distributed."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import members

import rdmc

# Untyped: the environment in which types are checked does not have it.
torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
distributed: Any = importlib.import_module("torch.distributed") if torch is not None else None
backend: Any = importlib.import_module("rdmc.torch") if torch is not None else None


def _join(name: str = "rdmc", timeout: float = members.PATIENCE, store_name: str = "store") -> tuple[int, int]:
    """Joins the default process group; returns the rank, and how many there are."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = Path(os.environ["RDMC_STORE"], store_name)
    distributed.init_process_group(name, init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
    return rank, size


def _values(rank: int, kind: Any) -> Any:
    return torch.arange(1, 7).reshape(2, 3).to(kind) * (rank + 1)


def _operations() -> None:
    rank, size = _join()
    total, last = size * (size + 1) // 2, size - 1
    for kind in (torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
        whole = torch.stack([_values(other, kind) for other in range(size)])
        values = _values(rank, kind)
        distributed.broadcast(values, last)
        assert torch.equal(values, _values(last, kind)), kind
        values = _values(rank, kind)
        distributed.all_reduce(values)
        assert torch.equal(values, _values(0, kind) * total), kind
        values = _values(rank, kind)
        distributed.reduce(values, last, distributed.ReduceOp.MAX)
        assert torch.equal(values, _values(rank, kind)), kind
        outputs = [torch.zeros(2, 3, dtype=kind) for _ in range(size)]
        distributed.all_gather(outputs, _values(rank, kind))
        assert torch.equal(torch.stack(outputs), whole), kind
        output = torch.zeros(size * 2, 3, dtype=kind)
        distributed.all_gather_into_tensor(output, _values(rank, kind))
        assert torch.equal(output, whole.reshape(size * 2, 3)), kind
        outputs = [torch.zeros(2, 3, dtype=kind) for _ in range(size)]
        distributed.gather(_values(rank, kind), outputs if rank == last else None, last)
        assert rank != last or torch.equal(torch.stack(outputs), whole), kind
        output = torch.zeros(2, 3, dtype=kind)
        distributed.scatter(output, list(whole) if rank == last else None, last)
        assert torch.equal(output, _values(rank, kind)), kind
        output = torch.zeros(2, 3, dtype=kind)
        distributed.reduce_scatter(output, list(whole))
        assert torch.equal(output, _values(rank, kind) * size), kind
        output = torch.zeros(2, 3, dtype=kind)
        distributed.reduce_scatter_tensor(output, whole)
        assert torch.equal(output, _values(rank, kind) * size), kind
        if kind.is_floating_point:
            values = _values(rank, kind)
            distributed.all_reduce(values, distributed.ReduceOp.AVG)
            assert torch.equal(values, (_values(0, kind) * total / size).to(kind)), kind
    truths = torch.tensor([True, rank == 0, False])
    distributed.all_reduce(truths)
    assert truths.view(torch.uint8).tolist() == [1, 1, 0]
    truths = torch.tensor([True, rank == 0 and size > 1, False])
    distributed.all_reduce(truths, distributed.ReduceOp.PRODUCT)
    assert truths.tolist() == [True, False, False]
    objects: list[Any] = [None] * size
    distributed.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert objects == [{"rank": other, "text": "x" * other} for other in range(size)]
    objects = [{"of": last}, "two"] if rank == last else [None, None]
    distributed.broadcast_object_list(objects, last)
    assert objects == [{"of": last}, "two"]
    objects = [None]
    distributed.scatter_object_list(objects, [("to", other) for other in range(size)] if rank == last else None, last)
    assert objects == [("to", rank)]
    distributed.all_reduce(torch.zeros(0))
    distributed.barrier()
    distributed.destroy_process_group()


def _strides() -> None:
    """What is not contiguous has the values that it would have otherwise, and its neighbours keep theirs."""
    rank, size = _join()
    turns: list[Callable[[Any], Any]] = [lambda square: square.t(), lambda square: square[:, 1], lambda square: square[::2, ::2]]
    for turn in turns:
        square = torch.arange(16.0).reshape(4, 4)
        others = torch.ones(4, 4, dtype=torch.bool)
        turn(others)[:] = False
        expected = turn(square) * size
        given = square.clone()
        distributed.all_reduce(turn(given))
        assert torch.equal(turn(given), expected) and torch.equal(given[others], square[others])
        given = square * (rank + 1)
        distributed.broadcast(turn(given), size - 1)
        assert torch.equal(turn(given), expected) and torch.equal(given[others], square[others] * (rank + 1))
        outputs = [turn(torch.zeros(4, 4)) for _ in range(size)]
        distributed.all_gather(outputs, turn(square * (rank + 1)))
        assert all(torch.equal(output, turn(square * (other + 1))) for other, output in enumerate(outputs))
        output = turn(torch.zeros(4, 4))
        distributed.reduce_scatter(output, [turn(square) for _ in range(size)])
        assert torch.equal(output, expected)
        whole = torch.zeros(4, 4).repeat(1, size)[:, :4] if rank == 0 else torch.zeros(4, 4)
        distributed.scatter(whole, [square.t()] * size if rank == 0 else None, 0)
        assert torch.equal(whole, square.t())
    distributed.destroy_process_group()


def _started() -> None:
    """Operations that are started: what their works tell, and callbacks that wait for other operations."""
    rank, size = _join()
    values = [torch.full((1000,), float(rank + number)) for number in range(20)]
    works = [distributed.all_reduce(one, async_op=True) for one in values]
    for number, (work, one) in enumerate(zip(works, values, strict=True)):
        assert work.wait() and work.is_completed() and work.is_success() and work.exception() is None
        assert work.result()[0] is one and one[0].item() == size * number + size * (size - 1) / 2
    strided = torch.zeros(4, 4)
    work = distributed.all_reduce(strided[:, 0].add_(1), async_op=True)
    until = time.monotonic() + members.PATIENCE
    while not work.is_completed() and time.monotonic() < until:
        time.sleep(0.001)
    assert strided[:, 0].tolist() == [size] * 4 and strided[:, 1].tolist() == [0] * 4
    first, second = torch.ones(10), torch.ones(10)

    def then(future: Any) -> Any:
        assert future.value()[0] is first
        return distributed.all_reduce(second, async_op=True).get_future().wait()[0]

    chained = distributed.all_reduce(first, async_op=True).get_future().then(then)
    assert torch.equal(chained.wait(), torch.full((10,), float(size)))
    assert distributed.barrier(async_op=True).get_future().wait() == []
    ended = distributed.barrier(async_op=True)
    ended.wait()
    assert ended.get_future().wait() == []
    distributed.destroy_process_group()


def _groups() -> None:
    """Groups of some processes, at the same time."""
    rank, size = _join()
    pairs = [distributed.new_group([other, other + 1]) for other in range(size - 1)]
    values = torch.full((100,), float(rank))
    for first, pair in enumerate(pairs):
        if rank in (first, first + 1):
            distributed.all_reduce(values, group=pair)
    expected = {0: 1.0, 1: 3.0, 2: 3.0}
    assert values[0].item() == expected[rank], values
    settings = backend.Options(fabric="tcp", protection="none")
    plain = distributed.new_group(pg_options=settings, timeout=timedelta(seconds=members.PATIENCE))
    values = torch.ones(1)
    distributed.all_reduce(values, group=plain)
    assert values.item() == size
    distributed.destroy_process_group(plain)
    distributed.all_reduce(values)
    distributed.destroy_process_group()


def _refused() -> None:
    rank, size = _join()
    real, whole, operators = torch.zeros(2), torch.zeros(2 * size), distributed.ReduceOp
    group = distributed.distributed_c10d._get_default_group()
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: distributed.send(real, (rank + 1) % size), "no send"),
        (lambda: distributed.recv(real, (rank + 1) % size), "no recv"),
        (lambda: distributed.recv(real), "no recv"),
        (lambda: distributed.all_to_all_single(whole, whole.clone()), "no all_to_all"),
        (lambda: distributed.all_to_all([real] * size, [real] * size), "no all_to_all"),
        (lambda: distributed.all_reduce(torch.eye(2).to_sparse()), "to_dense"),
        (lambda: distributed.all_reduce(real.to("meta")), "CPU"),
        (lambda: group.allreduce([torch.zeros(2, dtype=torch.complex64)]), "complex64"),
        (lambda: distributed.all_reduce(torch.zeros(2, dtype=torch.int32), operators.AVG), "i4"),
        (lambda: distributed.all_reduce(real, operators.BXOR), "bxor"),
        (lambda: group.allreduce([real, real]), "2 tensors"),
        (lambda: distributed.all_reduce(torch.zeros(1).expand(3)), "expanded"),
        (lambda: distributed.broadcast(torch.zeros(1).expand(3), 1 - rank), "expanded"),
        (lambda: distributed.all_gather([torch.zeros(1).expand(2)] * size, real), "expanded"),
        (lambda: distributed.all_gather([real.to("meta")] * size, real), "CPU"),
        (lambda: distributed.all_gather([real] * (size + 1), real), f"{size + 1} outputs"),
        (lambda: distributed.all_gather([torch.zeros(3)] * size, real), "alike"),
        (lambda: distributed.all_gather_into_tensor(torch.zeros(1), real), "parts"),
        (lambda: distributed.reduce_scatter(real, [real] * (size + 1)), f"{size + 1} inputs"),
        (lambda: distributed.reduce_scatter(real, [torch.zeros(3)] * size), "alike"),
    ]
    for call, word in calls:
        try:
            call()
        except rdmc.InvalidUse as error:
            assert word in str(error), error
        else:
            raise AssertionError(word)
    distributed.all_reduce(real)
    distributed.destroy_process_group()


def _model() -> Any:
    torch.manual_seed(5)
    layers = [torch.nn.Linear(20, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(), torch.nn.Linear(300, 7)]
    return torch.nn.Sequential(*layers)


def _train(name: str, settings: dict[str, Any]) -> tuple[list[float], list[list[float]]]:
    rank, _ = _join(name, store_name=f"{name}-{len(settings)}")
    model = _model()
    if rank != 0:
        # What others have at first is that of rank 0 then.
        for parameter in model.parameters():
            torch.nn.init.constant_(parameter, 0.5)
    parallel = torch.nn.parallel.DistributedDataParallel(model, **settings)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + rank)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (parallel(torch.randn(16, 20)) - torch.randn(16, 7)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    distributed.destroy_process_group()
    return losses, [parameter.flatten().tolist() for parameter in model.parameters()]


def _trained() -> list[list[float]]:
    """Trains beside gloo, and returns the parameters."""
    torch.set_num_threads(1)
    found: list[list[float]] = []
    for settings in ({"bucket_cap_mb": 0.01}, {"find_unused_parameters": True, "gradient_as_bucket_view": True}):
        losses, found = _train("rdmc", settings)
        theirs, expected = _train("gloo", settings)
        torch.testing.assert_close(torch.tensor(losses), torch.tensor(theirs), rtol=1e-5, atol=1e-6)
        for ours, other in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.tensor(ours), torch.tensor(other), rtol=1e-5, atol=1e-6)
    return found


def _hooked() -> list[list[float]]:
    """PowerSGD's communication hook, whose callbacks wait for other operations. With one bucket: their order is the same in all processes."""
    powersgd: Any = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook")
    _join()
    parallel = torch.nn.parallel.DistributedDataParallel(_model())
    state = powersgd.PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=1)
    parallel.register_comm_hook(state, powersgd.powerSGD_hook)
    for _ in range(5):
        parallel(torch.randn(16, 20)).sum().backward()
    gradients = [parameter.grad.flatten().tolist() for parameter in parallel.parameters()]
    distributed.destroy_process_group()
    return gradients


def _lost_in_training() -> None:
    rank, _ = _join()
    parallel = torch.nn.parallel.DistributedDataParallel(_model())
    for step in range(1000):
        if rank == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        parallel(torch.randn(16, 20)).sum().backward()


def _killed() -> None:
    rank, _ = _join()
    values = torch.zeros(100_000)
    while True:
        distributed.all_reduce(values)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def _late() -> None:
    rank, _ = _join(timeout=2)
    distributed.barrier()
    if rank == 1:
        time.sleep(6)
        return
    try:
        distributed.all_reduce(torch.zeros(3))
    except rdmc.Stalled as error:
        assert error.rank == 1, error
    else:
        raise AssertionError("it did not end")


def _leave(late: int, length: int) -> None:
    """Processes end at different times, without more, as soon as their last operation has."""
    rank, _ = _join()
    values = torch.full((length,), float(rank))
    if rank == late:
        time.sleep(1)
    distributed.broadcast(values, 0)
    assert values[-1].item() == 0.0


# A program that torchrun would start; its last lines are the test's.
_PROGRAM = """
import os, sys, time
from datetime import timedelta
import torch, rdmc.torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("rdmc", init_method="file://" + os.environ["STORE"], rank=rank, world_size=3, timeout=timedelta(seconds=600))
values = torch.zeros(1000)
dist.barrier()
# Until it has ended at all.
place = os.environ["STORE"] + "-joined-"
open(place + str(rank), "w").close()
while not all(os.path.exists(place + str(other)) for other in range(3)):
    time.sleep(0.01)
"""


# The same in processes that multiprocessing has forked, which end in a way of their own.
_FORKED = """
import multiprocessing, sys
import torch, rdmc.torch
import torch.distributed as dist
def act(rank):
    dist.init_process_group("rdmc", init_method="file://" + sys.argv[1], rank=rank, world_size=3)
    values = torch.full((1,), float(rank))
    try:
        dist.barrier()
        if rank == 1:
            raise ValueError("bad data")
        dist.broadcast(values, 1)
    except rdmc.MemberLost as error:
        assert error.rank == 1 and "ValueError: bad data" in str(error), error
        return
    raise AssertionError("it did not end")
running = [multiprocessing.get_context("fork").Process(target=act, args=(rank,)) for rank in range(3)]
[one.start() for one in running]
[one.join() for one in running]
print([one.exitcode for one in running])
"""


def _start(lines: str, store: str) -> list[subprocess.Popen[str]]:
    shared = {**os.environ, "STORE": store + "/store", "RDMC_IP": "127.0.0.1"}
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM + textwrap.dedent(lines)]
    return [
        subprocess.Popen(command, env={**shared, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(3)
    ]


def _programs(lines: str) -> list[tuple[int, str]]:
    """Runs three, and returns their exit codes and what they have printed."""
    with tempfile.TemporaryDirectory() as store:
        running = _start(lines, store)
        said = [one.communicate(timeout=members.PATIENCE)[0] for one in running]
        return [(one.returncode, text) for one, text in zip(running, said, strict=True)]


@unittest.skipIf(torch is None, "torch IS MISSING: the backend of torch.distributed is NOT TESTED")
class Backend(unittest.TestCase):
    def test_operations(self) -> None:
        for size in (1, 2, 3):
            members.returned(members.run(_operations, size))

    def test_tensors_that_are_not_contiguous(self) -> None:
        members.returned(members.run(_strides, 3))

    def test_operations_that_are_started(self) -> None:
        members.returned(members.run(_started, 3))

    def test_groups_of_some(self) -> None:
        members.returned(members.run(_groups, 3))

    def test_what_is_not_supported_is_refused_and_changes_nothing(self) -> None:
        members.returned(members.run(_refused, 2))

    def test_a_model_is_trained_as_with_gloo(self) -> None:
        for size in (2, 3):
            parameters = members.returned(members.run(_trained, size))
            self.assertTrue(all(found == parameters[0] for found in parameters))

    def test_callbacks_of_hooks_wait_for_other_operations(self) -> None:
        gradients = members.returned(members.run(_hooked, 2))
        self.assertEqual(gradients[0], gradients[1])


@unittest.skipIf(torch is None, "torch IS MISSING: the backend of torch.distributed is NOT TESTED")
class Ends(unittest.TestCase):
    def test_a_process_that_is_killed_is_named(self) -> None:
        members.assert_killed(members.run(_killed, 3), 1)

    def test_a_process_that_is_killed_is_named_by_a_step_of_training(self) -> None:
        outcomes = members.run(_lost_in_training, 3)
        self.assertEqual(outcomes[1], ("died", -signal.SIGKILL))
        for rank in (0, 2):
            self.assertEqual(outcomes[rank][0], "raised", outcomes)
            self.assertIn("rank 1", outcomes[rank][1][1])

    def test_the_timeout_is_that_of_the_process_group(self) -> None:
        members.returned(members.run(_late, 2))

    def test_processes_that_end_leave_the_last_operation_to_others(self) -> None:
        # The root of a short message waits for no other process.
        for late, length in ((1, 1), (2, 1), (2, 3_000_000)):
            members.returned(members.run(_leave, 3, late, length))
            lines = f"""
            values = torch.full(({length},), float(rank))
            if rank == {late}:
                time.sleep(1)
            dist.broadcast(values, 0)
            assert values[-1].item() == 0.0
            """
            self.assertEqual(_programs(lines), [(0, "")] * 3)
            last = """
            import atexit
            atexit.register(dist.destroy_process_group)
            """
            self.assertEqual(_programs(textwrap.dedent(last) + textwrap.dedent(lines)), [(0, "")] * 3)

    def test_processes_that_multiprocessing_has_forked_end_alike(self) -> None:
        with tempfile.TemporaryDirectory() as store:
            command = [sys.executable, "-W", "ignore", "-c", _FORKED, store + "/store"]
            environment = {**os.environ, "RDMC_IP": "127.0.0.1"}
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=members.PATIENCE)
            self.assertEqual(ended.stdout, "[0, 1, 0]\n", ended.stderr)

    def test_an_exception_ends_the_program_and_is_told_to_others(self) -> None:
        ended = _programs("""
        if rank == 1:
            raise ValueError("bad data")
        try:
            dist.all_reduce(values)
        except rdmc.MemberLost as error:
            print(error.rank, error)
        """)
        self.assertEqual([code for code, _ in ended], [0, 1, 0], ended)
        for rank in (0, 2):
            self.assertTrue(ended[rank][1].startswith("1 ") and "ValueError: bad data" in ended[rank][1], ended)

    def test_a_program_ends_while_an_operation_waits_for_others(self) -> None:
        lines = """
        if rank == 0:
            dist.broadcast(values, 1, async_op=True)
            sys.exit()
        time.sleep(600)
        """
        with tempfile.TemporaryDirectory() as store:
            running = _start(lines, store)
            try:
                # Not after the timeout.
                said, _ = running[0].communicate(timeout=members.PATIENCE)
            finally:
                for one in running:
                    one.kill()
                    one.communicate()
            self.assertEqual((running[0].returncode, said), (0, ""))

    def test_ctrl_c_ends_what_waits_and_is_told_to_others(self) -> None:
        ended = _programs("""
        import signal, threading
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if rank == 0:
                threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
            if rank == 2:
                # It would be waited for until the timeout.
                while not os.path.exists(os.environ["STORE"] + "-ended"):
                    time.sleep(0.1)
                # Others have sent it all that the first one takes.
                dist.all_reduce(values)
            dist.all_reduce(values)
        except KeyboardInterrupt:
            open(os.environ["STORE"] + "-ended", "w").close()
            print("interrupted")
        except rdmc.MemberLost as error:
            print(error.rank)
        """)
        self.assertEqual(ended, [(0, "interrupted\n"), (0, "0\n"), (0, "0\n")])

    def test_a_process_group_that_was_destroyed_is_of_no_use(self) -> None:
        ended = _programs("""
        group = dist.new_group()
        dist.all_reduce(values, group=group)
        dist.destroy_process_group(group)
        dist.all_reduce(values)
        dist.destroy_process_group()
        print(dist.is_initialized())
        """)
        self.assertEqual(ended, [(0, "False\n")] * 3)


if __name__ == "__main__":
    unittest.main()

"""State dicts of torch from one process to others."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import unittest
from typing import Any

import members

import rdmc

# Untyped: the environment in which types are checked does not have it.
torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
state: Any = importlib.import_module("rdmc.torch") if torch is not None else None


def _model(seed: int) -> Any:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Embedding(1000, 600),
        torch.nn.Linear(600, 700),
        torch.nn.BatchNorm1d(700),
        torch.nn.Linear(700, 600),
        torch.nn.Linear(600, 1000, bias=False),
    )
    # The last layer has the weights of the first.
    model[4].weight = model[0].weight
    model.register_buffer("turned", torch.arange(12.0).reshape(3, 4).t() * seed)
    model.register_buffer("halves", torch.full((100_001,), seed, dtype=torch.bfloat16))
    model.register_buffer("nothing", torch.empty(0, 5))
    return model


def _is_model(found: Any, seed: int) -> None:
    for name, tensor in _model(seed).state_dict().items():
        assert torch.equal(found[name], tensor), name


def _into_models() -> list[str]:
    with members.group() as group:
        model = _model(group.rank + 7)
        names: list[str] = []

        def ready(name: str, tensor: Any) -> None:
            assert torch.equal(tensor, expected[name]), name
            names.append(name)

        expected = _model(8).state_dict()
        found = state.broadcast_state_dict(model.state_dict(), group, root=1, ready=ready)
        _is_model(model.state_dict(), 8)
        _is_model(found, 8)
        assert set(names) == set(expected) and len(names) == len(expected)
        return sorted(names)


def _new_tensors() -> None:
    with members.group() as group:
        given = None
        if group.rank == 0:
            given = {**_model(3).state_dict(), "step": 12, "rate": 0.5, "words": "some", "none": None}
        found = state.broadcast_state_dict(given, group)
        assert (found["step"], found["rate"], found["words"], found["none"]) == (12, 0.5, "some", None)
        _is_model(found, 3)
        if group.rank != 0:
            assert found["4.weight"].data_ptr() == found["0.weight"].data_ptr()
        assert state.broadcast_state_dict({}, group) == {}


def _optimizer(seed: int, steps: int) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Linear(40, 5))
    optimizer = torch.optim.Adam([{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.5}], betas=(0.8, 0.9))
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(7, 30)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def _is_alike(found: Any, expected: Any) -> None:
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected), (found, expected)
        for key in expected:
            _is_alike(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _is_alike(one, other)
    else:
        assert found == expected, (found, expected)


def _nested() -> None:
    """The states of optimizers, which have dicts with integers for keys, lists and tuples."""
    with members.group() as group:
        model, optimizer = _optimizer(5 + group.rank, 3 if group.rank == 1 else 0)
        names: list[str] = []
        given = optimizer.state_dict() if group.rank == 1 else None
        found = state.broadcast_state_dict(given, group, root=1, ready=lambda name, _: names.append(name))
        expected = _optimizer(6, 3)[1].state_dict()
        _is_alike(found, expected)
        assert "state.0.exp_avg" in names and len(names) == len(set(names)) > 7
        optimizer.load_state_dict(found)
        # Into tensors that are there, also in another order; what is no tensor is the root's.
        whole = {"optimizer": _optimizer(6 if group.rank == 1 else 9, 3)[1].state_dict(), "deep": ([1, {"x": torch.ones(3) * group.rank}],)}
        if group.rank == 0:
            whole = {name: whole[name] for name in reversed(list(whole))}
        place = whole["deep"][0][1]["x"]
        found = state.broadcast_state_dict(whole, group, root=1)
        _is_alike(found["optimizer"], expected)
        assert place.tolist() == [1.0] * 3 and found["deep"][0][1]["x"] is place


def _small() -> None:
    """Many small tensors need no connections of their own."""
    with members.group() as group:
        tensors = {str(number): torch.full((100,), float(number + group.rank)) for number in range(64)}
        for turn in range(3):
            found = state.broadcast_state_dict(tensors, group, root=turn % group.size)
            assert group._opened == 0
        assert all((found[name] == tensors[name]).all() for name in tensors)
        assert tensors["7"].tolist() == [7.0] * 100
        state.broadcast_state_dict({"large": torch.zeros(3_000_000), "small": torch.zeros(3)}, group)
        assert group._opened == 1


def _no_copies() -> None:
    with members.group() as group:
        tensors = {str(number): torch.full((3_000_000,), float(group.rank)) for number in range(3)}
        places = [tensor.data_ptr() for tensor in tensors.values()]
        found = state.broadcast_state_dict(tensors, group, root=1)
        assert [tensor.data_ptr() for tensor in found.values()] == places
        assert all((tensor == 1.0).all() for tensor in tensors.values())


def _little_memory() -> None:
    """More bytes than there is memory for at a time, which are copied to tensors that are not contiguous."""
    inner: Any = importlib.import_module("rdmc._state_dict")
    inner._SPARE_BYTES = 10_000_000
    with members.group() as group:
        tensors = {str(number): torch.full((1000, 2000), number + 10.0 * group.rank).t() for number in range(8)}
        tensors["in place"] = torch.full((3_000_000,), float(group.rank))
        state.broadcast_state_dict(tensors, group)
        assert all((tensors[str(number)] == number).all() for number in range(8)) and (tensors["in place"] == 0).all()


def _different(change: str) -> str:
    with members.group() as group:
        tensors: dict[str, Any] = {"a": torch.zeros(10), "b": torch.zeros(2, 3), "in": {"list": [torch.zeros(1), 3]}}
        if group.rank == 1:
            changes: dict[str, dict[str, Any]] = {
                "name": {"c": torch.zeros(1)},
                "shape": {"b": torch.zeros(3, 2)},
                "type": {"a": torch.zeros(10).int()},
                "length": {"in": {"list": [torch.zeros(1)]}},
                "kind": {"in": {"list": (torch.zeros(1), 3)}},
                "value": {"in": {"list": [torch.zeros(1), torch.zeros(1)]}},
            }
            tensors |= changes[change]
        said = "taken"
        try:
            state.broadcast_state_dict(tensors, group)
        except rdmc.InvalidUse as error:
            said = f"invalid: {error}"
        except rdmc.Refused as error:
            said = f"refused by {error.rank}: {error}"
        # Nothing was sent: the group is as it was.
        group.barrier()
        return said


def _unknown_values() -> None:
    with members.group() as group:
        circle: dict[str, Any] = {}
        circle["circle"] = circle
        wrong = [{"what": object()}, {"in": [{"what": b""}]}, {"key": {("what",): 1}}, {"what": torch.eye(2).to_sparse()}, circle, None]
        for given in wrong:
            try:
                state.broadcast_state_dict(given if group.rank == 0 else None, group)
            except (rdmc.InvalidUse, rdmc.Refused) as error:
                assert any(word in str(error) for word in ("what", "circle", "the root must pass")), error
                assert isinstance(error, rdmc.Refused) == (group.rank != 0)
            else:
                raise AssertionError("it was taken")
        group.barrier()


def _die_at(rank: int) -> None:
    with members.group() as group:
        tensors = {str(number): torch.zeros(1_000_000) for number in range(40)}

        def ready(name: str, _: Any) -> None:
            if group.rank == rank and name == "5":
                os.kill(os.getpid(), signal.SIGKILL)

        state.broadcast_state_dict(tensors, group, ready=ready)


@unittest.skipIf(torch is None, "torch is not installed")
class StateDicts(unittest.TestCase):
    def test_models_get_the_tensors_of_one(self) -> None:
        outcomes = members.returned(members.run(_into_models, 3))
        self.assertEqual(outcomes[0], outcomes[1])

    def test_new_tensors_and_plain_values(self) -> None:
        members.returned(members.run(_new_tensors, 3))

    def test_states_of_optimizers(self) -> None:
        members.returned(members.run(_nested, 3))

    def test_small_tensors_are_one_operation(self) -> None:
        members.returned(members.run(_small, 3))

    def test_tensors_are_received_where_they_are(self) -> None:
        members.returned(members.run(_no_copies, 2))

    def test_tensors_that_are_not_contiguous_need_little_memory(self) -> None:
        members.returned(members.run(_little_memory, 3))

    def test_state_dicts_that_differ_are_refused_at_all(self) -> None:
        for change, word in (
            ("name", "c"),
            ("shape", "b"),
            ("type", "a"),
            ("length", "in.list.1"),
            ("kind", "in.list"),
            ("value", "in.list.1"),
        ):
            said: list[str] = members.returned(members.run(_different, 3, change))
            self.assertTrue(said[1].startswith("invalid") and word in said[1], said)
            for rank in (0, 2):
                self.assertTrue(said[rank].startswith("refused by 1"), said)

    def test_other_values_are_refused_with_their_names(self) -> None:
        members.returned(members.run(_unknown_values, 2))

    def test_a_member_that_is_killed_is_named(self) -> None:
        members.assert_killed(members.run(_die_at, 3, 1), 1)


if __name__ == "__main__":
    unittest.main()

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


def _no_copies() -> None:
    with members.group() as group:
        tensors = {str(number): torch.full((3_000_000,), float(group.rank)) for number in range(3)}
        places = [tensor.data_ptr() for tensor in tensors.values()]
        found = state.broadcast_state_dict(tensors, group, root=1)
        assert [tensor.data_ptr() for tensor in found.values()] == places
        assert all((tensor == 1.0).all() for tensor in tensors.values())


def _different(change: str) -> str:
    with members.group() as group:
        tensors = {"a": torch.zeros(10), "b": torch.zeros(2, 3)}
        if group.rank == 1:
            tensors |= {"name": {"c": torch.zeros(1)}, "shape": {"b": torch.zeros(3, 2)}, "type": {"a": torch.zeros(10).int()}}[change]
        try:
            state.broadcast_state_dict(tensors, group)
        except rdmc.InvalidUse as error:
            return f"invalid: {error}"
        except rdmc.Aborted as error:
            return f"refused by {error.rank}: {error}"
        return "taken"


def _unknown_values() -> None:
    with members.group() as group:
        try:
            state.broadcast_state_dict({"what": object()} if group.rank == 0 else None, group)
        except (rdmc.InvalidUse, rdmc.Refused) as error:
            assert "what" in str(error), error
        else:
            raise AssertionError("it was taken")


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

    def test_tensors_are_received_where_they_are(self) -> None:
        members.returned(members.run(_no_copies, 2))

    def test_state_dicts_that_differ_are_refused_at_all(self) -> None:
        for change, word in (("name", "c"), ("shape", "b"), ("type", "a")):
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

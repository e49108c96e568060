"""Helpers: a test's members as processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import rdmc

_CONTEXT = multiprocessing.get_context("spawn")
# Far beyond what any test takes.
PATIENCE = 1800.0 if os.environ.get("RDMC_TEST_LARGE") == "1" else 120.0


def _start(act: Callable[..., Any], rank: int, size: int, store: str, given: tuple[Any, ...], result: Connection) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), RDMC_STORE=store, RDMC_IP="127.0.0.1")
    # A shell's background ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result.send(("returned", act(*given)))
    except BaseException as error:
        traceback.print_exc()
        result.send(("raised", (type(error).__name__, str(error), getattr(error, "rank", None))))


def run(act: Callable[..., Any], size: int, *given: Any) -> list[tuple[str, Any]]:
    """Calls a function in a process for each rank; what each has returned, or raised. A process that dies: ("died", its code)."""
    with tempfile.TemporaryDirectory() as store:
        members = []
        for rank in range(size):
            ours, theirs = _CONTEXT.Pipe()
            member = _CONTEXT.Process(target=_start, args=(act, rank, size, store, given, theirs))
            member.start()
            theirs.close()
            members.append((member, ours))
        return [_outcome(member, ours) for member, ours in members]


def _outcome(member: Any, result: Connection) -> tuple[str, Any]:
    outcome: tuple[str, Any] = ("hung", None)
    try:
        if result.poll(PATIENCE):
            outcome = result.recv()
    except EOFError:
        outcome = ("died", None)
    member.join(PATIENCE)
    if member.exitcode is None:
        member.kill()
        return ("hung", None)
    return ("died", member.exitcode) if outcome[0] == "died" else outcome


def returned(outcomes: list[tuple[str, Any]]) -> list[Any]:
    """What all have returned; fails if one has not."""
    assert all(kind == "returned" for kind, _ in outcomes), outcomes
    return [value for _, value in outcomes]


def assert_killed(outcomes: list[tuple[str, Any]], victim: int) -> None:
    """One was killed, and all others know of it."""
    assert outcomes[victim] == ("died", -signal.SIGKILL), outcomes[victim]
    _assert_named(outcomes, victim, "MemberLost", "")


def assert_gave_up(outcomes: list[tuple[str, Any]], culprit: int, error: str) -> None:
    """One has raised an error of its own, and all others know who, and which."""
    assert outcomes[culprit][1][0] == error, outcomes[culprit]
    _assert_named(outcomes, culprit, "Aborted", error)


def _assert_named(outcomes: list[tuple[str, Any]], culprit: int, error: str, word: str) -> None:
    for rank, (kind, raised) in enumerate(outcomes):
        if rank != culprit:
            assert (kind, raised[0], raised[2]) == ("raised", error, culprit) and word in raised[1], (rank, kind, raised)


def group(**settings: Any) -> rdmc.Group:
    """The group of this test."""
    return rdmc.Group.from_env(timeout=PATIENCE, **settings)

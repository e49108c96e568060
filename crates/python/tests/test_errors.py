"""Exceptions travel between processes, and are copied."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import unittest
from concurrent.futures import ProcessPoolExecutor

import members

import rdmc
from rdmc import errors

_CONTEXT = multiprocessing.get_context("spawn")


def _all_kinds() -> list[rdmc.RdmcError]:
    lost = (rdmc.MemberLost, rdmc.Stalled, rdmc.Corrupt, rdmc.Differs, rdmc.Refused, rdmc.Aborted)
    return [
        *(kind(rank, "it was killed") for kind in lost for rank in (None, 3)),
        rdmc.PushError("no copy", {"node7": "no space left"}),
        *(kind("words") for kind in (rdmc.RdmcError, rdmc.FetchError, rdmc.InvalidUse, rdmc.TimedOut)),
    ]


def _raise(number: int) -> None:
    raise _all_kinds()[number]


class Errors(unittest.TestCase):
    def _assert_same(self, one: BaseException, other: BaseException) -> None:
        self.assertIs(type(one), type(other))
        self.assertEqual((str(one), repr(one), vars(one)), (str(other), repr(other), vars(other)))

    def test_all_kinds_are_here(self) -> None:
        kinds = {one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)}
        self.assertEqual({type(error) for error in _all_kinds()}, kinds)

    def test_they_are_pickled_and_copied_with_all_that_they_say(self) -> None:
        for error in _all_kinds():
            error.add_note("a note")
            self._assert_same(copy.copy(error), error)
            self._assert_same(copy.deepcopy(error), error)
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                self._assert_same(pickle.loads(pickle.dumps(error, protocol)), error)

    def test_what_they_say(self) -> None:
        error = rdmc.Stalled(3, "rank 3 was waited for")
        self.assertEqual((str(error), error.rank, error.reason), ("rank 3 was waited for", 3, "rank 3 was waited for"))
        push = rdmc.PushError("no copy", {"node7": "no space left"})
        self.assertEqual((str(push), push.failed), ("no copy", {"node7": "no space left"}))

    def test_they_come_back_from_pools_of_processes(self) -> None:
        with ProcessPoolExecutor(1, mp_context=_CONTEXT) as executor, _CONTEXT.Pool(1) as pool:
            for number, error in enumerate(_all_kinds()):
                for raised in (
                    executor.submit(_raise, number).exception(members.PATIENCE),
                    _caught(lambda: pool.apply_async(_raise, (number,)).get(members.PATIENCE)),
                ):
                    assert raised is not None
                    self.assertEqual((type(raised), str(raised)), (type(error), str(error)))
                    self.assertEqual(getattr(raised, "rank", None), getattr(error, "rank", None))
                    self.assertEqual(getattr(raised, "failed", None), getattr(error, "failed", None))


def _caught(call: object) -> BaseException | None:
    assert callable(call)
    try:
        call()
    except BaseException as error:
        return error
    return None


if __name__ == "__main__":
    unittest.main()

"""Arrays without dimensions, and objects that have DLPack alone."""

from __future__ import annotations

import unittest
from typing import Any

import members
import numpy

import rdmc


class OnlyDlpack:
    """An array without a buffer."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def _without_dimensions() -> None:
    with members.group() as group:
        scalar = numpy.array(float(group.rank))
        group.broadcast(scalar, root=1)
        assert scalar == 1.0
        group.all_reduce(scalar)
        assert scalar == group.size


def _dlpack() -> None:
    with members.group() as group:
        array = numpy.full(1000, group.rank, dtype="i4")
        given = OnlyDlpack(array)
        # Before version 2.1, numpy takes all of them as read-only.
        if numpy.from_dlpack(given).flags.writeable:
            group.broadcast(given, root=1)
            group.all_reduce(given)
            assert (array == group.size).all()
        else:
            try:
                group.broadcast(given, root=1)
            except rdmc.InvalidUse as error:
                assert "read-only" in str(error), error
            else:
                raise AssertionError("it was not refused")
            assert (array == group.rank).all()
        group.barrier()


class Arrays(unittest.TestCase):
    def test_arrays_without_dimensions(self) -> None:
        members.returned(members.run(_without_dimensions, 2))

    def test_objects_that_have_dlpack_alone(self) -> None:
        members.returned(members.run(_dlpack, 2))


if __name__ == "__main__":
    unittest.main()

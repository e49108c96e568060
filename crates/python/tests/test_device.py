"""Arrays in memory of GPUs: with the stand-in for CUDA's driver (RDMC_TEST_CUDA: its path), since no GPU is needed for that, and
with torch's tensors where there is a GPU."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import unittest
from typing import Any, ClassVar

import members
import numpy

import rdmc

_STAND_IN = os.environ.get("RDMC_TEST_CUDA")
# Untyped: the environment in which types are checked does not have it.
torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


class _Array:
    """An array of a device, as other libraries show theirs, in memory of the stand-in."""

    def __init__(self, values: Any, ordinal: int = 0) -> None:
        assert _STAND_IN is not None
        # What a user of another driver sets for this one alone.
        os.environ["RDMC_CUDA_LIBRARY"] = _STAND_IN
        self._cuda, self.ordinal, self.like = ctypes.CDLL(_STAND_IN), ordinal, values
        context, address, stream = ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_size_t()
        self._do("cuInit", 0)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        self._do("cuCtxPushCurrent_v2", context)
        self._do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(values.nbytes))
        self._do("cuStreamCreate", ctypes.byref(stream), 1)
        self.address, self.stream = address.value, stream.value
        self._copy("cuMemcpyHtoDAsync_v2", address, ctypes.c_void_p(values.ctypes.data))

    def _do(self, call: str, *given: Any) -> None:
        code = getattr(self._cuda, call)(*given)
        assert code == 0, (call, code)

    def _copy(self, call: str, to: Any, source: Any) -> None:
        # In the stream's order, and done when it returns, since numpy's memory is not pinned.
        self._do(call, to, source, ctypes.c_size_t(self.like.nbytes), ctypes.c_size_t(self.stream))

    def values(self) -> Any:
        values = numpy.empty_like(self.like)
        self._copy("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(values.ctypes.data), ctypes.c_uint64(self.address))
        return values

    def misuses(self) -> tuple[int, bytes]:
        text = ctypes.create_string_buffer(200)
        return self._cuda.stand_in_misuse(text, ctypes.c_size_t(200)), text.value

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.like.shape,
            "typestr": self.like.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": self.stream,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.ordinal)


def _operations() -> None:
    with members.group() as group:
        ordinal = group.rank % 2
        for length in (1, 1000, 20_000_000):
            array = _Array(numpy.arange(length, dtype="f4") + group.rank, ordinal)
            group.broadcast(array, root=1)
            assert (array.values() == numpy.arange(length, dtype="f4") + 1).all(), length
            work = group.all_reduce(array, op="max", async_op=True)
            assert work is not None
            work.wait(members.PATIENCE)
            assert (array.values() == numpy.arange(length, dtype="f4") + 1).all(), length
        counts = _Array(numpy.full((3, 4), group.rank + 1, dtype="i8"), ordinal)
        group.all_reduce(counts)
        assert (counts.values() == 6).all()
        assert counts.misuses() == (0, b""), counts.misuses()


class _Strided(_Array):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return super().__cuda_array_interface__ | {"strides": (8, 400)}


class _Nowhere(_Array):
    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class _OfTheHost(_Array):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return super().__cuda_array_interface__ | {"data": (self.like.ctypes.data, False)}


def _refused() -> None:
    with members.group() as group:
        values = numpy.zeros((100, 50), dtype="f4")
        wrong: list[tuple[Any, str]] = [(_Strided(values), "contiguous"), (_Nowhere(values), "device"), (_OfTheHost(values), "memory")]
        for array, word in wrong:
            try:
                group.broadcast(array)
            except rdmc.InvalidUse as error:
                assert word in str(error), error
            else:
                raise AssertionError(word)
        for call in (group.reduce, group.all_gather_in_place):
            try:
                call(_Array(values))
            except rdmc.InvalidUse:
                pass
            else:
                raise AssertionError("it was taken")
        group.barrier()


def _without_a_driver() -> str:
    with members.group() as group:
        array = _Array(numpy.zeros(5))
        os.environ["RDMC_CUDA_LIBRARY"] = "/nonexistent/libcuda.so.1"
        try:
            group.broadcast(array)
        except rdmc.RdmcError as error:
            return str(error)
        return "it was taken"


class _WithoutMemory:
    """An array that shows an address of a device; nothing is there."""

    __cuda_array_interface__: ClassVar[dict[str, Any]] = {"shape": (4,), "typestr": "<f4", "data": (0x1000, False), "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def _fail_without_others(is_async: bool) -> float:
    """Nothing is sent when an operation of rank 0 fails: the group goes on, and its end is one at all."""
    group = members.group()
    os.environ["RDMC_CUDA_LIBRARY"] = "/nonexistent/libcuda.so.1"
    if group.rank == 0:
        try:
            if is_async:
                group.all_reduce(_WithoutMemory(), async_op=True).wait()
            else:
                group.all_reduce(_WithoutMemory())
            raise AssertionError("it was taken")
        except rdmc.RdmcError as error:
            assert "no NVIDIA driver" in str(error), error
    values = numpy.ones(3)
    group.all_reduce(values)
    group.close()
    return float(values[0])


def _fail_at(rank: int) -> None:
    with members.group() as group:
        array = _Array(numpy.zeros(30_000_000))
        if group.rank == rank:
            assert _STAND_IN is not None
            # Out of memory for the second buffer.
            ctypes.CDLL(_STAND_IN).stand_in_fail(b"cuMemHostAlloc", ctypes.c_uint64(2), 2)
        group.broadcast(array)
        group.barrier()


def _tensors() -> None:
    with members.group() as group:
        for kind in ("float32", "bfloat16", "int64"):
            values = torch.full((5_000_000,), group.rank + 1, dtype=getattr(torch, kind), device="cuda")
            group.broadcast(values, root=1)
            assert (values == 2).all().item()
            group.all_reduce(values)
            assert (values == 2 * group.size).all().item()


class Devices(unittest.TestCase):
    def setUp(self) -> None:
        if _STAND_IN is None and not any(word in self.id() for word in ("tensors", "of_one")):
            self.skipTest("the stand-in for CUDA's driver is not there: RDMC_TEST_CUDA")

    def test_operations(self) -> None:
        members.returned(members.run(_operations, 3))

    def test_arrays_that_cannot_be_used_are_refused(self) -> None:
        members.returned(members.run(_refused, 2))

    def test_what_is_missing_is_said(self) -> None:
        for said in members.returned(members.run(_without_a_driver, 2)):
            self.assertIn("no NVIDIA driver", said)

    def test_an_operation_of_one_that_fails_before_it_sends_ends_nothing(self) -> None:
        for is_async in (False, True):
            self.assertEqual(members.returned(members.run(_fail_without_others, 2, is_async)), [2.0, 2.0])

    def test_a_device_that_fails_is_named_at_all(self) -> None:
        outcomes: list[Any] = members.run(_fail_at, 3, 1)
        for rank, (kind, (error, text, culprit)) in enumerate(outcomes):
            self.assertEqual(kind, "raised", text)
            self.assertIn("CUDA error 2", text)
            if rank != 1:
                self.assertEqual((error, culprit), ("Aborted", 1), text)

    @unittest.skipUnless(torch is not None and torch.cuda.is_available(), "torch sees no GPU")
    def test_tensors(self) -> None:
        members.returned(members.run(_tensors, 2))


if __name__ == "__main__":
    unittest.main()

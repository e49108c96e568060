"""Which memory operations take: of any type, read-only at the root, without dimensions, of objects that have DLPack alone."""

from __future__ import annotations

import array
import ctypes
import importlib
import importlib.util
import mmap
import tempfile
import unittest
from collections.abc import Callable
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
            assert "read-only" in _refusal(lambda: group.all_reduce(given))
            assert (array == group.rank).all()
        group.barrier()


def _refusal(call: Callable[[], object]) -> str:
    """Why a call is refused."""
    try:
        call()
    except rdmc.InvalidUse as error:
        return str(error)
    raise AssertionError("it was not refused")


def _with_addresses() -> None:
    """What holds addresses of this process is refused before anything is sent."""
    fields: Any = numpy.zeros(2, dtype=[("number", "i8"), ("anything", "O")])
    held: Any = numpy.array([{"a": 1}, "text"], dtype=object)
    texts: Any = (ctypes.c_char_p * 2)(b"here", b"there")
    with members.group() as group:
        for given in (held, fields, memoryview(held), texts, (ctypes.py_object * 2)()):
            calls: list[Callable[[], object]] = [
                lambda: group.broadcast(given),
                lambda: group.broadcast(given, async_op=True),
                lambda: group.all_reduce(given),
                lambda: group.reduce(given),
                lambda: group.all_gather_in_place(given),
                lambda: group.broadcast_bytes(given),
            ]
            # Others than the root of broadcast_bytes give nothing.
            for call in calls if group.rank == 0 else calls[:-1]:
                assert "of this process" in _refusal(call)
        with group.messages() as messages:
            for given in (held, fields):
                assert "of this process" in _refusal(lambda: messages.send(given) if messages.is_root else messages.post(given))
        assert held[1] == "text" and fields["anything"][0] == 0
        # A field may have any name.
        named = numpy.full(3, group.rank, dtype=[("O", "i8")])
        group.broadcast(named, root=1)
        assert (named["O"] == 1).all()


def _with_masks() -> None:
    with members.group() as group:
        for given in (numpy.ma.array([1.0, 2.0], mask=[group.rank == 0, False]), numpy.ma.array([1.0, 2.0])):
            calls: list[Callable[[], object]] = [
                lambda: group.broadcast(given),
                lambda: group.all_reduce(given),
                lambda: group.all_gather_in_place(given),
            ]
            for call in calls:
                assert "filled()" in _refusal(call)
        values = numpy.ma.array([1.0, 2.0], mask=[True, False]).filled(group.rank)
        group.broadcast(values, root=1)
        assert values.tolist() == [1.0, 2.0]


class _OfNoDevice:
    """Says that it is an array in memory of a GPU, and not which."""

    def __init__(self, interface: Any) -> None:
        self.__cuda_array_interface__ = interface

    def __dlpack_device__(self) -> Any:
        return (2, 0)


def _with_wrong_interfaces() -> None:
    valid: dict[str, Any] = {"shape": (4,), "typestr": "<f4", "data": (0x1000, False), "version": 3, "strides": None}
    parts: list[dict[str, Any]] = [
        {"typestr": "|V"},
        {"typestr": 5},
        {"shape": 4},
        {"shape": ("a",)},
        {"shape": (-1,)},
        {"data": None},
        {"data": ("a", False)},
        {"data": (-1, False)},
        {"strides": (1, 4)},
        {"stream": "x"},
    ]
    with members.group() as group:
        for interface in ({}, 5, [], *(valid | part for part in parts)):
            for call in (group.broadcast, group.all_reduce):
                assert "__cuda_array_interface__" in _refusal(lambda: call(_OfNoDevice(interface))), interface
        group.barrier()


def _of_any_type() -> None:
    with members.group() as group:
        rank = group.rank
        for kind in ("M8[s]", "m8[us]", "?", "c16", "g", ">f4", "U3", [("a", "i4"), ("b", "f8")]):
            numbers = numpy.arange(rank, rank + 6).astype("i8")
            values = numpy.zeros(6, dtype=kind)
            values["a" if isinstance(kind, list) else slice(None)] = numbers if kind != "U3" else numbers.astype("U3")
            expected = values.copy()
            group.broadcast(values, root=1)
            if rank == 1:
                assert (values == expected).all(), kind
            parts = numpy.zeros((group.size, 6), dtype=kind)
            parts[rank] = expected
            group.all_gather_in_place(parts)
            assert (parts[1] == values).all(), kind
            with group.messages(root=1) as messages:
                if messages.is_root:
                    messages.send(values)
                else:
                    assert [bytes(message.data()) for message in messages] == [values.tobytes()], kind
        floats = (ctypes.c_float * 3)(rank, rank + 1, rank + 2)
        group.broadcast(floats, root=1)
        group.all_reduce(floats)
        assert list(floats) == [group.size * value for value in (1, 2, 3)]
        one = ctypes.c_double(rank)
        group.broadcast(one, root=1)
        assert one.value == 1.0


def _of_ml_dtypes() -> None:
    # Untyped: the environment in which types are checked does not have it.
    ml_dtypes: Any = importlib.import_module("ml_dtypes")
    with members.group() as group:
        for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            values = numpy.full(5, group.rank + 1, dtype=kind)
            group.broadcast(values, root=1)
            assert (values == numpy.full(5, 2, dtype=kind)).all()
        values = numpy.full(5, group.rank + 1, dtype=ml_dtypes.bfloat16)
        group.all_reduce(values, op="max")
        group.all_reduce(values, op="sum")
        assert (values == numpy.full(5, group.size**2, dtype=ml_dtypes.bfloat16)).all()
        eighths = numpy.zeros(5, dtype=ml_dtypes.float8_e5m2)
        assert "float8_e5m2" in _refusal(lambda: group.all_reduce(eighths))


def _not_reduced() -> None:
    with members.group() as group:
        kinds = {"c8": "complex64", ">f4": ">f4", "g": "float128", "M8[s]": "datetime64[s]"}
        for kind, name in kinds.items():
            assert name in _refusal(lambda: group.all_reduce(numpy.zeros(3, dtype=kind))), name
        assert "complex" in _refusal(lambda: group.reduce(numpy.zeros(3, dtype="c16")))
        group.barrier()


def _read_only_at_the_root() -> None:
    with members.group() as group, tempfile.NamedTemporaryFile() as file:
        for length in (0, 5, 5_000_000):
            content = bytes(range(256)) * (length // 256 + 1)
            content = content[:length]
            file.seek(0)
            file.write(content or b"x")
            file.flush()
            given: list[Any] = [content, numpy.frombuffer(content, dtype="u1")]
            if length > 0:
                mapped = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
                given += [mapped, numpy.memmap(file.name, mode="r", shape=(length,))]
            for data in given:
                received = bytearray(length)
                group.broadcast(data if group.rank == 0 else received)
                assert group.rank == 0 or received == content
                assert group.broadcast_bytes(data if group.rank == 0 else None) == content
            if length > 0 and group.rank != 0:
                assert "read-only" in _refusal(lambda: group.broadcast(content))
            if length > 0:
                assert "read-only" in _refusal(lambda: group.all_reduce(content))
            del data, given


def _bytes_of_any_buffer() -> None:
    with members.group() as group:
        is_root = group.rank == 0
        if is_root:
            refused: list[Any] = ["text", 5, memoryview(b"abcdef")[::2], numpy.zeros((3, 4)).T]
            for given in refused:
                _refusal(lambda: group.broadcast_bytes(given))
        buffers: list[Any] = [numpy.arange(10.0), memoryview(array.array("d", [1.0, 2.0])), bytearray(b"abc"), b"", array.array("i", [1, 2])]
        for buffer in buffers:
            assert group.broadcast_bytes(buffer if is_root else None) == bytes(buffer)
        grows = bytearray(b"abc")
        group.broadcast_bytes(grows if is_root else None)
        group.broadcast(grows, async_op=True).wait()
        grows += b"d"


def _parts_of_no_length() -> str:
    with members.group() as group:
        return _refusal(lambda: group.all_gather_in_place(bytearray(3)))


class Arrays(unittest.TestCase):
    def test_what_holds_addresses_is_refused_by_every_operation(self) -> None:
        members.returned(members.run(_with_addresses, 2))

    def test_arrays_with_masks_are_refused(self) -> None:
        members.returned(members.run(_with_masks, 2))

    def test_arrays_that_do_not_say_where_they_are_are_refused(self) -> None:
        members.returned(members.run(_with_wrong_interfaces, 2))

    def test_arrays_of_any_type_are_copied(self) -> None:
        members.returned(members.run(_of_any_type, 2))

    @unittest.skipUnless(importlib.util.find_spec("ml_dtypes"), "ml_dtypes is not installed")
    def test_arrays_of_ml_dtypes(self) -> None:
        members.returned(members.run(_of_ml_dtypes, 2))

    def test_types_that_cannot_be_reduced_are_named(self) -> None:
        members.returned(members.run(_not_reduced, 2))

    def test_the_roots_memory_may_be_read_only(self) -> None:
        members.returned(members.run(_read_only_at_the_root, 2))

    def test_bytes_of_any_buffer(self) -> None:
        members.returned(members.run(_bytes_of_any_buffer, 2))

    def test_an_array_without_a_part_for_each_rank_is_named(self) -> None:
        for said in members.returned(members.run(_parts_of_no_length, 2)):
            self.assertIn("3 bytes, which are not 2 parts", said)

    def test_arrays_without_dimensions(self) -> None:
        members.returned(members.run(_without_dimensions, 2))

    def test_objects_that_have_dlpack_alone(self) -> None:
        members.returned(members.run(_dlpack, 2))


if __name__ == "__main__":
    unittest.main()

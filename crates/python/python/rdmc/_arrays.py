"""Arrays of other libraries as memory: numpy, torch on the CPU, and whatever has the buffer protocol or DLPack."""

from __future__ import annotations

import math
import pickle
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rdmc._calls import integer
from rdmc.errors import InvalidUse

# By codes of the library: the kind of a number, and its size in bytes.
_TYPES = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "bf2", "f4", "f8"]
# Of torch, where their names are others.
_TORCH = {
    "uint8": "u1",
    **{f"int{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits // 8}" for bits in (16, 32, 64)},
    **{f"float{bits}": f"f{bits // 8}" for bits in (16, 32, 64)},
}
_OPERATORS = ["sum", "prod", "min", "max", "band", "bor", "bxor"]
# Truth values are bytes of 0 and 1: what is an operator of the library's on those.
_ON_BOOL = {"sum": "bor", "prod": "band", "min": "band", "max": "bor", "band": "band", "bor": "bor", "bxor": "bxor"}
_BOOL = ("bool", "torch.bool")
# Codes of the module struct.
_FLOATS = {"f2": "e", "f4": "f", "f8": "d"}
# Of torch.distributed, where their names are others.
_TORCH_OPERATORS = {"product": "prod"}
# Codes of the buffer protocol (the module struct), with their kinds.
_KINDS = {**dict.fromkeys("BHILQN", "u"), **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("efd", "f")}
# What stands in front of them for the byte order of this machine.
_NATIVE = "@=<" if sys.byteorder == "little" else "@=>!"
# Names of fields, and the codes of objects and pointers; Z before a number is a complex one.
_FIELD = re.compile(":[^:]*:")
_ADDRESSES = re.compile("[OPX&z]|Z(?![fdg])")


@dataclass(frozen=True)
class OnDevice:
    """An array in memory of a GPU: the device's number, the address, the length in bytes, and the stream whose order is kept; the type of
    its elements; and what keeps its memory."""

    place: tuple[int, int, int, int | None]
    element: str
    array: Any


# DLPack's code of CUDA's devices.
_DLPACK_CUDA = 2
# Of numbers of devices, and of addresses, lengths and streams.
_DEVICE_MAX, _ADDRESS_MAX = (1 << 31) - 1, (1 << 64) - 1


def on_device(array: Any, is_written: bool = True) -> OnDevice | None:
    """Where an array is that is in memory of a GPU; None for others. Raises InvalidUse if it cannot be used."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.device.type != "cuda":
            return None
        if not array.is_contiguous():
            raise InvalidUse("the tensor is not contiguous: use tensor.contiguous()")
        stream = torch.cuda.current_stream(array.device).cuda_stream
        nbytes = array.numel() * array.element_size()
        return OnDevice((array.device.index, array.data_ptr(), nbytes, stream), _torch_element(array, torch), array)
    interface = getattr(array, "__cuda_array_interface__", None)
    return None if interface is None else _of_interface(array, interface, is_written)


def _torch_element(tensor: Any, torch: Any) -> str:
    if tensor.dtype == torch.bfloat16:
        return "bf2"
    return _TORCH.get(str(tensor.dtype).removeprefix("torch."), str(tensor.dtype))


def _of_interface(array: Any, interface: dict[str, Any], is_written: bool) -> OnDevice:
    try:
        kind, device = array.__dlpack_device__() if hasattr(array, "__dlpack_device__") else (None, 0)
        address, is_readonly = interface["data"]
        element, item = interface["typestr"][1:], int(interface["typestr"][2:])
        shape, strides, stream = tuple(interface["shape"]), tuple(interface.get("strides") or ()), interface.get("stream")
        nbytes = integer("its length in bytes", item * math.prod(shape), 0, _ADDRESS_MAX)
        is_contiguous = nbytes == 0 or not strides or _is_contiguous(item, shape, strides)
        stream = None if stream is None else integer("stream", stream, 0, _ADDRESS_MAX)
        place = (integer("device", device, 0, _DEVICE_MAX), integer("data", address, 0, _ADDRESS_MAX), nbytes, stream)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise InvalidUse(f"the array's __cuda_array_interface__ cannot be used ({why}): give a tensor of torch, or cupy's array") from None
    if kind != _DLPACK_CUDA:
        raise InvalidUse("the array does not say on which device it is (__dlpack_device__): give a tensor of torch, or cupy's array")
    if is_readonly and is_written:
        raise InvalidUse(READ_ONLY)
    if not is_contiguous:
        raise InvalidUse("the array is not contiguous: copy it")
    return OnDevice(place, element, array)


def _is_contiguous(item: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = item
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != expected:
            return False
        expected *= length
    return True


def memory_of(array: Any, is_written: bool = False) -> tuple[memoryview, str]:
    """The bytes of an array, and the type of its elements: "f4", or another name if it is none of the library's.

    Raises InvalidUse if its memory cannot be used: it holds addresses of this process, is not contiguous, or read-only, but written.
    """
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(array, torch.Tensor):
        memory, element = _of_tensor(array, torch)
    elif numpy is not None and isinstance(array, numpy.ndarray):
        memory, element = _of_numpy(array, numpy)
    elif hasattr(array, "__cuda_array_interface__"):
        raise InvalidUse("the array is in memory of a GPU: use broadcast or all_reduce, or copy it to the host first")
    else:
        memory, element = _of_buffer(array)
    if is_written and memory.readonly and memory.nbytes > 0:
        raise InvalidUse(READ_ONLY)
    return memory, element


@contextmanager
def allocating(nbytes: int) -> Iterator[None]:
    """Allocates memory. Raises MemoryError with its length, which others are told, instead of one without a text."""
    try:
        yield
    except (MemoryError, OverflowError):
        raise MemoryError(f"no memory for {nbytes} bytes") from None


@dataclass(frozen=True)
class Reduction:
    """How elements are combined: the library's codes of their type and of the operator, and whether the result is divided by the number
    of members, which is another call than that of the sum alone."""

    codes: tuple[int, int]
    element: str
    is_mean: bool

    def finish(self, memory: memoryview, size: int) -> None:
        """What is left to do with the sums."""
        if self.is_mean:
            _divide(memory, self.element, size)


def reduction_of(element: str, op: Any) -> Reduction:
    """The meaning of an operator, given by its name or as torch.distributed's ReduceOp, for elements of a type.

    Raises InvalidUse if there is none.
    """
    if not isinstance(op, str):
        # An enumeration, or what holds one.
        op = getattr(op, "op", op)
    given = op if isinstance(op, str) else str(getattr(op, "name", op)).lower()
    name = _TORCH_OPERATORS.get(given, given)
    if name not in [*_OPERATORS, "avg"]:
        raise InvalidUse(f"op is {given!r}; use one of {', '.join(_OPERATORS)}, avg")
    if element in _BOOL and name in _ON_BOOL:
        element, name = "u1", _ON_BOOL[name]
    if element not in _TYPES and element not in _BOOL:
        why = "use integers, truth values, or floating point numbers of this machine's byte order"
        raise InvalidUse(f"elements of type {element} cannot be reduced: {why}")
    if name != "avg":
        return Reduction((_TYPES.index(element), _OPERATORS.index(name)), element, False)
    if "f" not in element:
        raise InvalidUse(f"op is avg, which elements of type {element} have not: use floating point numbers, or sum")
    return Reduction((_TYPES.index(element), _OPERATORS.index("sum")), element, True)


def _divide(memory: memoryview, element: str, by: int) -> None:
    """Divides floating point numbers, each rounded once: all libraries have the same bits."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if memory.nbytes == 0:
        return
    if torch is not None:
        kind = torch.bfloat16 if element == "bf2" else getattr(torch, f"float{8 * int(element[1:])}")
        torch.frombuffer(memory, dtype=kind).div_(by)
    elif numpy is not None:
        # The package of its type is loaded where there is such an array.
        kind = sys.modules["ml_dtypes"].bfloat16 if element == "bf2" else element
        values = numpy.frombuffer(memory, kind)
        numpy.divide(values, values.dtype.type(by), out=values)
    else:
        form = f"={memory.nbytes // int(element[1:])}{_FLOATS[element]}"
        struct.pack_into(form, memory, 0, *(value / by for value in struct.unpack(form, memory)))


def _of_tensor(tensor: Any, torch: Any) -> tuple[memoryview, str]:
    if tensor.device.type != "cpu":
        if tensor.device.type == "cuda":
            raise InvalidUse(f"the tensor is on {tensor.device}: use broadcast or all_reduce, or copy it to the CPU first (tensor.cpu())")
        raise InvalidUse(f"the tensor is on {tensor.device}: use one on the CPU (tensor.cpu()), or on a CUDA device")
    if not tensor.is_contiguous():
        raise InvalidUse("the tensor is not contiguous: use tensor.contiguous()")
    try:
        # Of any type: numpy has not all of them.
        array = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    except (RuntimeError, TypeError) as error:
        raise InvalidUse(f"the tensor's memory cannot be used: {error}") from None
    return memoryview(array), _torch_element(tensor, torch)


def _of_numpy(array: Any, numpy: Any) -> tuple[memoryview, str]:
    if numpy.ma.isMaskedArray(array):
        raise InvalidUse("the array has a mask, which is no part of its memory: give array.filled(), or array.data without the mask")
    kind = array.dtype
    if kind.hasobject:
        raise InvalidUse(f"elements of type {kind} are objects of this process: pickle them, and send the bytes")
    if not array.flags.c_contiguous:
        raise InvalidUse(_NOT_CONTIGUOUS)
    element = "bf2" if kind.name == "bfloat16" else f"{kind.kind}{kind.itemsize}"
    # Types of other libraries, such as those of 8 bits, have no name of the library's.
    is_known = kind.name == "bfloat16" or (kind.isbuiltin == 1 and kind.isnative and element in _TYPES)
    flat = numpy.asarray(array).reshape(-1)
    memory = memoryview(flat.view(numpy.uint8)) if array.nbytes > 0 else memoryview(bytearray())
    return memory, element if is_known else str(kind)


def _of_buffer(array: Any) -> tuple[memoryview, str]:
    try:
        view = memoryview(array)
    except (TypeError, ValueError, BufferError) as error:
        if hasattr(array, "__dlpack__"):
            return _of_dlpack(array)
        kind = type(array).__name__
        raise InvalidUse(f"an object of type {kind} has no memory that can be used: give bytes, or an array ({error})") from None
    if not view.c_contiguous:
        raise InvalidUse(_NOT_CONTIGUOUS)
    if _ADDRESSES.search(_FIELD.sub("", view.format)):
        raise InvalidUse(f"elements of format {view.format!r} are objects or addresses of this process: send what is there")
    bare = view.format.lstrip(_NATIVE)
    kind = "bool" if bare == "?" else _KINDS.get(bare, view.format)
    return _flat(view), f"{kind}{view.itemsize}" if bare in _KINDS else kind


def _of_dlpack(array: Any) -> tuple[memoryview, str]:
    import numpy

    try:
        # With a newer array's own flag for what may be written.
        return _of_numpy(numpy.from_dlpack(array), numpy)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        if isinstance(error, InvalidUse):
            raise
        raise InvalidUse(f"the array's memory cannot be used: {error}: give its bytes, such as array.view('uint8')") from None


def _flat(view: memoryview) -> memoryview:
    """The same memory as bytes."""
    # A memoryview itself casts no formats but those without a byte order.
    return pickle.PickleBuffer(view).raw() if view.nbytes > 0 else memoryview(bytearray())


READ_ONLY = "the array is read-only, but is received into: copy it, or use broadcast_bytes"
_NOT_CONTIGUOUS = "the array is not contiguous: use numpy.ascontiguousarray"

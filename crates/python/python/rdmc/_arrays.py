"""Memory of arrays: numpy, torch on the CPU, and any object with the buffer protocol or DLPack."""

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

# Element types by the library's codes: the kind of number, and its size in bytes.
_TYPES = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "bf2", "f4", "f8"]
# Element types of torch.
_TORCH = {
    "uint8": "u1",
    **{f"int{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits // 8}" for bits in (16, 32, 64)},
    **{f"float{bits}": f"f{bits // 8}" for bits in (16, 32, 64)},
}
_OPERATORS = ["sum", "prod", "min", "max", "band", "bor", "bxor"]
# Operators for bool elements, which are bytes of 0 and 1.
_ON_BOOL = {"sum": "bor", "prod": "band", "min": "band", "max": "bor", "band": "band", "bor": "bor", "bxor": "bxor"}
_BOOL = ("bool", "torch.bool")
# Codes of the module struct.
_FLOATS = {"f2": "e", "f4": "f", "f8": "d"}
# Operators whose names differ in torch.distributed.
_TORCH_OPERATORS = {"product": "prod"}
# Codes of the buffer protocol (the module struct), with their kinds.
_KINDS = {**dict.fromkeys("BHILQN", "u"), **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("efd", "f")}
# Prefixes of these codes for this machine's byte order.
_NATIVE = "@=<" if sys.byteorder == "little" else "@=>!"
# Field names, and the codes of objects and pointers; Z before a floating point code is a complex number.
_FIELD = re.compile(":[^:]*:")
_ADDRESSES = re.compile("[OPX&z]|Z(?![fdg])")


@dataclass(frozen=True)
class OnDevice:
    """An array in GPU memory. ``place``: device number, address, length in bytes, and stream. ``element``: element type. ``array``: keeps
    the memory alive."""

    place: tuple[int, int, int, int | None]
    element: str
    array: Any


# DLPack's device type of CUDA.
_DLPACK_CUDA = 2
# The greatest device number, and the greatest address, length or stream.
_DEVICE_MAX, _ADDRESS_MAX = (1 << 31) - 1, (1 << 64) - 1


def on_device(array: Any, is_written: bool = True) -> OnDevice | None:
    """Returns the place of an array in GPU memory; None for other arrays. Raises InvalidUse if it cannot be used."""
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
        raise InvalidUse(f"the array's __cuda_array_interface__ cannot be used ({why}): pass a torch tensor or a cupy array") from None
    if kind != _DLPACK_CUDA:
        raise InvalidUse("the array does not report its CUDA device (__dlpack_device__): pass a torch tensor or a cupy array")
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
    """Returns the bytes of an array and its element type: such as "f4", or another name if the library does not have the type.

    Raises InvalidUse if the memory cannot be used: it holds addresses of this process, is not contiguous, or is read-only but written.
    """
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(array, torch.Tensor):
        memory, element = _of_tensor(array, torch)
    elif numpy is not None and isinstance(array, numpy.ndarray):
        memory, element = _of_numpy(array, numpy)
    elif hasattr(array, "__cuda_array_interface__"):
        raise InvalidUse("the array is in GPU memory: use broadcast or all_reduce, or copy it to the host first")
    else:
        memory, element = _of_buffer(array)
    if is_written and memory.readonly and memory.nbytes > 0:
        raise InvalidUse(READ_ONLY)
    return memory, element


@contextmanager
def allocating(nbytes: int) -> Iterator[None]:
    """Allocates memory. Raises MemoryError with the length, which other members learn, instead of one without a text."""
    try:
        yield
    except (MemoryError, OverflowError):
        raise MemoryError(f"no memory for {nbytes} bytes") from None


@dataclass(frozen=True)
class Reduction:
    """How elements are combined: the library's codes of type and operator, and whether the result is divided by the number of members,
    which members must agree on."""

    codes: tuple[int, int]
    element: str
    is_mean: bool

    def finish(self, memory: memoryview, size: int) -> None:
        """Divides the sums for avg."""
        if self.is_mean:
            _divide(memory, self.element, size)


def reduction_of(element: str, op: Any) -> Reduction:
    """Returns the reduction for an element type and an operator: a name or a torch.distributed.ReduceOp.

    Raises InvalidUse if the type does not have the operator.
    """
    if not isinstance(op, str):
        # An enumeration, or an object that holds one.
        op = getattr(op, "op", op)
    given = op if isinstance(op, str) else str(getattr(op, "name", op)).lower()
    name = _TORCH_OPERATORS.get(given, given)
    if name not in [*_OPERATORS, "avg"]:
        raise InvalidUse(f"op is {given!r}; use one of {', '.join(_OPERATORS)}, avg")
    if element in _BOOL and name in _ON_BOOL:
        element, name = "u1", _ON_BOOL[name]
    if element not in _TYPES and element not in _BOOL:
        why = "use integers, bool, or floating point numbers in this machine's byte order"
        raise InvalidUse(f"elements of type {element} cannot be reduced: {why}")
    if name != "avg":
        return Reduction((_TYPES.index(element), _OPERATORS.index(name)), element, False)
    if "f" not in element:
        raise InvalidUse(f"op is avg, which elements of type {element} do not support: use floating point numbers, or sum")
    return Reduction((_TYPES.index(element), _OPERATORS.index("sum")), element, True)


def _divide(memory: memoryview, element: str, by: int) -> None:
    """Divides floating point numbers, each rounded once, so that all libraries give the same bits."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if memory.nbytes == 0:
        return
    if torch is not None:
        kind = torch.bfloat16 if element == "bf2" else getattr(torch, f"float{8 * int(element[1:])}")
        torch.frombuffer(memory, dtype=kind).div_(by)
    elif numpy is not None:
        # The package of the type is loaded if such an array exists.
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
        # As bytes: numpy does not have all types.
        array = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    except (RuntimeError, TypeError) as error:
        raise InvalidUse(f"the tensor's memory cannot be used: {error}") from None
    return memoryview(array), _torch_element(tensor, torch)


def _of_numpy(array: Any, numpy: Any) -> tuple[memoryview, str]:
    if numpy.ma.isMaskedArray(array):
        raise InvalidUse("the array has a mask, which is not in its memory: pass array.filled(), or array.data without the mask")
    kind = array.dtype
    if kind.hasobject:
        raise InvalidUse(f"elements of type {kind} are objects of this process: pickle them and send the bytes")
    if not array.flags.c_contiguous:
        raise InvalidUse(_NOT_CONTIGUOUS)
    element = "bf2" if kind.name == "bfloat16" else f"{kind.kind}{kind.itemsize}"
    # Types of other packages, such as 8-bit floating point, are not types of this library.
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
        raise InvalidUse(f"an object of type {kind} has no memory that can be used: pass bytes or an array ({error})") from None
    if not view.c_contiguous:
        raise InvalidUse(_NOT_CONTIGUOUS)
    if _ADDRESSES.search(_FIELD.sub("", view.format)):
        raise InvalidUse(f"elements of format {view.format!r} are objects or addresses of this process: send the data itself")
    bare = view.format.lstrip(_NATIVE)
    kind = "bool" if bare == "?" else _KINDS.get(bare, view.format)
    return _flat(view), f"{kind}{view.itemsize}" if bare in _KINDS else kind


def _of_dlpack(array: Any) -> tuple[memoryview, str]:
    import numpy

    try:
        # Newer arrays provide their own read-only flag.
        return _of_numpy(numpy.from_dlpack(array), numpy)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        if isinstance(error, InvalidUse):
            raise
        raise InvalidUse(f"the array's memory cannot be used: {error}: pass its bytes, such as array.view('uint8')") from None


def _flat(view: memoryview) -> memoryview:
    """Returns the same memory as bytes."""
    # memoryview.cast accepts only formats without a byte order.
    return pickle.PickleBuffer(view).raw() if view.nbytes > 0 else memoryview(bytearray())


READ_ONLY = "the array is read-only, but is received into: copy it, or use broadcast_bytes"
_NOT_CONTIGUOUS = "the array is not contiguous: use numpy.ascontiguousarray"

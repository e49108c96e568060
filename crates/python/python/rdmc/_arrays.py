"""Arrays of other libraries as memory: numpy, torch on the CPU, and whatever has the buffer protocol or DLPack."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

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
# Codes of the buffer protocol (the module struct), with their kinds.
_KINDS = {**dict.fromkeys("BHILQN", "u"), **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("efd", "f")}


@dataclass(frozen=True)
class OnDevice:
    """An array in memory of a GPU: the device's number, the address, the length in bytes, and the stream whose order is kept; the type of
    its elements; and what keeps its memory."""

    place: tuple[int, int, int, int | None]
    element: str | None
    array: Any


# DLPack's code of CUDA's devices.
_DLPACK_CUDA = 2


def on_device(array: Any) -> OnDevice | None:
    """Where an array is that is in memory of a GPU; None for others."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.device.type != "cuda":
            return None
        if not array.is_contiguous():
            raise InvalidUse("the tensor is not contiguous: use tensor.contiguous()")
        stream = torch.cuda.current_stream(array.device).cuda_stream
        nbytes = array.numel() * array.element_size()
        element = "bf2" if array.dtype == torch.bfloat16 else _TORCH.get(str(array.dtype).removeprefix("torch."))
        return OnDevice((array.device.index, array.data_ptr(), nbytes, stream), element, array)
    interface = getattr(array, "__cuda_array_interface__", None)
    return None if interface is None else _of_interface(array, interface)


def _of_interface(array: Any, interface: dict[str, Any]) -> OnDevice:
    kind, device = array.__dlpack_device__() if hasattr(array, "__dlpack_device__") else (None, 0)
    if kind != _DLPACK_CUDA:
        raise InvalidUse("the array does not say on which device it is (__dlpack_device__): give a tensor of torch, or cupy's array")
    address, is_readonly = interface["data"]
    if is_readonly:
        raise InvalidUse("the array is read-only, but is received into: copy it")
    item = int(interface["typestr"][2:])
    strides, expected = interface.get("strides"), item
    for length, stride in zip(reversed(interface["shape"]), reversed(strides or ()), strict=False):
        if length > 1 and stride != expected:
            raise InvalidUse("the array is not contiguous: copy it")
        expected *= length
    nbytes = item * math.prod(interface["shape"])
    return OnDevice((device, address, nbytes, interface.get("stream")), interface["typestr"][1:], array)


def memory_of(array: Any) -> tuple[Any, str | None]:
    """An object with the buffer protocol on the same memory, and the type of its elements ("f4"), if it is known."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _of_tensor(array, torch)
    if hasattr(array, "__cuda_array_interface__"):
        raise InvalidUse("the array is in memory of a GPU: use broadcast or all_reduce, or copy it to the host first")
    if not _has_buffer(array) and hasattr(array, "__dlpack__"):
        array = _from_dlpack(array)
    view = memoryview(array)
    # The extension takes no buffer without dimensions.
    return array if view.ndim else view.cast("B"), _type_of(view)


def codes_of(element: str | None, op: str) -> tuple[int, int]:
    """The library's codes of a type and of an operator."""
    if op not in _OPERATORS:
        raise InvalidUse(f"op is {op!r}; use one of {', '.join(_OPERATORS)}")
    if element is None or element not in _TYPES:
        raise InvalidUse(f"elements of this type cannot be reduced ({element}): use integers or floating point numbers")
    return _TYPES.index(element), _OPERATORS.index(op)


def _of_tensor(tensor: Any, torch: Any) -> tuple[Any, str | None]:
    if tensor.device.type != "cpu":
        raise InvalidUse(f"the tensor is on {tensor.device}: use broadcast or all_reduce, or copy it to the CPU first (tensor.cpu())")
    if not tensor.is_contiguous():
        raise InvalidUse("the tensor is not contiguous: use tensor.contiguous()")
    tensor = tensor.detach().reshape(-1)
    if tensor.dtype == torch.bfloat16:
        # numpy has no such type.
        return tensor.view(torch.int16).numpy(), "bf2"
    try:
        array = tensor.numpy()
    except TypeError:
        # A type that numpy has not, such as those of 8 bits: its bytes.
        return tensor.view(torch.uint8).numpy(), None
    return array, _type_of(memoryview(array))


def _from_dlpack(array: Any) -> Any:
    import numpy

    # With a newer array's own flag for what may be written.
    return numpy.from_dlpack(array)


def _has_buffer(array: Any) -> bool:
    try:
        memoryview(array).release()
    except TypeError:
        return False
    return True


def _type_of(view: memoryview) -> str | None:
    code = view.format.lstrip("@=")
    kind = _KINDS.get(code)
    return None if kind is None else f"{kind}{view.itemsize}"

"""Arrays of other libraries as memory: numpy, torch on the CPU, and whatever has the buffer protocol or DLPack."""

from __future__ import annotations

import sys
from typing import Any

from rdmc.errors import InvalidUse

# By codes of the library: the kind of a number, and its size in bytes.
_TYPES = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "bf2", "f4", "f8"]
_OPERATORS = ["sum", "prod", "min", "max", "band", "bor", "bxor"]
# Codes of the buffer protocol (the module struct), with their kinds.
_KINDS = {**dict.fromkeys("BHILQN", "u"), **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("efd", "f")}


def memory_of(array: Any) -> tuple[Any, str | None]:
    """An object with the buffer protocol on the same memory, and the type of its elements ("f4"), if it is known."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _of_tensor(array, torch)
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
        raise InvalidUse(f"the tensor is on {tensor.device}: copy it to the CPU first (tensor.cpu())")
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

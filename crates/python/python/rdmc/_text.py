"""Texts for the library and for other processes, which accept only UTF-8."""

from __future__ import annotations

from rdmc.errors import InvalidUse


def as_utf8(text: str) -> str:
    """Returns a text that can be encoded: file names in texts may contain bytes that are not UTF-8."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def text(name: str, value: object, remedy: str) -> str:
    """Returns a string argument. Raises InvalidUse for any other value, without showing it: it may be a secret."""
    if not isinstance(value, str):
        raise InvalidUse(f"{name} is of type {type(value).__name__}; use {remedy}")
    return value


def ascii_text(name: str, value: object, remedy: str) -> str:
    """As text, for ASCII characters only."""
    found = text(name, value, remedy)
    if not found.isascii():
        raise InvalidUse(f"{name} has characters that are not ASCII; use {remedy}")
    return found


def reason_of(kind: type[BaseException], error: BaseException | None) -> str:
    """Returns the text with which other members report an exception of this one."""
    try:
        said = "" if error is None else str(error)
    except Exception:
        # The exception has no text: other members learn its type.
        said = ""
    return as_utf8(f"{kind.__name__}: {said}" if said else kind.__name__)

"""Texts for the library and for other processes, which take UTF-8 only."""

from __future__ import annotations

from rdmc.errors import InvalidUse


def as_utf8(text: str) -> str:
    """A text that can be encoded: texts with names of files may hold bytes that are none."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def text(name: str, value: object, remedy: str) -> str:
    """An argument that is a text. Raises InvalidUse for any other, which it does not show: it may be a secret."""
    if not isinstance(value, str):
        raise InvalidUse(f"{name} is of type {type(value).__name__}; use {remedy}")
    return value


def ascii_text(name: str, value: object, remedy: str) -> str:
    """As text, of ASCII characters."""
    found = text(name, value, remedy)
    if not found.isascii():
        raise InvalidUse(f"{name} has characters that are not ASCII; use {remedy}")
    return found


def reason_of(kind: type[BaseException], error: BaseException | None) -> str:
    """What others are told of an exception."""
    try:
        said = "" if error is None else str(error)
    except Exception:
        # An exception of the application that has no text: others learn of its kind.
        said = ""
    return as_utf8(f"{kind.__name__}: {said}" if said else kind.__name__)

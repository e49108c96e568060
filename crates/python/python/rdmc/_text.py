"""Texts for the library and for other processes, which take UTF-8 only."""

from __future__ import annotations

from rdmc.errors import InvalidUse


def as_utf8(text: str) -> str:
    """A text that can be encoded: texts with names of files may hold bytes that are none."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def ascii_text(name: str, value: str) -> str:
    """An argument that is an address or a name. Raises InvalidUse for what is no text of ASCII characters, without showing it: it may
    be a secret."""
    if not isinstance(value, str) or not value.isascii():
        raise InvalidUse(f"{name} has to be a text of ASCII characters")
    return value


def reason_of(kind: type[BaseException], error: BaseException | None) -> str:
    """What others are told of an exception."""
    try:
        text = "" if error is None else str(error)
    except Exception:
        # An exception of the application that has no text: others learn of its kind.
        text = ""
    return as_utf8(f"{kind.__name__}: {text}" if text else kind.__name__)

"""Exceptions. All are :class:`RdmcError`, and can be pickled and copied: their arguments are those of their constructors."""

from __future__ import annotations


class RdmcError(Exception):
    """Something has failed; the text says what, where, and the remedy."""


class InvalidUse(RdmcError, ValueError):
    """Arguments or settings that cannot be used; nothing has changed."""


class TimedOut(RdmcError, TimeoutError):
    """The time has run out."""


class MemberLost(RdmcError):
    """A group has failed at all members: a process has ended, or its connection.

    ``rank``: of the member that caused it, or None if that is not known. ``reason``: in words.
    """

    def __init__(self, rank: int | None, reason: str) -> None:
        super().__init__(rank, reason)
        self.rank = rank
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Stalled(MemberLost):
    """As MemberLost: the member was waited for beyond the timeout."""


class Corrupt(MemberLost):
    """As MemberLost: data to or from the member were changed on the way."""


class Differs(MemberLost):
    """As MemberLost: the member's copy of a message is not the root's, among messages that are verified."""


class Refused(MemberLost):
    """As MemberLost: the member has refused to take part, before the group was formed or a transfer began."""


class Aborted(MemberLost):
    """As MemberLost: the member's program has ended the group, by an exception perhaps, or has called something else than others."""


class PushError(RdmcError):
    """Some hosts have no copy. ``failed``: why, by host."""

    def __init__(self, text: str, failed: dict[str, str]) -> None:
        super().__init__(text, failed)
        self.failed = failed

    def __str__(self) -> str:
        return str(self.args[0])


_BY_KIND: dict[str, type[MemberLost]] = {
    "lost": MemberLost,
    "silent": MemberLost,
    "memory": MemberLost,
    "protocol": MemberLost,
    "network": MemberLost,
    "refused": Refused,
    "aborted": Aborted,
    "stalled": Stalled,
    "corrupt": Corrupt,
    "differs": Differs,
}


def make(kind: str, rank: int | None, text: str) -> RdmcError:
    """The exception for an error of the library."""
    if kind == "invalid":
        return InvalidUse(text)
    if kind == "timeout":
        return TimedOut(text)
    made = _BY_KIND.get(kind)
    return RdmcError(text) if made is None else made(rank, text)

"""Exceptions. All derive from :class:`RdmcError` and can be pickled and copied: ``args`` holds the constructor's arguments."""

from __future__ import annotations


class RdmcError(Exception):
    """An operation failed; the text names what failed, where, and the remedy."""


class InvalidUse(RdmcError, ValueError):
    """Invalid arguments or settings, or a call that is not allowed now; nothing has changed."""


class TimedOut(RdmcError, TimeoutError):
    """The timeout has expired."""


class MemberLost(RdmcError):
    """A group has failed at all members, because a process or its connection ended.

    ``rank``: the member that caused the failure, or None if unknown. ``reason``: the text of the failure.
    """

    def __init__(self, rank: int | None, reason: str) -> None:
        super().__init__(rank, reason)
        self.rank = rank
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Stalled(MemberLost):
    """As MemberLost: the member made no progress within the timeout."""


class Corrupt(MemberLost):
    """As MemberLost: data to or from the member changed in transit."""


class Differs(MemberLost):
    """As MemberLost: the member's copy of a message differs from the root's, with ``verify``."""


class Refused(MemberLost):
    """As MemberLost: the member refused to take part, before the group was formed or a transfer began."""


class Aborted(MemberLost):
    """As MemberLost: the member's program ended the group, for example by an exception, or made a different call than the others."""


class PushError(RdmcError):
    """Some hosts have no copy. ``failed``: the reason, by host."""

    def __init__(self, text: str, failed: dict[str, str]) -> None:
        super().__init__(text, failed)
        self.failed = failed

    def __str__(self) -> str:
        return str(self.args[0])


class FetchError(RdmcError):
    """There is no copy; the text has the reasons, by server."""


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
    """Returns the exception for an error of the library."""
    if kind == "invalid":
        return InvalidUse(text)
    if kind == "timeout":
        return TimedOut(text)
    made = _BY_KIND.get(kind)
    return RdmcError(text) if made is None else made(rank, text)

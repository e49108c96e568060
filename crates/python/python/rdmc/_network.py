"""How members of a group reach each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rdmc._calls import integer
from rdmc._log import follow_log
from rdmc._rdmc import Endpoint
from rdmc._text import ascii_text
from rdmc.errors import InvalidUse

_NUMBER_MAX = (1 << 32) - 1


@dataclass
class Network:
    """The network arguments of Group, checked: how members reach each other, and how long operations may take."""

    number: int
    fabric: str | None
    protection: str | None
    timeout: float
    # Known only after a meeting.
    secret: str = ""

    def __post_init__(self) -> None:
        self.number = integer("number", self.number, 0, _NUMBER_MAX)
        ascii_text("secret", self.secret, "64 hexadecimal digits (rdmc.random_secret)")
        if self.fabric is not None:
            ascii_text("fabric", self.fabric, "a name: tcp, verbs, shm ...")
        if self.protection is not None:
            ascii_text("protection", self.protection, "encrypt or none")

    def listen(self, address: str) -> Endpoint:
        """Returns an endpoint that listens at the address, for a group to join."""
        follow_log()
        return Endpoint(address, self.secret, self.fabric, self.protection)


def addresses_of(members: Sequence[str]) -> list[str]:
    """Returns the addresses of the members. Raises InvalidUse unless they are a list of strings."""
    found = list(members) if isinstance(members, Iterable) and not isinstance(members, str | bytes) else []
    remedy = "the address of each rank, such as ['10.0.0.1:7000', '10.0.0.2:7000']"
    if not found:
        raise InvalidUse(f"members is {members!r}; use {remedy}")
    return [ascii_text(f"members[{rank}]", address, remedy) for rank, address in enumerate(found)]

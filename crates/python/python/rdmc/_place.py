"""The host of a process, and the address at which other hosts reach it."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from dataclasses import asdict, dataclass

from rdmc.errors import InvalidUse, RdmcError

_LOOPBACK = "127.0.0.1"
# Addresses reserved for documentation, to find the interface of the default route; nothing is sent to them.
_ELSEWHERE = ("192.0.2.1", "2001:db8::1")


@dataclass(frozen=True)
class Place:
    """Where a process is. ``host``: a text that identifies the host; ``name``: the host's name, for errors.

    ``ip_here``: the address for processes on this host; ``ip``: the address for other hosts, or None. ``why_not``: why ``ip`` is None.
    ``has_secret``: whether the process's environment has RDMC_SECRET.
    """

    host: str
    name: str
    ip_here: str | None
    ip: str | None
    why_not: str
    has_secret: bool

    @classmethod
    def of_this_process(cls) -> Place:
        """Takes RDMC_IP, or else the first address that is not loopback among those toward MASTER_ADDR, of the host name, and of the
        default route (Debian resolves a host's own name to 127.0.1.1)."""
        name, has_secret = socket.gethostname(), bool(os.environ.get("RDMC_SECRET"))

        def at(ip_here: str | None, ip: str | None, why_not: str) -> Place:
            return cls(_host(), name, ip_here, ip, why_not, has_secret)

        if given := os.environ.get("RDMC_IP"):
            if _is_ip(given):
                return at(given, given, "")
            return at(None, None, f"RDMC_IP={given} is not an IP address")
        master = os.environ.get("MASTER_ADDR")
        try:
            found = [] if master is None else _own_ips_toward(master)
        except (OSError, UnicodeError) as error:
            return at(_LOOPBACK, None, f"MASTER_ADDR={master} is not known there: {error}")
        for other in (name, *_ELSEWHERE):
            try:
                found += _own_ips_toward(other)
            except (OSError, UnicodeError):
                # Another way may find an address.
                pass
        ip = next((ip for ip in found if _is_for_others(ip)), None)
        return at(found[0] if found else _LOOPBACK, ip, "it has only loopback addresses and no default route")

    @classmethod
    def from_text(cls, text: str) -> Place:
        """Parses the result of as_text."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError):
            raise RdmcError(f"the store or communicator holds {text[:200]!r} for a process: do all run the same version of rdmc?") from None

    def as_text(self) -> str:
        """Returns the place as a text for other processes."""
        return json.dumps(asdict(self))


def _host() -> str:
    """Returns a text that identifies the host: the running kernel, the network namespace, and RDMC_HOST."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        # Some sandboxes have neither.
        boot, network = socket.gethostname(), 0
    return f"{boot} {network} {os.environ.get('RDMC_HOST', '')}"


def ips_of(places: list[Place]) -> list[str]:
    """Returns each rank's address to listen on; loopback only if all are on one host. All processes raise if one has no address."""
    is_one_host = len({place.host for place in places}) == 1
    ips = []
    for rank, place in enumerate(places):
        ip = place.ip_here if is_one_host else place.ip
        if ip is None:
            raise InvalidUse(
                f"rank {rank}, on host {place.name}, has no address that other hosts reach: {place.why_not}; set RDMC_IP there"
            )
        ips.append(ip)
    return ips


def _own_ips_toward(name: str) -> list[str]:
    """Returns this host's addresses toward another. Raises OSError for an unknown name, UnicodeError for an invalid one."""
    ips = []
    for family, _, _, _, address in socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                # Sends nothing: the system chooses the route.
                probe.connect(address)
                ips.append(str(probe.getsockname()[0]))
            except OSError:
                # No route to this address.
                continue
    return ips


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_for_others(ip: str) -> bool:
    address = ipaddress.ip_address(ip)
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)

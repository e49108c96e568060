"""Where programs run: on hosts of a lab (`rdmc-lab`), or on this machine."""

import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from options import show_rate
from programs import Built, Failed

# Labs are called so, followed by this process's number and another one.
_PREFIX = "compare-"
_NUMBERS = itertools.count()
_TIMEOUT_S = 120


@dataclass(frozen=True)
class Link:
    """The link of each host, both ways; the rate is of TCP payload."""

    rate: int
    # 18 kB pass at once instead of 2 ms of the rate.
    is_small_burst: bool = False
    mtu_bytes: int = 1500

    def words(self) -> list[str]:
        """Options of `rdmc-lab up`."""
        return ["--rate", show_rate(self.rate), "--mtu", str(self.mtu_bytes), *(["--small-burst"] if self.is_small_burst else [])]


@dataclass(frozen=True)
class Host:
    """The words that start a command there, none on this machine, and its address."""

    enter: tuple[str, ...]
    address: str


@dataclass(frozen=True)
class Site:
    """Where the members of a group run, the root first."""

    hosts: Sequence[Host]
    device: str
    link: Link | None
    # The words that start a command at the switch, its bridge, and the bridge's ports by host.
    switch: tuple[str, ...] = ()
    bridge: str = ""
    ports: Sequence[str] = ()
    # What each host's link has carried towards the switch so far: bytes of Ethernet frames.
    sent_bytes: Callable[[], list[int]] = list

    @property
    def root(self) -> Host:
        return self.hosts[0]

    @property
    def receivers(self) -> Sequence[Host]:
        return self.hosts[1:]


def here(members: int) -> Site:
    """This machine, by loopback."""
    return Site([Host((), "127.0.0.1")] * members, "lo", None)


def need_root(what: str) -> None:
    """Fails unless this is root."""
    if os.geteuid() != 0:
        raise Failed(f"{what} needs root (network namespaces); run it as root, or with sudo")


def usual_rate(members: int) -> int:
    """The highest rate of links that two cores can carry for this many members, in bits per second."""
    return min(4_000 // members, 1_000) * 1_000_000


def _run(lab: str, *words: str) -> Any:
    done = subprocess.run([lab, *words], capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise Failed(done.stderr.strip().removeprefix("rdmc-lab: "))
    return json.loads(done.stdout) if "--json" in words else None


def _remove_abandoned(lab: str) -> None:
    """Those of processes that were killed."""
    for name in (found["name"] for found in _run(lab, "list", "--json")):
        owner = name.removeprefix(_PREFIX).split("-")[0]
        if name.startswith(_PREFIX) and not Path("/proc", owner).exists():
            _run(lab, "down", "--name", name)


@contextmanager
def lab(built: Built, members: int, link: Link) -> Iterator[Site]:
    """A lab that is removed in the end."""
    need_root("a lab")
    program = built.lab
    _remove_abandoned(program)
    name = f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}"
    try:
        _run(program, "up", "--name", name, "--hosts", str(members), *link.words())
        made = _run(program, "hosts", "--name", name, "--json")
        enter = made["launcher"].split()
        hosts = [Host(tuple(word.replace("{host}", host["name"]) for word in enter), host["address"]) for host in made["hosts"]]
        switch = tuple(word.replace("{host}", made["switch"]) for word in enter)

        def sent_bytes() -> list[int]:
            return [host["sent_bytes"] for host in _run(program, "hosts", "--name", name, "--json")["hosts"]]

        yield Site(hosts, "eth0", link, switch, made["bridge"], [host["port"] for host in made["hosts"]], sent_bytes)
    finally:
        if any(found["name"] == name for found in _run(program, "list", "--json")):
            _run(program, "down", "--name", name)


@contextmanager
def site(built: Built, members: int, link: Link | None) -> Iterator[Site]:
    """A lab with these links, or this machine."""
    if link is None:
        yield here(members)
    else:
        with lab(built, members, link) as made:
            yield made

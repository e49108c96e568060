"""The meeting of processes that a launcher has started, through a store or communicator."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rdmc._place import Place, ips_of
from rdmc._rdmc import random_secret
from rdmc._text import as_utf8
from rdmc.errors import InvalidUse, RdmcError, Refused, TimedOut

_T = TypeVar("_T")


class Store(Protocol):
    """A key-value store that all processes can write and read, such as torch.distributed's stores."""

    def set(self, key: str, value: Any) -> Any:
        """Stores a value."""

    def get(self, key: str) -> Any:
        """Returns a value; waits until it is stored."""


class FileStore:
    """A directory that all processes can reach. The timeout, from construction on, bounds all waits together."""

    def __init__(self, path: str | os.PathLike[str], timeout: float) -> None:
        self._path = Path(path)
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except ValueError as error:
            raise InvalidUse(f"store is {path!r}, which is not the path of a directory: {error}") from None
        self._until = time.monotonic() + timeout

    def set(self, key: str, value: str) -> None:
        """Stores a value in a file that only this user can read."""
        hidden = self._path / f".{key}.{random_secret()[:16]}"
        with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(value)
        hidden.rename(self._path / key)

    def get(self, key: str) -> str:
        """Returns a value; waits until it is stored."""
        while True:
            try:
                return (self._path / key).read_text(encoding="utf-8", errors="backslashreplace")
            except FileNotFoundError:
                if time.monotonic() > self._until:
                    raise TimedOut(f"no member has written {self._path / key}: are all running, with the same store?") from None
                time.sleep(0.01)


_RANKS = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
]


def rank_and_size(store: Any) -> tuple[int, int]:
    """Returns this process's rank and the number of processes, from an mpi4py communicator, torchrun, Open MPI, MPICH or Slurm."""
    if hasattr(store, "Get_rank") and hasattr(store, "Get_size"):
        return int(store.Get_rank()), int(store.Get_size())
    for rank_name, size_name in _RANKS:
        if rank_name in os.environ and size_name in os.environ:
            rank, size = os.environ[rank_name], os.environ[size_name]
            if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
                raise InvalidUse(f"{rank_name}={rank} is not a rank among {size_name}={size} processes")
            return int(rank), int(size)
    names = ", ".join("/".join(pair) for pair in _RANKS)
    raise InvalidUse(f"no launcher has set rank and size ({names}): start this with torchrun, mpirun or srun, or use Group(...)")


def store_of(given: Any | None, timeout: float) -> Any:
    """Returns the given store, or the directory in RDMC_STORE."""
    if given is None:
        # Empty means unset, not the current directory.
        given = os.environ.get("RDMC_STORE") or None
    if given is None or given == "":
        raise InvalidUse("no store: pass one, or set RDMC_STORE to the path of a shared directory")
    if isinstance(given, str | os.PathLike):
        return FileStore(given, timeout)
    if not all(hasattr(given, name) for name in ("set", "get")) and not all(hasattr(given, name) for name in ("allgather", "bcast")):
        kinds = "an object with set and get, an mpi4py communicator, or the path of a directory"
        raise InvalidUse(f"store is of type {type(given).__name__}; use {kinds}")
    return given


# Prefix of the reason why a process cannot take part.
_FAILED = "failed: "


class Meeting:
    """The exchange by which processes learn each other's places before they form a group. All construct it; waits for all.

    Entries that an earlier meeting left in the store are not mistaken for those of this one: rank 0 draws a random name for the meeting
    and sends it to each process in its answer, and all later keys contain the name. A count of groups would not suffice: a restarted
    process begins with zero.

    ``rank``, ``size``: the rank of this process, and the number of processes. ``secret``: the shared secret. ``ip``: the address at which
    other processes reach this one. ``hosts``: by rank, a text that identifies the process's host.
    """

    def __init__(self, given: Any, number: int, timeout: float, place: tuple[int, int] | None = None) -> None:
        """``place``: this process's rank and the number of processes, if no launcher sets them."""
        self.rank, self.size = rank_and_size(given) if place is None else place
        self._store = store_of(given, timeout)
        self._key = f"rdmc-{number}"
        self._given: set[str] = set()
        own = Place.of_this_process().as_text()
        # With RDMC_SECRET at all processes, the store does not contain the secret.
        made = None if os.environ.get("RDMC_SECRET") else random_secret()
        if hasattr(self._store, "allgather"):
            secret = self._store.bcast(made, root=0)
            places = [str(text) for text in self._store.allgather(own)]
        else:
            until = time.monotonic() + timeout
            roster = self._lead(own, made, until) if self.rank == 0 else self._follow(own, until)
            self._key += f"-{roster.meeting}"
            secret, places = roster.secret, [entry.place for entry in roster.entries]
        all_places = [Place.from_text(text) for text in places]
        self.secret = _agreed(secret, [place.has_secret for place in all_places])
        self.ip = ips_of(all_places)[self.rank]
        self.hosts = [place.host for place in all_places]

    def exchange(self, what: str, own: str) -> list[str]:
        """Returns the values of all processes, by rank. Only once for each ``what``."""
        values = self._give(what, own)
        for rank, value in enumerate(values):
            if value.startswith(_FAILED):
                raise Refused(rank, f"rank {rank} cannot take part: {value.removeprefix(_FAILED)}")
        return values

    @contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Reports a failure in the block to processes that wait for this process's value of ``what``."""
        try:
            yield
        except Exception as error:
            if what not in self._given:
                # A failure of the store as well is not the cause.
                with suppress(Exception):
                    self._give(what, _FAILED + as_utf8(str(error)), are_others_read=False)
            raise

    def _give(self, what: str, own: str, are_others_read: bool = True) -> list[str]:
        self._given.add(what)
        if hasattr(self._store, "allgather"):
            return [str(value) for value in self._store.allgather(own)]
        self._store.set(f"{self._key}-{what}-{self.rank}", own)
        others = range(self.size) if are_others_read else ()
        return [_text_of(self._store.get(f"{self._key}-{what}-{other}")) for other in others]

    def _lead(self, place: str, secret: str | None, until: float) -> _Roster:
        """At rank 0: publishes the entries that the other processes stored, until each has confirmed that it found its own."""
        meeting, told = random_secret()[:32], None
        own = _Entry(random_secret()[:32], place, meeting)
        for pause in _pauses():
            entries = [own, *(self._read(str(other), _Entry.of) for other in range(1, self.size))]
            missing = [str(rank) for rank, entry in enumerate(entries) if entry.meeting != meeting]
            roster = _Roster(meeting, entries, None if missing else secret, not missing)
            if roster != told:
                self._write("all", asdict(roster))
                told = roster
            if not missing:
                break
            if time.monotonic() > until:
                raise TimedOut(f"ranks {', '.join(missing)} have not joined: are all running, with the same store?")
            time.sleep(pause)
        return roster

    def _follow(self, place: str, until: float) -> _Roster:
        """At other ranks: stores this process's entry, until rank 0 has published it in a complete roster."""
        own = _Entry(random_secret()[:32], place, None)
        self._write(str(self.rank), asdict(own))
        for pause in _pauses():
            roster = self._read("all", _Roster.of)
            told = roster.entries[self.rank] if len(roster.entries) == self.size else None
            if told == own and roster.is_complete:
                break
            if told is not None and told.token == own.token and own.meeting != roster.meeting:
                own = replace(own, meeting=roster.meeting)
                self._write(str(self.rank), asdict(own))
            if time.monotonic() > until:
                raise TimedOut("rank 0, or another rank, has not joined: are all running, with the same size and store?")
            time.sleep(pause)
        return roster

    def _write(self, name: str, value: dict[str, Any]) -> None:
        self._store.set(f"{self._key}-{name}", json.dumps(value))

    def _read(self, name: str, parse: Callable[[Any], _T]) -> _T:
        text = _text_of(self._store.get(f"{self._key}-{name}"))
        try:
            return parse(json.loads(text))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise RdmcError(f"the store has {text[:200]!r} as {self._key}-{name}, which is not a group's entry: use another store") from None


@dataclass(frozen=True)
class _Entry:
    """The entry of a process. ``token``: random, by which the process knows its own entry. ``meeting``: the name that rank 0 sent it."""

    token: str
    place: str
    meeting: str | None

    @classmethod
    def of(cls, stored: Any) -> _Entry:
        return cls(**stored)


@dataclass(frozen=True)
class _Roster:
    """The roster that rank 0 stores: all entries that it has seen. Once complete, none of them is of a process of an earlier meeting."""

    meeting: str
    entries: list[_Entry]
    secret: str | None
    is_complete: bool

    @classmethod
    def of(cls, stored: Any) -> _Roster:
        return cls(**{**stored, "entries": [_Entry.of(entry) for entry in stored["entries"]]})


def _pauses() -> Iterator[float]:
    """Yields the pauses between polls of the store, in seconds; they grow, because many processes may poll."""
    pause = 0.005
    while True:
        yield pause
        pause = min(2 * pause, 0.25)


def _agreed(secret: str | None, has_own: list[bool]) -> str:
    """Returns the secret in RDMC_SECRET, or rank 0's. Raises InvalidUse at all processes if only some have RDMC_SECRET."""
    if len(set(has_own)) > 1:
        raise InvalidUse(
            f"rank {has_own.index(True)} has RDMC_SECRET, but rank {has_own.index(False)} does not: set it for all ranks or none"
        )
    return os.environ["RDMC_SECRET"] if has_own[0] else str(secret)


def _text_of(value: Any) -> str:
    """Returns a stored value as text; stores of other libraries return bytes. Bytes that are not UTF-8 fail when parsed."""
    return bytes(value).decode(errors="backslashreplace") if isinstance(value, bytes | bytearray | memoryview) else str(value)

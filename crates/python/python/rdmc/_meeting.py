"""How processes that a launcher has started learn of each other."""

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
    """What all processes can write to and read from: torch.distributed's stores are such."""

    def set(self, key: str, value: Any) -> Any:
        """Stores a value."""

    def get(self, key: str) -> Any:
        """A value, waiting until it is there."""


class FileStore:
    """A directory that all processes can reach. Waits for all that is read together are bounded by the timeout."""

    def __init__(self, path: str | os.PathLike[str], timeout: float) -> None:
        self._path = Path(path)
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except ValueError as error:
            raise InvalidUse(f"store is {path!r}, which is no path: {error}") from None
        self._until = time.monotonic() + timeout

    def set(self, key: str, value: str) -> None:
        """Stores a value, as a file that only this user can read."""
        hidden = self._path / f".{key}.{random_secret()[:16]}"
        with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(value)
        hidden.rename(self._path / key)

    def get(self, key: str) -> str:
        """A value, waiting until it is there."""
        while True:
            try:
                return (self._path / key).read_text(encoding="utf-8", errors="backslashreplace")
            except FileNotFoundError:
                if time.monotonic() > self._until:
                    raise TimedOut(f"no member has written {self._path / key}: do all run, with the same store?") from None
                time.sleep(0.01)


_RANKS = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
]


def rank_and_size(store: Any) -> tuple[int, int]:
    """This process's rank and the number of processes: in a communicator of mpi4py, or of torchrun, Open MPI, MPICH or Slurm."""
    if hasattr(store, "Get_rank") and hasattr(store, "Get_size"):
        return int(store.Get_rank()), int(store.Get_size())
    for rank_name, size_name in _RANKS:
        if rank_name in os.environ and size_name in os.environ:
            rank, size = os.environ[rank_name], os.environ[size_name]
            if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
                raise InvalidUse(f"{rank_name}={rank} is no rank among {size_name}={size} processes")
            return int(rank), int(size)
    names = ", ".join("/".join(pair) for pair in _RANKS)
    raise InvalidUse(f"no launcher has said rank and size ({names}): start this by torchrun, mpirun or srun, or use Group(...)")


def store_of(given: Any | None, timeout: float) -> Any:
    """The store that was given, or the directory in RDMC_STORE."""
    if given is None:
        # An empty one is as none, and no name of the current directory.
        given = os.environ.get("RDMC_STORE") or None
    if given is None or given == "":
        raise InvalidUse("no store: give one, or the path of a shared directory in RDMC_STORE")
    if isinstance(given, str | os.PathLike):
        return FileStore(given, timeout)
    if not all(hasattr(given, name) for name in ("set", "get")) and not all(hasattr(given, name) for name in ("allgather", "bcast")):
        kinds = "an object with set and get, a communicator of mpi4py, or the path of a directory"
        raise InvalidUse(f"store is of type {type(given).__name__}; use {kinds}")
    return given


# What precedes the reason of a process that cannot take part.
_FAILED = "failed: "


class Meeting:
    """Processes that a launcher has started, while they learn of each other, before they form a group. Made by all; waits for all.

    What processes of an earlier meeting have left in the store is not taken for that of this one: rank 0 draws a name for it, which its
    answer to each other process tells, and all that is stored afterwards is stored under it. A count of groups would not do: a process that
    is started again begins with zero.

    ``rank``, ``size``: of this process, and how many there are. ``secret``: one that all have. ``ip``: the address on which others reach this
    process. ``hosts``: by rank, a text that processes of one host have in common.
    """

    def __init__(self, given: Any, number: int, timeout: float, place: tuple[int, int] | None = None) -> None:
        """``place``: this process's rank, and how many there are, if no launcher says it."""
        self.rank, self.size = rank_and_size(given) if place is None else place
        self._store = store_of(given, timeout)
        self._key = f"rdmc-{number}"
        self._given: set[str] = set()
        own = Place.of_this_process().as_text()
        # Who can read the store does not learn one that all have.
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
        """What all have given, by rank. Once for each ``what``."""
        values = self._give(what, own)
        for rank, value in enumerate(values):
            if value.startswith(_FAILED):
                raise Refused(rank, f"rank {rank} cannot take part: {value.removeprefix(_FAILED)}")
        return values

    @contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """A failure in here is told to those who wait for what this process has not given yet."""
        try:
            yield
        except Exception as error:
            if what not in self._given:
                # A store that has failed too is not the cause.
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
        """At rank 0: tells what others have stored, until each has stored that it has been told of itself."""
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
                raise TimedOut(f"ranks {', '.join(missing)} have not come: do all run, with the same store?")
            time.sleep(pause)
        return roster

    def _follow(self, place: str, until: float) -> _Roster:
        """At others: stores what this process is, until rank 0 has told it to all."""
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
                raise TimedOut("rank 0 has not come, or not all others have: do all run, as many as each was told, with the same store?")
            time.sleep(pause)
        return roster

    def _write(self, name: str, value: dict[str, Any]) -> None:
        self._store.set(f"{self._key}-{name}", json.dumps(value))

    def _read(self, name: str, parse: Callable[[Any], _T]) -> _T:
        text = _text_of(self._store.get(f"{self._key}-{name}"))
        try:
            return parse(json.loads(text))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise RdmcError(f"the store has {text[:200]!r} as {self._key}-{name}, which is of no such group: use another one") from None


@dataclass(frozen=True)
class _Entry:
    """What a process has stored. ``token``: drawn by it, so that it knows an answer to it. ``meeting``: of which it has been told."""

    token: str
    place: str
    meeting: str | None

    @classmethod
    def of(cls, stored: Any) -> _Entry:
        return cls(**stored)


@dataclass(frozen=True)
class _Roster:
    """What rank 0 has stored: the entries of all that it has seen, perhaps of processes that are gone; of those here, once complete."""

    meeting: str
    entries: list[_Entry]
    secret: str | None
    is_complete: bool

    @classmethod
    def of(cls, stored: Any) -> _Roster:
        return cls(**{**stored, "entries": [_Entry.of(entry) for entry in stored["entries"]]})


def _pauses() -> Iterator[float]:
    """Between looks into the store, in seconds: many processes may look."""
    pause = 0.005
    while True:
        yield pause
        pause = min(2 * pause, 0.25)


def _agreed(secret: str | None, has_own: list[bool]) -> str:
    """The secret of RDMC_SECRET, or that of rank 0; all refuse what some lack."""
    if len(set(has_own)) > 1:
        raise InvalidUse(
            f"rank {has_own.index(True)} has RDMC_SECRET, and rank {has_own.index(False)} has not: set it for all, or for none"
        )
    return os.environ["RDMC_SECRET"] if has_own[0] else str(secret)


def _text_of(value: Any) -> str:
    """A stored text: stores of other libraries return bytes. What is no UTF-8 is refused where it is parsed."""
    return bytes(value).decode(errors="backslashreplace") if isinstance(value, bytes | bytearray | memoryview) else str(value)

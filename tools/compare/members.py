"""Members of groups of rdmc (`rdmc-bench member`), and the times that members of all programs report."""

import itertools
import json
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab import Link, Site
from options import show_rate
from programs import Built, Failed, Launch, Line, Turn, Usage

# Longer than the timeouts of members, which report more.
_TIMEOUT_S = 660


@dataclass(frozen=True)
class Measured:
    """One transfer."""

    # From the root's start to the last receiver's end.
    seconds: float
    # Between the first and the last receiver's end.
    skew_seconds: float
    # Processor time of all members, user and system.
    cpu_seconds: float
    # Of member 1 alone, which relays everything in a chain of three and more.
    relay_cpu_seconds: float

    @classmethod
    def of(cls, started_ns: int, ended_ns: Sequence[int], cpu_ns: Sequence[int]) -> "Measured":
        """Of the root's start, the receivers' ends, and all members' processor time."""
        return cls(max(0, max(ended_ns) - started_ns) / 1e9, (max(ended_ns) - min(ended_ns)) / 1e9, sum(cpu_ns) / 1e9, cpu_ns[1] / 1e9)


class TimeTable:
    """The lines `times REPEAT RANK STARTED_NS ENDED_NS CPU_NS` of a group, by CLOCK_MONOTONIC, which all processes share."""

    def __init__(self, members: int, repeats: int) -> None:
        self._members, self._repeats = members, repeats
        self._times: dict[tuple[int, int], tuple[int, int, int]] = {}

    def note(self, line: Line) -> bool:
        """Adds a line. Whether all members have reported every transfer."""
        fields = line.text.split(" ")
        if len(fields) != 6 or fields[0] != "times" or not all(field.isdecimal() for field in fields[1:]):
            raise Failed(f"these are not times: {line.text}")
        repeat, rank, started_ns, ended_ns, cpu_ns = map(int, fields[1:])
        if rank >= self._members or repeat >= self._repeats or ended_ns < started_ns:
            raise Failed(f"these times cannot be: {line.text}")
        if (repeat, rank) in self._times:
            raise Failed(f"these times came twice: {line.text}")
        self._times[repeat, rank] = started_ns, ended_ns, cpu_ns
        return len(self._times) == self._members * self._repeats

    def measured(self) -> list[Measured]:
        """All transfers, when all lines are there."""
        groups = [[self._times[repeat, rank] for rank in range(self._members)] for repeat in range(self._repeats)]
        return [Measured.of(times[0][0], [ended for _, ended, _ in times[1:]], [cpu for _, _, cpu in times]) for times in groups]


@dataclass(frozen=True)
class Job:
    """What `rdmc-bench jobs` prints: one message in a group."""

    # For the table.
    settings: str
    # An order for members.
    job: dict[str, Any]
    # Options of members.
    arguments: Sequence[str]


def jobs(built: Built, members: int, size: int, link: Link | None, chosen: Sequence[str]) -> list[Job]:
    """These settings (ALGORITHM:BLOCK[:WINDOW]), or those that the cost model takes."""
    command = [built.bench, "jobs", "--members", str(members), "--bytes", str(size)]
    if link:
        command += ["--rate", show_rate(link.rate), *(["--small-burst"] if link.is_small_burst else [])]
    command += [f"--rdmc={settings}" for settings in chosen]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    if done.returncode == 2:
        raise Usage(done.stderr.strip())
    if done.returncode != 0:
        raise Failed(done.stderr.strip())
    return [Job(**job) for job in json.loads(done.stdout)]


_NUMBERS = itertools.count(1)


def measure(built: Built, site: Site, job: Job, repeats: int) -> list[Measured]:
    """Starts members, and sends this message a few times, each time in a group of its own."""
    def member(rank: int) -> Launch:
        host = site.hosts[rank]
        options = ["--rank", str(rank), "--members", str(len(site.hosts)), "--listen", host.address, *job.arguments]
        return Launch([built.bench, "member", *options], host.enter)

    group = _Group(Turn([member(rank) for rank in range(len(site.hosts))]), len(site.hosts), job, repeats)
    group.turn.run(_TIMEOUT_S, ("",), group.note)
    return group.measured


class _Group:
    """The orders that members get, and their answers (tools/bench/src/member.rs)."""

    def __init__(self, turn: Turn, members: int, job: Job, repeats: int) -> None:
        self.turn, self._job, self._repeats = turn, job, repeats
        self._ranks = range(members)
        self._has_met = False
        self._ready = 0
        self._done: dict[int, dict[str, Any]] = {}
        self.measured: list[Measured] = []
        secret = secrets.token_hex(32)
        for rank in self._ranks:
            self.turn.write(rank, secret)

    def note(self, line: Line) -> bool:
        """Whether all messages have been measured."""
        if not self._has_met:
            # The root's first line is where to meet.
            self._has_met = True
            for rank in self._ranks[1:]:
                self.turn.write(rank, line.text)
            self._join()
            return False
        try:
            answer: Any = json.loads(line.text)
        except ValueError:
            raise Failed(f"member {line.index} printed: {line.text}") from None
        if answer == "Ready":
            self._ready += 1
            if self._ready == len(self._ranks):
                self.turn.write(0, json.dumps("Go"))
        elif "Done" in answer:
            self._done[line.index] = answer["Done"]
            if len(self._done) == len(self._ranks):
                return self._finish()
        else:
            raise Failed(f"member {line.index}: {answer.get('Failed', answer)}")
        return False

    def _join(self) -> None:
        self._ready, self._done = 0, {}
        order = json.dumps({"Join": {**self._job.job, "number": next(_NUMBERS)}})
        for rank in self._ranks:
            self.turn.write(rank, order)

    def _finish(self) -> bool:
        done = [self._done[rank] for rank in self._ranks]
        received = [member["received_ns"] for member in done[1:]]
        self.measured.append(Measured.of(done[0]["started_ns"], received, [member["cpu_ns"] for member in done]))
        if len(self.measured) == self._repeats:
            return True
        self._join()
        return False

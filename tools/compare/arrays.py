"""`./dev bench python`: broadcasts and sums of arrays between processes in Python: `rdmc.Group` beside torch.distributed and mpi4py, and
beside the same in Rust (docs/results/python.md)."""

import argparse
import math
import re
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import lab
from lab import Link, Site
from mpi import Mpi
from options import add_output, number, one_of, several, show_size, size
from programs import Built, Failed, Launch, Line, Turn, Usage
from report import Report, Row, alternate, installed, median
from report import number as measured_number
from workspace import PEERS, Workspace

_TURN_TIMEOUT_S = 300
_NOTE = (
    "times gloo's: torch.distributed's time in parts of this one's. A barrier of the program's own before each operation. All bytes are compared "
    'before and after. rdmc protects nothing (protection="none"), as the others, but for the rows of its default.')


@dataclass(frozen=True)
class Way:
    """What members use; `program` is what python_member.py calls it, `needs` are modules and their Debian packages."""

    name: str
    network: str
    program: str
    needs: tuple[str, str]


_RDMC = ("rdmc, numpy", "python3-numpy, and a wheel of rdmc")
_MPI = ("mpi4py.MPI, numpy", "python3-mpi4py python3-numpy openmpi-bin")
WAYS = {
    "rdmc": Way("rdmc", "tcp", "rdmc", _RDMC),
    "rdmc-default": Way("rdmc, default protection", "tcp", "rdmc-default", _RDMC),
    "rdmc-shared": Way("rdmc", "shared memory", "rdmc-shared", _RDMC),
    "gloo": Way("torch.distributed, gloo", "tcp", "gloo", ("torch.distributed, numpy", "python3-torch python3-numpy")),
    "mpi": Way("mpi4py, Open MPI", "tcp", "mpi", _MPI),
    "mpi-shared": Way("mpi4py, Open MPI", "shared memory", "mpi", _MPI),
}
OPERATIONS = {"broadcast": "broadcast", "all-reduce": "all_reduce"}


@dataclass(frozen=True)
class Work:
    """An operation on some arrays of a length, one after another, and how often, with a barrier before each; as text
    OPERATION:COUNT:BYTES:REPEATS."""

    operation: str
    count: int
    size: int
    repeats: int

    def __str__(self) -> str:
        return f"{self.operation}:{self.count}:{self.size}:{self.repeats}"

    @property
    def name(self) -> str:
        """For a table."""
        return show_size(self.size) if self.count == 1 else f"{self.count} x {show_size(self.size)}"


class TimeTable:
    """The lines `cell INDEX RANK START_NS END_NS START_NS END_NS ...`: all repeats of one work at one member, by CLOCK_MONOTONIC, which all
    processes of a machine share."""

    def __init__(self, works: int, members: int) -> None:
        self._works, self._members = works, members
        self._times: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def note(self, line: Line) -> bool:
        """Adds a line. Whether all members have reported every work."""
        if not re.fullmatch(r"cell( \d+){2}( \d+ \d+)+", line.text):
            raise Failed(f"these are not times: {line.text[:80]}")
        index, rank, *times = map(int, line.text.split()[1:])
        repeats = list(zip(times[::2], times[1::2]))
        if index >= self._works or rank >= self._members or any(start > end for start, end in repeats):
            raise Failed(f"these times cannot be: {line.text[:80]}")
        if (index, rank) in self._times:
            raise Failed(f"these times came twice: {line.text[:80]}")
        self._times[index, rank] = repeats
        return len(self._times) == self._works * self._members

    def leaves_us(self) -> list[float]:
        """By work: from rank 0's start to the last other member's end, the mean over repeats."""
        return [self._leaf_us([self._times[index, rank] for rank in range(self._members)]) for index in range(self._works)]

    @staticmethod
    def _leaf_us(members: list[list[tuple[int, int]]]) -> float:
        if len({len(repeats) for repeats in members}) != 1:
            raise Failed("members repeated unequally often")
        leaves: list[int] = [max(0, max(end for _, end in repeat[1:]) - repeat[0][0]) for repeat in zip(*members)]
        return sum(leaves) / len(leaves) / 1e3


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--members", type=several(number(2, 64)), default=[4, 8], metavar="N", help="sizes of groups (4,8)")
    parser.add_argument("--bytes", type=several(size), default=several(size)("1KiB,16KiB,256KiB,4MiB,64MiB,256MiB"), metavar="SIZES",
                        help="lengths of one array; of floats for all-reduce (1KiB,16KiB,256KiB,4MiB,64MiB,256MiB)")
    parser.add_argument("--count", type=number(0, 10_000), default=64, metavar="N", help="number of shorter arrays, one after another; none: 0 (%(default)s)")
    parser.add_argument("--each", type=size, default=size("4MiB"), metavar="SIZE", help="length of each of them (4MiB)")
    parser.add_argument("--operations", type=several(one_of(list(OPERATIONS))), default=list(OPERATIONS), metavar="OPERATIONS",
                        help=f"only these: {', '.join(OPERATIONS)}")
    parser.add_argument("--ways", type=several(one_of(list(WAYS))), default=list(WAYS), metavar="WAYS", help=f"only these: {', '.join(WAYS)}")
    parser.add_argument("--overhead-members", type=number(2, 64), default=2, metavar="N", help="members of the groups in Python and in Rust (%(default)s)")
    parser.add_argument("--overhead-bytes", type=lambda text: [] if text == "0" else several(size)(text), default=several(size)("1KiB,1GiB"), metavar="SIZES",
                        help="lengths of one array in Python and in Rust; none: 0 (1KiB,1GiB)")
    parser.add_argument("--turns", type=number(1, 100), default=5, metavar="N", help="how many turns each has, alternating; medians are reported (%(default)s)")
    parser.add_argument("--repeats", type=number(1, 1_000), default=3, metavar="N",
                        help="operations in a turn, of arrays of 1 MiB or more; of shorter ones a hundred times as many (%(default)s)")
    parser.add_argument("--lab", action="store_true", help="members on hosts of a lab, over links of a known rate (needs root)")
    parser.add_argument("--python", default="python3", metavar="PROGRAM", help="the Python that has rdmc, numpy, torch and mpi4py (%(default)s)")
    add_output(parser)


@dataclass
class Turns:
    """What takes turns on some members, and what of that failed."""

    args: argparse.Namespace
    built: Built
    site: Site
    workspace: Workspace
    troubles: list[str] = field(default_factory=list)

    def python(self, way: str, works: Sequence[Work], environment: Mapping[str, str]) -> list[float]:
        """The time of each work in us, by members in Python."""
        script = [self.args.python, str(PEERS / "python_member.py"), WAYS[way].program]
        meeting = str(self.workspace.meeting())
        members = len(self.site.hosts)

        def words(rank: int) -> list[str]:
            return [*script, str(rank), str(members), self.site.hosts[rank].address, meeting, *map(str, works)]

        if way.startswith("mpi"):
            mpi = Mpi(True, environment=environment, over_tcp=way == "mpi")
            launches = [mpi.launch(self.site, self.workspace, words(0))]
        else:
            own = {**environment, "RDMC_SECRET": secrets.token_hex(32), "GLOO_SOCKET_IFNAME": self.site.device}
            launches = [Launch(words(rank), host.enter, own) for rank, host in enumerate(self.site.hosts)]
        return self._run(launches, len(works))

    def rust(self, works: Sequence[Work]) -> list[float]:
        """The same of single arrays, by a team of the library in Rust."""
        return [self._run(self._rust_launches(work), 1)[0] for work in works]

    def _rust_launches(self, work: Work) -> list[Launch]:
        repeats = str(work.repeats)
        common = [self.built.bench, "collective-member", "--way", "team", "--members", str(len(self.site.hosts)), "--meeting", str(self.workspace.meeting()),
                  "--cells", f"broadcast:{work.size}", "--warm-up", "1", "--budget-us", "0", "--repeats-min", repeats, "--repeats-max", repeats]
        environment = {"RDMC_SECRET": secrets.token_hex(32)}
        return [Launch([*common, "--rank", str(rank), "--address", host.address], host.enter, environment) for rank, host in enumerate(self.site.hosts)]

    def _run(self, launches: list[Launch], works: int) -> list[float]:
        table = TimeTable(works, len(self.site.hosts))
        Turn(launches).run(_TURN_TIMEOUT_S, ("cell ",), table.note)
        return table.leaves_us()

    def beside(self, way: str, works: Sequence[Work]) -> list[float] | None:
        """None if it failed; of rdmc over TCP that ends the measurement."""
        try:
            return self.python(way, works, {})
        except Failed as error:
            text = f"{WAYS[way].name}, {WAYS[way].network}, {len(self.site.hosts)} members: {error}"
            if way == "rdmc":
                raise Failed(text) from None
            self.troubles.append(text)
            return None


def _works(args: argparse.Namespace) -> list[Work]:
    lengths = [(1, length) for length in args.bytes] + ([(args.count, args.each)] if args.count else [])
    if "all-reduce" in args.operations and (odd := [length for _, length in lengths if length % 4]):
        raise Usage(f"{odd[0]} bytes are not whole floats: use multiples of 4")
    return [Work(OPERATIONS[operation], count, length, _repeats(args, length)) for operation in args.operations for count, length in lengths]


def _repeats(args: argparse.Namespace, length: int) -> int:
    return int(args.repeats) * (100 if length < 1 << 20 else 1)


def check_modules(python: str, modules: str) -> None:
    """Fails if Python does not run, or cannot import one of these."""
    try:
        done = subprocess.run([python, "-c", f"import {modules}"], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise Failed(f"cannot start {python}: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Failed(f"{python} cannot import {modules}: {last}")


def _usable(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Ways whose modules Python has, and a line for each that it lacks. rdmc may not be missing."""
    found, missing = [], []
    for way in args.ways:
        modules, packages = WAYS[way].needs
        try:
            check_modules(args.python, modules)
            found.append(way)
        except Failed:
            if way == "rdmc":
                raise
            missing.append(f"Left out: {WAYS[way].name} ({modules} cannot be imported; Debian packages: {packages}).")
    return found, missing


def _rows(ways: Sequence[str], works: Sequence[Work], members: int, turns: list[list[list[float] | None]]) -> list[Row]:
    rows: list[Row] = []
    for index, work in enumerate(works):
        of_way = {way: [turn[index] for turn in found if turn is not None] for way, found in zip(ways, turns)}
        gloo = median(of_way.get("gloo", []))
        for way, times in of_way.items():
            rows.append({
                "operation": work.operation, "arrays": work.name, "members": members, "network": WAYS[way].network, "program": WAYS[way].name,
                "ms": measured_number(median(times) / 1e3), "fastest_ms": measured_number(min(times, default=math.nan) / 1e3),
                "slowest_ms": measured_number(max(times, default=math.nan) / 1e3), "times_gloo's": measured_number(gloo / median(times))})
    return rows


def _overhead(turns: Turns, report: Report) -> None:
    """The same broadcasts in Python and in Rust."""
    args = turns.args
    works = [Work("broadcast", 1, length, _repeats(args, length)) for length in args.overhead_bytes]
    # Pages as Rust has them: for long arrays numpy asks the kernel for larger ones.
    same = {"NUMPY_MADVISE_HUGEPAGE": "0"}
    rust, python = alternate(2, args.turns, "in Rust and in Python", lambda index: turns.python("rdmc", works, same) if index else turns.rust(works))
    report.table("overhead", "rdmc.Group with numpy beside a team of the library in Rust:")
    for index, work in enumerate(works):
        pairs = [(one[index], other[index]) for one, other in zip(rust, python)]
        in_rust, in_python = (median(times) for times in zip(*pairs))
        report.row({
            "array": work.name, "members": args.overhead_members, "Rust_us": measured_number(in_rust), "Python_us": measured_number(in_python),
            "difference_us": measured_number(in_python - in_rust), "median_difference_us": measured_number(median([other - one for one, other in pairs])),
            "ratio": measured_number(in_python / in_rust)})


def copying_ms(length: int = 256 << 20) -> float:
    """How long one core takes to copy this many bytes between memory that was touched before, at best of a few times."""
    source, target = memoryview(bytearray(b"\1") * length), memoryview(bytearray(b"\2") * length)

    def copy() -> float:
        start = time.perf_counter()
        target[:] = source
        return (time.perf_counter() - start) * 1e3

    return min(copy() for _ in range(5))


def run(args: argparse.Namespace, built: Built) -> None:
    """Measures and prints."""
    load = Path("/proc/loadavg").read_text(encoding="utf-8").strip()
    if args.lab:
        lab.need_root("python --lab")
    works = _works(args)
    ways, missing = _usable(args)
    report = Report("python", f"operations on arrays, a process per member on {'hosts of a lab' if args.lab else 'this machine'}, from rank 0's "
                              f"start to the last member's end, ms; median of {args.turns} turns with {args.repeats} operations each")

    def link(members: int) -> Link | None:
        return Link(lab.usual_rate(members)) if args.lab else None

    with Workspace.open() as workspace:
        for members in args.members:
            with lab.site(built, members, link(members)) as site:
                turns = Turns(args, built, site, workspace)
                found = alternate(len(ways), args.turns, f"{members} members", lambda index: turns.beside(ways[index], works))
                for row in _rows(ways, works, members, found):
                    report.row(row)
                report.notes += turns.troubles
        if args.overhead_bytes:
            with lab.site(built, args.overhead_members, link(args.overhead_members)) as site:
                _overhead(Turns(args, built, site, workspace), report)
    report.note(f"Load before the run (1, 5 and 15 minutes): {load}.")
    report.note(_NOTE)
    report.note(f"The copy limit of this machine: one core copies 256 MiB, between memory that was touched before, in {copying_ms():.0f} ms.")
    report.notes += missing
    report.note(installed("python3-torch", "python3-mpi4py", "openmpi-bin", "python3-numpy"))
    report.print(args)

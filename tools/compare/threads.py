"""`./dev bench threads`: blocks from one transport over TCP to another by 1, 2, 4 threads at each end (docs/results/threads.md). With `--share` each
thread gets that part of a processor, so that a machine with few processors shows what several threads gain."""

import argparse
import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from options import add_output, add_repeats, number, one_of, several, show_size, size
from programs import Built, Failed, Usage
from report import Report, Row, alternate, median
from report import number as measured_number

_PERIOD_US = 10_000
_CONTROLLER = Path("/sys/fs/cgroup/cpu")
_TIMEOUT_S = 600.0
_FIGURES = re.compile(r"([\d.]+) GB/s, ([\d.]+) s of processor per GiB")

_NOTE = ("Both ends are in one process, over loopback, 1 MiB blocks, 8 of them posted ahead. threads: at each end, the one that polls included. GB/s: the median; "
         "of one: divided by that of the first row of the same protection. processor s/GiB: of both ends.")


def _share(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0.1 <= float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError("a part of a processor, 0.1 to 1")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--bytes", type=size, default=size("1GiB"), metavar="SIZE", help="how much is sent, a multiple of 1GiB (1GiB)")
    parser.add_argument("--threads", type=several(number(1, 8)), default=[1, 2, 4], metavar="NUMBERS", help="threads at each end (1,2,4)")
    parser.add_argument("--streams", type=number(1, 8), default=4, help="streams of the link (4)")
    parser.add_argument("--protect", type=several(one_of(["none", "encrypt"])), default=["none", "encrypt"], metavar="WAYS",
                        help="of none, encrypt (both)")
    parser.add_argument("--share", type=_share, help="the part of a processor that each thread gets (root, with the controller cpu of cgroup v1)")
    add_repeats(parser, 5)
    add_output(parser)


@contextlib.contextmanager
def _limits(share: float | None) -> Iterator[Path | None]:
    """A group of processes below which each thread gets its share; nothing without a share."""
    if share is None:
        yield None
        return
    group = _CONTROLLER / f"rdmc-threads-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise Usage(f"--share needs root, and the controller cpu of cgroup v1 at {_CONTROLLER}: {error}") from error
    try:
        yield group
    finally:
        for below in [path for path in group.iterdir() if path.is_dir()]:
            below.rmdir()
        group.rmdir()


def _limit_threads(group: Path, share: float, process: int, known: set[str]) -> None:
    """Gives each thread of a process that is not known its share. Threads may end meanwhile."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in set(os.listdir(f"/proc/{process}/task")) - known:
            own = group / f"{process}-{thread}"
            own.mkdir()
            (own / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (own / "cpu.cfs_quota_us").write_text(str(round(_PERIOD_US * share)))
            (own / "tasks").write_text(thread)
            known.add(thread)


def _measure(args: argparse.Namespace, program: str, group: Path | None, protect: str, threads: int) -> tuple[float, float]:
    """GB/s, and seconds of processor for each GiB."""
    environment = dict(os.environ, PLAIN="0", WINDOW="8", PROTECT=protect, STREAMS=str(args.streams), THREADS=str(threads))
    command = [program, str(args.bytes >> 30), "1024"]
    deadline = time.monotonic() + _TIMEOUT_S
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            known: set[str] = set()
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise Failed(f"{program} takes more than {_TIMEOUT_S:.0f} s")
                if group is not None:
                    _limit_threads(group, args.share, process.pid, known)
                time.sleep(0.002 if len(known) < 2 * threads else 0.02)
            output = process.stdout.read() if process.stdout else ""
        finally:
            process.kill()
    figures = _FIGURES.search(output)
    if process.returncode != 0 or figures is None:
        raise Failed(f"{program} has failed with status {process.returncode}")
    return float(figures[1]), float(figures[2])


def run(args: argparse.Namespace, built: Built) -> None:
    """Measures and prints."""
    if args.bytes < 1 << 30 or args.bytes % (1 << 30):
        raise Usage("--bytes: a multiple of 1GiB")
    program = built.program("examples/throughput", "rdmc-transport-tcp --example throughput")
    each = f", each with {args.share} of a processor" if args.share else ""
    report = Report("threads", f"{show_size(args.bytes)} from one transport over TCP to another, over {args.streams} streams, by several threads "
                               f"at each end{each}; median of {args.repeats}")
    with _limits(args.share) as group:
        for protect in args.protect:
            found = alternate(len(args.threads), args.repeats, protect, lambda index: _measure(args, program, group, protect, args.threads[index]))
            rates = [median([rate for rate, _ in runs]) for runs in found]
            for threads, runs, rate in zip(args.threads, found, rates):
                row: Row = {
                    "protection": protect, "streams": args.streams, "threads": threads, "gb_per_s": measured_number(rate),
                    "slowest": measured_number(min(rate for rate, _ in runs)), "fastest": measured_number(max(rate for rate, _ in runs)),
                    "of_one": measured_number(rate / rates[0]), "processor_s_per_gib": measured_number(median([used for _, used in runs]))}
                report.row(row)
    report.note(_NOTE)
    report.print(args)

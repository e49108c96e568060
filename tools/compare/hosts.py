"""`./dev bench hosts`: pushes to many hosts: real receivers on this machine, each a process, and simulated ones with the real state machines
at both ends (docs/results/hosts.md)."""

import argparse
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from contents import Source
from options import add_directory, add_output, number, several, show_size, size
from programs import Built, Failed, Launch, Program, Programs, run_all
from pushes import cpu_seconds
from report import Report, Row
from report import number as measured_number
from workspace import directory

_SAMPLING_S, _TIMEOUT_S = 0.2, 3600
# Columns of what `rdmc-bench many-hosts` has found.
_SIMULATED = ("hosts", "what", "published", "begun_s", "median_s", "others_s", "all_s", "rounds", "sent", "sent_bytes", "received", "received_bytes",
              "longest_bytes")
_NOTE = (
    "All receivers share this machine's processors with the root. replicated: from the first byte sent until all have all; total: with "
    "starting them, connecting, verifying and publishing. root: of the process that pushes; its threads and descriptors as seen every 200 ms. "
    "Receivers are started by it, which takes a thread and a descriptor for each.")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    numbers = several(number(0, 10_000_000))
    parser.add_argument("--receivers", type=numbers, default=[64, 300, 1000], metavar="NUMBERS",
                        help="how many receivers run on this machine, one after the other; 0: none (64,300,1000)")
    parser.add_argument("--stream-receivers", type=numbers, default=[64, 300], metavar="NUMBERS",
                        help="the same for streams, whose receivers each have a shell and a command besides (64,300)")
    parser.add_argument("--simulated", type=numbers, default=[64, 300, 1000, 10_000], metavar="NUMBERS", help="how many hosts are simulated (64,300,1000,10000)")
    parser.add_argument("--bytes", type=size, default=size("1MiB"), metavar="SIZE", help="length of what is pushed (1MiB)")
    parser.add_argument("--stream-bytes", type=size, default=size("64MiB"), metavar="SIZE", help="length of a longer stream, of which receivers keep nothing (64MiB)")
    add_directory(parser, "copies")
    add_output(parser)


class _Held:
    """What the root held at most, when it was looked at."""

    def __init__(self) -> None:
        self.cpu_seconds, self.threads, self.descriptors = 0.0, 0, 0

    def look_at(self, root: int) -> None:
        """Keeps what was found before if it has ended."""
        def count(name: str) -> int:
            try:
                return len(list(Path(f"/proc/{root}/{name}").iterdir()))
            except OSError:
                return 0
        self.cpu_seconds = max(self.cpu_seconds, cpu_seconds(root))
        self.threads, self.descriptors = max(self.threads, count("task")), max(self.descriptors, count("fd"))

    def watch(self, root: Program) -> Callable[[], None]:
        """Looks at this program."""
        return lambda: self.look_at(root.pid)


def _push(args: argparse.Namespace, built: Built, receivers: int, is_stream: bool) -> Row:
    held = _Held()
    with directory(Path(args.directory)) as place, Programs() as programs:
        source = Source.file(place / "object", args.stream_bytes if is_stream else args.bytes)
        own = ["-", "--pipe-to", "cat >/dev/null"] if is_stream else [str(source.path), "--dest", "{host}"]
        command = [built.rdmc, "push", *own, "--local", str(receivers), "--timeout", "600", "--json"]
        with (place / "summary.json").open("wb") as printed, source.path.open("rb") as stream, (place / "log").open("wb") as log:
            root = programs.start(Launch(command), cwd=place, stdin=stream if is_stream else subprocess.DEVNULL, stdout=printed, stderr=log)
        status = root.wait(_TIMEOUT_S, _SAMPLING_S, held.watch(root))
        if status != 0:
            last = (place / "log").read_text(encoding="utf-8", errors="replace").strip()[-1000:]
            raise Failed(f"rdmc push to {receivers} receivers ended with status {status}: {last}")
        summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
        copies = [] if is_stream else [place / f"local-{number}" for number in range(1, receivers + 1)]
        if not all(copy.is_file() and copy.stat().st_size == source.size for copy in copies):
            raise Failed(f"not all of {receivers} receivers have a copy")
    resident = summary.get("peak_resident_bytes")
    return {
        "receivers": receivers, "bytes": show_size(source.size), "replicated_s": _seconds(summary, "seconds"),
        "total_s": _seconds(summary, "total_seconds"), "root_cpu_s": measured_number(held.cpu_seconds),
        "root_resident_mib": measured_number(resident / (1 << 20)) if resident else None, "root_threads": held.threads, "root_descriptors": held.descriptors}


def _seconds(summary: Row, name: str) -> float | None:
    return measured_number(float(summary[name])) if summary.get(name) is not None else None


def run(args: argparse.Namespace, built: Built) -> None:
    """Measures and prints."""
    report = Report("hosts", "rdmc push to many hosts: receivers on this machine, then simulated hosts")
    for receivers in filter(None, args.receivers):
        report.row(_push(args, built, receivers, False))
    report.table("streams", "Streams, of which receivers keep nothing")
    for receivers in filter(None, args.stream_receivers):
        report.row(_push(args, built, receivers, True))
    report.note(_NOTE)
    if hosts := [str(hosts) for hosts in args.simulated if hosts]:
        found = json.loads(run_all([Launch([built.bench, "many-hosts", "--hosts", ",".join(hosts), "--json"])], _TIMEOUT_S)[0])
        report.table("simulated", found["what"])
        for row in found["rows"]:
            report.row({name: row[name] for name in _SIMULATED})
        for note in found["notes"]:
            report.note(note)
    report.print(args)

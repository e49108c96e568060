"""`./dev bench trees`: directories of few large and of many small files to hosts of a lab: `rdmc push` beside rsync, to one host and to all
at once, a chain of `tar | socat`, and MPI (docs/guide/directories.md)."""

import argparse
from pathlib import Path

import lab
from contents import Source
from lab import Link
from listeners import Listeners
from options import add_directory, add_output, add_repeats, number, one_of, rate, several, show_rate, size
from programs import Built, Programs
from report import Report, Row, alternate, installed, median
from report import number as measured_number
from ways import WAYS, Run, Way, Ways
from workspace import Workspace, directory

SOURCES = ("one", "large", "small")
_NOTES = (
    "Copies are on disk in the end: rdmc sees to that itself, after others the file system is written to disk, within their time. Sources are "
    "not in the page cache (unless they are in memory). All contents are compared at one host.",
    "s: what listens on hosts (receivers, rsync's daemons, sshd, socat) has started before; MPI has not: start s is its part. fastest s, slowest "
    "s: of all runs. again s: the same command once more, when all is there.")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--receivers", type=number(1, 32), default=8, metavar="N", help="receivers, each on a host of its own (%(default)s)")
    parser.add_argument("--rate", type=rate, default=rate("250mbit"), help="rate of the links, of TCP payload (250mbit)")
    parser.add_argument("--bytes", type=size, default=size("64MiB"), metavar="SIZE", help="length of the one file, and of all large files together (64MiB)")
    parser.add_argument("--large", type=number(1, 10_000), default=40, metavar="N", help="number of large files (%(default)s)")
    parser.add_argument("--small", type=number(1, 1_000_000), default=10_000, metavar="N", help="number of small files (%(default)s)")
    parser.add_argument("--small-bytes", type=size, default=size("4KiB"), metavar="SIZE", help="length of each small file (4KiB)")
    parser.add_argument("--sources", type=several(one_of(SOURCES)), default=list(SOURCES), metavar="SOURCES", help=f"only these: {', '.join(SOURCES)}")
    parser.add_argument("--ways", type=several(one_of(list(WAYS))), default=[way for way in WAYS if way != "scp"], metavar="WAYS",
                        help=f"of {', '.join(WAYS)} (all but scp)")
    add_repeats(parser)
    add_directory(parser, "sources and copies")
    add_output(parser)


def _make(args: argparse.Namespace, kind: str, parent: Path) -> Source:
    if kind == "one":
        return Source.file(parent / "object", args.bytes)
    if kind == "large":
        return Source.tree("large files", parent / "large", args.large, max(1, args.bytes // args.large))
    return Source.tree("small files", parent / "small", args.small, args.small_bytes)


def _row(source: Source, way: Way, runs: list[Run], trouble: str | None) -> Row:
    def most(values: list[int | None]) -> int | None:
        found = [value for value in values if value is not None]
        return max(found) >> 20 if found else None

    def middle(values: list[float | None]) -> float | None:
        return measured_number(median([value for value in values if value is not None]))

    seconds = sorted(run.seconds for run in runs)
    return {
        "what": source.name, "files": source.files, "MiB": measured_number(source.size / (1 << 20)), "way": way.name,
        "s": measured_number(median(seconds)), "fastest s": measured_number(median(seconds[:1])), "slowest s": measured_number(median(seconds[-1:])),
        "Mbit/s to each": measured_number(source.size * 8e-6 / median(seconds)),
        "start s": middle([run.start_seconds for run in runs]), "again s": middle([run.again_seconds for run in runs]),
        "root MiB": most([run.root_bytes for run in runs]), "receiver MiB": most([run.receiver_bytes for run in runs]), "trouble": trouble}


def run(args: argparse.Namespace, built: Built) -> None:
    """Measures and prints."""
    lab.need_root("trees")
    report = Report("trees", f"files to {args.receivers} hosts over links of {show_rate(args.rate)}, from start to end of the command, "
                             f"in {args.directory}; median of {args.repeats}")
    with (directory(Path(args.directory)) as place, Workspace.open() as workspace, lab.lab(built, args.receivers + 1, Link(args.rate)) as site,
          Programs() as programs):
        ways = Ways(Listeners(built, site, place, programs), workspace, args.ways)
        for kind in args.sources:
            source = _make(args, kind, place)
            results = alternate(len(args.ways), args.repeats, source.name, lambda index: ways.measure(args.ways[index], source, again=True))
            for way, found in zip(args.ways, results):
                report.row(_row(source, WAYS[way], [run for run in found if run is not None], ways.troubles.get(way)))
    report.notes += _NOTES
    report.note(installed("rsync", "socat", "tar", "openmpi-bin"))
    report.print(args)

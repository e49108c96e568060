"""`./dev bench copies`: the time to copy one file to 1, 3, 7 and 15 hosts of a lab, each with a link of its own: by scp to one after another,
by rsync to all at once, by a chain of sockets, and by `rdmc push` (docs/results/copies.md)."""

import argparse
from pathlib import Path

import lab
from contents import Source, need_room
from lab import Link
from listeners import Listeners
from options import add_directory, add_output, add_repeats, number, one_of, rate, several, show_rate, show_size, size
from programs import Built, Programs
from report import Report, Row, alternate, installed, median
from report import number as measured_number
from ways import WAYS, Run, Ways
from workspace import Workspace, directory

_NOTE = (
    "s: from start to end of the command, or of all commands, until copies are on disk; the median. What listens on hosts has started before. "
    "limit: length / rate: no way that sends the whole file is faster. of limit: limit / s. cores busy: share of all cores' time while copying; "
    "near 1 the cores are the limit and not the links. Hosts share them. Every copy was compared with the file.")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    ways = [way for way in WAYS if way != "rsync-to-one"]
    parser.add_argument("--bytes", type=size, default=size("1GiB"), metavar="SIZE", help="length of the file (1GiB)")
    parser.add_argument("--receivers", type=several(number(1, 63)), default=[1, 3, 7, 15], metavar="NUMBERS", help="how many hosts get a copy (1,3,7,15)")
    parser.add_argument("--rate", type=rate, default=rate("200mbit"),
                        help="rate of each host's link, of TCP payload; two cores carry 200mbit to each of 15 (200mbit)")
    parser.add_argument("--ways", type=several(one_of(ways)), default=["scp", "rsync-to-all", "tar", "rdmc"], metavar="WAYS",
                        help=f"of {', '.join(ways)} (all but mpi)")
    add_repeats(parser)
    add_directory(parser, "the file and its copies")
    add_output(parser)


def _row(args: argparse.Namespace, receivers: int, way: str, runs: list[Run], trouble: str | None) -> Row:
    seconds = sorted(run.seconds for run in runs)
    limit_s = args.bytes * 8 / args.rate
    return {
        "receivers": receivers, "mbit": args.rate / 1e6 if args.rate % 10**6 else args.rate // 10**6, "length": show_size(args.bytes), "way": WAYS[way].name,
        "s": measured_number(median(seconds)), "fastest_s": measured_number(median(seconds[:1])), "slowest_s": measured_number(median(seconds[-1:])),
        "limit_s": measured_number(limit_s), "of_limit": measured_number(limit_s / median(seconds)),
        "cores_busy": measured_number(median([run.busy for run in runs])), "trouble": trouble}


def run(args: argparse.Namespace, built: Built) -> None:
    """Measures and prints."""
    lab.need_root("copies")
    place = Path(args.directory)
    need_room(place, args.bytes * (max(args.receivers) + 1))
    report = Report("copies", f"a file of {show_size(args.bytes)} to hosts over links of {show_rate(args.rate)}, one for each, from start to end of the "
                              f"command, in {args.directory}; median of {args.repeats}")
    for receivers in args.receivers:
        with (directory(place) as files, Workspace.open() as workspace, lab.lab(built, receivers + 1, Link(args.rate)) as site, Programs() as programs):
            source = Source.file(files / "object", args.bytes)
            ways = Ways(Listeners(built, site, files, programs), workspace, args.ways)
            results = alternate(len(args.ways), args.repeats, f"{receivers} receivers", lambda index: ways.measure(args.ways[index], source))
            for way, found in zip(args.ways, results):
                report.row(_row(args, receivers, way, [run for run in found if run is not None], ways.troubles.get(way)))
    report.note(_NOTE)
    report.note(installed("openssh-server", "openssh-client", "rsync", "socat"))
    report.print(args)

"""`./dev bench fetch`: hosts that come at different times get one object from a server, each over a link of its own: by `rdmc fetch`, scp and
libtorrent, and by `rdmc push` where all come together (docs/results/fetch.md)."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import lab
from arrivals import ARRIVALS, Arrivals
from contents import Source, need_room
from fetching import Fetching, Rdmc, Run, Scp, Torrent
from lab import Link
from listeners import Listeners
from options import add_directory, add_output, add_repeats, number, one_of, rate, several, show_rate, show_size, size
from programs import Built, Programs
from report import Report, Row, alternate, installed, median
from report import number as measured_number
from workspace import directory

# Name in the table, and whether hosts share.
WAYS = {"rdmc": (Rdmc.name, Rdmc.can_share), "scp": (Scp.name, Scp.can_share), "libtorrent": (Torrent.name, Torrent.can_share), "push": ("rdmc push", False)}
_NOTES = (
    "median, slowest: time of a host from its start until its command has ended or, where it shares, until its copy is complete, over one copy's "
    "time (length / rate), of all hosts of all repeats. sent copies: Ethernet frames that the server's link has carried from it, in lengths of "
    "the object, the most of all repeats; headers are 4.6 % of it. all s: from the first host's start until the last copy, the median. "
    "cores busy: share of all cores' time; near 1 the cores are the limit and not the links.",
    "Every copy is on disk (of rdmc and libtorrent also verified), and was compared with the object. rdmc push: all hosts are done when the command is.",
    "libtorrent: TCP, without discovery; each host connects to the server and the hosts that are there, and those to it. Its Python has started "
    "before. A host leaves when its copy is complete, or shares as long as those of rdmc.")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--bytes", type=size, default=size("128MiB"), metavar="SIZE", help="length of the object (128MiB)")
    parser.add_argument("--hosts", type=number(1, 63), default=16, metavar="N", help="hosts that fetch it (%(default)s)")
    parser.add_argument("--rate", type=rate, default=rate("100mbit"),
                        help="rate of each host's link, of TCP payload; two cores carry 200mbit to each of 16 (100mbit)")
    parser.add_argument("--arrivals", type=several(one_of(list(ARRIVALS))), default=list(ARRIVALS), metavar="ARRIVALS",
                        help="when hosts start: together; one-by-one, the next after half of one copy's time; waves of four, one copy's time apart; "
                             "poisson, four in one copy's time; with -sharing after the last three, each sends its copy to others for one copy's time more (all)")
    parser.add_argument("--seed", type=number(0, 10**9), default=1, metavar="N", help="of poisson (%(default)s)")
    parser.add_argument("--ways", type=several(one_of(list(WAYS))), default=list(WAYS), metavar="WAYS",
                        help=f"of {', '.join(WAYS)} (all); push only where hosts come together, scp not where they share")
    parser.add_argument("--libtorrent", default=sys.executable, metavar="PYTHON", help="Python that has libtorrent (this one)")
    add_repeats(parser, 2)
    add_directory(parser, "the object and its copies")
    add_output(parser)


def cells(arrivals: Sequence[str], ways: Sequence[str]) -> list[tuple[Arrivals, str]]:
    """What is measured: which way for which arrivals."""
    return [(ARRIVALS[name], way) for name in arrivals for way in ways
            if (way != "push" or name == "together") and (not ARRIVALS[name].is_sharing or WAYS[way][1])]


def row(arrivals: Arrivals, way: str, one_copy_s: float, length: int, runs: Sequence[Run], trouble: str | None) -> Row:
    """Of all repeats. Times are in those of one copy."""
    seconds = [second for run in runs for second in run.seconds]
    most = sorted(run.sent_bytes / length for run in runs)[-1:]
    return {
        "arrivals": arrivals.name, "way": WAYS[way][0], "share_s": arrivals.share_s(one_copy_s), "one_copy_s": measured_number(one_copy_s),
        "median": measured_number(median(seconds) / one_copy_s), "slowest": measured_number(median(sorted(seconds)[-1:]) / one_copy_s),
        "sent_copies": measured_number(median(most)), "all_s": measured_number(median([run.all_s for run in runs])),
        "cores_busy": measured_number(median([run.busy for run in runs])), "trouble": trouble}


def run(args: argparse.Namespace, built: Built) -> None:
    """Measures and prints."""
    lab.need_root("fetch")
    place = Path(args.directory)
    need_room(place, args.bytes * (args.hosts + 1))
    one_copy_s = args.bytes * 8 / args.rate
    report = Report("fetch", f"{args.hosts} hosts fetch {show_size(args.bytes)} from a server over links of {show_rate(args.rate)}, one for each, in "
                             f"{args.directory}; {args.repeats} repeats, poisson with seed {args.seed}")
    measured = cells(args.arrivals, args.ways)
    with directory(place) as files, lab.lab(built, args.hosts + 1, Link(args.rate)) as site, Programs() as programs:
        served = files / "served"
        served.mkdir()
        source = Source.file(served / "object", args.bytes)
        fetching = Fetching(Listeners(built, site, files, programs), args.ways, args.libtorrent)

        def one(index: int) -> Run | None:
            arrivals, way = measured[index]
            return fetching.measure(way, source, arrivals.starts(args.hosts, one_copy_s, args.seed), arrivals.share_s(one_copy_s))

        for (arrivals, way), found in zip(measured, alternate(len(measured), args.repeats, "fetch", one)):
            report.row(row(arrivals, way, one_copy_s, args.bytes, [run for run in found if run is not None], fetching.troubles.get(way)))
    for note in _NOTES:
        report.note(note)
    report.note(f"libtorrent {version}." if (version := fetching.version()) else "")
    report.note(installed("openssh-server", "openssh-client"))
    report.print(args)

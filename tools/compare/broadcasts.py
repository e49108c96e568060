"""`./dev bench peers`: other broadcasts beside rdmc, in the same lab and in the same run: MPI_Bcast, Gloo, plain sockets, IP multicast
(docs/results/peers.md)."""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import lab
import members
from lab import Link, Site
from members import Measured, TimeTable
from mpi import Mpi
from options import add_output, add_repeats, number, one_of, several, show_size, size
from programs import Built, Failed, Launch, Line, Turn, Usage, need
from report import Report, Row, alternate, installed, median
from report import number as measured_number
from workspace import PEERS, Recipe, Workspace

NAMES = ("rdmc", "openmpi", "mpich", "gloo", "copies", "chain", "udpcast", "uftp")
# Transfers of at least this length have a turn of their own: they take longer than starting processes does.
_LARGE_BYTES = 64 << 20
_SOCKETS = Recipe("sockets.c", "cc", "gcc", ("-pthread",))
_GLOO = Recipe("gloo_bcast.cc", "g++", "g++ libgloo-dev", ("-lgloo", "-pthread"))
_NOTE = (
    "time: from the root's start to the last receiver. of rate: length / time / rate, its median, lowest and highest. skew: from the first "
    "receiver to the last. cpu: processor time of all members for each GiB that is delivered; relay cpu: of member 1 alone, which relays all "
    "of it in a chain. docs/results/peers.md has each command.")


def _whole_words(text: str) -> int:
    value = size(text)
    if value % 8 or value >= 1 << 31:
        raise argparse.ArgumentTypeError(f"{text}: use a multiple of 8 below 2 GiB, the largest count of MPI_Bcast")
    return value


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--members", type=several(number(2, 64)), default=[4, 8, 16], metavar="SIZES", help="sizes of groups, the root included (4,8,16)")
    parser.add_argument("--rate", type=several(number(1, 100_000)), default=[], metavar="MBIT",
                        help="rate of each link in Mbit/s of TCP payload, one for each size of group, or one for all. "
                             "Unless given: 4000 / members, at most 1000, which two cores can carry")
    parser.add_argument("--bytes", type=several(_whole_words), default=[256 << 20, 8 << 20], metavar="SIZES",
                        help="lengths of the object, in whole words of 8 bytes (256MiB,8MiB)")
    parser.add_argument("--small-burst", action="store_true", help="links that let 18 kB through at once instead of 2 ms: bursts hide store-and-forward")
    parser.add_argument("--local", action="store_true", help="on this machine without namespaces: bound by processors and memory")
    parser.add_argument("--only", type=several(one_of(NAMES)), default=list(NAMES), metavar="NAMES", help=f"only these: {', '.join(NAMES)}")
    parser.add_argument("--rdmc", type=lambda text: text.split(","), default=[], metavar="ALGORITHM:BLOCK[:WINDOW]",
                        help="settings of rdmc, such as chain:64KiB or chain:64KiB:16. Unless given: what the cost model takes for length, "
                             "members and rate, and the other of pipeline and chain")
    add_repeats(parser)
    add_output(parser)


@dataclass(frozen=True)
class Load:
    """What is sent in one turn."""

    size: int

    @property
    def repeats(self) -> int:
        """Short transfers come several to a turn, since starting takes longer than they do."""
        return 1 if self.size >= _LARGE_BYTES else 3

    def timeout_s(self, site: Site) -> float:
        """Twice what the slowest way takes, copies one after another, and time to start; on one machine at least 100 MB/s in total."""
        return 60 + 2 * self.size * self.repeats * len(site.hosts) / (site.link.rate / 8 if site.link else 100e6)


@dataclass
class Peer:
    """A program with certain settings, and what was measured."""

    key: str
    name: str
    settings: str
    turn: Callable[[Site, Workspace, Load], list[Measured]]
    measured: list[Measured] = field(default_factory=list)
    # The error of its last turn, after which it has no more.
    trouble: str | None = None


class _Barrier:
    """Gathers the lines of members that wait for each other, and lets them go on, the root last."""

    def __init__(self, turn: Turn, site: Site, table: TimeTable) -> None:
        self._turn, self._site, self._table = turn, site, table
        self._waiting: dict[int, str] = {}

    def note(self, line: Line) -> bool:
        """Whether all times are there."""
        if line.text.startswith("times "):
            return self._table.note(line)
        self._waiting[line.index] = line.text
        if len(self._waiting) == len(self._site.hosts):
            ports = [self._waiting[rank].removeprefix("listening ") for rank in range(len(self._site.hosts))]
            answer = " ".join(f"{host.address} {port}" for host, port in zip(self._site.hosts, ports)) if line.text != "ready" else "go"
            self._waiting = {}
            for rank in reversed(range(len(self._site.hosts))):
                self._turn.write(rank, answer)
        return False


def _take(site: Site, load: Load, launches: Sequence[Launch]) -> list[Measured]:
    """Runs these processes until all members have reported the times of all transfers."""
    table, turn = TimeTable(len(site.hosts), load.repeats), Turn(launches)
    turn.run(load.timeout_s(site), ("times ", "ready", "listening "), _Barrier(turn, site, table).note)
    return table.measured()


def _mpi(mpi: Mpi, site: Site, workspace: Workspace, load: Load) -> list[Measured]:
    program = mpi.build(workspace, "mpi_bcast.c")
    return _take(site, load, [mpi.launch(site, workspace, [str(program), str(load.size), str(load.repeats)])])


def _gloo(site: Site, workspace: Workspace, load: Load) -> list[Measured]:
    program, meeting = workspace.build(_GLOO), workspace.meeting()
    last = [str(meeting), str(load.size), str(load.repeats)]
    return _take(site, load, [Launch([str(program), str(rank), str(len(site.hosts)), host.address, *last], host.enter)
                              for rank, host in enumerate(site.hosts)])


def _sockets(way: str, site: Site, workspace: Workspace, load: Load) -> list[Measured]:
    program = workspace.build(_SOCKETS)
    last = [str(load.size), str(load.repeats)]
    return _take(site, load, [Launch([str(program), way, str(rank), str(len(site.hosts)), host.address, *last], host.enter)
                              for rank, host in enumerate(site.hosts)])


def _multicast(way: str, site: Site, workspace: Workspace, load: Load) -> list[Measured]:
    need("udp-sender" if way == "udpcast" else "uftp", way)
    link = site.link
    rate_kbit = link.rate // 1_000 if link else 0
    script = [sys.executable, str(PEERS / "multicast_member.py"), way]
    last = [site.device, str(workspace.memory), str(rate_kbit), str(load.size), str(load.repeats)]
    return _take(site, load, [Launch([*script, str(rank), str(len(site.hosts)), *last], host.enter, has_children=True)
                              for rank, host in enumerate(site.hosts)])


def _open_mpis(site: Site, load: Load) -> list[tuple[str, Mpi]]:
    """Numbers are those of `coll_tuned_bcast_algorithm`."""
    segment = _tuned_bytes(load)

    def forced(algorithm: int, over_tcp: bool = True) -> Mpi:
        return Mpi(True, (
            f"--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_bcast_algorithm {algorithm} "
            f"--mca coll_tuned_bcast_algorithm_chain_fanout 1 --mca coll_tuned_bcast_algorithm_segmentsize {segment}").split(), over_tcp=over_tcp)

    found = [("default", Mpi(True)), (f"pipeline, {show_size(segment)}", forced(3)), (f"chain, {show_size(segment)}", forced(2))]
    if not site.link:
        found += [("default, shared memory", Mpi(True, over_tcp=False)), ("scatter-allgather, shared memory", forced(8, over_tcp=False))]
    return found


def _mpiches(site: Site, load: Load) -> list[tuple[str, Mpi]]:
    """Its pipelined ring is a chain, for a broadcast. By rendezvous, UCX's choice for chunks of this size, it does not pipeline."""
    ring = {"MPIR_CVAR_BCAST_INTRA_ALGORITHM": "nb", "MPIR_CVAR_IBCAST_INTRA_ALGORITHM": "tsp_ring",
            "MPIR_CVAR_IBCAST_RING_CHUNK_SIZE": str(_tuned_bytes(load)), "UCX_RNDV_THRESH": "1m"}
    found = [("default", Mpi(False)), (f"ring, {show_size(_tuned_bytes(load))}, eager", Mpi(False, environment=ring))]
    return found if site.link else [*found, ("default, shared memory", Mpi(False, over_tcp=False))]


def _tuned_bytes(load: Load) -> int:
    return 128 << 10 if load.size >= _LARGE_BYTES else 32 << 10


def _field(args: argparse.Namespace, built: Built, site: Site, load: Load) -> list[Peer]:
    """All peers that are wanted, with settings for this length."""
    found = []
    if "rdmc" in args.only:
        for job in members.jobs(built, len(site.hosts), load.size, site.link, args.rdmc):
            def turn(site: Site, _: Workspace, load: Load, job: members.Job = job) -> list[Measured]:
                return members.measure(built, site, job, load.repeats)
            found.append(Peer("rdmc", "rdmc", job.settings, turn))
    found += [Peer("openmpi", "Open MPI", settings, functools.partial(_mpi, mpi)) for settings, mpi in _open_mpis(site, load)]
    found += [Peer("mpich", "MPICH", settings, functools.partial(_mpi, mpi)) for settings, mpi in _mpiches(site, load)]
    found += [Peer("gloo", "Gloo", "default", _gloo), Peer("copies", "copies, parallel", "default", functools.partial(_sockets, "copies")),
              Peer("chain", "chain of sockets", "default", functools.partial(_sockets, "chain"))]
    if site.link:
        found += [Peer("udpcast", "udpcast", "4 MiB buffers", functools.partial(_multicast, "udpcast")),
                  Peer("uftp", "uftp", "4 MiB buffers, at the links' rate", functools.partial(_multicast, "uftp"))]
    return [peer for peer in found if peer.key in args.only]


def _row(peer: Peer, site: Site, load: Load) -> Row:
    def middle(values: list[float], divisor: float = 1) -> float | None:
        return measured_number(median(values) / divisor)

    seconds = [one.seconds for one in peer.measured]
    length_gib = load.size / (1 << 30)
    row: Row = {"members": len(site.hosts), "length": show_size(load.size), "peer": peer.name, "settings": peer.settings, "time_s": middle(seconds)}
    if site.link:
        of_rate = [load.size * 8 / one / site.link.rate for one in seconds]
        row.update(of_rate=middle(of_rate), lowest=middle(sorted(of_rate)[:1]), highest=middle(sorted(of_rate)[-1:]))
    else:
        row.update(fastest_s=middle(sorted(seconds)[:1]), slowest_s=middle(sorted(seconds)[-1:]))
    row.update(
        skew_s=middle([one.skew_seconds for one in peer.measured]),
        cpu_s_per_gib=middle([one.cpu_seconds for one in peer.measured], length_gib * len(site.receivers)),
        relay_cpu_s_per_gib=middle([one.relay_cpu_seconds for one in peer.measured], length_gib), trouble=peer.trouble)
    return row


def _measure(args: argparse.Namespace, built: Built, site: Site, workspace: Workspace, report: Report) -> None:
    """All lengths in one place. A peer that fails is not tried again."""
    for length in args.bytes:
        load = Load(length)
        peers = _field(args, built, site, load)

        def turn(index: int, load: Load = load, peers: list[Peer] = peers) -> None:
            peer = peers[index]
            if peer.trouble is not None:
                return
            try:
                peer.measured += peer.turn(site, workspace, load)
            except Failed as error:
                peer.trouble = str(error)

        alternate(len(peers), args.repeats, f"{len(site.hosts)} members, {show_size(length)}", turn)
        for peer in peers:
            report.row(_row(peer, site, load))


def run(args: argparse.Namespace, built: Built) -> None:
    """Measures and prints."""
    if args.local and (args.rate or args.small_burst):
        raise Usage("--local has no links: leave out --rate and --small-burst")
    if args.local:
        what = "one process per member on this machine"
    else:
        lab.need_root("peers")
        what = f"one process per network namespace, links shaped at both ends, burst {'18 kB' if args.small_burst else '2 ms'}"
    report = Report("peers", f"{what}; median of {args.repeats} turns")
    with Workspace.open() as workspace:
        for index, count in enumerate(args.members):
            mbit = args.rate[index] if index < len(args.rate) else args.rate[-1] if args.rate else lab.usual_rate(count) // 1_000_000
            with lab.site(built, count, None if args.local else Link(mbit * 1_000_000, args.small_burst)) as site:
                _measure(args, built, site, workspace, report)
    report.note(_NOTE)
    report.note(installed("openmpi-bin", "mpich", "libgloo-dev", "udpcast", "uftp"))
    report.print(args)

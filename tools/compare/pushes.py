"""`./dev bench push`: `rdmc push` over links of a known rate: one copy that a switch multiplies, beside copies that receivers relay or the
sender sends to each (docs/results/push.md)."""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import lab
from contents import Source
from lab import Link, Site
from listeners import Listeners, has_printed, start
from options import add_directory, add_output, add_repeats, number, one_of, rate, several, show_rate, show_size, size
from programs import Built, Failed, Launch, Programs, need, run_all
from report import Report, Row, alternate, median
from report import number as measured_number
from workspace import directory

# The switch's own address: beyond those of a lab's hosts, in their network.
_SWITCH, _AGENT_PORT = "10.77.255.1", 4790
# For a push, beyond several times the time of its bytes on the sender's link.
_TIMEOUT_S = 60
# Name in the table, and `--algorithm`; none where a switch copies.
WAYS = {"kernel": ("switch, kernel", ""), "userspace": ("switch, userspace", ""), "auto": ("auto", "auto"), "chain": ("chain", "chain"),
        "sequential": ("sequential", "sequential")}
_NOTES = (
    "one copy: length / rate of the links, which is of TCP payload. time: from the first byte sent until the last receiver has all; total: "
    "with making the group, verifying and publishing. of rate: one copy / time. fastest, slowest: of all repeats, as time. cpu: processor "
    "time of rdmc on all hosts and at the switch, in all.",
    "sent: bytes of whole frames that the sender's link and all receivers' links together carried towards the switch, in lengths of the file. "
    "sent again: share of the packets of the sender's queue pair that were retransmissions. fell back: pushes whose receivers relayed in the "
    "end because the switch could not copy. Every copy was compared with the file.",
    "What switches copy is neither authenticated nor encrypted on its way; what receivers relay over TCP is encrypted by default. Hosts "
    "and switch share this machine's cores.")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--receivers", type=number(2, 32), default=4, metavar="N", help="receivers, each on a host of its own (%(default)s)")
    parser.add_argument("--rates", type=several(rate), default=[rate("100mbit"), rate("300mbit"), rate("500mbit")], metavar="RATES",
                        help="rates of the links, of TCP payload (100mbit,300mbit,500mbit)")
    parser.add_argument("--mtus", type=several(number(1_280, 9_000)), default=[1500, 4200], metavar="BYTES",
                        help="the longest packets of the links; from 4200 on, packets that switches copy carry 4 KiB (1500,4200)")
    parser.add_argument("--ways", type=several(one_of(list(WAYS))), default=list(WAYS), metavar="WAYS",
                        help=f"how receivers get their copies: {', '.join(WAYS)}")
    parser.add_argument("--bytes", type=size, default=size("32MiB"), metavar="SIZE", help="length of the file (32MiB)")
    add_repeats(parser)
    add_directory(parser, "the file and its copies")
    add_output(parser)


@dataclass(frozen=True)
class Run:
    """One push."""

    # From the first byte sent until the last receiver had all; with making the group, verifying and publishing.
    seconds: float
    total_seconds: float
    # Of all that rdmc has running on the hosts and at the switch.
    cpu_seconds: float
    # What each host's link carried towards the switch; the sender's first.
    sent_bytes: Sequence[int]
    # Share of the packets of the sender's queue pair that were sent again; none where receivers relayed.
    sent_again: float | None
    fell_back: bool


def cpu_seconds(process: int) -> float:
    """User and system, of a process that runs or is not reaped; 0 of none."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sent_again(log: str) -> float | None:
    """From the log of a push (`transport_switch=debug`)."""
    found = re.search(r"sent through a queue pair in userspace packets=(\d+) repeated=(\d+)", log)
    return int(found[2]) / int(found[1]) if found else None


class _Certificates:
    """One certificate for all of these addresses, and its authority's. All hosts are this machine, so that one does."""

    def __init__(self, place: Path, addresses: Sequence[str]) -> None:
        need("openssl", "openssl")
        ca, ca_key, host, host_key = (str(place / name) for name in ("ca.pem", "ca.key", "host.pem", "host.key"))
        names = ",".join(f"IP:{address}" for address in addresses)
        new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split()
        by = ["-CA", ca, "-CAkey", ca_key, "-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"subjectAltName={names}"]
        for words in (["-subj", "/CN=authority", "-keyout", ca_key, "-out", ca], [*by, "-subj", "/CN=hosts", "-keyout", host_key, "-out", host]):
            run_all([Launch([*new, *words])], _TIMEOUT_S)
        self.options = ["--cert", host, "--key", host_key, "--ca", ca]


class _Network:
    """A lab whose hosts but the first listen for pushes, around a switch that copies in the kernel or in userspace."""

    def __init__(self, built: Built, site: Site, place: Path, programs: Programs) -> None:
        self._site, self._programs = site, programs
        self._listeners = Listeners(built, site, place, programs)
        self._options = _Certificates(place, [*(host.address for host in site.hosts), _SWITCH]).options

    def start(self, plane: str, has_agent: bool, mtu_bytes: int) -> None:
        """The switch, its agent if it copies, and receivers."""
        ports = self._set_up_switch(plane, mtu_bytes)
        if has_agent:
            command = [self._listeners.built.rdmc, "switch", "run", "--name", "switch", "--plane", plane, "--listen", f"{_SWITCH}:{_AGENT_PORT}"]
            log = self._listeners.log_of("agent", 0)
            start(self._programs, Launch([*command, "--ports", ports, *self._options], self._site.switch), log,
                  has_printed(log, "switch agent at"), "the switch's agent")
        self._listeners.start_rdmc(["--fabric", "tcp,in-switch", *self._options])

    def _set_up_switch(self, plane: str, mtu_bytes: int) -> str:
        """Gives the switch its address. Its ports, for its agent."""
        ports, own, lines = list(self._site.ports), self._site.bridge, []
        if plane == "userspace":
            # Its bridge takes the ports, and has one more for the switch itself.
            own = "own"
            lines = [f"link set {port} nomaster" for port in ports]
            lines += [f"link add own mtu {mtu_bytes} type veth peer name own-port mtu {mtu_bytes}", "link set own up", "link set own-port up"]
            ports.append("own-port")
        for line in (*lines, f"addr add {_SWITCH}/16 dev {own}"):
            run_all([Launch(["ip", *line.split()], self._site.switch)], _TIMEOUT_S)
        return ",".join(ports)

    def push(self, algorithm: str, source: Source) -> Run:
        """Pushes once: by this algorithm, or the switch copies."""
        # A host that has a copy would be sent nothing.
        self._listeners.clear()
        how = ["--algorithm", algorithm] if algorithm else ["--switch", f"{_SWITCH}:{_AGENT_PORT}"]
        launch = self._listeners.push_launch(source.path, self._site.receivers, [*how, *self._options], {"RUST_LOG": "transport_switch=debug"})
        log = self._listeners.log_of("push", 0)
        running = [program.pid for program in self._programs.all]
        sent, spent = self._site.sent_bytes(), sum(map(cpu_seconds, running))
        with Programs() as programs, log.open("wb") as errors:
            push = programs.start(launch, stdout=subprocess.PIPE, stderr=errors)
            own: list[float] = []
            status = push.wait(self._timeout_s(source), 0.01, lambda: own.append(cpu_seconds(push.pid)))
            printed = push.process.stdout.read().decode() if push.process.stdout else ""
        spent = sum(map(cpu_seconds, running)) - spent + max(own, default=0)
        sent = [after - before for after, before in zip(self._site.sent_bytes(), sent)]
        text = log.read_text(encoding="utf-8", errors="replace")
        if status != 0:
            raise Failed(f"the push ended with status {status}: {printed.strip() or text.strip()}")
        for host in self._listeners.numbers:
            source.check_contents(self._listeners.directory_of(host))
        summary = json.loads(printed)
        return Run(summary["seconds"], summary["total_seconds"], spent, sent, sent_again(text), bool(summary.get("fell_back")))

    def _timeout_s(self, source: Source) -> float:
        link = self._site.link
        return _TIMEOUT_S + 4 * len(self._site.hosts) * source.size * 8 / (link.rate if link else 1)


def _networks(built: Built, place: Path, receivers: int, link: Link, ways: Sequence[str], stack: ExitStack) -> dict[str, _Network]:
    """Those that these ways need, by way: one whose switch is in userspace, and the kernel's bridge for all others."""
    made: dict[str, _Network] = {}
    for plane in ("kernel", "userspace"):
        own = [way for way in ways if (way == "userspace") == (plane == "userspace")]
        if own:
            files = stack.enter_context(directory(place))
            site = stack.enter_context(lab.lab(built, receivers + 1, link))
            network = _Network(built, site, files, stack.enter_context(Programs()))
            network.start(plane, any(not WAYS[way][1] for way in own), link.mtu_bytes)
            made.update((way, network) for way in own)
    return made


def _no_kernel_plane(built: Built) -> str:
    """Why this build has no switch in the kernel; empty if it has."""
    found = run_all([Launch([built.rdmc, "doctor", "--json"])], _TIMEOUT_S)[0]
    has_plane = "kernel" in json.loads(found)["machine"]["switches"]
    return "" if has_plane else "this build has no switch in the kernel (Debian: clang, libbpf-dev)"


def _row(link: Link, way: str, source: Source, runs: list[Run]) -> Row:
    def middle(value: Callable[[Run], float]) -> float | None:
        return measured_number(median([value(run) for run in runs]))

    one_copy_s = source.size * 8 / link.rate
    seconds = [run.seconds for run in runs]
    again = [run.sent_again for run in runs if run.sent_again is not None]
    return {
        "mbit": link.rate // 1_000_000, "mtu": link.mtu_bytes, "way": WAYS[way][0], "one_copy_s": measured_number(one_copy_s),
        "time_s": middle(lambda run: run.seconds), "of_rate": measured_number(one_copy_s / median(seconds)),
        "fastest_s": measured_number(min(seconds)), "slowest_s": measured_number(max(seconds)),
        "total_s": middle(lambda run: run.total_seconds), "cpu_s": middle(lambda run: run.cpu_seconds),
        "sender_sent": middle(lambda run: run.sent_bytes[0] / source.size),
        "sent_again": measured_number(median(again)) if len(again) == len(runs) else None,
        "receivers_sent": middle(lambda run: sum(run.sent_bytes[1:]) / source.size),
        "fell_back": sum(run.fell_back for run in runs)}


def run(args: argparse.Namespace, built: Built) -> None:
    """Measures and prints."""
    lab.need_root("push")
    report = Report("push", f"rdmc push of {show_size(args.bytes)} to {args.receivers} receivers, one network namespace for each host around "
                            f"one switch, links shaped at both ends; medians of {args.repeats} by turns")
    for note in _NOTES:
        report.note(note)
    ways = list(args.ways)
    if "kernel" in ways and (why := _no_kernel_plane(built)):
        print(f"SKIPPED: kernel: {why}", file=sys.stderr)
        report.note(f"Skipped: {WAYS['kernel'][0]}: {why}.")
        ways.remove("kernel")
    with directory(Path(args.directory)) as place:
        source = Source.file(place / "object", args.bytes)
        for link in (Link(one, mtu_bytes=mtu) for mtu in args.mtus for one in args.rates):
            name = f"{show_rate(link.rate)}, MTU {link.mtu_bytes}"
            with ExitStack() as stack:
                networks = _networks(built, place, args.receivers, link, ways, stack)
                runs = alternate(len(ways), args.repeats, name, lambda index: networks[ways[index]].push(WAYS[ways[index]][1], source))
            for way, found in zip(ways, runs):
                report.row(_row(link, way, source, found))
    report.print(args)

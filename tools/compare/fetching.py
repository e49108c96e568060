"""The ways in which hosts of a lab fetch one object from a server, and how long that takes each."""

import os
import selectors
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from contents import Source, write_to_disk
from listeners import SSHD, Listeners, has_printed, start
from programs import Failed, Launch, Program, Programs, need, run_all
from ways import cores_ticks
from workspace import PEERS

_RDMC_PORT = 7700
_START_TIMEOUT_S = 20
# Beyond the time that all copies take one after another through the server's link.
_TIMEOUT_S = 120
_END_TIMEOUT_S = 20
_MESSAGES_MAX = 1000


@dataclass(frozen=True)
class Times:
    """Seconds since the first host's start, of one host: its start, its copy, and the end of its command."""

    start_s: float
    complete_s: float
    end_s: float


@dataclass(frozen=True)
class Run:
    """What one run has measured."""

    # Of each host: from its start until its command has ended or, where it shares, until its copy is complete.
    seconds: Sequence[float]
    # From the first host's start until the last copy.
    all_s: float
    # What the server's link has carried from it: bytes of Ethernet frames.
    sent_bytes: int
    # Share of all cores' time that was not idle.
    busy: float


class Way:
    """A server at host 0 of a lab, and what its other hosts do."""

    name = ""
    can_share = False

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self.site = listeners.site

    def serve(self, programs: Programs, source: Source) -> None:
        """Starts what runs before the first host."""

    def prepare(self, programs: Programs, host: int, share_s: int) -> None:
        """Starts what a host has running before its start."""

    def begin(self, programs: Programs, host: int, share_s: int, present: Sequence[int]) -> Program:
        """A host's start. Its program prints a line when its copy is complete. `present`: hosts that have started and not ended."""
        raise NotImplementedError

    def _start(self, programs: Programs, host: int, command: Sequence[str], **pipes: Any) -> Program:
        with self.log(host).open("wb") as errors:
            return programs.start(Launch(command, self.site.hosts[host].enter), stdout=subprocess.PIPE, stderr=errors, **pipes)

    def log(self, host: int) -> Path:
        """Where its messages go."""
        return self._listeners.log_of("fetch", host)

    def last_messages(self) -> str:
        """Of each host, the server last; empty without any."""
        said = [_read_log(self.log(host)) for host in (*self._listeners.numbers, 0)]
        return "".join(f"; {text}" for text in said if text)[:_MESSAGES_MAX]


class Rdmc(Way):
    """`rdmc serve` and `rdmc fetch`."""

    name = "rdmc fetch"
    can_share = True

    def serve(self, programs: Programs, source: Source) -> None:
        listeners, log = self._listeners, self.log(0)
        listeners.make_secret()
        # Nothing but the object can be fetched.
        self._origin = f"{self.site.root.address}:{source.path.name}"
        command = [listeners.built.rdmc, "serve", str(source.path.parent), "--listen", f"{self.site.root.address}:{_RDMC_PORT}", *listeners.secret_options()]
        start(programs, Launch(command, self.site.root.enter), log, has_printed(log, "serving on"), "rdmc serve")

    def begin(self, programs: Programs, host: int, share_s: int, present: Sequence[int]) -> Program:
        listeners = self._listeners
        command = [listeners.built.rdmc, "fetch", self._origin, f"{listeners.directory_of(host)}/", "--quiet", "--json", "--name", f"host-{host}"]
        return self._start(programs, host, [*command, *listeners.secret_options(), *(["--share", str(share_s)] if share_s else [])])


class Scp(Way):
    """By each host from an sshd at the server."""

    name = "scp from the server"

    def __init__(self, listeners: Listeners) -> None:
        super().__init__(listeners)
        for program, packages in (("scp", "openssh-client"), ("ssh-keygen", "openssh-client"), (SSHD, "openssh-server")):
            need(program, packages)
        listeners.start_sshd([0])

    def serve(self, programs: Programs, source: Source) -> None:
        self._source = source

    def begin(self, programs: Programs, host: int, share_s: int, present: Sequence[int]) -> Program:
        directory = self._listeners.directory_of(host)
        script = 'copy=$1 && shift && "$@" && sync "$copy" && echo complete'
        words = [*self._listeners.scp_words(), f"root@{self.site.root.address}:{self._source.path}", f"{directory}/"]
        return self._start(programs, host, ["sh", "-c", script, "sh", str(self._source.copy_in(directory)), *words])


class Torrent(Way):
    """libtorrent at all of them, in Python that has started before."""

    name = "libtorrent"
    can_share = True

    def __init__(self, listeners: Listeners, python: str) -> None:
        super().__init__(listeners)
        try:
            self.version = run_all([Launch([python, "-c", "import libtorrent; print(libtorrent.__version__)"])], _START_TIMEOUT_S)[0].decode().strip()
        except Failed:
            raise Failed(f"{python} cannot import libtorrent") from None
        self._python = python
        self._torrent = listeners.directory / "torrent"
        self._prepared: dict[int, Program] = {}

    def _member(self, programs: Programs, host: int, role: str, *words: str) -> Program:
        command = [self._python, "-B", str(PEERS / "torrent_member.py"), role, self.site.hosts[host].address, str(self._torrent), *words]
        program = self._start(programs, host, command, stdin=subprocess.PIPE)
        if _pipe(program.process.stdout).readline() != b"ready\n":
            raise Failed(f"libtorrent: {_read_log(self.log(host)) or 'no reason given'}")
        return program

    def serve(self, programs: Programs, source: Source) -> None:
        self._member(programs, 0, "seed", str(source.path))

    def prepare(self, programs: Programs, host: int, share_s: int) -> None:
        self._prepared[host] = self._member(programs, host, "fetch", str(self._listeners.directory_of(host)), str(share_s))

    def begin(self, programs: Programs, host: int, share_s: int, present: Sequence[int]) -> Program:
        peers = " ".join(self.site.hosts[peer].address for peer in (0, *present))
        program = self._prepared.pop(host)
        stdin = _pipe(program.process.stdin)
        stdin.write(peers.encode() + b"\n")
        stdin.flush()
        return program


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _read_log(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""


@dataclass
class _Host:
    """A host that has started."""

    number: int
    program: Program
    start_s: float
    complete_s: float | None = None


class Course:
    """Hosts that start at their times, until all have ended."""

    def __init__(self, starts: Sequence[float], begin: Callable[[int, Sequence[int]], Program]) -> None:
        self._begin = begin
        self._waiting = deque(sorted((start_s, number) for number, start_s in enumerate(starts, 1)))
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, _Host] = {}
        self._ended: dict[int, Times] = {}
        self._origin = time.monotonic()

    def run(self, timeout_s: float) -> list[Times]:
        """Of each host, in their order. `timeout_s` is for all."""
        self._origin = time.monotonic()
        with self._selector:
            while self._waiting or self._running:
                if self._now() > timeout_s:
                    raise Failed(f"not ended after {timeout_s:.0f} s: hosts {', '.join(map(str, self._running))}")
                self._start()
                until = self._waiting[0][0] if self._waiting else timeout_s
                for key, _ in self._selector.select(max(0, until - self._now())):
                    self._read(key.data)
        return [self._ended[number] for number in sorted(self._ended)]

    def _now(self) -> float:
        return time.monotonic() - self._origin

    def _start(self) -> None:
        """All whose time has come."""
        while self._waiting and self._waiting[0][0] <= self._now():
            number = self._waiting.popleft()[1]
            start_s = self._now()
            program = self._begin(number, list(self._running))
            self._running[number] = host = _Host(number, program, start_s)
            self._selector.register(_pipe(program.process.stdout), selectors.EVENT_READ, host)

    def _read(self, host: _Host) -> None:
        """A line says that the copy is complete; the end of the output, that the command has ended."""
        pipe = _pipe(host.program.process.stdout)
        is_end = not os.read(pipe.fileno(), 1 << 16)
        now = self._now()
        if host.complete_s is None:
            host.complete_s = now
        if is_end:
            self._selector.unregister(pipe)
            del self._running[host.number]
            if status := host.program.wait(_END_TIMEOUT_S):
                raise Failed(f"host {host.number} ended with status {status}")
            self._ended[host.number] = Times(host.start_s, host.complete_s, now)


class Fetching:
    """Some ways in one lab. Those that lack a program or fail have a reason instead, and are not tried again."""

    def __init__(self, listeners: Listeners, ways: Sequence[str], python: str) -> None:
        self._listeners, self._python = listeners, python
        self._ways: dict[str, Way] = {}
        self.troubles: dict[str, str] = {}
        for name in ways:
            try:
                self._make(name)
            except Failed as error:
                self.troubles[name] = str(error)

    def _make(self, name: str) -> None:
        if name == "push":
            self._listeners.start_rdmc()
        elif name == "libtorrent":
            self._ways[name] = Torrent(self._listeners, self._python)
        else:
            self._ways[name] = (Rdmc if name == "rdmc" else Scp)(self._listeners)

    def version(self) -> str:
        """Of libtorrent; empty without it."""
        way = self._ways.get("libtorrent")
        return way.version if isinstance(way, Torrent) else ""

    def measure(self, name: str, source: Source, starts: Sequence[float], share_s: int) -> Run | None:
        """To hosts that have nothing. None if that failed, or did before."""
        if name in self.troubles:
            return None
        try:
            self._listeners.clear()
            # What was written and removed before does not count.
            write_to_disk(self._listeners.directory)
            source.forget()
            if name == "push":
                run = self._counted(lambda: self._push(source, len(starts)), False)
            else:
                run = self._fetch(self._ways[name], source, starts, share_s)
            for host in self._listeners.numbers:
                source.check_contents(self._listeners.directory_of(host))
        except Failed as error:
            self.troubles[name] = str(error)
            return None
        return run

    def _counted(self, run: Callable[[], list[Times]], is_sharing: bool) -> Run:
        """With what the server's link and the cores do meanwhile."""
        sent, (idle, ticks) = self._listeners.site.sent_bytes()[0], cores_ticks()
        times = run()
        idle_after, ticks_after = cores_ticks()
        sent_after = self._listeners.site.sent_bytes()[0]
        done = [one.complete_s if is_sharing else one.end_s for one in times]
        busy = 1 - (idle_after - idle) / max(1, ticks_after - ticks)
        return Run([end - one.start_s for one, end in zip(times, done)], max(done) - times[0].start_s, sent_after - sent, busy)

    def _push(self, source: Source, hosts: int) -> list[Times]:
        """All hosts have their copies when the command ends."""
        start_s = time.monotonic()
        self._listeners.push(source.path, self._listeners.site.receivers)
        seconds = time.monotonic() - start_s
        return [Times(0, seconds, seconds)] * hosts

    def _fetch(self, way: Way, source: Source, starts: Sequence[float], share_s: int) -> Run:
        link = self._listeners.site.link
        timeout_s = _TIMEOUT_S + max(starts) + 2 * len(starts) * source.size * 8 / (link.rate if link else 1) + share_s
        with Programs() as programs:
            way.serve(programs, source)
            for host in self._listeners.numbers:
                way.prepare(programs, host, share_s)
            course = Course(starts, lambda host, present: way.begin(programs, host, share_s, present))
            try:
                return self._counted(lambda: course.run(timeout_s), share_s > 0)
            except Failed as error:
                raise Failed(f"{error}{way.last_messages()}") from None

"""The ways in which a file or a tree gets from the root of a lab to its other hosts, and how long each takes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contents import Source, write_to_disk
from listeners import SSHD, Listeners
from mpi import Mpi
from programs import Failed, Line, Turn, need
from workspace import Workspace

_TIMEOUT_S = 3600


@dataclass(frozen=True)
class Way:
    """How something is copied."""

    name: str
    # Programs, and the Debian packages that have them.
    needs: tuple[tuple[str, str], ...] = ()
    # It looks at what hosts have, so that the same command once more copies less.
    can_repeat: bool = False
    receivers_max: int = 1000


_RSYNC = (("rsync", "rsync"),)
WAYS = {
    "rdmc": Way("rdmc push", can_repeat=True),
    "rsync-to-all": Way("rsync to all at once", _RSYNC, can_repeat=True),
    "rsync-to-one": Way("rsync to one host", _RSYNC, can_repeat=True, receivers_max=1),
    "scp": Way("scp to one after another", (("scp", "openssh-client"), ("ssh-keygen", "openssh-client"), (SSHD, "openssh-server"))),
    "tar": Way("chain of tar | socat", (("bash", "bash"), ("tar", "tar"), ("socat", "socat"))),
    "mpi": Way("chain of Open MPI"),
}


@dataclass
class Run:
    """One run, and the same again, when all is there."""

    # Until copies are on disk.
    seconds: float = 0
    # Share of all cores' time in it that was not idle.
    busy: float = 0
    again_seconds: float | None = None
    # What of it starting MPI's processes took.
    start_seconds: float | None = None
    # Peak resident memory of the root, and of the largest receiver.
    root_bytes: int | None = None
    receiver_bytes: int | None = None


def cores_ticks() -> tuple[int, int]:
    """Of all cores since the system started: idle, and in all."""
    fields = [int(field) for field in Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


class Ways:
    """Some ways in one lab. Those that lack a program or fail have a reason instead, and are not tried again."""

    def __init__(self, listeners: Listeners, workspace: Workspace, ways: Sequence[str]) -> None:
        self._listeners, self._workspace = listeners, workspace
        self._mpi = Mpi(True)
        self._started: set[str] = set()
        self.troubles: dict[str, str] = {}
        for way in ways:
            try:
                for program, packages in WAYS[way].needs:
                    need(program, packages)
                self._start(way)
            except Failed as error:
                self.troubles[way] = str(error)

    def _start(self, way: str) -> None:
        """What listens on hosts."""
        if way == "mpi":
            self._program = self._mpi.build(self._workspace, "mpi_files.c")
        elif way == "rdmc":
            self._listeners.start_rdmc()
        elif way == "scp":
            self._listeners.start_sshd()
        elif way != "tar" and "rsync" not in self._started:
            self._listeners.start_rsync()
            self._started.add("rsync")

    def measure(self, way: str, source: Source, again: bool = False) -> Run | None:
        """Copies to empty hosts, and once more if asked. None if that failed, or did before."""
        if way in self.troubles:
            return None
        try:
            return self._measure(way, source, again)
        except Failed as error:
            self.troubles[way] = str(error)
            return None

    def _measure(self, way: str, source: Source, again: bool) -> Run:
        self._listeners.clear()
        # What was written and removed before does not count.
        write_to_disk(self._listeners.directory)
        source.forget()
        run = Run()
        idle, ticks = cores_ticks()
        run.seconds = self._copy(way, source, run)
        idle_after, ticks_after = cores_ticks()
        run.busy = 1 - (idle_after - idle) / max(1, ticks_after - ticks)
        hosts = self._listeners.numbers[:WAYS[way].receivers_max]
        for host in hosts:
            source.check_count(self._listeners.directory_of(host))
            # Of many files the last copy is compared.
            if source.files == 1 or host == hosts[-1]:
                source.check_contents(self._listeners.directory_of(host))
        if again and WAYS[way].can_repeat:
            run.again_seconds = self._copy(way, source, Run())
        return run

    def _copy(self, way: str, source: Source, run: Run) -> float:
        """Seconds until all copies are on disk. What hosts of a chain start before does not count."""
        hosts = self._listeners.site.receivers[:WAYS[way].receivers_max]
        if way == "tar":
            self._listeners.start_chain()
        start = time.monotonic()
        if way == "rdmc":
            summary = self._listeners.push(source.path, hosts)
            run.root_bytes = summary.get("peak_resident_bytes")
            run.receiver_bytes = max((host["peak_resident_bytes"] for host in summary["hosts"] if host.get("peak_resident_bytes")), default=None)
        elif way == "tar":
            self._listeners.chain(source.path)
        elif way == "mpi":
            run.start_seconds = self._copy_by_mpi(source)
        elif way == "scp":
            self._listeners.scp(source.path)
        else:
            self._listeners.rsync(source.path, hosts)
        if way != "rdmc":
            write_to_disk(self._listeners.directory)
        return time.monotonic() - start

    def _copy_by_mpi(self, source: Source) -> float:
        """Seconds that MPI took to start."""
        start = time.monotonic()
        started: list[float] = []

        def note(line: Line) -> bool:
            if line.text == "mpi_files started":
                started.append(time.monotonic() - start)
            return line.text == "mpi_files copied"

        command = [str(self._program), str(source.path), f"{self._listeners.directory}/host-"]
        Turn([self._mpi.launch(self._listeners.site, self._workspace, command)]).run(_TIMEOUT_S, ("mpi_files ",), note)
        return started[0]

"""A member that runs udpcast or uftp, programs that send files by IP multicast, and is timed.

multicast_member.py udpcast|uftp RANK MEMBERS DEVICE DIRECTORY RATE_KBIT BYTES REPEATS

udpcast goes from a pipe to pipes, uftp from a file to files, which are kept in DIRECTORY. Wherever members wait for each other, they print
`ready` and read a line. Times are printed as by measure.h.
"""

import filecmp
import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

# At which sender and receivers of udpcast find each other. By default receivers use the network's broadcast address, which may not be set.
_MEETING_ADDRESS = "239.77.0.1"
# What receivers buffer: by default too little for processes that wait for a core.
_RECEIVE_BUFFER = "4194304"


def _start(*command: str) -> subprocess.Popen[bytes]:
    """Killed when this process ends."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _await_line(output: IO[bytes], part: str) -> None:
    """Reads until a line has this part."""
    last = ""
    for line in output:
        last = line.decode(errors="replace").strip()
        if part in last:
            return
    sys.exit(f'ended before it printed "{part}": {last}')


def _ignore(output: IO[bytes]) -> None:
    """Reads on, so that a full pipe does not stop the program."""
    threading.Thread(target=output.read, daemon=True).start()


def _cpu_ns(process: int) -> int:
    """User and system, also of one that has ended and is not reaped."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _await_others() -> None:
    print("ready", flush=True)
    if not sys.stdin.readline():
        sys.exit(1)


class Udpcast:
    """One member's process of udpcast, started anew for each transfer."""

    def __init__(self, rank: int, members: int, device: str, directory: Path, rate_kbit: str, length: int) -> None:
        self._rank, self._source = rank, directory / "0"
        self._object = bytearray(b"\1") * length
        common = ["--nokbd", "--no-progress", "--interface", device, "--mcast-rdv-address", _MEETING_ADDRESS]
        self._command = ["udp-sender", *common, "--min-receivers", str(members - 1)] if rank == 0 else ["udp-receiver", *common, "--rcvbuf", _RECEIVE_BUFFER]
        self.program: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Before the clock starts. The program before lingers for half a second after its last byte: it is not needed any more."""
        if self.program is not None:
            self.program.kill()
            self.program.wait()
        if self._rank == 0:
            self._object[:] = self._source.read_bytes()
        self.program = _start(*self._command)
        if self._rank == 0:
            _await_line(_pipe(self.program.stderr), "Starting transfer")
            _ignore(_pipe(self.program.stderr))

    def transfer(self) -> int:
        """When it began."""
        assert self.program is not None
        started_ns = time.monotonic_ns()
        if self._rank == 0:
            _pipe(self.program.stdin).write(self._object)
            _pipe(self.program.stdin).close()
        else:
            output = self.program.stdout
            assert isinstance(output, io.BufferedReader)
            if output.readinto(self._object) != len(self._object):
                sys.exit("udp-receiver ended early")
        return started_ns

    def is_same(self) -> bool:
        """Whether this member has what was sent."""
        return self._object == self._source.read_bytes()


class Uftp:
    """One member's process of uftp, started anew for each transfer."""

    def __init__(self, rank: int, members: int, device: str, directory: Path, rate_kbit: str, length: int) -> None:
        self._rank, self._source = rank, directory / "0"
        self._directory = directory / f"of-{rank}"
        self._directory.mkdir(exist_ok=True)
        self._command = ["uftp", "-q", "-R", rate_kbit, "-I", device, "-D", "object", str(self._source)] if rank == 0 else [
            "uftpd", "-d", "-q", "-F", "@LOG", "-B", _RECEIVE_BUFFER, "-I", device, "-D", str(self._directory)]
        self.program: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Before the clock starts."""
        if self.program is not None:
            self.program.kill()
            self.program.wait()
            self.program = None
        if self._rank > 0:
            self.program = _start(*self._command)

    def transfer(self) -> int:
        """When it began."""
        if self.program is not None:
            started_ns = time.monotonic_ns()
            _await_line(_pipe(self.program.stderr), "RESULT;")
            _ignore(_pipe(self.program.stderr))
            return started_ns
        self.program = _start(*self._command)
        _await_line(_pipe(self.program.stderr), "Sending file")
        started_ns = time.monotonic_ns()
        _pipe(self.program.stderr).read()
        return started_ns

    def is_same(self) -> bool:
        """Whether this member has what was sent."""
        if self._rank == 0:
            return True
        copy = self._directory / "object"
        is_same = filecmp.cmp(self._source, copy, shallow=False)
        copy.unlink()
        return is_same


def main() -> None:
    """Takes part in all transfers."""
    name, rank, members, device, directory, rate_kbit, length, repeats = sys.argv[1:]
    source = Path(directory, "0")
    kind: type[Udpcast] | type[Uftp] = Udpcast if name == "udpcast" else Uftp
    way = kind(int(rank), int(members), device, Path(directory), rate_kbit, int(length))
    for repeat in range(int(repeats)):
        if rank == "0":
            source.write_bytes(os.urandom(int(length)))
        way.prepare()
        _await_others()
        before_ns = _cpu_ns(way.program.pid) if way.program else 0
        started_ns = way.transfer()
        ended_ns = time.monotonic_ns()
        assert way.program is not None
        spent_ns = _cpu_ns(way.program.pid) - before_ns
        # Checking takes processor time, which would delay members that still receive.
        _await_others()
        if not way.is_same():
            sys.exit(f"member {rank} has wrong contents")
        print(f"times {repeat} {rank} {started_ns} {ended_ns} {spent_ns}", flush=True)
        # The source is written anew.
        _await_others()


if __name__ == "__main__":
    main()

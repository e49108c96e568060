"""Programs that are started on hosts, and end with this one or at their deadline."""

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

# How many of a program's messages are reported: the first ones, which name the cause.
_MESSAGES_MAX = 2
_END_TIMEOUT_S = 20


class Failed(Exception):
    """Something failed; the text says what to do about it."""


class Usage(Exception):
    """An argument is invalid."""


def need(program: str, packages: str) -> None:
    """Fails if this program is missing, with the packages that have it."""
    if shutil.which(program) is None:
        raise Failed(f"{program} is not installed; Debian packages: {packages}")


@dataclass(frozen=True)
class Built:
    """The programs of this repository, where cargo has built them."""

    directory: Path

    def program(self, name: str, package: str) -> str:
        """Fails if it has not been built."""
        path = self.directory / name
        if not path.is_file():
            profile = " --release" if self.directory.name == "release" else ""
            raise Failed(f"{path} is missing; build it: cargo build{profile} --locked -p {package}")
        return str(path.resolve())

    @property
    def rdmc(self) -> str:
        return self.program("rdmc", "rdmc-cli")

    @property
    def bench(self) -> str:
        return self.program("rdmc-bench", "rdmc-bench")

    @property
    def lab(self) -> str:
        return self.program("rdmc-lab", "rdmc-lab")


@dataclass
class Launch:
    """How to start a program."""

    command: Sequence[str]
    # The command that enters its host; empty for this one.
    enter: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    # Whether it starts processes of its own that leave its process group, and must end with it.
    has_children: bool = False

    def words(self) -> list[str]:
        """The kernel kills the program when this process ends, and what is in a process namespace with the first process there."""
        words = [*self.enter, "setpriv", "--pdeathsig", "KILL"]
        if self.has_children:
            words += ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
            if os.geteuid() != 0:
                words += ["--user", "--map-root-user"]
        return [*words, *self.command]


def _children(process: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += map(int, file.read_text(encoding="utf-8").split())
        except OSError:
            continue
    return found


class Program:
    """A running program in a process group of its own."""

    def __init__(self, launch: Launch, **pipes: Any) -> None:
        need("setpriv", "util-linux")
        self.launch = launch
        environment = {**os.environ, "RDMC_CONFIG": "/dev/null", **launch.environment}
        environment = {name: value for name, value in environment.items() if name != "RUST_LOG" or name in launch.environment}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **pipes}
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(launch.words(), env=environment, start_new_session=True, **pipes)
        except OSError as error:
            raise Failed(f"cannot start {launch.command[0]}: {error}") from error

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """All of its processes."""
        if self.process.poll() is not None:
            return
        # The first process of a namespace is gone only when all others there are: better than killing the one that waits for it.
        first = _children(self.pid) if self.launch.has_children else []
        try:
            if first:
                os.kill(first[0], signal.SIGKILL)
            else:
                os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def end(self) -> None:
        """Waits for it after `kill`."""
        try:
            self.process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait(_END_TIMEOUT_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass

    def wait(self, timeout_s: float, interval_s: float = 0.005, poll: Callable[[], None] = lambda: None) -> int:
        """Its exit status, within this time; `poll` is called at this interval."""
        until = time.monotonic() + timeout_s
        while (status := self.process.poll()) is None:
            poll()
            if time.monotonic() > until:
                raise Failed(f"{Path(self.launch.command[0]).name} has not ended after {timeout_s:.0f} s")
            time.sleep(interval_s)
        return status


class Programs:
    """Programs that are killed at the end of the `with` statement."""

    def __init__(self) -> None:
        self.all: list[Program] = []

    def __enter__(self) -> "Programs":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def start(self, launch: Launch, **pipes: Any) -> Program:
        """Pipes are those of `subprocess.Popen`; without them input is empty and output is dropped."""
        self.all.append(Program(launch, **pipes))
        return self.all[-1]

    def end(self) -> None:
        for program in self.all:
            program.kill()
        for program in self.all:
            program.end()
        self.all.clear()


def run_all(launches: Sequence[Launch], timeout_s: float) -> list[bytes]:
    """Runs programs at the same time that all have to succeed, each within this time. Their standard output."""
    with Programs() as programs:
        running = [programs.start(launch, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for launch in launches]
        return [_output(program, timeout_s) for program in running]


def _output(program: Program, timeout_s: float) -> bytes:
    name = Path(program.launch.command[0]).name
    try:
        out, err = program.process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"{name} has not ended after {timeout_s:.0f} s") from None
    if program.process.returncode == 0:
        return bytes(out)
    raise Failed(f"{name} ended with status {program.process.returncode}: {err.decode(errors='replace').strip()[-1000:]}")


@dataclass(frozen=True)
class Line:
    """A line of a program's output, by the program's index."""

    index: int
    is_error: bool
    text: str


class Outputs:
    """Lines of several programs whose standard output and error are pipes, as they come."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._selector = selectors.DefaultSelector()
        self._lines: deque[Line] = deque()
        self._parts: dict[IO[bytes], bytes] = {}
        for index, program in enumerate(programs):
            for pipe, is_error in ((program.process.stdout, False), (program.process.stderr, True)):
                if pipe is not None:
                    self._selector.register(pipe, selectors.EVENT_READ, (index, is_error))
                    self._parts[pipe] = b""

    def next(self, until: float) -> Line | None:
        """None when all outputs have ended. Raises TimeoutError at this time by `time.monotonic`."""
        while not self._lines:
            if not self._parts:
                return None
            ready = self._selector.select(max(0, until - time.monotonic()))
            if not ready and time.monotonic() >= until:
                raise TimeoutError
            for key, _ in ready:
                self._read(key)
        return self._lines.popleft()

    def _read(self, key: selectors.SelectorKey) -> None:
        pipe: Any = key.fileobj
        index, is_error = key.data
        read = os.read(pipe.fileno(), 1 << 16)
        *whole, rest = (self._parts[pipe] + read).split(b"\n")
        if read:
            self._parts[pipe] = rest
        else:
            self._selector.unregister(pipe)
            del self._parts[pipe]
            whole += [rest] if rest else []
        self._lines += (Line(index, is_error, line.decode(errors="replace").strip()) for line in whole)


class Turn:
    """The processes of one turn of a contender. They are killed when what they have to report is there, since some libraries hang when
    they finish."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._programs = Programs()
        try:
            for launch in launches:
                self._programs.start(launch, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except BaseException:
            self._programs.end()
            raise
        self._outputs = Outputs(self._programs.all)

    def write(self, index: int, text: str) -> None:
        """A line of input for one of the processes."""
        pipe = self._programs.all[index].process.stdin
        if pipe is not None:
            try:
                pipe.write(text.encode() + b"\n")
                pipe.flush()
            except BrokenPipeError:
                # Its last messages say why.
                pass

    def run(self, timeout_s: float, prefixes: tuple[str, ...], note: Callable[[Line], bool]) -> None:
        """Gives `note` each line of output that begins with one of these, until it answers true."""
        messages: list[str] = []
        until = time.monotonic() + timeout_s
        try:
            while True:
                try:
                    line = self._outputs.next(until)
                except TimeoutError:
                    raise Failed(": ".join([f"hung: killed after {timeout_s:.0f} s", *messages])) from None
                if line is None:
                    raise Failed(": ".join(["ended early", " ".join(messages)]) if messages else "ended early")
                if not line.is_error and line.text.startswith(prefixes):
                    if note(line):
                        return
                # Rulers around messages are left out.
                elif len(messages) < _MESSAGES_MAX and any(map(str.isalnum, line.text)):
                    messages.append(line.text)
        finally:
            self._programs.end()

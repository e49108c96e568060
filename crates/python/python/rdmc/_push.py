"""Pushes files to hosts, through the command."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict, Unpack

from rdmc._command import find_command
from rdmc._text import text
from rdmc.errors import InvalidUse, PushError

# How long the command may take to end after an interruption, in seconds: it notifies hosts.
_END_SECONDS = 30.0
# The command's exit code for invalid arguments.
_USAGE = 2

AnyPath: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class PushOptions(TypedDict, total=False):
    """Options of ``rdmc push`` (see its help), with underscores. None means not given."""

    acls: bool
    admit: str | None
    advertise: str | None
    algorithm: str | None
    all_or_none: bool
    atomic: bool
    block_size: str | int | None
    burst: str | int | None
    bwlimit: str | int | None
    ca: AnyPath | None
    cert: AnyPath | None
    checksum: bool
    completion: str | None
    copy_self: bool | AnyPath
    delete: bool
    dry_run: bool
    exclude: str | Sequence[str] | None
    exclude_self: bool
    fabric: str | None
    failure_deadline: float | None
    fanout: int | None
    follow: bool
    follow_idle: int | None
    group: bool
    hosts_file: AnyPath | None
    include: str | Sequence[str] | None
    interface: str | None
    key: AnyPath | None
    launch_depth: int | None
    launcher: str | None
    links: bool
    local: int | None
    min_rate: str | int | None
    mkdir: bool
    network: str | None
    numeric_ids: bool
    offload: bool
    oversubscription: float | None
    owner: bool
    pipe_to: str | None
    ports: str | None
    protect: str | None
    racks: str | Sequence[int] | None
    rate: str | int | None
    remote_rdmc: AnyPath | None
    retry: int | None
    secret_file: AnyPath | None
    slurm: bool
    streams: int | None
    switch: str | None
    timeout: int | None
    trace: AnyPath | None
    verbose: bool
    window: int | None
    xattrs: bool


@dataclass(frozen=True)
class PushReport:
    """The result of a push. ``failed``: for each host without a copy, the reason. ``details``: the command's JSON."""

    seconds: float
    bytes: int
    hosts: list[str]
    failed: dict[str, str]
    details: Mapping[str, Any]

    def check(self) -> PushReport:
        """Raises PushError if a host has no copy."""
        if self.failed:
            words = "; ".join(f"{host}: {why}" for host, why in self.failed.items())
            count = "no host has a copy" if len(self.failed) == len(self.hosts) else f"{len(self.failed)} of {len(self.hosts)} hosts have no copy"
            raise PushError(f"{count}: {words}", self.failed)
        return self


def push(
    source: AnyPath | Iterable[AnyPath],
    hosts: str | Sequence[str] | None = None,
    dest: AnyPath | None = None,
    *,
    check: bool = False,
    progress: bool | Callable[[Mapping[str, Any]], None] = False,
    **options: Unpack[PushOptions],
) -> PushReport:
    """Copies files and directories to hosts with ``rdmc push``, as a child process.

    ``hosts``: as for ``--to`` ("node[01-16]", ["a", "b"]). ``progress``: True draws bars on standard error; a function is called on
    another thread with each event of ``--progress json``; an exception from it ends the push and is raised here. ``options``: the
    command's options, with underscores: ``retry=2``, ``copy_self=True``, ``min_rate="500mbit"``; see PushOptions. Blocks until the push
    has ended. Ctrl-C ends the push, as does any end of this process.

    Raises PushError if no host has a copy, and with ``check`` if any host has none. Raises InvalidUse if the command refuses the
    arguments or cannot be run; nothing was started.
    """
    if not isinstance(progress, bool) and not callable(progress):
        raise InvalidUse(f"progress is {progress!r}; use True, False or a function")
    line = _line(source, hosts, dest, progress, options)
    errors = _Errors(progress)
    with _start(line, None if progress is True else subprocess.PIPE) as command:
        reader = None
        if command.stderr is not None:
            reader = threading.Thread(target=errors.read, args=(command,), daemon=True)
            reader.start()
        try:
            assert command.stdout is not None
            printed = command.stdout.read()
            command.wait()
        except BaseException:
            _end(command)
            raise
        if reader is not None:
            reader.join()
    if errors.raised is not None:
        raise errors.raised
    report = _report(printed, line[0], command.returncode, errors.lines)
    return report.check() if check or len(report.failed) == len(report.hosts) else report


def _line(
    source: AnyPath | Iterable[AnyPath], hosts: str | Sequence[str] | None, dest: AnyPath | None, progress: object, options: PushOptions
) -> list[str]:
    """Returns the command line. Raises InvalidUse for invalid arguments."""
    sources = [_path("source", one) for one in _each("source", source, (str, bytes, os.PathLike))]
    words = _words(hosts, dest, progress, options)
    if "-" in sources or "--hosts-file=-" in words:
        raise InvalidUse("standard input cannot be pushed from Python: give a path")
    for word in [*words, *sources]:
        if "\0" in word:
            raise InvalidUse(f"{word!r} has a NUL character, which no program argument can have")
    # Otherwise the command would outlive this process if it is killed.
    return [find_command(), "push", "--json", f"--end-with={os.getpid()}", *words, "--", *sources]


def _start(line: list[str], stderr: int | None) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, encoding="utf-8", errors="backslashreplace"
        )
    except OSError as error:
        raise InvalidUse(f"{line[0]} cannot be run: {error.strerror}; set RDMC_COMMAND to the path of the command rdmc") from None


def _each(name: str, given: Any, one: tuple[type, ...]) -> list[Any]:
    """Returns the elements of an argument that may be a single element."""
    if isinstance(given, one):
        return [given]
    if not isinstance(given, Iterable):
        raise InvalidUse(f"{name} is {given!r}; use a single value or a list")
    return list(given)


def _path(name: str, given: Any) -> str:
    try:
        return os.fsdecode(given)
    except TypeError:
        raise InvalidUse(f"{name} contains {given!r}; use a path") from None


def _words(hosts: str | Sequence[str] | None, dest: AnyPath | None, progress: object, options: PushOptions) -> list[str]:
    words = []
    if hosts is not None:
        words.append("--to=" + ",".join(text("hosts", host, "names of hosts") for host in _each("hosts", hosts, (str,))))
    if dest is not None:
        words.append("--dest=" + _path("dest", dest))
    if progress is not True:
        words.append("--progress=json")
    for name, value in options.items():
        if name not in PushOptions.__annotations__:
            raise TypeError(_unexpected(name))
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not False and value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            words += [f"{option}={_text_of(one)}" for one in values]
    return words


def _text_of(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, bytes | os.PathLike) else str(value)


def _unexpected(name: str) -> str:
    names = ["hosts", "dest", "check", "progress", *PushOptions.__annotations__]
    near = difflib.get_close_matches(name, names)
    hint = f"did you mean {' or '.join(near)}?" if near else "options are those of rdmc.PushOptions"
    return f"push() got an unexpected option {name!r}; {hint}"


class _Errors:
    """The command's standard error: progress events and other lines."""

    def __init__(self, progress: object) -> None:
        self._progress = progress
        self.lines: list[str] = []
        # The exception of the application's function.
        self.raised: BaseException | None = None

    def read(self, command: subprocess.Popen[str]) -> None:
        """Reads to the end; otherwise the command would block."""
        assert command.stderr is not None
        for line in command.stderr:
            event = _event_of(line)
            if event is None:
                self.lines.append(line.rstrip())
            elif callable(self._progress) and self.raised is None:
                try:
                    self._progress(event)
                except BaseException as error:
                    self.raised = error
                    # Not SIGINT, which background jobs of a shell ignore.
                    command.terminate()


def _event_of(line: str) -> dict[str, Any] | None:
    """Returns the progress event of a line; None for other lines."""
    try:
        event = json.loads(line)
    except json.JSONDecodeError:
        return None
    return event if isinstance(event, dict) else None


def _end(command: subprocess.Popen[str]) -> None:
    command.terminate()
    try:
        command.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        command.kill()


def _report(printed: str, program: str, code: int, errors: list[str]) -> PushReport:
    said = "\n".join(errors)
    if not printed.strip():
        raise PushError(said or f"rdmc push ended with exit code {code} and no output", {})
    try:
        details = json.loads(printed)
        if "hosts" not in details:
            reason, report = str(details.get("error") or said), None
        else:
            failed = {host["host"]: host["error"] for host in details["hosts"] if host["error"] is not None}
            hosts = [host["host"] for host in details["hosts"]]
            reason = "" if failed else str(details.get("error") or "")
            report = PushReport(details["total_seconds"], details["bytes"], hosts, failed, details)
    except (AttributeError, KeyError, TypeError, ValueError):
        why = f"{program} has printed {printed[:200]!r}, which is not a report of rdmc push"
        raise PushError(f"{why}: set RDMC_COMMAND to the command rdmc of this package's version", {}) from None
    if report is None and code == _USAGE:
        raise InvalidUse(reason)
    if report is None or reason:
        raise PushError(reason, {})
    return report

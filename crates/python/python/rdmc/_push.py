"""Pushes files to hosts, through the command."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from rdmc import _command
from rdmc._command import AnyPath
from rdmc._text import text
from rdmc.errors import InvalidUse, PushError


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
    hub_cache: bool
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
    source_hosts: str | None
    streams: int | None
    switch: str | None
    timeout: int | None
    together: bool
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
    _command.check_progress(progress)
    line = _line(source, hosts, dest, progress, options)
    errors = _Errors(progress)
    with _command.start(line, None if progress is True else subprocess.PIPE) as command:
        reader = None
        if command.stderr is not None:
            reader = threading.Thread(target=errors.read, args=(command,), daemon=True)
            reader.start()
        try:
            assert command.stdout is not None
            printed = command.stdout.read()
            command.wait()
        except BaseException:
            _command.end(command)
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
    sources = [_command.path("source", one) for one in _command.each("source", source, (str, bytes, os.PathLike))]
    words = _words(hosts, dest, progress, options)
    if "-" in sources or "--hosts-file=-" in words:
        raise InvalidUse("standard input cannot be pushed from Python: give a path")
    return _command.command_line("push", words, sources)


def _words(hosts: str | Sequence[str] | None, dest: AnyPath | None, progress: object, options: PushOptions) -> list[str]:
    words = []
    if hosts is not None:
        words.append("--to=" + ",".join(text("hosts", host, "names of hosts") for host in _command.each("hosts", hosts, (str,))))
    if dest is not None:
        words.append("--dest=" + _command.path("dest", dest))
    if progress is not True:
        words.append("--progress=json")
    own = ["hosts", "dest", "check", "progress"]
    return words + _command.words(options, PushOptions.__annotations__, "push", own, "PushOptions")


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
            event = _command.event_of(line)
            if event is None:
                self.lines.append(line.rstrip())
            elif callable(self._progress) and self.raised is None:
                try:
                    self._progress(event)
                except BaseException as error:
                    self.raised = error
                    # Not SIGINT, which background jobs of a shell ignore.
                    command.terminate()


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
    if report is None and code == _command.USAGE:
        raise InvalidUse(reason)
    if report is None or reason:
        raise PushError(reason, {})
    return report

"""Files to hosts, as the command does it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rdmc._command import find_command
from rdmc.errors import PushError

# How long the command may take to end after an interruption: it tells hosts.
_END_SECONDS = 30.0


@dataclass(frozen=True)
class PushReport:
    """What has become of a push. ``failed``: why hosts have no copy, by host. ``details``: the command's JSON."""

    seconds: float
    bytes: int
    hosts: list[str]
    failed: dict[str, str]
    details: Mapping[str, Any]

    def check(self) -> PushReport:
        """Raises PushError if a host has no copy."""
        if self.failed:
            words = "; ".join(f"{host}: {why}" for host, why in self.failed.items())
            raise PushError(f"{len(self.failed)} of {len(self.hosts)} hosts have no copy: {words}", self.failed)
        return self


def push(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    hosts: str | Sequence[str] | None = None,
    dest: str | None = None,
    *,
    progress: bool | Callable[[Mapping[str, Any]], None] = False,
    **options: Any,
) -> PushReport:
    """Copies files and directories to hosts, as ``rdmc push`` does, in a process of its own.

    ``hosts``: as for ``--to`` ("node[01-16]", ["a", "b"]). ``progress``: True draws bars on standard error; a function is called with
    what ``--progress json`` prints, on another thread; what it raises ends the push, and is raised here. ``options``: those of the command, with underscores: ``retry=2``,
    ``copy_self=True``, ``min_rate="500mbit"``. Blocks until all is done; Ctrl-C ends the push.

    Raises PushError if nothing was sent; for single hosts see PushReport.check.
    """
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    line = [find_command(), "push", "--json", *_words(hosts, dest, progress, options), "--", *(os.fspath(one) for one in sources)]
    errors = _Errors(progress)
    stderr = None if progress is True else subprocess.PIPE
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True) as command:
        reader = None
        if command.stderr is not None:
            reader = threading.Thread(target=errors.read, args=(command,), daemon=True)
            reader.start()
        try:
            assert command.stdout is not None
            text = command.stdout.read()
            command.wait()
        except BaseException:
            _end(command)
            raise
        if reader is not None:
            reader.join()
    if errors.raised is not None:
        raise errors.raised
    return _report(text, command.returncode, errors.lines)


def _words(
    hosts: str | Sequence[str] | None, dest: str | None, progress: object, options: Mapping[str, Any]
) -> list[str]:
    words = []
    if hosts is not None:
        words += ["--to", hosts if isinstance(hosts, str) else ",".join(hosts)]
    if dest is not None:
        words += ["--dest", dest]
    if progress is not True:
        words += ["--progress", "json"]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not False and value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            words += [word for one in values for word in (option, str(one))]
    return words


class _Errors:
    """What the command writes to standard error: its progress, and other lines."""

    def __init__(self, progress: object) -> None:
        self._progress = progress
        self.lines: list[str] = []
        # What the application's function has raised.
        self.raised: BaseException | None = None

    def read(self, command: subprocess.Popen[str]) -> None:
        """Reads all; the command would wait otherwise."""
        assert command.stderr is not None
        for line in command.stderr:
            if not line.startswith("{"):
                self.lines.append(line.rstrip())
            elif callable(self._progress) and self.raised is None:
                try:
                    self._progress(json.loads(line))
                except BaseException as error:
                    self.raised = error
                    # SIGINT is ignored by what a shell has in its background.
                    command.terminate()


def _end(command: subprocess.Popen[str]) -> None:
    command.terminate()
    try:
        command.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        command.kill()


def _report(text: str, code: int, errors: list[str]) -> PushReport:
    try:
        details = json.loads(text)
    except json.JSONDecodeError:
        raise PushError("\n".join(errors) or f"rdmc push has ended with {code}, without a word", {}) from None
    if "hosts" not in details:
        raise PushError(details.get("error") or "\n".join(errors), {})
    failed = {host["host"]: host["error"] for host in details["hosts"] if host["error"] is not None}
    if details.get("error") and not failed:
        raise PushError(details["error"], {})
    hosts = [host["host"] for host in details["hosts"]]
    return PushReport(details["total_seconds"], details["bytes"], hosts, failed, details)

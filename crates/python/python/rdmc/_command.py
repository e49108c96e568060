"""Finds the command, and runs it as a child process."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from rdmc.errors import InvalidUse

# The command's exit code for invalid arguments.
USAGE = 2
# How long the command may take to end after an interruption, in seconds: it notifies hosts.
_END_SECONDS = 30.0

AnyPath: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def find_command() -> str:
    """Returns the path of the command: from the environment variable RDMC_COMMAND, the package, or PATH."""
    if given := os.environ.get("RDMC_COMMAND"):
        if (program := shutil.which(given)) is None:
            raise InvalidUse(f"RDMC_COMMAND={given} is not a program: give the path of the command rdmc, or unset it")
        return program
    own = Path(__file__).parent / "bin" / "rdmc"
    if own.exists():
        return str(own)
    if found := shutil.which("rdmc"):
        return found
    raise InvalidUse("the command rdmc is neither in this package nor in PATH: install it")


def command_line(name: str, options: Iterable[str], arguments: Iterable[str]) -> list[str]:
    """Returns the line of a command with a result in JSON, which ends with this process, even if that is killed."""
    line = [find_command(), name, "--json", f"--end-with={os.getpid()}", *options, "--", *arguments]
    for word in line:
        if "\0" in word:
            raise InvalidUse(f"{word!r} has a NUL character, which no program argument can have")
    return line


def start(line: list[str], stderr: int | None) -> subprocess.Popen[str]:
    """Starts a command. Raises InvalidUse if it cannot be run."""
    try:
        return subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, encoding="utf-8", errors="backslashreplace"
        )
    except OSError as error:
        raise InvalidUse(f"{line[0]} cannot be run: {error.strerror}; set RDMC_COMMAND to the path of the command rdmc") from None


def end(command: subprocess.Popen[str]) -> None:
    """Interrupts a command, and waits for its end."""
    command.terminate()
    try:
        command.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        command.kill()


def path(name: str, given: Any) -> str:
    """Returns an argument that is a path."""
    try:
        return os.fsdecode(given)
    except TypeError:
        raise InvalidUse(f"{name} contains {given!r}; use a path") from None


def each(name: str, given: Any, one: tuple[type, ...]) -> list[Any]:
    """Returns the elements of an argument that may be a single element."""
    if isinstance(given, one):
        return [given]
    if not isinstance(given, Iterable):
        raise InvalidUse(f"{name} is {given!r}; use a single value or a list")
    return list(given)


def words(options: Mapping[str, object], known: Iterable[str], function: str, own: list[str], where: str) -> list[str]:
    """Returns options of the command. Raises TypeError for one that is not among the known ones of a function, which has arguments of
    its own; ``where``: what has them all."""
    found = []
    known = list(known)
    for name, value in options.items():
        if name not in known:
            near = difflib.get_close_matches(name, own + known)
            hint = f"did you mean {' or '.join(near)}?" if near else f"options are those of rdmc.{where}"
            raise TypeError(f"{function}() got an unexpected option {name!r}; {hint}")
        option = "--" + name.replace("_", "-")
        if value is True:
            found.append(option)
        elif value is not False and value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            found += [f"{option}={_text_of(one)}" for one in values]
    return found


def _text_of(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, bytes | os.PathLike) else str(value)


def event_of(line: str) -> dict[str, Any] | None:
    """Returns the progress event of a line; None for other lines."""
    try:
        event = json.loads(line)
    except json.JSONDecodeError:
        return None
    return event if isinstance(event, dict) else None


def check_progress(progress: object) -> None:
    """Raises InvalidUse unless it is a bool or a function."""
    if not isinstance(progress, bool) and not callable(progress):
        raise InvalidUse(f"progress is {progress!r}; use True, False or a function")

"""Fetches files from servers, through the command."""

from __future__ import annotations

import json
import os
import subprocess
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack, overload

from rdmc import _command
from rdmc._command import AnyPath
from rdmc._text import text
from rdmc.errors import FetchError, InvalidUse

# The most lines of standard error that are kept, for the text of an exception.
_LINES_MAX = 100

_Progress = bool | Callable[[Mapping[str, Any]], None]


class FetchOptions(TypedDict, total=False):
    """Further options of ``rdmc fetch`` (see its help), with underscores. None means not given."""

    ca: AnyPath | None
    cert: AnyPath | None
    key: AnyPath | None
    max_size: str | int | None
    name: str | None
    protect: str | None
    verbose: bool


@dataclass(frozen=True)
class FetchReport:
    """The result of a fetch. ``server``: the one that sent it, or the last part of it. ``details``: the command's JSON."""

    path: str
    server: str
    bytes: int
    digest: str
    seconds: float
    details: Mapping[str, Any]


@dataclass(frozen=True)
class FetchedFile:
    """A file that is complete and verified. ``path``: relative to the copy; for a copy that is a file its name."""

    path: str
    bytes: int
    _places: tuple[str, str]
    _inode: int

    def open(self) -> BufferedReader:
        """Opens the file for reading, where it is now: hidden until the copy is published.

        Raises FetchError if it is at neither place any more: removed, or replaced by another one.
        """
        for place in self._places:
            try:
                file = open(place, "rb")
            except FileNotFoundError:
                continue
            # At the place in the copy there may be an older one.
            if os.fstat(file.fileno()).st_ino == self._inode:
                return file
            file.close()
        raise FetchError(f"{self._places[1]} was removed or replaced after it was fetched")


class FetchedFiles(Iterator[FetchedFile]):
    """The files of a copy, each as soon as it is verified, before the copy is published; ``fetch`` makes it.

    The iteration ends when the copy is published, and raises FetchError if that fails. As a context manager it ends the command when
    the block is left: a fetch that goes on, or sharing. Files that were opened stay readable.
    """

    def __init__(self, line: list[str], progress: _Progress, shares: bool) -> None:
        self._program = line[0]
        self._progress = progress
        self._shares = shares
        self._report: FetchReport | None = None
        self._command = _command.start(line, None if progress is True else subprocess.PIPE)
        self._files = self._read()

    @property
    def report(self) -> FetchReport:
        """The result, after the last file."""
        if self._report is None:
            raise InvalidUse("the report is there after the last file")
        return self._report

    def close(self) -> None:
        """Ends the command, unless it has ended."""
        self._files.close()
        self._stop()

    def wait(self) -> None:
        """Waits until the command has ended, which shares the copy that long."""
        try:
            self._command.wait()
        finally:
            self._stop()

    def __next__(self) -> FetchedFile:
        return next(self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _read(self) -> Generator[FetchedFile, None, None]:
        assert self._command.stdout is not None
        said: deque[str] = deque(maxlen=_LINES_MAX)
        try:
            for line in self._command.stderr or ():
                event = _command.event_of(line)
                if event is None:
                    said.append(line.rstrip())
                    continue
                if callable(self._progress):
                    self._progress(event)
                if event.get("event") == "file":
                    yield _file(event)
                elif event.get("phase") == "done":
                    break
            printed = self._command.stdout.readline()
            if not self._shares:
                self._command.wait()
            self._report = _report(printed, self._program, "\n".join(said))
            if not self._shares:
                self._stop()
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        # First, as the command may wait until somebody reads what it prints.
        for pipe in (self._command.stderr, self._command.stdout):
            if pipe is not None:
                pipe.close()
        if self._command.poll() is None:
            _command.end(self._command)


@overload
def fetch(
    origin: str,
    dest: AnyPath,
    *,
    from_: str | Sequence[str] | None = None,
    secret_file: AnyPath | None = None,
    share: int | None = None,
    as_files: Literal[False] = False,
    progress: _Progress = False,
    **options: Unpack[FetchOptions],
) -> FetchReport: ...


@overload
def fetch(
    origin: str,
    dest: AnyPath,
    *,
    from_: str | Sequence[str] | None = None,
    secret_file: AnyPath | None = None,
    share: int | None = None,
    as_files: Literal[True],
    progress: _Progress = False,
    **options: Unpack[FetchOptions],
) -> FetchedFiles: ...


def fetch(
    origin: str,
    dest: AnyPath,
    *,
    from_: str | Sequence[str] | None = None,
    secret_file: AnyPath | None = None,
    share: int | None = None,
    as_files: bool = False,
    progress: _Progress = False,
    **options: Unpack[FetchOptions],
) -> FetchReport | FetchedFiles:
    """Gets a file or a directory from a server with ``rdmc fetch``, as a child process.

    ``origin``: "HOST:PATH" or "HOST:PORT:PATH". ``dest``: the copy; with "/" at its end the directory that it goes into. ``from_``:
    further servers ("node1", ["node1", "node2:7701"]). ``share``: for how many seconds the copy is sent to others. ``progress``: True
    draws a bar on standard error; a function is called with each event of ``--progress json``; an exception from it ends the fetch and
    is raised here. ``options``: further ones of the command, see FetchOptions.

    Blocks until the command has ended: with ``share`` after that. With ``as_files`` it returns at once an iterator over the files,
    which has the report after the last one; the functions of ``progress`` are called by the iteration, and sharing ends when its block
    is left. Ctrl-C ends the fetch, as does any end of this process.

    Raises FetchError if there is no copy. Raises InvalidUse if the command refuses the arguments or cannot be run; nothing was
    started.
    """
    _command.check_progress(progress)
    if as_files and progress is True:
        raise InvalidUse("progress is True, which draws on the standard error that as_files reads; use a function")
    words = _words(from_, secret_file, share, options)
    if progress is not True:
        words.append("--progress=json" if as_files or progress else "--progress=none")
    arguments = [text("origin", origin, "HOST:PATH"), _command.path("dest", dest)]
    files = FetchedFiles(_command.command_line("fetch", words, arguments), progress, share is not None)
    if as_files:
        return files
    with files:
        for _ in files:
            pass
        files.wait()
    return files.report


def _words(from_: str | Sequence[str] | None, secret_file: AnyPath | None, share: int | None, options: FetchOptions) -> list[str]:
    words = []
    if from_ is not None:
        words.append("--from=" + ",".join(text("from_", server, "names of servers") for server in _command.each("from_", from_, (str,))))
    if secret_file is not None:
        words.append("--secret-file=" + _command.path("secret_file", secret_file))
    if share is not None:
        words.append(f"--share={share}")
    own = ["origin", "dest", "from_", "secret_file", "share", "as_files", "progress"]
    return words + _command.words(options, FetchOptions.__annotations__, "fetch", own, "FetchOptions")


def _file(event: Mapping[str, Any]) -> FetchedFile:
    places = (_path(event["at"]), _path(event["destination"]))
    return FetchedFile(_path(event["path"]), event["bytes"], places, event["inode"])


def _path(given: str | list[int]) -> str:
    """Returns a path of an event: its text, or if that is not UTF-8 the list of its bytes."""
    return given if isinstance(given, str) else os.fsdecode(bytes(given))


def _report(printed: str, program: str, said: str) -> FetchReport:
    if not printed.strip():
        raise FetchError(said or "rdmc fetch ended without output")
    try:
        details = json.loads(printed)
        if "digest" in details:
            return FetchReport(
                details["path"], details["server"], details["bytes"], details["digest"], details["seconds"], details
            )
        reason, code = str(details["error"]), details["exit_code"]
    except (KeyError, TypeError, ValueError):
        why = f"{program} has printed {printed[:200]!r}, which is not a report of rdmc fetch"
        raise FetchError(f"{why}: set RDMC_COMMAND to the command rdmc of this package's version") from None
    raise InvalidUse(reason) if code == _command.USAGE else FetchError(reason)

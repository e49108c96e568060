"""What tests of functions share that run the command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import unittest
from pathlib import Path

from rdmc._command import find_command

# What a test waits for that takes some seconds.
_PATIENCE = 60.0


def options(command: str) -> set[str]:
    """Returns the names of all options in the help of a command, with underscores."""
    said = subprocess.run([find_command(), command, "--help"], capture_output=True, text=True, check=True).stdout
    said = re.split(r"\nExamples?:", said)[0]
    return {name.replace("-", "_") for name in re.findall(r"^ {2,6}(?:-\w, )?--([a-z-]+)", said, re.MULTILINE)}


def has_ended(pid: int) -> bool:
    """Whether there is no such process any more."""
    try:
        # The name of the program, in parentheses, precedes the state.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def assert_ends_with(test: unittest.TestCase, line: list[str], number: signal.Signals) -> None:
    """Runs a program that prints a line once it runs a command, and ends it by a signal: the command ends as well."""
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        test.assertEqual(process.stdout.readline(), "goes on\n")
        lists = [task.read_text() for task in Path(f"/proc/{process.pid}/task").glob("*/children")]
        (command,) = [int(child) for one in lists for child in one.split()]
        test.addCleanup(_kill, command)
        process.send_signal(number)
        process.wait(_PATIENCE)
        until = time.monotonic() + _PATIENCE
        while not has_ended(command):
            test.assertLess(time.monotonic(), until, "the command goes on")
            time.sleep(0.05)


def _kill(pid: int) -> None:
    if not has_ended(pid):
        os.kill(pid, signal.SIGKILL)


class Server:
    """``rdmc serve`` of a directory, with a secret that is made if it is not there."""

    def __init__(self, directory: Path, secret: Path, *options: str) -> None:
        if not secret.exists():
            with open(secret, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                subprocess.run([find_command(), "secret"], stdout=file, check=True)
        line = [find_command(), "serve", str(directory), "--listen=127.0.0.1:0", f"--secret-file={secret}", *options]
        self._process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        # "rdmc: serving ... at ADDRESS:PORT ...".
        said = self._process.stderr.readline()
        self.address = "127.0.0.1:" + said.split()[3].rpartition(":")[2]

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

"""Files to receivers on this machine, by the command of the installed package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import commands

import rdmc
from rdmc import _push

# Lasts much longer.
_SLOW = """
import rdmc, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_DFL)
rdmc.push(sys.argv[1], dest=sys.argv[2], local=1, mkdir=True, bwlimit="1mbit", progress=lambda _: print("goes on", flush=True))
"""


class Push(unittest.TestCase):
    def setUp(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.top = Path(self._directory.name)
        self.file = self.top / "file"
        self.file.write_bytes(bytes(range(256)) * 5000)

    def test_a_file_comes_to_all_hosts(self) -> None:
        seen: list[Any] = []
        report = rdmc.push(self.file, dest=f"{self.top}/{{host}}/", local=2, mkdir=True, progress=seen.append)
        self.assertEqual(report.check().hosts, ["local-1", "local-2"])
        self.assertEqual((report.bytes, report.failed), (1_280_000, {}))
        for host in report.hosts:
            self.assertEqual((self.top / host / "file").read_bytes(), self.file.read_bytes())
        self.assertTrue(all("phase" in one for one in seen))

    def test_a_host_that_fails_is_named(self) -> None:
        (self.top / "local-1").mkdir()
        report = rdmc.push(self.file, dest=f"{self.top}/{{host}}/file", local=2)
        self.assertEqual(list(report.failed), ["local-2"])
        with self.assertRaisesRegex(rdmc.PushError, "local-2") as raised:
            report.check()
        self.assertEqual(raised.exception.failed, report.failed)

        with self.assertRaisesRegex(rdmc.PushError, "1 of 2 hosts.*local-2"):
            rdmc.push(self.file, dest=f"{self.top}/{{host}}/file", local=2, check=True)

    def test_no_copy_at_all_is_an_error(self) -> None:
        with self.assertRaisesRegex(rdmc.PushError, "no host has a copy.*local-1.*local-2") as raised:
            rdmc.push(self.file, dest=f"{self.top}/missing-{{host}}/file", local=2)
        self.assertEqual(list(raised.exception.failed), ["local-1", "local-2"])

    def test_a_misspelt_option_is_named_with_the_near_ones(self) -> None:
        wrong: list[tuple[dict[str, Any], str]] = [({"retrys": 2}, "'retrys'.*retry"), ({"host": "a"}, "hosts"), ({"json": True}, "'json'")]
        for options, words in wrong:
            with self.assertRaisesRegex(TypeError, words):
                rdmc.push(self.file, local=1, **options)

    def test_all_options_of_the_command_are_typed(self) -> None:
        named = commands.options("push")
        # Arguments of other names, what push itself gives, and what would print something else.
        self.assertEqual(named - {"to", "dest", "json", "progress", "quiet", "help"}, set(rdmc.PushOptions.__annotations__))

    def test_options_become_words_of_the_command(self) -> None:
        options = rdmc.PushOptions(copy_self=b"/opt/rdmc", exclude=["*.tmp", "-x"], retry=2, mkdir=True, atomic=False, trace=None)
        words = _push._words(["a", "b"], Path("/srv"), False, options)
        expected = ["--to=a,b", "--dest=/srv", "--progress=json", "--copy-self=/opt/rdmc", "--exclude=*.tmp", "--exclude=-x", "--retry=2", "--mkdir"]
        self.assertEqual(words, expected)

    def test_arguments_that_the_command_refuses_are_invalid_use(self) -> None:
        for options in ({"fabric": "none-such"}, {"local": 0}, {"local": None}):
            with self.assertRaises(rdmc.InvalidUse):
                rdmc.push(self.file, **options)
        for source in ("-", [self.file, b"-"]):
            with self.assertRaisesRegex(rdmc.InvalidUse, "standard input"):
                rdmc.push(source, local=1)  # type: ignore[arg-type]

    def test_arguments_that_no_command_takes_are_invalid_use(self) -> None:
        wrong: list[tuple[dict[str, Any], str]] = [
            *[({"source": source}, "source") for source in (5, None, [5], [None])],
            *[({"hosts": hosts}, "hosts") for hosts in (5, [1, 2], b"a")],
            *[({"dest": dest}, "dest") for dest in (5, ["a"])],
            *[({"progress": progress}, "progress is .*function") for progress in (5, "json", None)],
            *[({name: "a\0b"}, "NUL") for name in ("source", "hosts", "dest", "trace")],
        ]
        for given, words in wrong:
            with self.assertRaisesRegex(rdmc.InvalidUse, words):
                rdmc.push(**{"source": self.file, "local": 1, **given})

    def test_a_command_that_is_not_there_is_named(self) -> None:
        text = self.top / "text"
        text.write_text("no program")
        text.chmod(0o700)
        for given in (self.top / "missing", self.file, self.top, text):
            with mock.patch.dict(os.environ, {"RDMC_COMMAND": str(given)}):
                with self.assertRaisesRegex(rdmc.InvalidUse, f"{given}.*(is not a program|cannot be run)") as raised:
                    rdmc.push(self.file, local=1)
                self.assertIn("RDMC_COMMAND", str(raised.exception))

    def test_a_command_that_is_another_is_named(self) -> None:
        command = self.top / "command"
        printed = ("[]", "5", "words", '{"hosts": 5}', '{"hosts": [{}]}', '{"hosts": [], "error": null}', '{"hosts": [1]}')
        for line in printed:
            command.write_text(f"#!/bin/sh\necho '{line}'\necho '{{no progress' >&2\n")
            command.chmod(0o700)
            with mock.patch.dict(os.environ, {"RDMC_COMMAND": str(command)}):
                with self.assertRaisesRegex(rdmc.PushError, f"{command} has printed .*RDMC_COMMAND", msg=line):
                    rdmc.push(self.file, local=1)

    def test_paths_may_be_bytes(self) -> None:
        source = os.fsencode(self.top) + b"/gr\xc3\xb6\xc3\x9fer"
        with open(source, "wb") as file:
            file.write(b"some")
        rdmc.push(source, dest=os.fsencode(self.top) + b"/{host}/", local=1, mkdir=True, check=True)
        with open(os.fsencode(self.top) + b"/local-1/gr\xc3\xb6\xc3\x9fer", "rb") as file:
            self.assertEqual(file.read(), b"some")

    def test_the_command_ends_with_the_process_that_pushes(self) -> None:
        # Some minutes of it.
        self.file.write_bytes(bytes(range(256)) * 150_000)
        for number in (signal.SIGKILL, signal.SIGTERM):
            line = [sys.executable, "-c", _SLOW, str(self.file), f"{self.top}/{number.name}/"]
            commands.assert_ends_with(self, line, number)
            self.assertFalse((self.top / number.name / "file").exists())

    def test_what_cannot_begin_is_an_error(self) -> None:
        with self.assertRaisesRegex(rdmc.PushError, "missing"):
            rdmc.push(self.top / "missing", local=1)

    def test_what_progress_raises_ends_the_push(self) -> None:
        def progress(_: Any) -> None:
            raise KeyError("a bug of the program")

        with self.assertRaisesRegex(KeyError, "a bug"):
            # Some seconds, if it went on.
            rdmc.push(self.file, dest=f"{self.top}/{{host}}/", local=2, mkdir=True, progress=progress, bwlimit="1mbit")
        self.assertFalse((self.top / "local-1" / "file").exists())

    def test_the_module_is_the_command(self) -> None:
        said = subprocess.run([sys.executable, "-m", "rdmc", "--version"], capture_output=True, text=True, check=True)
        self.assertEqual(said.stdout.split(), ["rdmc", rdmc.__version__])


if __name__ == "__main__":
    unittest.main()

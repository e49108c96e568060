"""Files from servers on this machine, by the command of the installed package."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import commands

import rdmc
from rdmc import _fetch

# Lasts much longer than a test.
_SLOW = """
import rdmc, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_DFL)
rdmc.fetch(sys.argv[1], sys.argv[2], secret_file=sys.argv[3], progress=lambda _: print("goes on", flush=True))
"""
_FIRST = bytes(range(256)) * 8192
_SECOND = bytes(range(255)) * 80_000


class Fetch(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.top = Path(directory.name)
        self.tree = self.top / "served" / "tree"
        (self.tree / "in").mkdir(parents=True)
        (self.tree / "in" / "first").write_bytes(_FIRST)
        (self.tree / "second").write_bytes(_SECOND)
        self.secret = self.top / "secret"
        self.copy = self.top / "copy"

    def _serve(self, *options: str) -> commands.Server:
        server = commands.Server(self.top / "served", self.secret, *options)
        self.addCleanup(server.kill)
        return server

    def _slow(self) -> commands.Server:
        """A server from which the second file takes half a minute or more."""
        return self._serve("--bwlimit=4mbit")

    def test_a_directory_or_a_file_comes_to_this_host(self) -> None:
        server = self._serve()
        seen: list[Any] = []
        report = rdmc.fetch(f"{server.address}:tree", self.copy, secret_file=self.secret, progress=seen.append)
        self.assertEqual((report.path, report.server), (str(self.copy), server.address))
        self.assertEqual((report.bytes, report.details["exit_code"]), (len(_FIRST) + len(_SECOND), 0))
        self.assertEqual((self.copy / "in" / "first").read_bytes(), _FIRST)
        self.assertEqual({event["event"] for event in seen}, {"file", "progress"})
        file = rdmc.fetch(f"{server.address}:tree/second", f"{self.top}/", secret_file=self.secret)
        self.assertEqual((file.path, (self.top / "second").read_bytes()), (f"{self.top}/second", _SECOND))
        self.assertEqual(len(bytes.fromhex(file.digest)), 32)

    def test_a_file_is_there_while_others_are_on_their_way(self) -> None:
        server = self._slow()
        with rdmc.fetch(f"{server.address}:tree", self.copy, secret_file=self.secret, as_files=True) as files:
            first = next(files)
            self.assertEqual((first.path, first.bytes), ("in/first", len(_FIRST)))
            self.assertFalse(self.copy.exists())
            opened = first.open()
            with self.assertRaisesRegex(rdmc.InvalidUse, "after the last file"):
                files.report
            command = files._command.pid
        self.assertTrue(commands.has_ended(command))
        self.assertFalse(self.copy.exists())
        with opened:
            self.assertEqual(opened.read(), _FIRST)

    def test_files_can_be_opened_before_and_after_they_have_their_names(self) -> None:
        (self.tree / "empty").touch()
        odd = os.fsencode(self.tree) + b"/\xff"
        with open(odd, "wb") as file:
            file.write(b"odd")
        server = self._serve()
        expected = {"empty": b"", "in/first": _FIRST, "second": _SECOND, os.fsdecode(b"\xff"): b"odd"}
        files = rdmc.fetch(f"{server.address}:tree", self.copy, secret_file=self.secret, as_files=True)
        all_files = list(files)
        self.assertEqual(list(files), [])
        self.assertEqual(files.report.path, str(self.copy))
        self.assertEqual({file.path: file.bytes for file in all_files}, {path: len(data) for path, data in expected.items()})
        for fetched in all_files:
            with fetched.open() as opened:
                self.assertEqual(opened.read(), expected[fetched.path])

    def test_another_file_is_not_taken_for_a_fetched_one(self) -> None:
        self.copy.write_bytes(b"older")
        inode = self.copy.stat().st_ino
        for hidden in (self.top / "removed", self.copy):
            file = rdmc.FetchedFile("copy", 5, (str(hidden), str(self.copy)), inode + 1)
            with self.assertRaisesRegex(rdmc.FetchError, "copy was removed or replaced"):
                file.open()

    def test_a_fetch_that_fails_after_some_files_raises(self) -> None:
        server = self._slow()
        files = rdmc.fetch(f"{server.address}:tree", self.copy, secret_file=self.secret, as_files=True)
        self.assertEqual(next(files).path, "in/first")
        server.kill()
        with self.assertRaisesRegex(rdmc.FetchError, server.address):
            next(files)
        with self.assertRaises(StopIteration):
            next(files)
        self.assertFalse(self.copy.exists())

    def test_the_next_server_goes_on(self) -> None:
        server, other = self._slow(), self._serve()
        origin = f"{server.address}:tree"
        with rdmc.fetch(origin, self.copy, from_=[other.address], secret_file=self.secret, as_files=True) as files:
            self.assertEqual(next(files).path, "in/first")
            server.kill()
            self.assertEqual([file.path for file in files], ["second"])
            self.assertEqual(files.report.server, other.address)

    def test_sharing_ends_with_the_block(self) -> None:
        server = self._serve()
        origin = f"{server.address}:tree"
        with rdmc.fetch(origin, self.copy, secret_file=self.secret, share=3600, as_files=True) as files:
            self.assertEqual(len(list(files)), 2)
            self.assertEqual(files.report.path, str(self.copy))
            self.assertIsNone(files._command.poll())
        self.assertEqual(files._command.poll(), 0)
        self.assertEqual(rdmc.fetch(origin, self.copy, secret_file=self.secret, share=1).path, str(self.copy))

    def test_what_cannot_be_fetched_is_an_error(self) -> None:
        server = self._serve()
        for progress in (False, lambda _: None):
            with self.assertRaisesRegex(rdmc.FetchError, "no such file"):
                rdmc.fetch(f"{server.address}:none", self.copy, secret_file=self.secret, progress=progress)

    def test_arguments_that_the_command_refuses_are_invalid_use(self) -> None:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"origin": "tree"}, "HOST:PATH"),
            ({"origin": 5}, "origin"),
            ({"dest": 5}, "dest"),
            ({"dest": ""}, "DEST is empty"),
            ({"from_": 5}, "from_"),
            ({"from_": [5]}, "from_"),
            ({"share": 0}, "--share"),
            ({"secret_file": None}, "--secret-file"),
            ({"progress": "json"}, "progress is"),
            ({"progress": True, "as_files": True}, "use a function"),
            ({"name": "a\0b"}, "NUL"),
        ]
        self._serve().kill()
        for given, expected in wrong:
            with self.assertRaisesRegex(rdmc.InvalidUse, expected):
                found = rdmc.fetch(**{"origin": "127.0.0.1:1:tree", "dest": self.copy, "secret_file": self.secret, **given})
                self.fail(f"{given}: {found}")
        with self.assertRaisesRegex(TypeError, "fetch.. got .*'form_'; did you mean from_"):
            rdmc.fetch("a:b", self.copy, form_="c")  # type: ignore[call-overload]

    def test_all_options_of_the_command_are_typed(self) -> None:
        own = {"from", "secret_file", "share", "progress", "json", "quiet", "help"}
        self.assertEqual(commands.options("fetch") - own, set(rdmc.FetchOptions.__annotations__))
        options = rdmc.FetchOptions(ca=b"/ca.pem", max_size="1gib", verbose=True, name=None)
        expected = ["--from=a,b:1", "--secret-file=/s", "--share=5", "--ca=/ca.pem", "--max-size=1gib", "--verbose"]
        self.assertEqual(_fetch._words(["a", "b:1"], Path("/s"), 5, options), expected)

    def test_a_command_that_is_another_is_named(self) -> None:
        command = self.top / "command"
        for line in ("[]", "words", '{"error": 5}', '{"digest": 5}'):
            command.write_text(f"#!/bin/sh\necho '{line}'\necho '{{no progress' >&2\n")
            command.chmod(0o700)
            with mock.patch.dict(os.environ, {"RDMC_COMMAND": str(command)}):
                with self.assertRaisesRegex(rdmc.FetchError, f"{command} has printed .*RDMC_COMMAND", msg=line):
                    rdmc.fetch("a:b", self.copy)
        command.write_text("#!/bin/sh\necho killed >&2\n")
        with mock.patch.dict(os.environ, {"RDMC_COMMAND": str(command)}):
            with self.assertRaisesRegex(rdmc.FetchError, "^killed$"):
                rdmc.fetch("a:b", self.copy)

    def test_the_command_ends_with_the_process_that_fetches(self) -> None:
        server = self._slow()
        for number in (signal.SIGKILL, signal.SIGTERM):
            copy = self.top / number.name
            line = [sys.executable, "-c", _SLOW, f"{server.address}:tree", str(copy), str(self.secret)]
            commands.assert_ends_with(self, line, number)
            self.assertFalse(copy.exists())

    def test_what_progress_raises_ends_the_fetch(self) -> None:
        def progress(_: Any) -> None:
            raise KeyError("a bug of the program")

        server = self._slow()
        with self.assertRaisesRegex(KeyError, "a bug"):
            rdmc.fetch(f"{server.address}:tree", self.copy, secret_file=self.secret, progress=progress)
        self.assertFalse(self.copy.exists())


if __name__ == "__main__":
    unittest.main()

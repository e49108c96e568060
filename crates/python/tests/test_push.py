"""Files to receivers on this machine, by the command of the installed package."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import rdmc


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

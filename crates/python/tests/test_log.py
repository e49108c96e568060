"""What the library logs comes to Python's logging."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import unittest

import members

import rdmc


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def _fail_with_a_log(level: int) -> list[tuple[str, int, str]]:
    kept, logger = _Kept(), logging.getLogger("rdmc")
    logger.addHandler(kept)
    logger.setLevel(level)
    group = members.group()
    try:
        if group.rank == 0:
            group.abort("enough\nof it")
        group.barrier()
    except rdmc.Aborted:
        pass
    until = time.monotonic() + members.PATIENCE
    while level == logging.DEBUG and not _of_failures(kept.records) and time.monotonic() < until:
        time.sleep(0.01)
    return [(record.name, record.levelno, record.getMessage()) for record in kept.records]


def _of_failures(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if "a team has failed" in record.getMessage()]


def _in_a_child() -> bool:
    """The child of fork has a group of its own, and its log."""
    with members.group() as group:
        group.barrier()
        child = os.fork()
        if child == 0:
            kept, logger = _Kept(), logging.getLogger("rdmc")
            logger.addHandler(kept)
            logger.setLevel(logging.DEBUG)
            alone = rdmc.Group(0, ["127.0.0.1:0"], rdmc.random_secret())
            alone.abort("alone")
            until = time.monotonic() + members.PATIENCE
            while not _of_failures(kept.records) and time.monotonic() < until:
                time.sleep(0.01)
            os._exit(0 if _of_failures(kept.records) else 1)
        _, status = os.waitpid(child, 0)
        group.barrier()
        return status == 0


# A handler that is slow when the program ends: its records are not lost.
_ENDS = """
import logging, sys, time
import rdmc
class Slow(logging.StreamHandler):
    def emit(self, record):
        time.sleep(0.2)
        super().emit(record)
logging.basicConfig(level=logging.DEBUG, handlers=[Slow(sys.stdout)])
rdmc.Group(0, ["127.0.0.1:0"], rdmc.random_secret()).abort("the end")
"""


# A handler that raises: later records come.
_RAISES = """
import logging, sys
import rdmc
class Raises(logging.Handler):
    def emit(self, record):
        if "a team has failed" in record.getMessage():
            print(record.getMessage(), flush=True)
            %s
logging.basicConfig(level=logging.DEBUG, handlers=[Raises()])
for reason in ("the first", "the second"):
    rdmc.Group(0, ["127.0.0.1:0"], rdmc.random_secret()).abort(reason)
"""


class Log(unittest.TestCase):
    def test_records_come_to_loggers_of_python(self) -> None:
        for records in members.returned(members.run(_fail_with_a_log, 2, logging.DEBUG)):
            failures = [record for record in records if "a team has failed" in record[2]]
            self.assertTrue(failures, records)
            name, level, text = failures[0]
            self.assertTrue(name.startswith("rdmc."), name)
            self.assertEqual(level, logging.DEBUG)
            self.assertIn("enough", text)
            self.assertNotIn("\n", text)

    def test_records_below_the_level_do_not(self) -> None:
        for records in members.returned(members.run(_fail_with_a_log, 2, logging.WARNING)):
            self.assertEqual([record for record in records if record[1] < logging.WARNING], [])

    def test_a_child_of_fork_has_its_own(self) -> None:
        self.assertEqual(members.returned(members.run(_in_a_child, 1)), [True])

    def test_the_end_of_the_program_waits_for_them(self) -> None:
        done = subprocess.run([sys.executable, "-c", _ENDS], capture_output=True, text=True, timeout=members.PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("the end", done.stdout)

    def test_a_handler_that_raises_ends_no_log(self) -> None:
        for statement, said in (("raise ValueError('a bug of the handler')", "a bug of the handler"), ("sys.exit(3)", "SystemExit: 3")):
            script = [sys.executable, "-c", _RAISES % statement]
            done = subprocess.run(script, capture_output=True, text=True, timeout=members.PATIENCE)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(said, done.stderr)
            self.assertIn("the first", done.stdout)
            self.assertIn("the second", done.stdout)


if __name__ == "__main__":
    unittest.main()

"""Draws the committed pictures again: of plans from what the command RDMC prints, of measurements from the stored JSON."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

import course
import plot
import schedule
import terminal
from chart import Axis, ticks
from figures import NotStored, number
from sheet import COLOURS, TooLarge

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
# Measured before the tables that their pictures need were in the JSON.
KEPT = {"in-switch-5", "store", "time"}


def plan(arguments: str) -> dict[str, Any]:
    command = [os.environ["RDMC"], *arguments.split(), "--json"]
    document: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return document


class Pictures(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = Path(directory.name) / "x.svg"

    def drawn(self, document: dict[str, Any]) -> str:
        self.assertEqual(plot.draw(document, self.file), [self.file])
        return self.file.read_text(encoding="utf-8")

    def test_plans_on_the_page_have_their_pictures(self) -> None:
        page = (ROOT / "docs/internals/schedules.md").read_text(encoding="utf-8")
        images = list(re.finditer(r"\(images/([^)]+)\)", page))
        self.assertEqual(len(images), 9)
        for image in images:
            command = re.findall(r"rdmc (plan [^`\n]+)", page[:image.start()])[-1]
            with self.subTest(command):
                committed = (ROOT / "docs/internals/images" / image[1]).read_text(encoding="utf-8")
                self.assertEqual(self.drawn(plan(command)), committed)

    def test_a_plan_has_every_transfer_and_who_is_complete(self) -> None:
        for arguments, transfers, names in (
            ("plan --members 8 --blocks 3", 21, ("step 4", "block 2", "has every block")),
            ("plan --collective allreduce --members 16 --degree 3", 30, ("folded", "copied", "has the result")),
            ("plan --collective broadcast --members 16 --root 5", 15, ("5 (root)", "has the message")),
            ("plan --collective broadcast --members 5 --bytes 512KiB", 32, ("block 7", "has the message")),
        ):
            with self.subTest(arguments):
                picture = self.drawn(plan(arguments))
                self.assertEqual(len(plan(arguments)["transfers"]), transfers)
                for name in names:
                    self.assertIn(f">{name}</text>", picture)
        for arguments in ("plan --members 65 --blocks 1", "plan --members 2 --blocks 129"):
            with self.assertRaisesRegex(TooLarge, "at most 64 members and 128 steps"):
                schedule.draw(plan(arguments), self.file)

    def test_stored_measurements_have_their_pictures(self) -> None:
        compared = set()
        for document in sorted(RESULTS.glob("*.json")):
            with self.subTest(document.name):
                stored = json.loads(document.read_text(encoding="utf-8"))
                if document.stem in KEPT:
                    self.assertRaises(NotStored, plot.draw, stored, self.file)
                    continue
                for file in plot.draw(stored, self.file):
                    committed = RESULTS / file.name.replace("x", document.stem, 1)
                    # Of in-switch-8 one picture is on the page.
                    if committed.exists():
                        compared.add(committed.stem)
                        self.assertEqual(file.read_text(encoding="utf-8"), committed.read_text(encoding="utf-8"))
        self.assertEqual(compared, {file.stem for file in RESULTS.glob("*.svg")} - KEPT)

    def test_tables_that_are_not_stored_yet_are_drawn(self) -> None:
        rates = [{"rule": "all", "flow": flow, "at_ms": at, "gbit_per_s": at} for flow in ("a", "b") for at in (0, 5)]
        picture = self.drawn({"benchmark": "in-switch", "rows": [{"phase": 1}], "rates": rates})
        self.assertIn(">Notifications received: all</text>", picture)
        latencies = [{"in_flight": 1, "algorithm": "chain", "latency_ms": 100 * at, "share": at / 4} for at in range(1, 5)]
        self.assertIn(">1 in flight</text>", self.drawn({"benchmark": "store", "rows": [{}], "latencies": latencies}))

    def test_copies_are_bars_in_groups_and_those_that_failed_have_none(self) -> None:
        times = {("scp", 1): 45, ("scp", 3): 135.25, ("rdmc push", 1): 44, ("rdmc push", 3): None}
        rows = [{"receivers": receivers, "way": way, "s": time, "limit_s": 42.949, "length": "1 GiB", "mbit": 200.0} for (way, receivers), time in times.items()]
        picture = self.drawn({"benchmark": "copies", "what": "copies", "rows": rows})
        for text in ("1 host", "3 hosts", "45", "135", "44", "scp", "rdmc push", "limit: one copy over one link, 42.9 s",
                     "Seconds to copy 1 GiB over links of 200 Mbit/s"):
            self.assertIn(f">{text}</text>", picture)
        # Three bars; others of this colour are the keys of the legend.
        self.assertEqual(len(re.findall(f'<path [^>]*fill: {COLOURS[0]}"', picture)), 2 + 1)
        self.assertEqual(len(re.findall(f'<path [^>]*fill: {COLOURS[1]}"', picture)), 1 + 1)

    def test_a_course_has_every_transfer_at_both_its_ends(self) -> None:
        transfers = [{"source": 0, "target": 1, "block": block, "step": None, "start_us": 1e4 * (block // 2),
                      "end_us": 1e4 * (block // 2) + 8e3} for block in range(6)]
        wait = {"member": 0, "of_member": 1, "reason": "credit", "block": None, "start_us": 8e3, "end_us": 1e4}
        document = {"benchmark": "breakdown", "what": "a <title>", "transfers": transfers, "waits": [wait]}
        picture = self.drawn(document)
        self.assertIn("<title>a &lt;title&gt;</title>", picture)
        self.assertEqual(picture.count("<title>block 5 from 0 to 1: 8.000 ms</title>"), 2)
        self.assertEqual(picture.count("<title>waits for credit of member 1: 2.000 ms</title>"), 1)
        with self.assertRaises(TooLarge):
            course.draw({**document, "transfers": transfers * 4_000}, self.file)

    def test_a_terminal_is_drawn_halfway_and_in_the_end(self) -> None:
        # A bar and a host's line, drawn again over themselves, then cleared: as the command's progress.
        bars = [f"all [{'=' * (percent // 10):10}] {percent}%\r\n  <a> & b {percent} MiB" for percent in (10, 40, 60, 90)]
        again = "\r\x1b[1A\x1b[J"
        texts = [bars[0], *(again + bar for bar in bars[1:]), again + "100 MiB to 1 host\r\n"]
        # Escape sequences are not always written at once.
        data = "".join(texts).encode()
        outputs = [terminal.Output(at / 10, data[at:at + 3]) for at in range(0, len(data), 3)]
        shown = terminal.screens(outputs)
        self.assertRegex(shown.middle[0], r"^all \[======    \] 60%$")
        self.assertEqual(shown.end, ["100 MiB to 1 host"])
        terminal.draw("rdmc push x", shown, self.file)
        picture = self.file.read_text(encoding="utf-8")
        for text in ("rdmc&#160;push&#160;x", "60%", "100&#160;MiB&#160;to&#160;1&#160;host", "s&#160;later"):
            self.assertIn(text, picture)
        self.assertNotRegex(picture, r"url\((?!#)|@font-face|@import|<script")
        with self.assertRaisesRegex(terminal.NotDrawn, "50 %"):
            terminal.screens(outputs[:10])

    def test_a_command_is_recorded_as_in_a_terminal(self) -> None:
        output = b"".join(output.data for output in terminal.record(["sh", "-c", "test -t 2 && stty size"]))
        self.assertEqual(output.split(), [b"20", b"112"])
        with self.assertRaisesRegex(terminal.NotDrawn, "ended with 3"):
            list(terminal.record(["sh", "-c", "exit 3"]))

    def test_marks_are_round_and_values_have_units(self) -> None:
        self.assertEqual(ticks(Axis("", unit="count"), [1]), [0, 1])
        self.assertEqual(ticks(Axis("", 2), [2, 9]), [2, 4, 8, 16])
        self.assertEqual([number(text) for text in ("16 KiB", "4:1", "1/1024", "0")], [16384, 4, 1e4 / 1024, 0])


if __name__ == "__main__":
    unittest.main()

"""What the commands of tools/compare are made of."""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import arrays
import arrivals
import contents
import fetches
import fetching
import lab
import members
import mpi
import options
import programs
import pushes
import report
import workspace
from programs import Failed, Launch, Line

TIMES = "echo times 0 0 1 2 3; echo times 0 1 1 2 3"


def line(text: str) -> Line:
    return Line(0, False, text)


class Options(unittest.TestCase):
    def test_sizes_and_rates_are_read_as_they_are_shown(self) -> None:
        for text, size in (("64KiB", 65536), ("64k", 65536), ("1MB", 10**6), ("1.5 GiB", 3 << 29), ("4096", 4096)):
            self.assertEqual(options.size(text), size)
        for size, text in ((65536, "64 KiB"), (5 << 28, "1.25 GiB"), (100_004, "97.7 KiB"), (9, "9 B")):
            self.assertEqual(options.show_size(size), text)
        for text, rate in (("250mbit", 250_000_000), ("1500Kbit", 1_500_000), ("1.5gbit", 1_500_000_000)):
            self.assertEqual(options.rate(text), rate)
        self.assertEqual([options.show_rate(rate) for rate in (1_500_000_000, 2_000_000_000)], ["1500mbit", "2gbit"])

    def test_what_is_none_is_refused(self) -> None:
        def refuse(parse: Callable[[str], Any], *texts: str) -> None:
            for text in texts:
                with self.subTest(text), self.assertRaises(argparse.ArgumentTypeError):
                    parse(text)
        refuse(options.size, "", "0", "-1", "1XB", "KiB", "1.k")
        refuse(options.rate, "", "250", "mbit", "-1mbit", "99kbit", "101gbit", "1tbit")
        refuse(options.several(options.number(2, 64)), "", "1", "65", "2,x", "2,")
        refuse(options.one_of(["a", "b"]), "", "c", "A")
        self.assertEqual(options.several(options.number(2, 64))("2,64"), [2, 64])


class Reports(unittest.TestCase):
    def test_the_median_is_a_value_that_was_measured(self) -> None:
        self.assertEqual(report.median([3, 1, 2]), 2)
        self.assertEqual(report.median([4, 1, 3, 2]), 2)
        self.assertIsNone(report.number(report.median([])))

    def test_a_table_is_aligned_and_its_json_has_the_same_values(self) -> None:
        made = report.Report("test", "nothing")
        made.row({"name": "chain", "time_s": report.number(1.23456)})
        made.row({"name": "x|y", "time_s": None})
        made.table("more", "And this:")
        made.row({"count": 12})
        made.note("first")
        made.note("")
        self.assertTrue(made.text().endswith("name   time s\nchain   1.235\nx|y         -\n\nAnd this:\n\ncount\n   12\n\nfirst\n"), made.text())
        self.assertIn("| name | time s |\n|---|--:|\n| chain | 1.235 |\n| x\\|y | - |\n", made.markdown())
        self.assertTrue(made.markdown().endswith("\n- first\n"))
        document = made.document()
        self.assertEqual((document["rows"][0], document["more"]), ({"name": "chain", "time_s": 1.2346}, [{"count": 12}]))
        self.assertEqual(set(document), {"benchmark", "what", "notes", "machine", "rows", "more"})
        with self.assertRaises(AssertionError):
            made.row({"number": 12})

    def test_every_second_turn_is_in_the_opposite_order(self) -> None:
        order: list[int] = []

        def run(index: int) -> int:
            order.append(index)
            return 10 * len(order) + index
        self.assertEqual(report.alternate(3, 2, "test", run), [[10, 60], [21, 51], [32, 42]])
        self.assertEqual(order, [0, 1, 2, 2, 1, 0])

    def test_json_goes_into_a_file(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "x.json")
            made = report.Report("test", "nothing")
            made.row({"b": 1, "a": 2})
            made.print(argparse.Namespace(json=str(file), markdown=False))
            self.assertEqual(json.loads(file.read_text(encoding="utf-8")), made.document())


class Times(unittest.TestCase):
    def test_time_runs_from_the_roots_start_to_the_last_receivers_end(self) -> None:
        table = members.TimeTable(3, 1)
        # The root may be done before its receivers or after them, and start after them.
        self.assertFalse(table.note(line("times 0 1 900 9000 7")))
        self.assertFalse(table.note(line("times 0 0 1000 99000 5")))
        self.assertTrue(table.note(line("times 0 2 800 3000 5")))
        expected = (8e-6, 6e-6, 17e-9, 7e-9)
        for found, value in zip(dataclasses.astuple(table.measured()[0]), expected):
            self.assertAlmostEqual(found, value, delta=1e-12)

    def test_times_of_unknown_members_are_refused(self) -> None:
        table = members.TimeTable(2, 2)
        table.note(line("times 0 0 0 1 0"))
        for text in ("times 0 2 0 1 0", "times 2 0 0 1 0", "times 0 1 2 1 0", "times 0 0 0 1 0", "times", "times 1 0 3 4", "times 1 0 3 4 5 6",
                     "times 1 0 -1 4 5"):
            with self.subTest(text), self.assertRaises(Failed):
                table.note(line(text))

    def test_a_leaf_counts_from_the_root(self) -> None:
        table = arrays.TimeTable(1, 3)
        self.assertFalse(table.note(line("cell 0 0 1000 2000 11000 12000")))
        self.assertFalse(table.note(line("cell 0 1 900 4000 11500 13500")))
        for text in ("cell 0 1 900 4000", "cell 1 1 900 4000", "cell 0 3 1 2", "cell 0 2", "cell 0 2 3", "cell 0 2 9 3", "cell x 2 3 4"):
            with self.subTest(text), self.assertRaises(Failed):
                table.note(line(text))
        self.assertTrue(table.note(line("cell 0 2 2000 5000 11000 16000")))
        self.assertAlmostEqual(table.leaves_us()[0], (4 + 5) / 2)

    def test_unequal_repeats_are_an_error(self) -> None:
        table = arrays.TimeTable(1, 2)
        table.note(line("cell 0 0 1 2"))
        table.note(line("cell 0 1 1 2 3 4"))
        with self.assertRaisesRegex(Failed, "unequally"):
            table.leaves_us()


class Running(unittest.TestCase):
    def turn(self, script: str, timeout_s: float = 600, has_children: bool = False) -> int:
        """How many lines of times came, of two."""
        count = 0

        def note(_: Line) -> bool:
            nonlocal count
            count += 1
            return count == 2
        programs.Turn([Launch(["sh", "-c", script], has_children=has_children)]).run(timeout_s, ("times ",), note)
        return count

    def test_a_turn_ends_when_all_times_are_reported(self) -> None:
        self.assertEqual(self.turn(f"echo hello; {TIMES}; sleep 600"), 2)

    def test_messages_of_one_that_ends_early_are_reported(self) -> None:
        with self.assertRaisesRegex(Failed, "^ended early: out of luck$"):
            self.turn("echo ----; echo out of luck >&2; exit 3")

    def test_one_that_hangs_is_killed_and_reported(self) -> None:
        with self.assertRaisesRegex(Failed, "^hung: killed after 0 s"):
            self.turn("echo thinking; sleep 600", timeout_s=0)

    def test_children_end_with_the_program_also_those_in_another_session(self) -> None:
        mark = f"600.{os.getpid()}"
        try:
            self.assertEqual(self.turn(f"(setsid sleep {mark} >/dev/null 2>&1 &); {TIMES}; sleep 600", has_children=True), 2)
        except Failed as error:
            if "unshare" in str(error):
                print(f"SKIPPED: no process namespaces here ({error})", file=sys.stderr)
                self.skipTest(str(error))
            raise
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        self.assertEqual([found for found in lines if mark.encode() in found], [])

    def test_what_is_started_ends_with_this_process(self) -> None:
        script = ("import sys, time; sys.path.insert(0, sys.argv[1]); import programs\n"
                  "print(programs.Programs().start(programs.Launch(['sleep', '600'])).pid, flush=True)\ntime.sleep(600)")
        with subprocess.Popen([sys.executable, "-B", "-c", script, str(Path(__file__).parents[1])], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            parent.kill()
        until = time.monotonic() + 60
        while Path(f"/proc/{pid}/status").exists() and "sleep" in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def test_what_has_not_been_built_is_named_with_the_remedy(self) -> None:
        with self.assertRaisesRegex(Failed, "/nonexistent/rdmc is missing; build it: cargo build --locked -p rdmc-cli"):
            print(programs.Built(Path("/nonexistent")).rdmc)


class Workspaces(unittest.TestCase):
    def test_programs_are_compiled_and_removed_with_the_workspace(self) -> None:
        with workspace.Workspace.open() as place:
            program = place.build(workspace.Recipe("sockets.c", "cc", "gcc", ("-pthread",)))
            self.assertEqual(subprocess.run([program], check=False).returncode, 2)
            self.assertEqual(place.build(workspace.Recipe("sockets.c", "cc", "gcc", ("-pthread",))), program)
        self.assertFalse(program.exists())

    def test_what_is_missing_is_named(self) -> None:
        with workspace.Workspace.open() as place:
            with self.assertRaisesRegex(Failed, "^no-such-compiler is not installed; Debian packages: gcc$"):
                place.build(workspace.Recipe("sockets.c", "no-such-compiler", "gcc"))
            with self.assertRaisesRegex(Failed, r"^sockets does not compile \(.*\); Debian packages: gcc$"):
                place.build(workspace.Recipe("sockets.c", "cc", "gcc", ("--no-such-option",)))

    def test_what_killed_runs_have_left_is_removed(self) -> None:
        with tempfile.TemporaryDirectory() as parent:
            left, other = Path(parent, "rdmc-compare-4194305-x"), Path(parent, f"rdmc-compare-{os.getpid()}-x")
            left.mkdir()
            other.mkdir()
            with workspace.directory(Path(parent)) as made:
                self.assertEqual({made, other}, set(Path(parent).iterdir()))

    def test_the_agent_enters_the_host_of_the_address(self) -> None:
        # `env` stands for a network namespace.
        hosts = [lab.Host(("env", f"HERE={name}"), f"10.77.0.{last}") for last, name in ((1, "first"), (2, "second"))]
        with workspace.Workspace.open() as place:
            text = mpi.agent(lab.Site(hosts, "eth0", lab.Link(10**6)), place).read_text(encoding="utf-8")
            # Other names of hosts need root, which this test does not.
            agent = place.script("agent-without-names", text.replace("unshare --uts ", "").replace("hostname host", "true "))
            found = subprocess.run([agent, "-x", "10.77.0.2", "echo", '"$HERE"', "--flag"], capture_output=True, text=True, check=True)
            self.assertEqual(found.stdout, "second --flag\n")
            self.assertEqual(subprocess.run([agent, "10.77.0.3", "true"], capture_output=True, check=False).returncode, 1)


class Fetches(unittest.TestCase):
    def test_hosts_come_when_their_arrivals_say(self) -> None:
        starts = {name: one.starts(9, 10.0, 1) for name, one in arrivals.ARRIVALS.items()}
        self.assertEqual(starts["together"], [0] * 9)
        self.assertEqual(starts["one-by-one"], [0, 5, 10, 15, 20, 25, 30, 35, 40])
        self.assertEqual(starts["waves"], [0, 0, 0, 0, 10, 10, 10, 10, 20])
        self.assertEqual(starts["poisson"], starts["poisson-sharing"])

    def test_four_hosts_come_at_random_in_the_time_of_one_copy(self) -> None:
        poisson = arrivals.ARRIVALS["poisson"]
        starts = poisson.starts(4001, 10.0, 1)
        self.assertEqual((len(starts), starts[0], starts), (4001, 0, sorted(starts)))
        self.assertAlmostEqual(starts[-1] / 10 / 1000, 1, delta=0.1)
        # Exponential: the share of the gaps above their mean is 1/e.
        gaps = [after - before for before, after in zip(starts, starts[1:])]
        self.assertAlmostEqual(sum(gap > 2.5 for gap in gaps) / 4000, 0.368, delta=0.03)
        self.assertEqual(poisson.starts(4001, 10.0, 1), starts)
        self.assertNotEqual(poisson.starts(4001, 10.0, 2), starts)

    def test_hosts_share_for_whole_seconds(self) -> None:
        self.assertEqual([one.share_s(10.1) for one in arrivals.ARRIVALS.values()], [0, 0, 0, 0, 11, 11, 11])

    def test_ways_are_measured_where_they_can_be(self) -> None:
        self.assertEqual([(one.name, way) for one, way in fetches.cells(["together", "waves", "poisson-sharing"], ["rdmc", "scp", "push"])], [
            ("together", "rdmc"), ("together", "scp"), ("together", "push"), ("waves", "rdmc"), ("waves", "scp"), ("poisson-sharing", "rdmc")])

    def test_a_row_is_of_all_hosts_of_all_repeats(self) -> None:
        runs = [fetching.Run([10.0, 11.0, 14.0], 14.0, 1100, 0.5), fetching.Run([10.5, 10.5, 10.5], 12.0, 1300, 0.25)]
        row = fetches.row(arrivals.ARRIVALS["together"], "rdmc", 10.0, 1000, runs, None)
        self.assertEqual(row, {"arrivals": "together", "way": "rdmc fetch", "share_s": 0, "one_copy_s": 10.0, "median": 1.05, "slowest": 1.4,
                               "sent_copies": 1.3, "all_s": 12.0, "cores_busy": 0.25, "trouble": None})
        row = fetches.row(arrivals.ARRIVALS["together"], "scp", 10.0, 1000, [], "why")
        self.assertEqual([row[name] for name in ("median", "slowest", "sent_copies", "all_s", "cores_busy", "trouble")], [None] * 5 + ["why"])

    def course(self, starts: list[float], script: str, timeout_s: float = 600) -> tuple[list[fetching.Times], list[list[int]]]:
        """Its hosts' times, and whom each found present."""
        found: list[list[int]] = []
        with programs.Programs() as running:
            def begin(host: int, present: Sequence[int]) -> programs.Program:
                found.append(list(present))
                return running.start(Launch(["sh", "-c", script, "sh", str(host)]), stdout=subprocess.PIPE)
            return fetching.Course(starts, begin).run(timeout_s), found

    def test_a_copy_is_complete_with_the_line_and_a_command_ends_later(self) -> None:
        times, found = self.course([0.0, 0.0, 0.1], "echo complete; sleep 0.$1")
        self.assertEqual(found[:2], [[], [1]])
        self.assertEqual(len(times), 3)
        self.assertGreaterEqual(times[2].start_s, 0.1)
        for host, one in enumerate(times, 1):
            self.assertLess(one.start_s, one.complete_s)
            self.assertGreater(one.end_s - one.start_s, host / 10)

    def test_a_host_that_fails_or_hangs_is_named(self) -> None:
        with self.assertRaisesRegex(Failed, "^host 2 ended with status 3$"):
            self.course([0.0, 0.0], 'test "$1" = 1 || exit 3; sleep 1')
        with self.assertRaisesRegex(Failed, "^not ended after 0 s: hosts 1$"):
            self.course([0.0], "sleep 600", 0.2)


class Contents(unittest.TestCase):
    def test_a_copy_that_differs_is_found(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            at = Path(directory)
            source, copy = contents.Source.tree("small", at / "small", 3, 9), at / "copy/small/0"
            copy.mkdir(parents=True)
            for number in ("0", "1", "2"):
                self.assertRaises(Failed, source.check_count, at / "copy")
                self.assertRaises(Failed, source.check_contents, at / "copy")
                (copy / number).write_bytes((at / "small/0" / number).read_bytes())
            source.check_count(at / "copy")
            source.check_contents(at / "copy")
            (copy / "1").write_bytes(bytes(9))
            source.check_count(at / "copy")
            with self.assertRaisesRegex(Failed, "small/0/1 has other contents"):
                source.check_contents(at / "copy")
            (copy / "1").write_bytes(bytes(8))
            self.assertRaises(Failed, source.check_count, at / "copy")

    def test_a_longer_copy_of_a_file_is_found(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            at = Path(directory)
            source = contents.Source.file(at / "object", 3_000_000)
            (at / "copy").mkdir()
            self.assertRaises(Failed, source.check_contents, at / "copy")
            (at / "copy/object").write_bytes(source.path.read_bytes())
            source.check_contents(at / "copy")
            with (at / "copy/object").open("ab") as file:
                file.write(b"x")
            self.assertRaises(Failed, source.check_contents, at / "copy")

    def test_a_place_without_room_is_named(self) -> None:
        with self.assertRaisesRegex(Failed, "choose another --directory"):
            contents.need_room(Path(tempfile.gettempdir()), 1 << 60)

    def test_packets_are_read_from_the_log(self) -> None:
        log = ("2026-01-01T00:00:00Z INFO transport_switch::queue_pair: blocks go through a queue pair\n"
               "2026-01-01T00:00:01Z DEBUG transport_switch::userspace: sent through a queue pair in userspace packets=32800 repeated=82\n")
        self.assertEqual(pushes.sent_again(log), 0.0025)
        self.assertIsNone(pushes.sent_again("nothing of the kind"))


if __name__ == "__main__":
    unittest.main()

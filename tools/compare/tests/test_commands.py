"""The commands of tools/compare with loads so small that nothing is measured. Programs of this repository are where COMPARE_PROGRAMS says,
or in target/debug; what lacks root or a program says so."""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import arrays
import lab
import workspace
from programs import Built

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(os.environ.get("COMPARE_PROGRAMS", ROOT / "target/debug"))
TIMEOUT_S = 600
Row = dict[str, Any]


class Case(unittest.TestCase):
    def skip(self, why: str) -> None:
        """Also where a test runner does not say so."""
        print(f"SKIPPED: {self.id()}: {why}", file=sys.stderr)
        self.skipTest(why)

    def need_lab(self) -> None:
        if os.geteuid() != 0:
            self.skip("needs root (network namespaces)")
        if not (shutil.which("ip") and shutil.which("tc")):
            self.skip("needs iproute2")
        made = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
        if made.returncode != 0:
            self.skip("no network namespaces may be made here")

    @contextlib.contextmanager
    def path_of(self, *programs: str) -> Iterator[str]:
        """A path with these programs alone, where they are installed."""
        with tempfile.TemporaryDirectory() as directory:
            for name in programs:
                if found := shutil.which(name):
                    Path(directory, name).symlink_to(found)
            yield directory

    def compare(self, arguments: str, path: str | None = None, user: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
        environment = dict(os.environ, **({"PATH": path} if path else {}))
        command = [*user, sys.executable, "-B", str(ROOT / "tools/compare"), "--programs", str(PROGRAMS), *arguments.split()]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, check=False)

    def document(self, arguments: str, path: str | None = None) -> Row:
        done = self.compare(f"{arguments} --json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        document: Row = json.loads(done.stdout)
        return document

    def expect_figures(self, rows: list[Row]) -> None:
        """Every row has figures or a reason; that a program is not installed is one."""
        for row in rows:
            reason = row["trouble"]
            if reason is None:
                self.assertTrue(row.get("time_s", row.get("s")) is not None, row)
                continue
            self.assertTrue(any(part in reason for part in ("is not installed", "does not compile", "unshare")), row)
            self.assertTrue(row.get("time_s", row.get("s")) is None, row)
            print(f"SKIPPED: {row.get('peer', row.get('way'))}: {reason}", file=sys.stderr)


class Peers(Case):
    def test_missing_peers_are_listed_with_the_reason(self) -> None:
        # Plain sockets need a compiler, and what that starts.
        with self.path_of("setpriv", "cc", "as", "ld") as path:
            rows = self.document("peers --local --members 2 --bytes 64KiB --repeats 1 --only openmpi,gloo,copies", path)["rows"]
        self.assertEqual({(row["peer"], row["trouble"]) for row in rows}, {
            ("Open MPI", "mpirun.openmpi is not installed; Debian packages: openmpi-bin libopenmpi-dev"),
            ("Gloo", "g++ is not installed; Debian packages: g++ libgloo-dev"), ("copies, parallel", None)})

    def test_installed_peers_take_part_on_one_machine(self) -> None:
        rows = self.document("peers --local --members 3 --bytes 1MiB --repeats 1")["rows"]
        self.assertEqual(len(rows), 15)
        self.expect_figures(rows)
        for row in rows:
            # These are never missing.
            if row["peer"] in ("rdmc", "copies, parallel", "chain of sockets"):
                self.assertIsNone(row["trouble"], row)

    def test_installed_peers_take_part_over_shaped_links(self) -> None:
        self.need_lab()
        rows = self.document("peers --members 3 --rate 400 --bytes 1MiB --repeats 1 --rdmc chain:64KiB")["rows"]
        self.assertEqual(len(rows), 11)
        self.expect_figures(rows)
        for row in rows:
            if row["trouble"] is None:
                self.assertTrue(0 <= row["of_rate"] < 1.5, f"the links are not shaped: {row}")

    def test_invalid_arguments_are_refused(self) -> None:
        for arguments in ("--bytes 7", "--bytes 2GiB", "--only nobody", "--local --rdmc chain", "--local --rdmc fast:1KiB", "--local --rdmc chain:1KiB:0",
                          "--local --rate 100", "--local --small-burst", "--members 1", "--repeats 0", "--json --markdown",
                          "--json /nonexistent/file"):
            with self.subTest(arguments):
                self.assertEqual(self.compare(f"peers {arguments}").returncode, 2)
        self.assertEqual(self.compare("nothing").returncode, 2)

    def test_without_root_labs_are_refused_at_once(self) -> None:
        user = ("unshare", "--user") if os.geteuid() == 0 else ()
        if user and subprocess.run([*user, "true"], capture_output=True, check=False).returncode != 0:
            self.skip("no user namespaces may be made here")
        for command in ("peers", "push", "trees --ways rdmc", "copies", "fetch", "python --lab"):
            with self.subTest(command):
                done = self.compare(command, user=user)
                self.assertEqual(done.returncode, 1)
                self.assertIn("needs root (network namespaces); run it as root, or with sudo", done.stderr)


class Pushes(Case):
    def test_trees_are_copied_by_every_way(self) -> None:
        self.need_lab()
        rows = self.document("trees --receivers 3 --rate 200mbit --bytes 3MiB --large 2 --small 30 --repeats 1 "
                             "--ways rdmc,rsync-to-all,rsync-to-one,scp,tar,mpi")["rows"]
        self.assertEqual(len(rows), 3 * 6)
        self.expect_figures(rows)
        for row in rows:
            if row["trouble"] is not None:
                self.assertNotEqual(row["way"], "rdmc push")
                continue
            self.assertEqual(row["again s"] is None, "chain" in row["way"] or "scp" in row["way"], row)
            self.assertEqual(row["start s"] is None, row["way"] != "chain of Open MPI", row)
            self.assertEqual(row["receiver MiB"] is None, row["way"] != "rdmc push", row)

    def test_what_a_way_lacks_is_named(self) -> None:
        self.need_lab()
        with self.path_of("setpriv", "ip", "tc", "sh", "sed", "cat", "mount") as path:
            rows = self.document("trees --receivers 1 --sources one --bytes 1KiB --repeats 1 --ways rdmc,scp,tar", path)["rows"]
        self.assertEqual([row["trouble"] for row in rows], [
            None, "scp is not installed; Debian packages: openssh-client", "bash is not installed; Debian packages: bash"])

    def test_a_switch_that_copies_relieves_the_senders_link(self) -> None:
        """Counted, not timed: how often the file has crossed the links."""
        self.need_lab()
        rows = self.document("push --receivers 3 --rates 100mbit --mtus 1500 --bytes 4MiB --repeats 1 --ways kernel,userspace,chain,sequential")["rows"]
        # Without clang there is no switch in the kernel.
        self.assertIn(len(rows), (3, 4))
        for row in rows:
            sender, receivers = {"chain": (1, 2), "sequential": (3, 0)}.get(row["way"], (1, 0))
            # Headers, acknowledgements, and on a busy machine what is sent again come on top.
            self.assertTrue(sender <= row["sender_sent"] < sender + 0.9, row)
            self.assertTrue(receivers <= row["receivers_sent"] < receivers + 0.9, row)
            self.assertEqual(row["fell_back"], 0, row)

    def test_one_file_is_copied_by_every_way(self) -> None:
        self.need_lab()
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "copies.json")
            done = self.compare(f"copies --receivers 1,3 --bytes 1MiB --rate 200mbit --repeats 1 --json {file}")
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            document = json.loads(file.read_text(encoding="utf-8"))
        rows = document["rows"]
        self.assertEqual([row["receivers"] for row in rows], [1] * 4 + [3] * 4)
        self.expect_figures(rows)
        for row in rows:
            if row["trouble"] is None:
                self.assertAlmostEqual(row["limit_s"], 8 * (1 << 20) / 200e6, places=4)
                self.assertTrue(0 < row["of_limit"] < 1.5 and 0 <= row["cores_busy"] <= 1, row)
        self.assertTrue(all(row["trouble"] is None for row in rows if row["way"] == "rdmc push"))

    def test_hosts_fetch_by_every_way(self) -> None:
        """Counted, not timed: how often the object has left the server."""
        self.need_lab()
        python = os.environ.get("COMPARE_LIBTORRENT", sys.executable)
        rows = self.document(f"fetch --hosts 3 --bytes 4MiB --rate 100mbit --repeats 1 --libtorrent {python}")["rows"]
        self.assertEqual([row["arrivals"] for row in rows if row["way"] == "rdmc fetch"], ["together", "one-by-one", "waves", "poisson", "one-by-one-sharing", "waves-sharing", "poisson-sharing"])
        self.assertEqual([row["arrivals"] for row in rows if row["way"] == "rdmc push"], ["together"])
        # By three ways, of which scp does not share; and rdmc push to hosts that come together.
        self.assertEqual(len(rows), 4 * 3 + 3 * 2 + 1)
        for row in rows:
            if row["trouble"] is not None:
                self.assertIn(row["way"], ("libtorrent", "scp from the server"), row)
                self.assertTrue("cannot import libtorrent" in row["trouble"] or "is not installed" in row["trouble"], row)
                self.assertEqual([row[name] for name in ("median", "slowest", "sent_copies", "all_s")], [None] * 4)
                print(f"SKIPPED: {row['way']}: {row['trouble']}", file=sys.stderr)
                continue
            self.assertTrue(0 < row["median"] <= row["slowest"], row)
            # Headers, and on a busy machine what is sent again come on top. From the server alone each gets its copy.
            least = 3 if "scp" in row["way"] else 1
            self.assertTrue(least <= row["sent_copies"] < 3.9, row)
            self.assertEqual(row["share_s"], 1 if row["arrivals"].endswith("-sharing") else 0)

    def labs(self) -> set[str]:
        listed = subprocess.run([Built(PROGRAMS).lab, "list", "--json"], capture_output=True, check=True).stdout
        return {found["name"] for found in json.loads(listed)}

    def test_no_lab_is_left_after_a_failure(self) -> None:
        self.need_lab()
        before = self.labs()
        with self.path_of("setpriv", "ip", "tc", "sh", "sed", "cat", "mount") as path:
            done = self.compare("push --receivers 2 --rates 100mbit --mtus 1500 --ways chain", path)
        self.assertEqual((done.returncode, done.stderr), (1, "bench push: openssl is not installed; Debian packages: openssl\n"))
        self.assertLessEqual(self.labs(), before)

    def test_no_lab_is_left_after_a_signal(self) -> None:
        self.need_lab()
        command = [sys.executable, "-B", str(ROOT / "tools/compare"), "--programs", str(PROGRAMS),
                   *"copies --receivers 2 --ways rdmc --bytes 64MiB --rate 100kbit".split()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            until = time.monotonic() + TIMEOUT_S
            while not (own := [name for name in self.labs() if name.startswith(f"compare-{process.pid}-")]):
                self.assertLess(time.monotonic(), until)
                self.assertIsNone(process.poll())
            process.terminate()
            errors = process.communicate(timeout=TIMEOUT_S)[1]
        self.assertEqual((process.returncode, errors), (130, "bench copies: interrupted\n"))
        self.assertEqual(self.labs() & set(own), set())

    def test_pushes_reach_many_receivers(self) -> None:
        document = self.document("hosts --receivers 3 --stream-receivers 2 --stream-bytes 1MiB --simulated 16")
        self.assertEqual([row["receivers"] for row in document["rows"] + document["streams"]], [3, 2])
        for row in document["rows"] + document["streams"]:
            self.assertTrue(row["total_s"] > 0 and row["root_threads"] > 0 and row["root_descriptors"] > 0, row)
        simulated = document["simulated"]
        self.assertEqual([row["hosts"] for row in simulated], [16] * 7)
        self.assertEqual(simulated[0]["published"], 16)


class Arrays(Case):
    SMALL = "python --members 2,3 --bytes 100004 --count 3 --each 64KiB --overhead-bytes 0 --turns 2 --repeats 1"

    def test_members_in_python_take_part_where_their_packages_are(self) -> None:
        document = self.document(f"{self.SMALL} --ways gloo,mpi,mpi-shared --python /usr/bin/python3")
        if left_out := [note for note in document["notes"] if note.startswith("Left out")]:
            self.skip(left_out[0])
        for program, networks in (("torch.distributed, gloo", 1), ("mpi4py, Open MPI", 2)):
            rows = [row for row in document["rows"] if row["program"] == program]
            # Of each operation, each length and each number of members.
            self.assertEqual(len(rows), 2 * 2 * 2 * networks, document)
            for row in rows:
                self.assertTrue(0 < row["fastest_ms"] <= row["ms"] <= row["slowest_ms"], row)

    def test_members_in_rust_take_part_without_python(self) -> None:
        """Members compare all that they receive."""
        with _turns("missing") as turns:
            works = [arrays.Work("broadcast", 1, 100_004, 3), arrays.Work("broadcast", 1, 4, 2)]
            self.assertTrue(all(us > 0 for us in turns.rust(works)))

    def test_a_python_that_lacks_something_is_an_error_that_says_so(self) -> None:
        for arguments, text in (("--python /usr/bin/false", "/usr/bin/false cannot import rdmc"), ("--python /missing/python", "cannot start /missing/python")):
            done = self.compare(f"python {arguments}")
            self.assertEqual(done.returncode, 1)
            self.assertIn(text, done.stderr)
        done = self.compare("python --bytes 1KB,10")
        self.assertEqual(done.returncode, 2)
        self.assertIn("10 bytes are not whole floats: use multiples of 4", done.stderr)


class Threads(Case):
    def test_all_ways_have_figures(self) -> None:
        rows = self.document("threads --threads 1,2 --streams 3 --repeats 1")["rows"]
        self.assertEqual([(row["protection"], row["threads"]) for row in rows], [("none", 1), ("none", 2), ("encrypt", 1), ("encrypt", 2)])
        for row in rows:
            self.assertTrue(row["gb_per_s"] > 0 and row["of_one"] > 0 and row["processor_s_per_gib"] > 0, row)

    def test_threads_get_their_shares(self) -> None:
        if os.geteuid() != 0 or not os.access("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", os.F_OK):
            self.skip("needs root, and the controller cpu of cgroup v1")
        rows = self.document("threads --threads 1,2 --protect none --repeats 1 --share 0.5")["rows"]
        self.assertEqual(len(rows), 2)
        self.assertEqual(list(Path("/sys/fs/cgroup/cpu").glob("rdmc-threads-*")), [])

    def test_invalid_arguments_are_refused(self) -> None:
        for arguments in ("--threads 0", "--threads 9", "--streams 9", "--protect all", "--share 2", "--share 0.01", "--bytes 1MiB"):
            with self.subTest(arguments):
                self.assertEqual(self.compare(f"threads {arguments}").returncode, 2)


@contextlib.contextmanager
def _turns(python: str) -> Iterator[arrays.Turns]:
    with workspace.Workspace.open() as place:
        yield arrays.Turns(argparse.Namespace(python=python), Built(PROGRAMS), lab.here(2), place)


if __name__ == "__main__":
    unittest.main()

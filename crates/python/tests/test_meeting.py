"""How processes learn of each other: stores that are used again, and the addresses that they tell."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import unittest
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import members
import numpy

import rdmc
from rdmc import _place
from rdmc._place import Place, ips_of

# Of two ways of forming a group.
_KINDS: dict[str, Callable[..., Any]] = {"Group": rdmc.Group.from_env, "HostGroup": rdmc.HostGroup.from_env}


def _meet(kind: str, timeout: float | None = members.PATIENCE, **settings: Any) -> int:
    with _KINDS[kind](timeout=timeout, **settings) as group:
        group.barrier()
        return int(group.size)


def _meet_again(kind: str) -> None:
    for _ in range(3):
        assert _meet(kind) == int(os.environ["WORLD_SIZE"])
    group = _KINDS[kind](timeout=members.PATIENCE)
    if group.rank == 1:
        group.abort("a failure")
    try:
        group.barrier()
    except rdmc.RdmcError:
        pass
    group.close()
    # "After a failure make another group."
    assert _meet(kind) == int(os.environ["WORLD_SIZE"])


def _meet_beside() -> None:
    with members.group() as one, members.group() as other, rdmc.HostGroup.from_env(timeout=members.PATIENCE) as third:
        for group in (third, other, one):
            group.barrier()


def _meet_in(store: str, kind: str) -> int:
    return _meet(kind, store=store)


def _come_alone(store: str, alone: int, kind: str) -> None:
    if int(os.environ["RANK"]) == alone:
        try:
            _meet(kind, timeout=0.5, store=store)
        except rdmc.TimedOut:
            return
        raise AssertionError("others do not come")


def _with_secret(has: list[bool]) -> tuple[str, str]:
    if has[int(os.environ["RANK"])]:
        os.environ["RDMC_SECRET"] = "0123456789abcdef" * 4
    try:
        _meet("Group", timeout=10 * members.PATIENCE)
    except rdmc.RdmcError as error:
        return type(error).__name__, str(error)
    return "", ""


class _Store:
    """As torch's: what is not there yet is waited for, and values are bytes."""

    def __init__(self, path: str) -> None:
        self._inner = rdmc._meeting.FileStore(path, members.PATIENCE)

    def set(self, key: str, value: str) -> None:
        self._inner.set(key, value)

    def get(self, key: str) -> bytes:
        return self._inner.get(key).encode()


def _meet_by_object(store: str) -> None:
    theirs = _Store(store)
    for _ in range(3):
        with rdmc.Group.from_env(theirs, timeout=members.PATIENCE) as group:
            values = numpy.full(3, group.rank)
            group.all_reduce(values)
            assert values[0] == group.size * (group.size - 1) // 2


class _StoreOfBytes:
    """As those of other libraries."""

    def __init__(self, path: str) -> None:
        self._path = path

    def set(self, key: str, value: str) -> None:
        Path(self._path, key).write_text(value)

    def get(self, key: str) -> bytes:
        return Path(self._path, key).read_bytes()


class StoresUsedAgain(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.store = directory.name

    def test_groups_one_after_another(self) -> None:
        for kind in _KINDS:
            members.returned(members.run(_meet_again, 3, kind))

    def test_a_store_of_another_library(self) -> None:
        members.returned(members.run(_meet_by_object, 3, self.store))

    def test_another_run_with_the_same_store(self) -> None:
        for kind in _KINDS:
            for size in (2, 3, 2, 1):
                self.assertEqual(members.returned(members.run(_meet_in, size, self.store, kind)), [size] * size)

    def test_what_processes_have_left_that_did_not_meet(self) -> None:
        for kind in _KINDS:
            for alone in (0, 1, 2):
                members.returned(members.run(_come_alone, 3, self.store, alone, kind))
                self.assertEqual(members.returned(members.run(_meet_in, 3, self.store, kind)), [3, 3, 3])

    def test_what_is_no_entry_in_the_store_is_refused(self) -> None:
        for text in ("", "[]", "3", '{"token": 3}', '{"entries": [3]}'):
            for rank, key in (("0", "rdmc-1-1"), ("1", "rdmc-1-all")):
                Path(self.store, key).write_text(text)
                with mock.patch.dict(os.environ, {"RANK": rank, "WORLD_SIZE": "2", "RDMC_IP": "127.0.0.1"}):
                    with self.assertRaisesRegex(rdmc.RdmcError, f"as {key}.*use another"):
                        rdmc.Group.from_env(self.store, timeout=members.PATIENCE)

    def test_bytes_in_the_store_that_are_no_text_are_refused(self) -> None:
        Path(self.store, "rdmc-1-all").write_bytes(b"\xff\xfe")
        for store in (self.store, _StoreOfBytes(self.store)):
            with mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "2", "RDMC_IP": "127.0.0.1"}):
                with self.assertRaisesRegex(rdmc.RdmcError, "as rdmc-1-all.*use another"):
                    rdmc.Group.from_env(store, timeout=members.PATIENCE)

    def test_wrong_arguments_are_refused_before_anything_is_stored(self) -> None:
        inner = Path(self.store, "inner", "store")
        wrong: list[tuple[dict[str, Any], str]] = [
            *[({"number": number}, "number is ") for number in ("../../x", "x", -1, 1 << 32, 1.0, None)],
            *[({"timeout": timeout}, "timeout is ") for timeout in ("5", float("nan"), 1j)],
            *[({name: 5}, f"{name} is of type int") for name in ("fabric", "protection")],
            *[({"store": store}, "store is of type .*; use an object with set and get") for store in (5, b"store", object())],
            ({"store": ""}, "no store"),
            ({"store": "a\0b"}, "not the path of a directory"),
        ]
        for kind in _KINDS:
            for given, words in wrong:
                with mock.patch.dict(os.environ, {"RANK": "0", "WORLD_SIZE": "1", "RDMC_IP": "127.0.0.1"}):
                    with self.assertRaisesRegex(rdmc.InvalidUse, words):
                        _KINDS[kind](**{"store": inner, **given})
        self.assertEqual(os.listdir(self.store), [])

    def test_an_empty_name_of_a_store_is_none(self) -> None:
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.store)
        for kind in _KINDS:
            with mock.patch.dict(os.environ, {"RANK": "0", "WORLD_SIZE": "1", "RDMC_IP": "127.0.0.1", "RDMC_STORE": ""}):
                with self.assertRaisesRegex(rdmc.InvalidUse, "no store"):
                    _KINDS[kind]()
        self.assertEqual(os.listdir(self.store), [])

    def test_a_limit_without_an_end(self) -> None:
        for kind in _KINDS:
            for timeout in (None, float("inf")):
                with mock.patch.dict(os.environ, {"RANK": "0", "WORLD_SIZE": "1", "RDMC_IP": "127.0.0.1"}):
                    self.assertEqual(_meet(kind, timeout=timeout, store=self.store), 1)

    def test_wrong_ranks_are_refused(self) -> None:
        for rank, size in (("2", "2"), ("-1", "2"), ("x", "2"), ("0", ""), ("0", "0")):
            with mock.patch.dict(os.environ, {"RANK": rank, "WORLD_SIZE": size}):
                with self.assertRaisesRegex(rdmc.InvalidUse, f"RANK={rank} is not a rank"):
                    rdmc.Group.from_env(self.store)

    def test_several_at_a_time(self) -> None:
        members.returned(members.run(_meet_beside, 2))

    def test_those_who_do_not_come_are_named(self) -> None:
        for settings, words in (({"RANK": "0"}, "ranks 1, 2 have not joined|no member has written.*rdmc-1-1"), ({"RANK": "2"}, "rdmc-1-all")):
            with mock.patch.dict(os.environ, {**settings, "WORLD_SIZE": "3", "RDMC_IP": "127.0.0.1"}):
                with tempfile.TemporaryDirectory() as store, self.assertRaisesRegex(rdmc.TimedOut, words):
                    rdmc.Group.from_env(store, timeout=0.3)

    def test_a_secret_that_not_all_have_is_named(self) -> None:
        self.assertEqual(members.returned(members.run(_with_secret, 2, [True, True])), [("", "")] * 2)
        for has in ([True, False], [False, True]):
            for kind, text in members.returned(members.run(_with_secret, 2, has)):
                self.assertEqual(kind, "InvalidUse")
                self.assertIn(f"rank {has.index(True)} has RDMC_SECRET", text)


def _place_with(environment: dict[str, str], own: dict[str, list[str]]) -> Place:
    """Where a process is, on a host that is reached as ``own`` says, by the names of others."""

    def toward(name: str) -> list[str]:
        if name not in own:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return list(own[name])

    cleared = {name: "" for name in ("RDMC_IP", "MASTER_ADDR")}
    with mock.patch.dict(os.environ, {**cleared, **environment}), mock.patch.object(_place, "_own_ips_toward", toward):
        for name in cleared:
            if not os.environ[name]:
                del os.environ[name]
        with mock.patch.object(socket, "gethostname", lambda: "nodea"):
            return Place.of_this_process()


class Addresses(unittest.TestCase):
    # Debian's /etc/hosts, with a route to other networks.
    debian = {"nodea": ["127.0.1.1"], "192.0.2.1": ["10.0.0.1"], "nodeb": ["10.1.0.1"]}

    def test_the_address_that_other_hosts_reach(self) -> None:
        cases: list[tuple[dict[str, str], dict[str, list[str]], str]] = [
            ({}, self.debian, "10.0.0.1"),
            ({"MASTER_ADDR": "nodea"}, self.debian, "10.0.0.1"),
            ({"MASTER_ADDR": "nodeb"}, self.debian, "10.1.0.1"),
            ({"RDMC_IP": "10.9.0.1", "MASTER_ADDR": "nodeb"}, self.debian, "10.9.0.1"),
            ({}, {"nodea": ["::1", "127.0.1.1", "fe80::1%eth0", "10.2.0.1"]}, "10.2.0.1"),
            # A name that is not known is not needed where there is a route.
            ({}, {"192.0.2.1": ["10.0.0.1"]}, "10.0.0.1"),
            ({}, {"2001:db8::1": ["fd00::1"]}, "fd00::1"),
        ]
        for environment, own, ip in cases:
            self.assertEqual(_place_with(environment, own).ip, ip, environment)

    def test_what_cannot_be_found_is_said_with_the_remedy(self) -> None:
        cases: list[tuple[dict[str, str], dict[str, list[str]], str]] = [
            ({}, {"nodea": ["127.0.1.1"]}, "only loopback"),
            ({}, {}, "only loopback"),
            ({"MASTER_ADDR": "nosuch"}, self.debian, "MASTER_ADDR=nosuch.*not known"),
            ({"RDMC_IP": "nodea"}, self.debian, "RDMC_IP=nodea is not an IP address"),
        ]
        other = Place("another", "nodeb", "10.0.0.2", "10.0.0.2", "", False)
        for environment, own, words in cases:
            place = _place_with(environment, own)
            with self.assertRaisesRegex(rdmc.InvalidUse, f"rank 1, on host nodea.*{words}.*set RDMC_IP"):
                ips_of([other, place])

    def test_what_is_no_name_is_said(self) -> None:
        long = "a" * 70 + ".example"
        with mock.patch.dict(os.environ, {"MASTER_ADDR": long, "RDMC_IP": ""}):
            self.assertIn(f"MASTER_ADDR={long} is not known", Place.of_this_process().why_not)

    def test_loopback_is_told_on_one_host_only(self) -> None:
        here = _place_with({"MASTER_ADDR": "localhost"}, {**self.debian, "localhost": ["127.0.0.1"]})
        self.assertEqual(ips_of([here, here]), ["127.0.0.1"] * 2)
        there = Place("another", "nodeb", "127.0.0.1", "10.0.0.2", "", False)
        self.assertEqual(ips_of([here, there]), ["10.0.0.1", "10.0.0.2"])
        self.assertEqual(ips_of([_place_with({}, {})] * 2), ["127.0.0.1"] * 2)

    def test_who_cannot_take_part_tells_why(self) -> None:
        for kind in _KINDS:
            outcomes = members.returned(members.run(_with_a_wrong_address, 3, kind))
            for rank in (0, 2):
                self.assertEqual((outcomes[rank][0], outcomes[rank][2]), ("Refused", 1), outcomes)
                self.assertIn(outcomes[1][1], outcomes[rank][1])

    def test_all_processes_refuse_what_one_lacks(self) -> None:
        outcomes = members.returned(members.run(_without_an_address, 2))
        for kind, text in outcomes:
            self.assertEqual(kind, "InvalidUse")
            self.assertRegex(text, "rank 1.*set RDMC_IP")


def _with_a_wrong_address(kind: str) -> tuple[str, str, int | None]:
    """Rank 1 is on a host of its own, where RDMC_IP is an address of another one."""
    rank = os.environ["RANK"]
    os.environ["RDMC_HOST"] = f"host{rank}"
    if rank == "1":
        os.environ["RDMC_IP"] = "192.0.2.77"
    try:
        _meet(kind, timeout=10 * members.PATIENCE)
    except rdmc.RdmcError as error:
        return type(error).__name__, str(error), getattr(error, "rank", None)
    return "", "", None


def _without_an_address() -> tuple[str, str]:
    """Rank 1 is on a host of its own that knows no address of its own but loopback."""
    rank = os.environ["RANK"]
    os.environ["RDMC_HOST"] = f"host{rank}"
    if rank == "1":
        del os.environ["RDMC_IP"]
        os.environ.pop("MASTER_ADDR", None)
        setattr(_place, "_own_ips_toward", lambda name: ["127.0.1.1"])
    try:
        _meet("Group", timeout=10 * members.PATIENCE)
    except rdmc.RdmcError as error:
        return type(error).__name__, str(error)
    return "", ""


class Hosts(unittest.TestCase):
    """Two network namespaces as hosts, each of which has its own name at 127.0.1.1, as Debian installs it."""

    def setUp(self) -> None:
        self.tag = uuid.uuid4().hex[:6]
        self.names = [f"rdmc-{self.tag}-{letter}" for letter in "ab"]
        try:
            for name in self.names:
                self._ip("netns", "add", name)
                self.addCleanup(self._ip, "netns", "del", name)
            self._ip("link", "add", "eth", "netns", self.names[0], "type", "veth", "peer", "name", "eth", "netns", self.names[1])
            for number, name in enumerate(self.names, 1):
                for line in (("addr", "add", f"10.87.0.{number}/24", "dev", "eth"), ("link", "set", "eth", "up"), ("link", "set", "lo", "up")):
                    self._ip("-n", name, *line)
                self._ip("-n", name, "route", "add", "default", "via", f"10.87.0.{3 - number}")
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"SKIPPED: needs root and network namespaces: {error}")

    def _ip(self, *line: str) -> None:
        subprocess.run(["ip", *line], check=True, capture_output=True)

    def test_hosts_whose_own_name_is_loopback_meet(self) -> None:
        for master in (None, "nodea"):
            with tempfile.TemporaryDirectory() as name:
                running = [self._start(rank, Path(name), master) for rank in range(2)]
                for process in running:
                    said = process.communicate(timeout=members.PATIENCE)
                    self.assertEqual((process.returncode, said[0]), (0, "2\n"), said)

    def _start(self, rank: int, directory: Path, master: str | None) -> subprocess.Popen[str]:
        hosts = directory / f"hosts{rank}"
        # The other one is known by its address, as in DNS.
        hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 node{'ab'[rank]}\n10.87.0.{2 - rank} node{'ba'[rank]}\n")
        program = "import test_meeting; print(test_meeting._meet('Group'))"
        shell = f'mount --bind "$1" /etc/hosts && hostname node{"ab"[rank]} && exec "$2" -c "$3"'
        line = ["unshare", "--mount", "--uts", "sh", "-c", shell, "sh", str(hosts), sys.executable, program]
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "RDMC_STORE": str(directory / "store")}
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        environment.pop("RDMC_IP", None)
        environment.pop("MASTER_ADDR", None)
        if master is not None:
            environment["MASTER_ADDR"] = master
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names[rank], *line], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(process.kill)
        return process


if __name__ == "__main__":
    unittest.main()

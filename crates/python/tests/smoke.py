"""What the installed package does without any other: ``python smoke.py``. It prints a line for each check, and fails at the first."""

from __future__ import annotations

import array
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import rdmc

# Far beyond what it takes, in an emulator, too.
PATIENCE = 300.0


def _command() -> None:
    said = subprocess.run([sys.executable, "-m", "rdmc", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["rdmc", rdmc.__version__], said


def _push() -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "file").write_bytes(bytes(range(256)) * 4000)
        rdmc.push(top / "file", dest=f"{top}/{{host}}/", local=2, mkdir=True).check()
        for host in ("local-1", "local-2"):
            assert (top / host / "file").read_bytes() == (top / "file").read_bytes()


def _member() -> None:
    with rdmc.Group.from_env(timeout=PATIENCE) as group:
        values = array.array("d", [float(group.rank)] * 100_000)
        group.broadcast(values, root=1)
        assert values[0] == values[-1] == 1.0
        group.all_reduce(values)
        assert values[0] == values[-1] == group.size


def _group() -> None:
    with tempfile.TemporaryDirectory() as store:
        shared = {**os.environ, "WORLD_SIZE": "2", "RDMC_STORE": store, "RDMC_IP": "127.0.0.1"}
        members = [
            subprocess.Popen([sys.executable, __file__, "member"], env={**shared, "RANK": str(rank)}) for rank in range(2)
        ]
        try:
            assert [member.wait(PATIENCE) for member in members] == [0, 0]
        finally:
            for member in members:
                member.kill()


if __name__ == "__main__":
    if sys.argv[1:] == ["member"]:
        _member()
    else:
        for check in (_command, _push, _group):
            check()
            print(f"{check.__name__.lstrip('_')}: ok", flush=True)

"""Every program of docs/reference/python.md runs as it stands there, with what it takes for granted given by a test."""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
import os
import re
import socket
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import commands
import members
import numpy

import rdmc
from rdmc._command import find_command

_DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "python.md"
_DATA = b"of any length" * 100_000
# Stands for the command: hosts and places are on this machine.
_COMMAND = """#!{python}
import os, sys
given = sys.argv[1:]
for said, here in {places}.items():
    given[given.index(said)] = here
os.execv("{command}", ["{command}", *given])
"""


def _programs() -> dict[str, str]:
    """By the headings above them."""
    sections = re.split(r"^## (.*)\n", _DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {}
    for heading, text in zip(sections[1::2], sections[2::2], strict=True):
        programs = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        assert len(programs) <= 1, heading
        if programs:
            found[heading] = programs[0]
    return found


@contextmanager
def _stand_in(places: dict[str, str]) -> Iterator[None]:
    """Makes the package run the command with these places on this machine instead of those of a program."""
    stand_in = Path("command")
    stand_in.write_text(_COMMAND.format(python=sys.executable, places=places, command=find_command()))
    stand_in.chmod(0o700)
    with mock.patch.dict(os.environ, {"RDMC_COMMAND": str(stand_in.absolute())}):
        yield


def _run(heading: str, **given: Any) -> dict[str, Any]:
    """Runs a program, and returns its names."""
    names = {"rdmc": rdmc, **given}
    code = compile(_programs()[heading], str(_DOCUMENT), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)
    return names


def _arrays() -> None:
    rank = int(os.environ["RANK"])
    values, out = numpy.full(10, rank + 1), numpy.zeros((2, 3))
    names = _run("Arrays between processes", array=values, out=out, part=numpy.full(3, float(rank)), data=_DATA)
    # Rank 0's 1, the sum of two of them, at rank 0 the sum of those, and that again.
    assert (values == 4).all() and out.tolist() == [[0] * 3, [1] * 3]
    assert names["blob"] == _DATA and names["work"].is_completed()


def _messages() -> None:
    with members.group() as group:
        names = _run("Messages", group=group, data=_DATA)
        assert group.rank == 0 or _DATA.endswith(bytes(names["block"]))


async def _send(values: Any) -> None:
    """What the comment in the program says of the root."""
    async with rdmc.aio.Group.from_env(timeout=members.PATIENCE) as group:
        await group.broadcast(values)
        async with group.messages() as messages:
            await messages.send(_DATA)


def _asyncio() -> None:
    rank = int(os.environ["RANK"])
    values = numpy.full(10, rank)
    if rank == 0:
        asyncio.run(_send(values))
    else:
        assert _run("asyncio", array=values)["message"].nbytes == len(_DATA)
    assert (values == 0).all()


def _state_dicts() -> None:
    torch: Any = importlib.import_module("torch")
    with members.group() as group:
        model = torch.nn.Linear(30, 20)
        torch.nn.init.constant_(model.weight, float(group.rank + 1))
        _run("State dicts of torch", model=model, group=group)
        assert (model.weight == 1.0).all()


def _backend(port: int) -> None:
    torch: Any = importlib.import_module("torch")
    importlib.import_module("torch.distributed")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    tensor = torch.full((5,), float(os.environ["RANK"]))
    names = _run("A backend of torch.distributed", torch=torch, model=torch.nn.Linear(3, 2), tensor=tensor)
    assert tensor.tolist() == [0.5] * 5 and isinstance(names["parallel"].module, torch.nn.Linear)


def _hosts() -> None:
    assert bytes(_run("One copy for each host", data=_DATA)["weights"]) == _DATA


_WITH_TORCH = unittest.skipUnless(importlib.util.find_spec("torch"), "torch IS MISSING: what needs it is NOT TESTED")


class Document(unittest.TestCase):
    def _is_run(self, act: Callable[..., None], *given: Any) -> None:
        members.returned(members.run(act, 2, *given))

    def test_files_to_hosts(self) -> None:
        with tempfile.TemporaryDirectory() as top, chdir(top):
            Path("models--org--m").mkdir()
            Path("models--org--m", "weights").write_bytes(_DATA)
            for host in ("local-1", "local-2"):
                Path(host).mkdir()
            with _stand_in({"--to=node[01-16]": "--local=2", "--dest=/models/": f"--dest={top}/{{host}}/"}):
                report = _run("Files to hosts")["report"]
            self.assertEqual((report.hosts, report.failed), (["local-1", "local-2"], {}))
            self.assertEqual([path.read_bytes() for path in Path(top).glob("local-*/**/weights")], [_DATA] * 2)

    def test_files_from_a_server(self) -> None:
        with tempfile.TemporaryDirectory() as top, chdir(top):
            Path("models", "llama").mkdir(parents=True)
            Path("local").mkdir()
            Path("models", "llama", "weights").write_bytes(_DATA)
            server = commands.Server(Path(top, "models"), Path(top, "secret"))
            self.addCleanup(server.kill)
            loaded = {}
            origin = f"{server.address}:{Path(top).resolve()}/models/llama"
            with _stand_in({"node0:/models/llama": origin, "/local/": f"{top}/local/"}):
                names = _run("Files from a server", load=lambda path, file: loaded.update({path: file.read()}))
            self.assertEqual(names["report"].path, f"{top}/local/llama")
            self.assertEqual(loaded, {"weights": _DATA})

    def test_arrays(self) -> None:
        self._is_run(_arrays)

    def test_messages(self) -> None:
        self._is_run(_messages)

    def test_asyncio(self) -> None:
        self._is_run(_asyncio)

    @_WITH_TORCH
    def test_state_dicts(self) -> None:
        self._is_run(_state_dicts)

    @_WITH_TORCH
    def test_backend(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        self._is_run(_backend, port)

    def test_one_copy_for_each_host(self) -> None:
        self._is_run(_hosts)

    def test_all_programs_are_run(self) -> None:
        run = re.findall(r'_run\("(.*?)"', Path(__file__).read_text(encoding="utf-8"))
        self.assertEqual(sorted(_programs()), sorted(run))


if __name__ == "__main__":
    unittest.main()

"""Directories of one run, in which peers' programs are compiled; removed when the run ends."""

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from programs import Failed, need

# The programs of peers.
PEERS = Path(__file__).parent / "peers"
# Behind it is the number of the process that made the directory.
_PREFIX = "rdmc-compare-"
# A file system in memory.
MEMORY = Path("/dev/shm")
_COMPILE_TIMEOUT_S = 300


@dataclass(frozen=True)
class Recipe:
    """How to compile a program of `peers`."""

    source: str
    compiler: str
    # What has to be installed where something is missing.
    packages: str
    libraries: tuple[str, ...] = ()


@contextmanager
def directory(parent: Path) -> Iterator[Path]:
    """A fresh directory; what killed runs have left beside it is removed."""
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{_PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(_PREFIX).split("-")[0]).exists():
            # Those of other users cannot be removed.
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent) as made:
        yield Path(made)


class Workspace:
    """A directory for programs, and one for files that ought to be in memory."""

    def __init__(self, path: Path, memory: Path) -> None:
        self.path, self.memory = path, memory
        self._meetings = itertools.count(1)

    @classmethod
    @contextmanager
    def open(cls) -> "Iterator[Workspace]":
        with directory(Path(tempfile.gettempdir())) as path:
            if MEMORY.is_dir():
                with directory(MEMORY) as memory:
                    yield cls(path, memory)
            else:
                yield cls(path, path)

    def meeting(self) -> Path:
        """A fresh directory in which the members of one turn find each other."""
        path = self.path / f"meeting-{next(self._meetings)}"
        path.mkdir()
        return path

    def script(self, name: str, text: str) -> Path:
        """A script that can be run."""
        path = self.path / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def build(self, recipe: Recipe) -> Path:
        """Compiles a program, unless that was done before."""
        need(recipe.compiler, recipe.packages)
        name = Path(recipe.source).stem
        program = self.path / f"{recipe.compiler}-{name}"
        if program.exists():
            return program
        command = [recipe.compiler, "-O2", "-I", str(PEERS), str(PEERS / recipe.source), "-o", str(program), *recipe.libraries]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)
        if done.returncode == 0:
            return program
        first = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
        raise Failed(f"{name} does not compile ({first}); Debian packages: {recipe.packages}")

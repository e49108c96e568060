"""How processes that a launcher has started learn of each other."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any, Protocol

from rdmc._rdmc import random_secret
from rdmc.errors import InvalidUse, TimedOut


class Store(Protocol):
    """What all processes can write to and read from: torch.distributed's stores are such."""

    def set(self, key: str, value: Any) -> Any:
        """Stores a value."""

    def get(self, key: str) -> Any:
        """A value, waiting until it is there."""


class FileStore:
    """A directory that all processes can reach, for one group at a time."""

    def __init__(self, path: str | os.PathLike[str], timeout: float) -> None:
        self._path = Path(path)
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._timeout = timeout

    def set(self, key: str, value: str) -> None:
        """Stores a value, as a file that only this user can read."""
        hidden = self._path / f".{key}.{socket.gethostname()}.{os.getpid()}"
        with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(value)
        hidden.rename(self._path / key)

    def get(self, key: str) -> str:
        """A value, waiting until it is there."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                return (self._path / key).read_text()
            except FileNotFoundError:
                if time.monotonic() > until:
                    raise TimedOut(f"no member has written {self._path / key}: do all run, with the same store?") from None
                time.sleep(0.01)


_RANKS = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
]


def rank_and_size(store: Any) -> tuple[int, int]:
    """This process's rank and the number of processes: in a communicator of mpi4py, or of torchrun, Open MPI, MPICH or Slurm."""
    if hasattr(store, "Get_rank") and hasattr(store, "Get_size"):
        return int(store.Get_rank()), int(store.Get_size())
    for rank, size in _RANKS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    names = ", ".join("/".join(pair) for pair in _RANKS)
    raise InvalidUse(f"no launcher has said rank and size ({names}): start this by torchrun, mpirun or srun, or use Group(...)")


def own_ip() -> str:
    """The address on which others can reach this process: RDMC_IP, or that by which this host reaches MASTER_ADDR."""
    if given := os.environ.get("RDMC_IP"):
        return given
    toward = os.environ.get("MASTER_ADDR")
    if toward is None:
        toward = socket.gethostname()
    try:
        family, _, _, _, address = socket.getaddrinfo(toward, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Sends nothing: the system chooses the route.
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def store_of(given: Any | None, timeout: float) -> Any:
    """The store that was given, or the directory in RDMC_STORE."""
    if given is None:
        given = os.environ.get("RDMC_STORE")
    if given is None:
        raise InvalidUse("no store: give one, or the path of a shared directory in RDMC_STORE")
    return FileStore(given, timeout) if isinstance(given, str | os.PathLike) else given


def share_secret(store: Any, key: str, rank: int) -> str:
    """The secret of RDMC_SECRET, or one that rank 0 makes."""
    if given := os.environ.get("RDMC_SECRET"):
        return given
    if hasattr(store, "bcast"):
        return str(store.bcast(random_secret() if rank == 0 else None, root=0))
    if rank == 0:
        store.set(key, random_secret())
    return _text_of(store.get(key))


def exchange(store: Any, key: str, rank: int, size: int, own: str) -> list[str]:
    """What all ranks have given."""
    if hasattr(store, "allgather"):
        return [str(value) for value in store.allgather(own)]
    store.set(f"{key}-{rank}", own)
    return [_text_of(store.get(f"{key}-{other}")) for other in range(size)]


def _text_of(value: Any) -> str:
    """A stored text: stores of other libraries return bytes."""
    return bytes(value).decode() if isinstance(value, bytes | bytearray | memoryview) else str(value)

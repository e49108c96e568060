"""Broadcasts the weights in safetensors files from rank 0 to all processes; only rank 0 reads a disk.

    torchrun --nnodes=16 --nproc_per_node=1 ... safetensors_model.py FILE...

Rank 0 has the files. Each process prints how many tensors it has, and when the first and the last of them were usable.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import safetensors.torch
from torch.distributed import TCPStore

import rdmc
import rdmc.torch


def load(files: list[str]) -> dict[str, Any]:
    """Returns all tensors of these files."""
    tensors: dict[str, Any] = {}
    for file in files:
        tensors |= safetensors.torch.load_file(file)
    return tensors


def main() -> None:
    # A directory (RDMC_STORE), or torchrun's store.
    store = None
    if "RDMC_STORE" not in os.environ:
        store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    with rdmc.Group.from_env(store) as group:
        tensors = load(sys.argv[1:]) if group.rank == 0 else None
        group.barrier()
        start = time.monotonic()
        arrivals: list[float] = []
        weights = rdmc.torch.broadcast_state_dict(
            tensors, group, ready=lambda _name, _tensor: arrivals.append(time.monotonic() - start)
        )
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
        # In one write, so that lines of different processes do not mix.
        sys.stdout.write(
            f"rank {group.rank}: {len(weights)} tensors, {nbytes} bytes; the first after {arrivals[0]:.3f} s, the last after "
            f"{arrivals[-1]:.3f} s\n"
        )


if __name__ == "__main__":
    main()

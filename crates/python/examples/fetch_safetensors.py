"""Fetches a model from a server, and loads each safetensors file while later ones are still on their way.

    rdmc serve /models --secret-file secret                              # on node0
    fetch_safetensors.py node0:/models/llama /local/ secret              # on any host, at any time

Prints a line for each file, with the time after which its tensors were usable, and one at the end.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import safetensors.torch

import rdmc


def main() -> None:
    origin, dest, secret = sys.argv[1:]
    start = time.monotonic()
    tensors: dict[str, Any] = {}
    with rdmc.fetch(origin, dest, secret_file=secret, as_files=True) as files:
        for file in files:
            if not file.path.endswith(".safetensors"):
                continue
            with file.open() as opened:
                # Its path changes when the copy is published; the file that is open stays the same, and is mapped.
                loaded = safetensors.torch.load_file(f"/proc/self/fd/{opened.fileno()}")
            tensors |= loaded
            print(f"{file.path}: {len(loaded)} tensors after {time.monotonic() - start:.3f} s", flush=True)
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    print(f"{len(tensors)} tensors, {nbytes} bytes; the copy is {files.report.path}, from {files.report.server}")


if __name__ == "__main__":
    main()

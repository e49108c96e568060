"""The examples, with the packages of others that they are for."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import members

_EXAMPLES = Path(__file__).parent.parent / "examples"


def _has(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


@unittest.skipUnless(_has("torch", "safetensors"), "torch and safetensors are not installed")
class Safetensors(unittest.TestCase):
    def test_weights_of_files_come_to_all(self) -> None:
        torch: Any = importlib.import_module("torch")
        safetensors: Any = importlib.import_module("safetensors.torch")
        with tempfile.TemporaryDirectory() as name:
            files = []
            for shard in range(2):
                tensors = {f"layer{shard}.{part}": torch.randn(700, 1000) for part in ("up", "down")}
                tensors[f"layer{shard}.scale"] = torch.ones(7, dtype=torch.bfloat16)
                files.append(str(Path(name, f"model-{shard}.safetensors")))
                safetensors.save_file(tensors, files[-1])
            shared = {**os.environ, "WORLD_SIZE": "3", "RDMC_STORE": name + "/store", "RDMC_IP": "127.0.0.1"}
            command = [sys.executable, str(_EXAMPLES / "safetensors_model.py"), *files]
            running = [
                subprocess.Popen(command, env={**shared, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
                for rank in range(3)
            ]
            for rank, one in enumerate(running):
                said, _ = one.communicate(timeout=members.PATIENCE)
                expected = f"rank {rank}: 6 tensors, {2 * (2 * 700 * 1000 * 4 + 14)} bytes"
                self.assertEqual((one.returncode, said[: len(expected)]), (0, expected))


if __name__ == "__main__":
    unittest.main()

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

import commands
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

    def test_weights_are_loaded_while_others_are_on_their_way(self) -> None:
        torch: Any = importlib.import_module("torch")
        safetensors: Any = importlib.import_module("safetensors.torch")
        with tempfile.TemporaryDirectory() as name:
            top = Path(name)
            (top / "served" / "model").mkdir(parents=True)
            for shard, rows in enumerate((700, 5000)):
                tensors = {f"layer{shard}": torch.randn(rows, 1000), f"scale{shard}": torch.ones(7, dtype=torch.bfloat16)}
                safetensors.save_file(tensors, str(top / "served" / "model" / f"model-{shard}.safetensors"))
            (top / "served" / "model" / "config.json").write_text("{}")
            # The second file takes more than half a minute from the first server.
            servers = [commands.Server(top / "served", top / "secret", *options) for options in (["--bwlimit=4mbit"], [])]
            for server in servers:
                self.addCleanup(server.kill)
            command = [sys.executable, str(_EXAMPLES / "fetch_safetensors.py")]
            line = [*command, f"{servers[0].address}:model", f"{top}/", str(top / "secret")]
            with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as slow:
                assert slow.stdout is not None
                self.assertRegex(slow.stdout.readline(), "^model-0.safetensors: 2 tensors after ")
                self.assertFalse((top / "model").exists())
                slow.kill()
            line = [*command, f"{servers[1].address}:model", f"{top}/copy", str(top / "secret")]
            ended = subprocess.run(line, capture_output=True, text=True, timeout=members.PATIENCE)
            expected = f"4 tensors, {5700 * 1000 * 4 + 28} bytes; the copy is {top}/copy, from {servers[1].address}\n"
            self.assertEqual((ended.returncode, ended.stdout.splitlines(keepends=True)[2:]), (0, [expected]), ended.stderr)


if __name__ == "__main__":
    unittest.main()

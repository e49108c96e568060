"""Groups of processes that mpirun has started, beside mpi4py."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import members

# mpi4py of Debian is made for this one.
_MPIRUN = shutil.which("mpirun.openmpi")


@unittest.skipUnless(_MPIRUN and importlib.util.find_spec("mpi4py"), "needs mpi4py and Open MPI")
class Mpi(unittest.TestCase):
    def test_members_that_mpirun_starts_meet_by_their_communicator(self) -> None:
        options = ["-n", "3", "--oversubscribe", "--allow-run-as-root", "--mca", "mpi_yield_when_idle", "1"]
        member = [sys.executable, str(Path(__file__).with_name("launched.py")), "mpi"]
        ended = subprocess.run([str(_MPIRUN), *options, *member], capture_output=True, text=True, timeout=members.PATIENCE)
        self.assertEqual((ended.returncode, ended.stdout.count("a member has ended well")), (0, 3), ended)


if __name__ == "__main__":
    unittest.main()

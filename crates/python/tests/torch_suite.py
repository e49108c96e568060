"""torch's own tests of backends of torch.distributed, in processes that are there already: torch starts new ones for each test."""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import logging
import os
import re
import sys
import traceback
import types
import unittest
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any


def cases(backend: str) -> Any:
    """The class with torch's tests, for a backend."""
    os.environ.update(BACKEND=backend, MASTER_ADDR="127.0.0.1", TEMP_DIR=os.environ["RDMC_STORE"], INIT_METHOD="file://unused")
    if importlib.util.find_spec("expecttest") is None:
        # What torch's helpers import; tests of backends do not use it.
        stand_in: Any = types.ModuleType("expecttest")
        stand_in.TestCase, stand_in.ACCEPT = unittest.TestCase, False
        sys.modules["expecttest"] = stand_in
    importlib.import_module("rdmc.torch")
    common: Any = importlib.import_module("torch.testing._internal.common_distributed")
    for feature in ("ddp", "subgroup"):
        common.DistTestCases.backend_feature[feature].add(backend)
    suite: Any = importlib.import_module("torch.testing._internal.distributed.distributed_test")
    # Newer versions test groups of some processes with eight or more only, but for this backend.
    os.environ["BACKEND"] = "mpi"
    return type("Cases", (suite.TestDistBackend, suite.DistributedTest._DistTestBase), {})


def names(found: Any) -> list[str]:
    """Of all tests."""
    return sorted(name for name in dir(found) if name.startswith("test_"))


def run(backend: str, not_run: str) -> dict[str, str]:
    """Runs tests in this process and those of other ranks, and returns "passed", or why not, by name."""
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.WARNING)
    found = cases(backend)
    outcomes = {}
    for name in names(found):
        if not re.search(not_run, name):
            outcomes[name] = _run_one(found, backend, name)
    return outcomes


def _run_one(found: Any, backend: str, name: str) -> str:
    distributed: Any = importlib.import_module("torch.distributed")
    suite: Any = importlib.import_module("torch.testing._internal.distributed.distributed_test")
    directory = Path(os.environ["RDMC_STORE"], name)
    for part in ("barrier", "test_dir"):
        Path(directory, part).mkdir(parents=True, exist_ok=True)
    os.environ.update(TEMP_DIR=str(directory), INIT_METHOD=f"file://{directory}/again")
    suite.Barrier.barrier_id = 0
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # What they draw is the same in all processes.
    importlib.import_module("torch").manual_seed(1234)
    # They know the CPU by the names of other backends only.
    suite.BACKEND = "gloo" if "accumulate_gradients_no_sync" in name else backend
    case = found(name)
    case.rank, case.file_name = rank, f"{directory}/store"
    # A test that hangs is to end before the processes' patience does.
    faulthandler.dump_traceback_later(100)
    limit = timedelta(seconds=60)
    distributed.init_process_group(backend, init_method=f"file://{directory}/store", rank=rank, world_size=size, timeout=limit)
    try:
        outcome = _outcome(getattr(case, name))
        if outcome.startswith("failed"):
            _abort_all()
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        faulthandler.cancel_dump_traceback_later()
    return outcome


def _outcome(test: Callable[[], None]) -> str:
    try:
        test()
    except unittest.SkipTest as skipped:
        return f"skipped: {skipped}"
    except SystemExit as exited:
        common: Any = importlib.import_module("torch.testing._internal.common_distributed")
        reasons = [skip.message for skip in common.TEST_SKIPS.values() if skip.exit_code == exited.code]
        return f"skipped: {reasons[0]}" if reasons else f"failed: it has exited with {exited.code}"
    except BaseException:
        return f"failed: {traceback.format_exc()}"
    return "passed"


def _abort_all() -> None:
    """Other ranks do not wait for this one."""
    backend: Any = importlib.import_module("rdmc._torch_backend")
    for group in list(backend._live):
        group.abort("its test has failed")

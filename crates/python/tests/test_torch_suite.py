"""torch's own tests of backends of torch.distributed, for the backend rdmc."""

from __future__ import annotations

import importlib.util
import re
import sys
import unittest

import members
import torch_suite

# Patterns of tests that are not run, with reasons. torch itself skips others: most tests of DDP need several GPUs.
_NOT_RUN = {
    r"cuda|nccl|multigpu|_gpu|xpu": "for GPUs",
    r"send_recv|isend|irecv": "send and recv are refused",
    r"all_to_all": "all_to_all is refused",
    r"sparse": "sparse tensors are refused",
    r"monitored_barrier": "of gloo alone",
    r"barrier_timeout": "wants the words of gloo's errors",
    r"SyncBatchNorm_process_group": "needs torchvision",
}
# At least these are among those that pass, in all versions of torch.
_OPERATIONS = [
    "all_gather_object_default_pg",
    "scatter_object_list",
    "gather_object",
    "DistributedDataParallelCPU",
    "destroy_group",
    "all_reduce_sum_async",
    *(f"{name}{kind}" for name in ("broadcast", "scatter", "gather", "all_gather", "barrier") for kind in ("", "_group", "_full_group")),
    *(f"{name}_{op}" for name in ("reduce", "all_reduce", "all_reduce_coalesced") for op in ("sum", "product", "min", "max")),
]
_SIZE = 4


class Suite(unittest.TestCase):
    def test_the_backend_passes_torchs_own_tests(self) -> None:
        if importlib.util.find_spec("torch") is None:
            print("\n*** torch IS MISSING: the backend of torch.distributed is NOT TESTED ***", file=sys.stderr)
            self.skipTest("torch is not installed")
        outcomes = members.returned(members.run(torch_suite.run, _SIZE, "rdmc", "|".join(_NOT_RUN)))
        passed, skipped = [], {}
        for name in outcomes[0]:
            said = [of_rank[name] for of_rank in outcomes]
            self.assertFalse([one for one in said if one.startswith("failed")], name)
            reasons = [one for one in said if one != "passed"]
            if reasons:
                skipped[name] = reasons[0]
            else:
                passed.append(name)
        expected = {f"test_{name}" for name in _OPERATIONS}
        self.assertFalse(expected - set(passed), {name: skipped.get(name) for name in expected - set(passed)})
        print(f"\n{len(passed)} of torch's tests have passed; {len(skipped)} were skipped by torch:", file=sys.stderr)
        for reason in sorted(set(skipped.values())):
            print(f"  {list(skipped.values()).count(reason)}: {reason}", file=sys.stderr)
        for pattern, reason in _NOT_RUN.items():
            print(f"  not run ({pattern}): {reason}", file=sys.stderr)

    def test_what_is_not_run_is_named_by_patterns_that_spare_the_operations(self) -> None:
        for name in _OPERATIONS:
            self.assertIsNone(re.search("|".join(_NOT_RUN), f"test_{name}"), name)


if __name__ == "__main__":
    unittest.main()

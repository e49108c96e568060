"""Tests of the installed package: ``python crates/python/tests [MODULE ...]``. Ends with a line as cargo prints it, for counting."""

import sys
import unittest
from pathlib import Path

if __name__ == "__main__":
    loader, names = unittest.defaultTestLoader, sys.argv[1:]
    tests = loader.loadTestsFromNames(names) if names else loader.discover(str(Path(__file__).parent))
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    failed = len(result.failures) + len(result.errors)
    outcome = "ok" if result.wasSuccessful() else "FAILED"
    passed, ignored = result.testsRun - failed - len(result.skipped), len(result.skipped)
    print(f"test result: {outcome}. {passed} passed; {failed} failed; {ignored} ignored")
    sys.exit(not result.wasSuccessful())

"""All tests of the installed package: ``python crates/python/tests``. Ends with a line as cargo prints it, for counting."""

import sys
import unittest
from pathlib import Path

if __name__ == "__main__":
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.discover(str(Path(__file__).parent)))
    failed = len(result.failures) + len(result.errors)
    outcome = "ok" if result.wasSuccessful() else "FAILED"
    passed, ignored = result.testsRun - failed - len(result.skipped), len(result.skipped)
    print(f"test result: {outcome}. {passed} passed; {failed} failed; {ignored} ignored")
    sys.exit(not result.wasSuccessful())

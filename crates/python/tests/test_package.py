"""What the package says of itself, and how it is imported."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import unittest

import rdmc


def _python(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


class Package(unittest.TestCase):
    def _distribution(self) -> importlib.metadata.Distribution:
        try:
            found = importlib.metadata.distribution("rdmc")
        except importlib.metadata.PackageNotFoundError:
            self.skipTest("SKIPPED: the package is not installed as a wheel")
        if not str(rdmc.__file__).startswith(str(found.locate_file("rdmc"))):
            self.skipTest("SKIPPED: the package that is imported is not the installed one")
        return found

    def test_modules_are_attributes_once_they_are_used(self) -> None:
        _python("import rdmc, sys; assert not {'rdmc.aio', 'rdmc.torch', 'torch'} & set(sys.modules); assert rdmc.aio.Group")
        with self.assertRaisesRegex(AttributeError, "no attribute 'nosuch'"):
            getattr(rdmc, "nosuch")

    def test_torch_is_imported_with_its_module_only(self) -> None:
        program = """
import importlib.util, rdmc
if importlib.util.find_spec("torch") is None:
    try:
        rdmc.torch
    except ModuleNotFoundError as error:
        assert error.name == "torch", error
    else:
        raise AssertionError("torch is not here")
else:
    assert rdmc.torch.broadcast_state_dict
"""
        _python(program)

    def test_a_wheel_has_the_licences_of_what_is_in_it(self) -> None:
        files = {path.name: path for path in self._distribution().files or [] if ".dist-info/licenses" in str(path)}
        self.assertEqual(set(files), {"LICENSE", "THIRD-PARTY-LICENSES"})
        self.assertIn("Apache License", files["LICENSE"].read_text())
        self.assertRegex(files["THIRD-PARTY-LICENSES"].read_text(), r"(?m)^pyo3 [0-9.]+: .*Apache-2\.0")

    def test_its_metadata(self) -> None:
        metadata = self._distribution().metadata
        self.assertEqual(set(metadata.get_all("Provides-Extra") or []), {"numpy", "torch"})
        self.assertIn("Typing :: Typed", metadata.get_all("Classifier") or [])


if __name__ == "__main__":
    unittest.main()

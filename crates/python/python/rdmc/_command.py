"""Finds the command."""

import os
import shutil
from pathlib import Path

from rdmc.errors import InvalidUse


def find_command() -> str:
    """Returns the path of the command: from the environment variable RDMC_COMMAND, the package, or PATH."""
    if given := os.environ.get("RDMC_COMMAND"):
        if (program := shutil.which(given)) is None:
            raise InvalidUse(f"RDMC_COMMAND={given} is not a program: give the path of the command rdmc, or unset it")
        return program
    own = Path(__file__).parent / "bin" / "rdmc"
    if own.exists():
        return str(own)
    if found := shutil.which("rdmc"):
        return found
    raise InvalidUse("the command rdmc is neither in this package nor in PATH: install it")

"""``python -m rdmc``: the command."""

import os
import sys
from typing import NoReturn

from rdmc._command import find_command


def main() -> NoReturn:
    """Replaces this process by the command, with the same arguments."""
    command = find_command()
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()

"""``python -m rdmc``: the command."""

import os
import sys
from typing import NoReturn

from rdmc._command import find_command


def main() -> NoReturn:
    """Becomes the command, with the arguments of this process."""
    command = find_command()
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()

"""`./dev bench peers`, `trees`, `push`, `hosts`, `python`, `copies`, `fetch` and `threads`: programs that are started on hosts of a lab, or on this
machine, and timed. `--programs DIRECTORY` before them is where cargo has built those of this repository. Exit codes: 0 when done, 1 when something failed, 2
when the arguments are invalid, 130 when interrupted."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import arrays
import broadcasts
import copies
import fetches
import hosts
import pushes
import threads
import trees
from programs import Built, Failed, Usage

COMMANDS: dict[str, tuple[ModuleType, str]] = {
    "peers": (broadcasts, "other broadcasts beside rdmc: MPI, Gloo, plain sockets, IP multicast"),
    "trees": (trees, "directories of large and of small files, beside rsync, tar and MPI (needs root)"),
    "push": (pushes, "rdmc push over links of a known rate: a switch copies, or receivers relay (needs root)"),
    "hosts": (hosts, "pushes to a thousand receivers on this machine, and to ten thousand simulated hosts"),
    "python": (arrays, "arrays between processes in Python, beside torch.distributed and mpi4py, and the same in Rust"),
    "copies": (copies, "one file to 1 to 15 hosts by scp, rsync, a chain of sockets and rdmc push (needs root)"),
    "fetch": (fetches, "hosts that come at any time get one object by rdmc fetch, scp, libtorrent and rdmc push (needs root)"),
    "threads": (threads, "blocks over TCP by 1, 2 and 4 threads at each end"),
}


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench", allow_abbrev=False)
    parser.add_argument("--programs", type=Path, default=Path("target/release"), help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (module, text) in COMMANDS.items():
        module.add_options(commands.add_parser(name, help=text, description=text, allow_abbrev=False))
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        if args.json not in (None, "-") and not os.access(Path(args.json).absolute().parent, os.W_OK):
            raise Usage(f"--json: cannot write {args.json}")
        COMMANDS[args.command][0].run(args, Built(args.programs))
    except Usage as error:
        print(f"bench {args.command}: {error}", file=sys.stderr)
        return 2
    except (Failed, OSError, subprocess.SubprocessError) as error:
        print(f"bench {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"bench {args.command}: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

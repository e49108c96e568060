"""`./dev plot terminal [OUTPUT.svg]`: runs a command in a pseudo-terminal, and draws what it shows halfway and in the end."""

import argparse
import io
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.rule import Rule
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS, ROWS = 112, 20
# A command that takes longer is ended, and not drawn.
LIMIT_S = 60.0
# The share that the command's own bar shows in the picture of its middle.
MIDDLE_PERCENT = 50
# Pictures load nothing: without the fonts' addresses, of fonts that readers have.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")


class NotDrawn(Exception):
    """The command did not show what the picture is of."""


@dataclass(frozen=True)
class Output:
    at_s: float
    data: bytes


@dataclass(frozen=True)
class Screens:
    """Lines of the screen halfway and in the end, and the time between."""

    middle: list[str]
    end: list[str]
    between_s: float


def record(command: list[str]) -> Iterator[Output]:
    """What the command writes to its terminal, as it does."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (ROWS, COLUMNS))
    start = time.monotonic()

    def left_s() -> float:
        return max(0.0, start + LIMIT_S - time.monotonic())

    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True) as process:
        os.close(slave)
        try:
            while select.select([master], [], [], left_s())[0]:
                yield Output(time.monotonic() - start, os.read(master, 65536))
        except OSError:
            # EIO: the last process that had the terminal open has ended.
            pass
        finally:
            os.close(master)
            try:
                process.wait(left_s())
            except subprocess.TimeoutExpired:
                process.kill()
    if process.returncode != 0:
        raise NotDrawn(f"{command[0]} has ended with {process.returncode}")


def lines(screen: pyte.Screen) -> list[str]:
    return [line.rstrip() for line in screen.display if line.strip()]


def screens(outputs: Iterable[Output]) -> Screens:
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    middle: list[str] = []
    middle_s = end_s = 0.0
    for output in outputs:
        stream.feed(output.data)
        end_s = output.at_s
        shown = lines(screen)
        percent = re.search(r"(\d+)%", "\n".join(shown))
        if not middle and percent and int(percent[1]) >= MIDDLE_PERCENT:
            middle, middle_s = shown, end_s
    if not middle:
        raise NotDrawn(f"no screen has shown {MIDDLE_PERCENT} % or more")
    return Screens(middle, lines(screen), end_s - middle_s)


def draw(typed: str, shown: Screens, output: Path) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (typed, "bold")))
    console.print(Text("\n".join(shown.middle)))
    console.print(Rule(Text(f"{shown.between_s:.1f} s later", "dim"), style="dim"))
    # rich cuts the last line's descenders.
    console.print(Text("\n".join([*shown.end, ""])))
    svg = console.export_svg(title="rdmc", theme=MONOKAI, code_format=FORMAT, unique_id="terminal")
    output.write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev plot terminal", description=__doc__)
    parser.add_argument("--within", metavar="WORDS", default="", help="what starts the command where it runs; not in the picture")
    parser.add_argument("output", metavar="OUTPUT.svg", type=Path)
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    try:
        # Complete before anything is emulated, which could delay what is recorded.
        outputs = list(record([*shlex.split(arguments.within), *arguments.command]))
        shown = screens(outputs)
    except NotDrawn as why:
        print(f"plot: {why}", file=sys.stderr)
        return 1
    draw(" ".join(arguments.command), shown, arguments.output)
    print(arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`./dev plot FILE.json [OUTPUT.svg]`: draws what a benchmark or `rdmc plan` has printed with --json; FILE may be `-`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import bars
import chart
import course
import schedule
from figures import NotStored, charts
from sheet import TooLarge


def draw(document: dict[str, Any], output: Path) -> list[Path]:
    """The files that were written; none if there is no picture of this. Of several pictures each has its name in its file's."""
    if "benchmark" not in document and "steps" in document:
        schedule.draw(document, output)
        return [output]
    benchmark = document.get("benchmark", "")
    if benchmark in ("breakdown", "trace-summary"):
        if "transfers" not in document:
            raise NotStored("transfers")
        course.draw(document, output)
        return [output]
    if benchmark == "copies":
        bars.draw(document, output)
        return [output]
    files = []
    for one in charts(document):
        files.append(output.with_name(f"{output.stem}-{one.name}{output.suffix}") if one.name else output)
        chart.draw(one, files[-1])
    return files


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev plot", description=__doc__)
    parser.add_argument("file", metavar="FILE.json")
    parser.add_argument("output", metavar="OUTPUT.svg", nargs="?", type=Path, help="default: beside FILE.json")
    arguments = parser.parse_args()
    output: Path = arguments.output or Path("plot.svg" if arguments.file == "-" else arguments.file).with_suffix(".svg")
    try:
        text = sys.stdin.read() if arguments.file == "-" else Path(arguments.file).read_text(encoding="utf-8")
        files = draw(json.loads(text), output)
    except NotStored as table:
        print(f"plot: {arguments.file} lacks the table {table}: measure it again", file=sys.stderr)
        return 1
    except (OSError, json.JSONDecodeError, TooLarge) as error:
        print(f"plot: {arguments.file}: {error}", file=sys.stderr)
        return 1
    if not files:
        print(f"plot: there is no picture of {arguments.file}", file=sys.stderr)
    for file in files:
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())

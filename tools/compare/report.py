"""Tables, JSON, and the facts about the machine on which figures depend."""

import argparse
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Row = dict[str, Any]


def number(value: float) -> float | None:
    """A measured number to four digits after the point; none if there is none (NaN)."""
    return None if math.isnan(value) else round(value, 4)


def median(values: Sequence[float]) -> float:
    """The middle value; of an even count the lower of the two in the middle. NaN of nothing."""
    return sorted(values)[(len(values) - 1) // 2] if values else math.nan


def alternate(count: int, repeats: int, name: str, run: Callable[[int], T]) -> list[list[T]]:
    """Runs 0 to `count` - 1, then once more in the opposite order, and so on, so that drift affects all equally. The results of each."""
    results: list[list[T]] = [[] for _ in range(count)]
    for turn in range(repeats):
        order = range(count) if turn % 2 == 0 else reversed(range(count))
        for position, index in enumerate(order, 1):
            if sys.stderr.isatty():
                done, total = turn * count + position, count * repeats
                print(f"\r{name}: {done} of {total}", end="\r\033[K" if done == total else "", file=sys.stderr, flush=True)
            results[index].append(run(index))
    return results


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def machine() -> Row:
    """Facts about this machine on which figures depend."""
    cpu = re.search(r"^model name\s*:\s*(.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+)", _read("/proc/meminfo"), re.MULTILINE)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpu[1] if cpu else "unknown processor",
        "kernel": _read("/proc/sys/kernel/osrelease"),
        "memory_bytes": int(memory[1]) * 1024 if memory else 0,
        "congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
    }


def installed(*packages: str) -> str:
    """Those of these Debian packages that are installed, with their versions; empty if none is."""
    try:
        query = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n", *packages], capture_output=True, text=True,
                               timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = [line.removeprefix("installed ") for line in query.stdout.splitlines() if line.startswith("installed ")]
    return f"Installed: {', '.join(found)}." if found else ""


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


@dataclass
class Table:
    """Rows, all with the same columns in the same order."""

    name: str
    title: str
    rows: list[Row] = field(default_factory=list)

    def lines(self) -> list[list[str]]:
        """The names of columns, and then the rows."""
        if not self.rows:
            return []
        return [[name.replace("_", " ") for name in self.rows[0]], *([_shown(value) for value in row.values()] for row in self.rows)]

    def heading(self) -> str:
        """With an empty line above it."""
        return f"\n{self.title}\n\n" if self.title else "\n"

    def are_text(self) -> list[bool]:
        """By column."""
        return [any(isinstance(row[name], str) for row in self.rows) for name in self.rows[0]] if self.rows else []

    def text(self) -> str:
        """Aligned."""
        lines = self.lines()
        widths = [max(map(len, column)) for column in zip(*lines)]
        out = self.heading()
        for line in lines:
            cells = (cell.ljust(width) if text else cell.rjust(width) for cell, width, text in zip(line, widths, self.are_text()))
            out += "  ".join(cells).rstrip() + "\n"
        return out

    def markdown(self) -> str:
        """With a rule below the names."""
        out = self.heading()
        for index, line in enumerate(self.lines()):
            out += f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n"
            if index == 0:
                out += f"|{''.join('---|' if text else '--:|' for text in self.are_text())}\n"
        return out


class Report:
    """One table or several, and notes about them."""

    def __init__(self, benchmark: str, what: str) -> None:
        self.benchmark, self.what, self.machine = benchmark, what, machine()
        self.tables = [Table("rows", "")]
        self.notes: list[str] = []

    def table(self, name: str, title: str) -> None:
        """Begins another table, to which rows are added from now on."""
        self.tables.append(Table(name, title))

    def row(self, row: Row) -> None:
        """Adds a row, with the columns of the table's other rows."""
        rows = self.tables[-1].rows
        if rows and list(rows[0]) != list(row):
            raise AssertionError(f"rows of one table have the same columns: {list(rows[0])} and {list(row)}")
        rows.append(row)

    def note(self, text: str) -> None:
        """Adds a line below all tables; an empty one is left out."""
        if text:
            self.notes.append(text)

    def document(self) -> Row:
        """What `./dev plot` draws."""
        document: Row = {"benchmark": self.benchmark, "what": self.what, "notes": self.notes, "machine": self.machine}
        document.update((table.name, table.rows) for table in self.tables)
        return document

    def head(self) -> str:
        """What was measured, and where."""
        return f"{self.benchmark}: {self.what}\n{self.machine['cores']} cores, {self.machine['cpu']}, Linux {self.machine['kernel']}\n"

    def text(self) -> str:
        return self.head() + "".join(table.text() for table in self.tables) + "".join(f"\n{note}\n" for note in self.notes)

    def markdown(self) -> str:
        return self.head() + "".join(table.markdown() for table in self.tables) + "\n" + "".join(f"- {note}\n" for note in self.notes)

    def print(self, args: argparse.Namespace) -> None:
        """As `options.add_output` was given."""
        if args.json is None:
            print(self.markdown() if args.markdown else self.text(), end="")
            return
        text = json.dumps(self.document(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        if args.json == "-":
            print(text, end="")
        else:
            Path(args.json).write_text(text, encoding="utf-8")

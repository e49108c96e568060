"""Sizes, rates, lists and other options that the commands share."""

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS.update({unit: 1 << 10 * power for power, name in enumerate("kmgt", 1) for unit in (name, f"{name}ib")})
_RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
RATE_MIN, RATE_MAX = 100_000, 100_000_000_000


def _scaled(text: str, units: dict[str, int]) -> int | None:
    match = re.fullmatch(r"(\d+)(?:\.(\d{1,9}))?\s*([a-z]*)", text.strip().lower())
    if match is None or match[3] not in units:
        return None
    factor = units[match[3]]
    return int(match[1]) * factor + int((match[2] or "0").ljust(9, "0")) * factor // 10**9


def size(text: str) -> int:
    """Bytes of `64KiB`, `1.5GiB` or `4096`: at least one."""
    value = _scaled(text, _UNITS)
    if not value:
        raise argparse.ArgumentTypeError(f'"{text}" is not a size; use for example 64KiB, 1.5GiB or 4096')
    return value


def rate(text: str) -> int:
    """Bits per second of `250mbit` or `1.5gbit`."""
    value = _scaled(text, _RATES)
    if value is None or not RATE_MIN <= value <= RATE_MAX:
        raise argparse.ArgumentTypeError(f'"{text}" is not a rate from 100kbit to 100gbit; use for example 250mbit')
    return value


def show_size(value: int) -> str:
    """In binary units with about three digits: `64 KiB`, `1.25 GiB`."""
    scaled, unit = float(value), 0
    while scaled >= 1024:
        scaled, unit = scaled / 1024, unit + 1
    decimals = 0 if scaled.is_integer() or scaled >= 100 else 1 if scaled >= 10 else 2
    return f"{scaled:.{decimals}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[unit]}"


def show_rate(value: int) -> str:
    """In the largest unit that shows it exactly, as `rate` takes it."""
    unit, factor = next((unit, factor) for unit, factor in reversed(_RATES.items()) if value % factor == 0)
    return f"{value // factor}{unit}"


def number(least: int, most: int) -> Callable[[str], int]:
    """A whole number in a range."""
    def parsed(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f'"{text}" is not a number from {least} to {most}')
        return int(text)
    return parsed


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """One of these names."""
    def parsed(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f'"{text}" is none of {", ".join(names)}')
        return text
    return parsed


def several(one: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Values separated by commas."""
    return lambda text: [one(part) for part in text.split(",")]


def add_output(parser: argparse.ArgumentParser) -> None:
    """How the report is printed."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", metavar="FILE", nargs="?", const="-", help="JSON instead of tables, to standard output or into FILE")
    group.add_argument("--markdown", action="store_true", help="Markdown: tables, and notes as a list")


def add_repeats(parser: argparse.ArgumentParser, usual: int = 3) -> None:
    """How often each is measured."""
    parser.add_argument("--repeats", type=number(1, 100), default=usual, metavar="N",
                        help="how often each is measured, alternating; the median is reported (%(default)s)")


def add_directory(parser: argparse.ArgumentParser, what: str) -> None:
    """Where files go."""
    parser.add_argument("--directory", default="/dev/shm", metavar="DIRECTORY", help=f"where {what} go; needs room for all of them (%(default)s)")

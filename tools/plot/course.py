"""The course of a message: which block was in transit when, and which member waited.

Each member has a row for what it receives, a row for what it sends, and between them thin lines while it waits before sending.
A bar is a block in transit, from the source's post to the target's completion; bars at the same time share the row's height.
"""

import textwrap
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from sheet import BAND, COLOURS, FAINT, INK, RULE, TooLarge, save, sheet

MEMBERS_MAX, TRANSFERS_MAX, LAYERS_MAX = 64, 20_000, 4
# In points.
LEFT, RIGHT, TOP, BOTTOM, ROW, WAITS, GAP = 112, 24, 64, 44, 17, 4, 12
LANE = 2 * ROW + WAITS + GAP
# A block's bar is about this long, unless that makes the picture shorter or longer than the limits.
BAR, LENGTH_MIN, LENGTH_MAX = 20, 680, 12_000
WAIT_COLOURS = {"block": "#9aa5b1", "credit": "#e0412f", "memory": "#f0b429"}

Row = dict[str, Any]


def bar(axes: Axes, x: float, y: float, width: float, height: float, colour: str, about: str, tooltips: dict[str, str]) -> None:
    name = f"t{len(tooltips)}"
    tooltips[name] = about
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, linewidth=0, gid=name))


def draw_row(axes: Axes, transfers: list[Row], y: float, scale: float, tooltips: dict[str, str]) -> None:
    """Bars of one direction; those that overlap lie in layers of the row."""
    ends: list[float] = []
    placed = []
    for transfer in sorted(transfers, key=lambda it: (it["start_us"], it["end_us"])):
        free = next((layer for layer, end in enumerate(ends) if end <= transfer["start_us"]), len(ends))
        layer = min(free, LAYERS_MAX - 1)
        ends += [0.0] * (layer + 1 - len(ends))
        ends[layer] = max(ends[layer], transfer["end_us"])
        placed.append((transfer, layer))
    height = ROW / max(1, len(ends))
    for transfer, layer in placed:
        x, width = transfer["start_us"] * scale, max(0.5, (transfer["end_us"] - transfer["start_us"]) * scale - 0.5)
        step = "" if transfer["step"] is None else f", step {transfer['step']}"
        ms = (transfer["end_us"] - transfer["start_us"]) / 1e3
        about = f"block {transfer['block']} from {transfer['source']} to {transfer['target']}{step}: {ms:.3f} ms"
        bar(axes, x, y + height * layer + 0.4, width, height - 0.8, COLOURS[transfer["block"] % len(COLOURS)], about, tooltips)
        if width > 14 and height > 7:
            axes.text(x + width / 2, y + height * (layer + 0.5), str(transfer["block"]), color="white", size=7,
                      ha="center", va="center_baseline")


def draw(document: dict[str, Any], path: Path) -> None:
    """Of the tables "transfers" and "waits"."""
    transfers: list[Row] = document["transfers"]
    members = 1 + max(max(it["source"], it["target"]) for it in transfers)
    if members > MEMBERS_MAX or len(transfers) > TRANSFERS_MAX:
        raise TooLarge(f"{members} members and {len(transfers)} blocks in transit: at most {MEMBERS_MAX} and {TRANSFERS_MAX} can be "
                       "drawn; take larger blocks, or a shorter message")
    span = max(it["end_us"] for it in transfers)
    usual = median(it["end_us"] - it["start_us"] for it in transfers)
    length = min(LENGTH_MAX, max(LENGTH_MIN, span / max(usual, 1e-3) * BAR))
    scale = length / span
    width, height = LEFT + length + RIGHT, TOP + LANE * members + BOTTOM
    figure = sheet(width, height)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-LEFT, length + RIGHT), ylim=(height - TOP, -TOP))
    axes.axis("off")
    tooltips: dict[str, str] = {}
    marks = [mark for mark in MaxNLocator(max(2, int(length / 90)), steps=[1, 2, 5, 10]).tick_values(0, span) if mark <= span]
    for mark in marks:
        axes.plot([mark * scale] * 2, [-8, LANE * members - GAP / 2], color=RULE, linewidth=0.8, zorder=0.9)
        axes.text(mark * scale, -12, f"{mark / 1e3:g} ms", color=FAINT, ha="center")
    for member in range(members):
        y = LANE * member
        if member % 2 == 0:
            axes.add_patch(Rectangle((-LEFT, y - GAP / 2), width, LANE, facecolor=BAND, linewidth=0, zorder=0.5))
        root = member == 0
        axes.text(18 - LEFT, y + ROW + WAITS / 2, f"{member} (root)" if root else str(member), size=10.5, va="center",
                  weight="bold" if root else "normal")
        for name, rows, top in (("receives", "target", y), ("sends", "source", y + ROW + WAITS)):
            axes.text(-6, top + ROW / 2, name, color=FAINT, size=8, ha="right", va="center")
            draw_row(axes, [it for it in transfers if it[rows] == member], top, scale, tooltips)
        for wait in (it for it in document["waits"] if it["member"] == member):
            x, end = wait["start_us"] * scale, wait["end_us"] * scale
            what = f"block {wait['block']}" if wait["reason"] == "block" and wait["block"] is not None else wait["reason"]
            peer = "" if wait["of_member"] is None else f" of member {wait['of_member']}"
            about = f"waits for {what}{peer}: {(wait['end_us'] - wait['start_us']) / 1e3:.3f} ms"
            bar(axes, x, y + ROW + 0.8, end - x, WAITS - 1.6, WAIT_COLOURS[wait["reason"]], about, tooltips)
    for index, (reason, name) in enumerate((("block", "a block"), ("credit", "credit"), ("memory", "memory"))):
        x, y = 120 * index, LANE * members + 18
        axes.add_patch(Rectangle((x, y - 1.2), 17, WAITS - 1.6, facecolor=WAIT_COLOURS[reason], linewidth=0))
        axes.text(x + 22, y, f"waits for {name}", color=FAINT, va="center")
    title = textwrap.fill(document["what"], int((width - 36) / 7.2))
    axes.text(18 - LEFT, -TOP + 24, title, size=12.5, weight="bold", color=INK, va="center")
    save(figure, document["what"], path, tooltips)

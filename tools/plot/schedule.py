"""Plans: members are lanes, steps are columns, a transfer is an arrow from the source's lane to the target's lane at its end."""

import colorsys
from collections import Counter
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from sheet import BAND, COLOURS, FAINT, INK, RULE, TooLarge, save, sheet

MEMBERS_MAX, STEPS_MAX, LEGEND_MAX = 64, 128, 16
# In points.
COLUMN, LANE, LEFT, RIGHT, TOP, BOTTOM, LEGEND = 93, 33, 80, 20, 62, 46, 74
FOLDS = {"reduce", "exchange", "reduce-scatter"}


def paint(colour: int) -> str:
    """Further colours have hues that are far apart from each other, by the golden angle."""
    if colour < len(COLOURS):
        return COLOURS[colour]
    return str(to_hex(colorsys.hls_to_rgb(colour * 137.508 % 360 / 360, 0.38, 0.62)))


def name_of(transfer: dict[str, Any]) -> tuple[int, str, str]:
    """Colour, label and meaning: of blocks that are copied their number, of other writes what the target does with them."""
    if transfer.get("phase") in FOLDS:
        return 0, "+", "folded"
    block = transfer.get("block")
    return (1, "=", "copied") if block is None else (block, f"b{block}", f"block {block}")


def label(axes: Axes, x: float, y: float, colour: int, text: str) -> None:
    axes.text(x, y, text, size=8, weight="bold", color="white", ha="center", va="center_baseline", zorder=3,
              bbox={"boxstyle": "round,pad=0.32,rounding_size=0.6", "facecolor": paint(colour), "linewidth": 0})


def ring(axes: Axes, x: float, y: float) -> None:
    axes.plot(x, y, "o", markersize=7, markerfacecolor="white", markeredgecolor=INK, markeredgewidth=1.5, zorder=4)


def draw(document: dict[str, Any], path: Path) -> None:
    """Of what `rdmc plan --json` prints."""
    members, steps, transfers = document["members"], document["steps"], document["transfers"]
    if members > MEMBERS_MAX or steps > STEPS_MAX:
        raise TooLarge(f"{members} members and {steps} steps: at most {MEMBERS_MAX} members and {STEPS_MAX} steps can be drawn")
    operation = document.get("collective")
    complete = {None: "has every block", "broadcast": "has the message"}.get(operation, "has the result")
    legend = sorted({name_of(transfer) for transfer in transfers})
    width = max(LEFT + COLUMN * steps, LEFT + LEGEND * min(len(legend), LEGEND_MAX) + 135, 450) + RIGHT
    height = TOP + LANE * members + BOTTOM
    figure = sheet(width, height)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-LEFT, width - LEFT), ylim=(height - TOP, -TOP))
    axes.axis("off")
    for step in range(steps):
        if step % 2 == 0:
            axes.add_patch(Rectangle((COLUMN * step, -20), COLUMN, LANE * members + 20, facecolor=BAND, linewidth=0, zorder=0.5))
        axes.text(COLUMN * (step + 0.5), -6, f"step {step}", color=FAINT, size=9.5, ha="center")
    for member in range(members):
        y, root = LANE * (member + 0.5), member == document["root"]
        axes.plot([0, COLUMN * steps], [y, y], color=RULE, linewidth=0.8, zorder=0.8)
        axes.text(-12, y, f"{member} (root)" if root else str(member), size=10.5, ha="right", va="center",
                  weight="bold" if root else "normal")
    # The last of what a member gets completes it.
    missing = Counter(transfer["target"] for transfer in transfers)
    for transfer in transfers:
        source, target = transfer["source"], transfer["target"]
        x, y = COLUMN * transfer["step"] + 16, LANE * (source + 0.5)
        end, below = COLUMN * (transfer["step"] + 1) - 9, LANE * (target + 0.5)
        colour, text, _ = name_of(transfer)
        axes.annotate("", (end, below), (x, y), zorder=2, gid=f"transfer{transfer['step']}-{source}-{target}", arrowprops={
            "arrowstyle": "-|>,head_length=0.5,head_width=0.25", "color": paint(colour), "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0})
        label(axes, x, y, colour, text)
        missing[target] -= 1
        if not missing[target] and (operation != "reduce" or target == document["root"]):
            ring(axes, end + 4, below)
    x, y = 16, height - TOP - 19
    for colour, text, meaning in legend[:LEGEND_MAX]:
        label(axes, x, y, colour, text)
        axes.text(x + 15, y, meaning, color=FAINT, va="center")
        x += LEGEND
    if len(legend) > LEGEND_MAX:
        axes.text(x - 12, y, "…", color=FAINT, va="center")
        x += 12
    ring(axes, x, y)
    axes.text(x + 10, y, complete, color=FAINT, va="center")
    axes.text(18 - LEFT, -TOP + 26, document["title"], size=12.5, weight="bold")
    save(figure, document["title"], path)

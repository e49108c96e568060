"""Bars in groups: the time of each way to copy a file, by the number of hosts that get it; the limit is dotted."""

from pathlib import Path
from typing import Any

from chart import Axis, scale, ticks
from sheet import BACKGROUND, COLOURS, FAINT, INK, RULE, save, sheet

# In points.
LEFT, TOP, WIDTH, HEIGHT, RIGHT, BOTTOM = 44, 58, 560, 280, 16, 44
# Of the distance between two groups.
GROUP = 0.84


def shown(seconds: float) -> str:
    """A time with three digits at most, which fits above a bar."""
    return f"{seconds:.0f}" if seconds >= 99.5 else f"{seconds:.3g}"


def draw(document: dict[str, Any], path: Path) -> None:
    """Writes the picture of a document of `./dev bench copies`. Ways that failed have no bars."""
    rows = document["rows"]
    groups, ways = (list(dict.fromkeys(row[name] for row in rows)) for name in ("receivers", "way"))
    times = {(row["receivers"], row["way"]): row["s"] for row in rows if row["s"] is not None}
    limit, first = rows[0]["limit_s"], rows[0]
    figure = sheet(LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM)
    axes = figure.add_axes((LEFT / (LEFT + WIDTH + RIGHT), BOTTOM / (TOP + HEIGHT + BOTTOM), WIDTH / (LEFT + WIDTH + RIGHT), HEIGHT / (TOP + HEIGHT + BOTTOM)))
    marks = ticks(Axis("", unit="count"), [*times.values(), limit])
    scale(axes.yaxis, Axis(""), marks)
    axes.set(xlim=(-0.5, len(groups) - 0.5), ylim=(0, marks[-1]), facecolor=BACKGROUND, axisbelow=True)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.spines[:].set_visible(False)
    axes.set_xticks(range(len(groups)), [f"{count} host{'s' if count > 1 else ''}" for count in groups], color=INK)
    axes.tick_params(axis="x", length=0, pad=6)
    width = GROUP / len(ways)
    for index, way in enumerate(ways):
        colour = COLOURS[index % len(COLOURS)]
        places = [(group + (index - (len(ways) - 1) / 2) * width, times[count, way]) for group, count in enumerate(groups) if (count, way) in times]
        axes.bar([x for x, _ in places], [y for _, y in places], width * 0.94, color=colour, label=way)
        for x, y in places:
            axes.annotate(shown(y), (x, y), (0, 2), textcoords="offset points", ha="center", va="bottom", size=7.5, color=colour)
    axes.axhline(limit, color=INK, linestyle=":", linewidth=1.2, label=f"limit: one copy over one link, {shown(limit)} s")
    figure.text(LEFT / (LEFT + WIDTH + RIGHT), 1 - 18 / (TOP + HEIGHT + BOTTOM), f"Seconds to copy {first['length']} over links of {first['mbit']:g} Mbit/s",
                size=11, weight="bold", va="center")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.005), ncols=len(ways) + 1, frameon=False, fontsize=8, handlelength=1, handletextpad=0.4,
                columnspacing=1.2, labelcolor=FAINT)
    save(figure, document["what"], path)

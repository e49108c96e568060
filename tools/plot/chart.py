"""Lines against axes, in panels that share their scales. Names are beside the ends of lines; limits are dotted."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.axis import Axis as DrawnAxis
from matplotlib.ticker import MaxNLocator

from sheet import BACKGROUND, COLOURS, FAINT, INK, RULE, save, sheet

# In points.
LEFT, TOP, WIDTH, HEIGHT, LABELS, BOTTOM, LABEL_HEIGHT = 52, 56, 350, 300, 140, 48, 11.5
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1}
# Lines with more points have no markers.
MARKED = 16


@dataclass(frozen=True)
class Axis:
    """Linear from 0, or by the logarithm to a base; `unit` is number, count, bytes, us, ms or s."""

    title: str
    base: float | None = None
    unit: str = "number"


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    error: float = 0


@dataclass
class Line:
    name: str
    points: list[Point]
    style: str = "solid"
    # The line whose colour it has; its own if empty.
    like: str = ""


@dataclass
class Panel:
    title: str
    y: Axis
    lines: list[Line]


@dataclass
class Chart:
    title: str
    x: Axis
    panels: list[Panel]
    # Added to the name of the file where a benchmark has several pictures.
    name: str = ""


def shown(value: float, unit: str) -> str:
    """A value as an axis has it."""
    if unit in SECONDS:
        value *= SECONDS[unit]
        factor, unit = (1e6, "µs") if value < 0.999e-3 else (1e3, "ms") if value < 0.999 else (1, "s")
        return f"{value * factor:.6g} {unit}"
    if unit == "bytes":
        power = max(0, min(6, math.floor(math.log(value, 1024) + 1e-9)))
        return f"{value / 1024**power:.6g} {['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'][power]}"
    return f"{value:.12g}"


def ticks(axis: Axis, values: Iterable[float]) -> list[float]:
    """From the first mark to the last, with room for all values."""
    all_values = list(values)
    least, most = min(all_values), max(all_values)
    if axis.base is None:
        locator = MaxNLocator(10, steps=[1, 2, 5, 10], integer=axis.unit == "count")
        return [float(tick) for tick in locator.tick_values(0, most or 1) if tick >= 0]
    first = math.floor(math.log(least, axis.base) + 1e-9)
    last = max(first + 1, math.ceil(math.log(most, axis.base) - 1e-9))
    return [axis.base**exponent for exponent in range(first, last + 1)]


def scale(drawn: DrawnAxis, axis: Axis, marks: list[float]) -> None:
    """Sets marks; limits are the first and the last."""
    drawn.set_ticks(marks, labels=[shown(mark, axis.unit) for mark in marks])
    drawn.set_ticks([], minor=True)
    drawn.set_tick_params(length=0, labelsize=8, labelcolor=FAINT, pad=6)


def draw_panel(axes: Axes, panel: Panel, chart: Chart, colours: dict[str, str]) -> None:
    points = [point for line in panel.lines for point in line.points]
    same = [point for other in chart.panels if other.y == panel.y for line in other.lines for point in line.points]
    x_marks = ticks(chart.x, (point.x for other in chart.panels for line in other.lines for point in line.points))
    y_marks = ticks(panel.y, (value for point in same for value in (point.y, point.y + point.error)))
    if chart.x.base:
        axes.set_xscale("log", base=chart.x.base)
    if panel.y.base:
        axes.set_yscale("log", base=panel.y.base)
    scale(axes.xaxis, chart.x, x_marks)
    scale(axes.yaxis, panel.y, y_marks)
    axes.set(xlim=(x_marks[0], x_marks[-1]), ylim=(y_marks[0], y_marks[-1]), facecolor=BACKGROUND, axisbelow=True)
    axes.grid(color=RULE, linewidth=0.8)
    axes.spines[:].set_visible(False)
    axes.set_title(panel.title, loc="left", size=11, weight="bold", pad=20, color=INK)
    axes.text(0, 1.02, panel.y.title, transform=axes.transAxes, color=FAINT)
    axes.set_xlabel(chart.x.title, color=FAINT, labelpad=6)
    if not points:
        return
    for line in panel.lines:
        axes.errorbar(
            [point.x for point in line.points], [point.y for point in line.points],
            [min(point.error, point.y - y_marks[0]) for point in line.points] if any(p.error for p in line.points) else None,
            color=colours[line.like or line.name], linestyle={"solid": "-", "dashed": "--", "dotted": ":"}[line.style],
            marker="o" if len(line.points) <= MARKED and line.style == "solid" else "", markersize=3.5,
            linewidth=1.6, elinewidth=1, capsize=2.5, clip_on=False)
    name_lines(axes, [line for line in panel.lines if line.points], colours)


def name_lines(axes: Axes, lines: list[Line], colours: dict[str, str]) -> None:
    """Names beside the ends of lines, apart from each other, each with a thin line to its end."""
    def end(line: Line) -> tuple[float, float]:
        x, y = (axes.transScale + axes.transLimits).transform((line.points[-1].x, line.points[-1].y))
        return float(x), float(y)
    height, free = LABEL_HEIGHT / HEIGHT, 1 + LABEL_HEIGHT / HEIGHT
    lines = sorted(lines, key=lambda line: -end(line)[1])
    for index, line in enumerate(lines):
        below = (len(lines) - index - 1) * height
        free = max(min(end(line)[1], free - height), below - 0.02)
        colour = colours[line.like or line.name]
        axes.annotate(
            line.name, end(line), (1.05, free), "axes fraction", "axes fraction", color=colour, size=8.5, va="center",
            annotation_clip=False, arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 1, "relpos": (0, 0.5)})


def draw(chart: Chart, path: Path) -> None:
    """Writes the picture."""
    names = dict.fromkeys(line.like or line.name for panel in chart.panels for line in panel.lines if line.style != "dotted")
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    for panel in chart.panels:
        colours.update((line.name, FAINT) for line in panel.lines if line.style == "dotted" and not line.like)
    count = len(chart.panels)
    columns = 2 if count == 4 else min(count, 3)
    rows = math.ceil(count / columns)
    width, height = LEFT + WIDTH + LABELS, TOP + HEIGHT + BOTTOM
    figure = sheet(columns * width, rows * height)
    for index, panel in enumerate(chart.panels):
        row, column = divmod(index, columns)
        place = (
            (column * width + LEFT) / (columns * width), ((rows - row - 1) * height + BOTTOM) / (rows * height),
            WIDTH / (columns * width), HEIGHT / (rows * height))
        draw_panel(figure.add_axes(place), panel, chart, colours)
    save(figure, chart.title, path)

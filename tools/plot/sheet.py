"""What all pictures share: colours, letters, and SVG that is the same for the same input."""

import re
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

import matplotlib
from matplotlib.figure import Figure

INK, FAINT, RULE, BACKGROUND, BAND = "#1f2933", "#52606d", "#d3dae1", "#fbfcfd", "#eef2f6"
# Distinguishable for colour-blind readers, and dark enough for white labels.
COLOURS = ("#0b66b0", "#c2410c", "#0a7d5f", "#a21c6f", "#8a6100", "#5b3fc4", "#0e7490", "#b3261e")

matplotlib.use("svg")
matplotlib.rcParams.update({
    "svg.fonttype": "none",
    "svg.hashsalt": "rdmc",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"],
    "font.size": 9,
    "text.color": INK,
})


class TooLarge(Exception):
    """The picture would be too large to read."""


def sheet(width: float, height: float) -> Figure:
    """An empty picture; lengths in points."""
    return Figure(figsize=(width / 72, height / 72), facecolor=BACKGROUND)


def save(figure: Figure, title: str, path: Path, tooltips: Mapping[str, str] | None = None) -> None:
    """Writes the picture with a title for screen readers, and tooltips of elements by their id."""
    figure.savefig(path, format="svg", metadata={"Title": title, "Date": None, "Creator": None})
    text = path.read_text(encoding="utf-8")
    if tooltips:
        def labelled(match: re.Match[str]) -> str:
            what = tooltips.get(match[1])
            return match[0] if what is None else f"{match[0]}<title>{escape(what)}</title>"
        text = re.sub(r'<g id="([^"]*)">', labelled, text)
    path.write_text(text.replace("<svg ", '<svg role="img" ', 1), encoding="utf-8")

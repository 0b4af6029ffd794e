"""Define one style for all pictures: readable in grey, in print and projected. Saved as vectors with the data."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, NullFormatter

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "h")
DASHES: tuple[tuple[int, ...], ...] = ((), (4, 2), (1, 1), (5, 1, 1, 1), (3, 1, 1, 1, 1, 1), (2, 2), (6, 2), (1, 3))
INK = "#262626"
COLOURS = "viridis"
"""The colour map of matplotlib for series. Change it for a paper or a talk."""
DARKEST_AND_LIGHTEST = (0.05, 0.77)
"""Positions on the colour map of the first and last of several colours."""
SINGLE_COLOUR = 0.35
"""Position on the colour map of a single colour."""
MAX_LABELLED_VALUES = 9
LONG_LABEL = 8
MAX_LABEL_CHARACTERS = 56
LEGEND_LETTERS_PER_INCH = 14
TITLE_LETTERS_PER_INCH = 12
NOTE_LETTERS_PER_INCH = 14
GREY = "#595959"
MINUS = "\N{MINUS SIGN}"
"""The same sign as matplotlib writes on axes."""
TITLE_POINTS, TITLE_LINE_HEIGHT, NOTE_LINE_HEIGHT, LEFT_MARGIN = 11, 0.22, 0.15, 0.1
"""Size of a title, and in inches the height of lines of titles and notes and the space left of them."""
SETTINGS = {
    "svg.hashsalt": "figure",
    "svg.fonttype": "none",  # text stays text: searchable, selectable and accessible
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.titlesize": "medium",
    "text.color": INK,
    "axes.labelcolor": INK,
}


WIDTH, HEIGHT = 4.6, 2.85
"""Inches of a panel without legend, tick labels, title and note. In a column of 3.3 inches, tick labels are 6.6 points high."""


def make_axes(
    width: float = WIDTH, height: float = HEIGHT, *, num_panels: int = 1, num_columns: int = 0, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure in the common style with panels in rows, each of this size in inches.

    With `num_columns` 0 all panels are in one row. `shared` is passed to matplotlib's subplots.
    """
    mpl.use("Agg")
    sns.set_theme(context="paper", style="ticks", font_scale=1.05, rc=SETTINGS)
    num_columns = min(num_columns or num_panels, num_panels)
    num_rows = math.ceil(num_panels / num_columns)
    figure, axes = plt.subplots(
        num_rows,
        num_columns,
        figsize=(width * num_columns, height * num_rows),
        layout="constrained",
        squeeze=False,
        **{"sharey": True, **shared},
    )
    for unused in axes.flat[num_panels:]:
        unused.remove()
    sns.despine(figure)
    return figure, list(axes.flat[:num_panels])


def make_palette(count: int) -> list[tuple[float, float, float]]:
    """Return colours whose lightness differs as much as possible on white, so that they stay distinct in grey."""
    positions = np.linspace(*DARKEST_AND_LIGHTEST, count) if count > 1 else [SINGLE_COLOUR]
    colours = [mpl.colormaps[COLOURS](position) for position in positions]
    return [(float(red), float(green), float(blue)) for red, green, blue, _ in colours]


def sort_values(values: pd.Series) -> list[Any]:
    """Return the distinct values of a column: numbers by size, words in order of appearance."""
    present = values.dropna()
    distinct = list(dict.fromkeys(present))
    return sorted(distinct) if pd.api.types.is_numeric_dtype(present.infer_objects()) else distinct


def label_values(axes: Axes, values: Sequence[Any], positions: Sequence[float]) -> None:
    """Write the values on the x axis, slanted if long. Many numbers are left to the default scale."""
    if positions == list(values) and len(values) > MAX_LABELLED_VALUES:
        return
    labels = [format_value(value) for value in values]
    longest = max(map(len, labels), default=0)
    is_slanted = longest > LONG_LABEL and longest * len(labels) > MAX_LABEL_CHARACTERS
    slant: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if is_slanted else {}
    axes.set_xticks(list(positions), labels, **slant)
    axes.minorticks_off()


def place_legend_above(
    axes: Axes, handles: Sequence[Any] = (), *, handlelength: float = 2.6, max_columns: int = 9
) -> None:
    """Put the legend above the axes, where it hides nothing, in as many columns as fit.

    Without `handles`, it lists everything in the axes that has a label.
    """
    handles = list(handles) or axes.get_legend_handles_labels()[0]
    longest = max((len(str(handle.get_label())) for handle in handles), default=1)
    num_columns = max(1, min(len(handles), max_columns, int(WIDTH * LEGEND_LETTERS_PER_INCH) // (longest + 6)))
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.3,
        borderpad=0.1,
        ncols=num_columns,
        columnspacing=1.4,
        handlelength=handlelength,
        frameon=False,
        fontsize="small",
    )


def format_value(value: Any) -> str:
    """Return a value as an axis label: thousands separated, no trailing zeros."""
    if isinstance(value, str | bool):
        return str(value)
    text = f"{value:,.0f}".replace(",", "\u2009") if float(value).is_integer() else f"{value:g}"
    return text.replace("-", MINUS)


def format_fixed(value: float, decimals: int, sign: str = "") -> str:
    """Return a number with fixed decimals, and with "+" as `sign` also a plus. Zero has no minus, and NaN is a dash."""
    if math.isnan(value):
        return "–"
    return f"{round(value, decimals) + 0.0:{sign}.{decimals}f}".replace("-", MINUS)


def write_powers(axis: Axis, locator: Locator | None = None) -> None:
    """Write the plain numbers of a logarithmic axis. Powers of ten would need markup, which is switched off."""
    if locator is not None:
        axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))
    axis.set_minor_formatter(NullFormatter())


def grow(figure: Figure, inches: float) -> None:
    """Make the figure taller by the height of a text, so that panels keep their size."""
    figure.set_figheight(figure.get_figheight() + inches)


def write_title(figure: Figure, title: str) -> None:
    """Write the title at the top left."""
    width = figure.get_figwidth()
    lines = textwrap.wrap(title, int(width * TITLE_LETTERS_PER_INCH))
    grow(figure, TITLE_LINE_HEIGHT * len(lines))
    figure.suptitle("\n".join(lines), x=LEFT_MARGIN / width, ha="left", fontsize=TITLE_POINTS)


def write_note(figure: Figure, note: str) -> None:
    """Write small print under the picture, left-aligned like the title, which describes its bands and numbers."""
    if note:
        width = figure.get_figwidth()
        lines = textwrap.wrap(note, int(width * NOTE_LETTERS_PER_INCH))
        grow(figure, NOTE_LINE_HEIGHT * len(lines))
        figure.supxlabel("\n".join(lines), fontsize="small", color=GREY, x=LEFT_MARGIN / width, ha="left")


def write_svg(figure: Figure) -> str:
    """Return a figure as SVG text without spaces at line ends, and close it. The same figure gives the same text."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def save_figure(figure: Figure, frame: pd.DataFrame, path: Path) -> None:
    """Write path.svg, path.png and the plotted data as path.csv. The same data gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    # Layout takes long, so the PNG reuses the layout of the SVG.
    figure.set_layout_engine("none")
    figure.savefig(path.with_suffix(".png"), dpi=150)
    frame.to_csv(path.with_suffix(".csv"), index=False, lineterminator="\n")
    plt.close(figure)

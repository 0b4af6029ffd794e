"""One look for all pictures: readable in grey, printed or projected; saved as vector with its data beside it."""

from __future__ import annotations

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
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, Locator, NullFormatter

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[tuple[int, ...], ...] = ((), (4, 2), (1, 1), (5, 1, 1, 1), (3, 1, 1, 1, 1, 1), (2, 2), (6, 2), (1, 3))
INK = "#262626"
COLOURS = "viridis"
"""The scale of matplotlib's that colours of series are taken from; another one for a paper or a talk."""
DARKEST_AND_LIGHTEST, ALONE = (0.05, 0.77), 0.35
"""Places on the scale of colours of the first and last of several, and of one."""
MOST_LABELLED_VALUES = 9
LONG_LABEL = 8
MOST_LETTERS = 56
LEGEND_LETTERS_PER_INCH = 14
TITLE_LETTERS_PER_INCH = 11
NOTE_LETTERS_PER_INCH = 13
GREY = "#595959"
TITLE_POINTS, SUBTITLE_POINTS, LINE_HEIGHT, POINTS_PER_INCH = 11, 8.5, 1.4, 72
TITLE_MARGIN = 0.06
LEFT_MARGIN = 0.1
"""Inches above a title."""
SETTINGS = {
    "svg.hashsalt": "figure",
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
    "text.parse_math": False,  # a dollar sign in a name of the data is a dollar sign
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.titlesize": "medium",
    "text.color": INK,
    "axes.labelcolor": INK,
}


def make_axes(
    width: float = 5.6, height: float = 3.6, *, num_panels: int = 1, num_columns: int = 0, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure in the common style with panels in rows, each of this size (inches).

    `num_columns` 0: all panels beside each other. `shared` goes to matplotlib's subplots.
    """
    mpl.use("Agg")
    sns.set_theme(context="paper", style="ticks", font_scale=1.05, rc=SETTINGS)
    columns = min(num_columns or num_panels, num_panels)
    rows = -(-num_panels // columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(width * columns, height * rows),
        layout="constrained",
        squeeze=False,
        **({"sharey": True} | shared),
    )
    sns.despine(figure)
    for unused in axes.flat[num_panels:]:
        unused.remove()
    return figure, list(axes.flat[:num_panels])


def palette(count: int) -> list[tuple[float, float, float]]:
    """Return colours whose lightness differs as much as can be on white, so that they stay apart in grey."""
    places = np.linspace(*DARKEST_AND_LIGHTEST, count) if count > 1 else [ALONE]
    colours = [mpl.colormaps[COLOURS](place) for place in places]
    return [(float(red), float(green), float(blue)) for red, green, blue, _ in colours]


def sort_values(values: pd.Series) -> list[Any]:
    """Return the different values of a column: numbers by size, words as they first appear."""
    different = list(dict.fromkeys(values.dropna()))
    return sorted(different) if pd.api.types.is_numeric_dtype(values.dropna().infer_objects()) else different


def label_values(axes: Axes, values: Sequence[Any], places: Sequence[float]) -> None:
    """Write the values themselves on the x axis, slanted where they are long; leaves many numbers to the scale."""
    if places == list(values) and len(values) > MOST_LABELLED_VALUES:
        return
    words = [format_value(value) for value in values]
    longest = max(map(len, words), default=0)
    long = longest > LONG_LABEL and longest * len(words) > MOST_LETTERS
    slant: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if long else {}
    axes.set_xticks(list(places), words, **slant)
    axes.minorticks_off()


def legend_above(
    axes: Axes, handles: Sequence[Any] = (), *, width: float = 5.6, handlelength: float = 2.6, most_columns: int = 9
) -> None:
    """Put the legend above axes of this width (inches), where it hides nothing, in as many columns as fit.

    Without `handles`, it has whatever in the axes has a label.
    """
    shown = list(handles) or axes.get_legend_handles_labels()[0]
    longest = max((len(str(handle.get_label())) for handle in shown), default=1)
    columns = max(1, min(len(shown), most_columns, int(width * LEGEND_LETTERS_PER_INCH) // (longest + 6)))
    axes.legend(
        handles=shown,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.3,
        borderpad=0.1,
        ncols=columns,
        columnspacing=1.4,
        handlelength=handlelength,
        frameon=False,
        fontsize="small",
    )


def format_value(value: Any) -> str:
    """Return a value as it stands on an axis: thousands apart, no trailing zeros."""
    if isinstance(value, str | bool):
        return str(value)
    return f"{value:,.0f}".replace(",", "\u2009") if float(value).is_integer() else f"{value:g}"


def write_powers(axis: Axis, locator: Locator | None = None) -> None:
    """Write the numbers of a logarithmic axis as they are: a power of ten would be markup, which is not read here."""
    if locator is not None:
        axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))
    axis.set_minor_formatter(NullFormatter())


def write_title(figure: Figure, title: str, subtitle: str = "") -> None:
    """Write what is seen at the top left, and below it, small, of what: scale, whose records, how many seeds.

    The figure grows by what the words need, so that panels keep their size.
    """
    letters = int(figure.get_figwidth() * TITLE_LETTERS_PER_INCH)
    lines: list[tuple[str, float, str]] = [(line, TITLE_POINTS, INK) for line in textwrap.wrap(title, letters)]
    lines += [(line, SUBTITLE_POINTS, GREY) for line in textwrap.wrap(subtitle, int(1.25 * letters))]
    width, height = figure.get_size_inches()
    strip = sum(LINE_HEIGHT * points / POINTS_PER_INCH for _, points, _ in lines) + TITLE_MARGIN * bool(lines)
    figure.set_size_inches(width, height + strip)
    layout = figure.get_layout_engine()
    assert isinstance(layout, ConstrainedLayoutEngine), "a figure of new_axes() has this layout"
    layout.set(rect=(0, 0, 1, height / (height + strip)))
    at = height + strip - TITLE_MARGIN
    for line, points, colour in lines:
        figure.text(LEFT_MARGIN / width, at / (height + strip), line, va="top", fontsize=points, color=colour)
        at -= LINE_HEIGHT * points / POINTS_PER_INCH


def write_note(figure: Figure, note: str) -> None:
    """Write small words under the picture, below each other as the title is: what its bands and numbers are."""
    if note:
        width = figure.get_figwidth()
        lines = textwrap.fill(note, int(width * NOTE_LETTERS_PER_INCH))
        figure.supxlabel(lines, fontsize="small", color=GREY, x=LEFT_MARGIN / width, ha="left")


def save_figure(figure: Figure, frame: pd.DataFrame, path: Path, *, with_png: bool = True) -> None:
    """Write path.svg, path.png and the plotted data as path.csv; the same data gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    if with_png:
        figure.set_layout_engine("none")  # what was placed for the one stays for the other: placing takes long
        figure.savefig(path.with_suffix(".png"), dpi=150)
    frame.to_csv(path.with_suffix(".csv"), index=False, lineterminator="\n")
    plt.close(figure)

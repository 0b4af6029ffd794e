"""One look for all pictures: readable in grey, printed or projected; saved as vector with its data beside it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[tuple[int, ...], ...] = ((), (4, 2), (1, 1), (5, 1, 1, 1), (3, 1, 1, 1, 1, 1), (2, 2), (6, 2), (1, 3))
INK = "#262626"
MOST_LABELLED_VALUES = 9
LONG_LABEL = 8
MOST_LETTERS = 40
LEGEND_WIDTH = 84
NOTE_LETTERS_PER_INCH = 13
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


def new_axes(width: float = 5.6, height: float = 3.6, *, num_panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Gives an empty figure in the common style with panels beside each other, each of this size (inches)."""
    mpl.use("Agg")
    sns.set_theme(context="paper", style="ticks", font_scale=1.05, rc=SETTINGS)
    figure, axes = plt.subplots(
        1, num_panels, figsize=(width * num_panels, height), layout="constrained", sharey=True, squeeze=False
    )
    sns.despine(figure)
    return figure, list(axes[0])


def palette(count: int) -> list[tuple[float, float, float]]:
    """Gives colours whose lightness differs, so that they stay apart in grey."""
    return [tuple(colour) for colour in sns.color_palette("viridis", count + 1)[:count]]


def in_order(values: pd.Series) -> list[Any]:
    """Gives the different values of a column: numbers by size, words as they first appear."""
    different = list(dict.fromkeys(values.dropna()))
    return sorted(different) if pd.api.types.is_numeric_dtype(values.dropna().infer_objects()) else different


def label_values(axes: Axes, values: Sequence[Any], places: Sequence[float]) -> None:
    """Writes the values themselves on the x axis, slanted where they are long; leaves many numbers to the scale."""
    if places == list(values) and len(values) > MOST_LABELLED_VALUES:
        return
    words = [value_text(value) for value in values]
    longest = max(map(len, words), default=0)
    long = longest > LONG_LABEL and longest * len(words) > MOST_LETTERS
    slant: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if long else {}
    axes.set_xticks(list(places), words, **slant)
    axes.minorticks_off()


def legend_above(axes: Axes) -> None:
    """Puts the legend above the axes, where it hides nothing, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(len(labels), LEGEND_WIDTH // (max(map(len, labels), default=1) + 6)))
    axes.figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False, fontsize="small")


def value_text(value: Any) -> str:
    """Gives a value as it stands on an axis: thousands apart, no trailing zeros."""
    if isinstance(value, str | bool):
        return str(value)
    return f"{value:,.0f}".replace(",", "\u2009") if float(value).is_integer() else f"{value:g}"


def write_note(figure: Figure, note: str) -> None:
    """Writes small words under the picture: what its bands and numbers are."""
    if note:
        lines = textwrap.fill(note, int(figure.get_figwidth() * NOTE_LETTERS_PER_INCH))
        figure.supxlabel(lines, fontsize="small", color="#595959", x=0.99, ha="right")


def save_figure(figure: Figure, frame: pd.DataFrame, path: Path) -> None:
    """Writes path.svg, path.png and the plotted data as path.csv; the same data gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=150)
    frame.to_csv(path.with_suffix(".csv"), index=False, lineterminator="\n")
    plt.close(figure)

"""Draw a forest plot: one row per effect, with its interval, the threshold it is compared with, and the verdict.

Each unit has its own panel, one below the other, since points, doublings and correlations cannot share an axis. If the
effects of a panel differ greatly in size, its axis is linear near zero and logarithmic beyond.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, SymmetricalLogLocator

from figures.style import GREY, make_axes

INCHES_PER_ROW, INCHES_PER_PANEL, WIDTH = 0.36, 0.5, 4.0
"""Narrow enough for a phone: text stands above its row, not next to it."""
WORDS_AT, MARK_AT, HALF, A_LINE = -0.14, 0.16, 0.26, 0.34
"""Position of a row's text and mark, half the height of its bar, and the extra height per line of text.

Rows with one line of text are 1 apart, from top to bottom.
"""
UNEVEN = 12.0
"""The axis becomes logarithmic if the largest number of a panel exceeds the median by this factor."""
STYLES: Mapping[str, tuple[str, str]] = {
    "HOLDS": ("#17692f", "o"),
    "DIFFERS": ("#a8201a", "X"),
    "SMALL": ("#3b5b92", "s"),
}
OPEN_LOOK = ("#7a5300", "D")
"""Colour and marker of any other verdict."""


def draw_forest(frame: pd.DataFrame) -> tuple[Figure, str]:
    """Return the figure and a description of its marks.

    Columns: name, words, unit, effect, low, high, bar_low, bar_high, verdict. The claim holds if the effect lies above
    `bar_low` and below `bar_high`, in its unit. A missing threshold is NaN. An effect without an interval is drawn as
    its mark alone.
    """
    units = list(dict.fromkeys(frame["unit"]))
    sizes = frame["words"].map(_height).groupby(frame["unit"]).sum()
    heights = [INCHES_PER_PANEL + INCHES_PER_ROW * sizes[unit] for unit in units]
    figure, panels = make_axes(
        WIDTH, sum(heights) / len(units), num_panels=len(units), num_columns=1, sharey=False, height_ratios=heights
    )
    for unit, axes in zip(units, panels, strict=True):
        _draw_panel(frame[frame["unit"] == unit].reset_index(drop=True), axes, str(unit))
    words = "mark: effect; whiskers: interval; upright stroke: threshold; shaded: where it holds; open mark: no word"
    is_log = any(axes.get_xscale() == "symlog" for axes in panels)
    return figure, words + ("; axes in powers of ten are logarithmic beyond the marks next to 0" if is_log else "")


def _height(words: str) -> float:
    """Return the height of a row with this text above it."""
    return 1 + A_LINE * words.count("\n")


def _draw_panel(rows: pd.DataFrame, axes: Axes, unit: str) -> None:
    _set_scale(axes, rows)
    low, high = axes.get_xlim()
    ends = rows["words"].map(_height).cumsum()
    # the first row with one line of text is at 0
    places = ends - 1
    for place, (_, row) in zip(places, rows.iterrows(), strict=True):
        _draw_regions(axes, place, row, low, high)
        _draw_row(axes, place, row)
    middles = places + MARK_AT
    axes.vlines([0] * len(rows), middles - HALF, middles + HALF, color=GREY, linewidth=0.8, zorder=0)
    axes.set_xlim(low, high)
    axes.set_ylim(ends.iloc[-1] - 0.45, -0.55)
    axes.set_yticks(places + MARK_AT, rows["name"], fontsize="small", fontweight="bold")
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_xlabel(unit, fontsize="small", loc="right", labelpad=1)
    axes.tick_params(axis="x", labelsize="small")
    side = axes.secondary_yaxis("right")
    side.set_yticks(places + MARK_AT, rows["verdict"].str.lower(), fontsize="small")
    side.tick_params(length=0)
    side.spines["right"].set_visible(False)
    for label, verdict in zip(side.get_yticklabels(), rows["verdict"], strict=True):
        label.set_color(STYLES.get(verdict, OPEN_LOOK)[0])


def _set_scale(axes: Axes, rows: pd.DataFrame) -> None:
    """Set limits with room for every number, on an axis that shows small effects next to large ones."""
    numbers = rows[["effect", "low", "high", "bar_low", "bar_high"]].to_numpy(float)
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    most = float(sizes.max(initial=0.0)) or 1.0
    typical = float(np.median(sizes)) if len(sizes) else 1.0
    if most > UNEVEN * typical:
        threshold = 10.0 ** np.floor(np.log10(typical))
        axes.set_xscale("symlog", linthresh=threshold, linscale=1.0)
        axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=threshold))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = min(0.0, np.nanmin(numbers, initial=0.0)), max(0.0, np.nanmax(numbers, initial=0.0))
    room = 0.06 * (high - low or 1.0)
    axes.set_xlim(1.3 * low - room * (low == 0), 1.3 * high + room * (high == 0))
    axes.minorticks_off()


def _draw_regions(axes: Axes, place: float, row: pd.Series, low: float, high: float) -> None:
    """Shade where the claim holds and draw its thresholds."""
    start, end = (np.nanmax([low, row["bar_low"]]), np.nanmin([high, row["bar_high"]]))
    if start < end:
        axes.barh(place + MARK_AT, end - start, height=2 * HALF, left=start, color="#e4e7ea", linewidth=0, zorder=0)
    bars = [bar for bar in (row["bar_low"], row["bar_high"]) if np.isfinite(bar)]
    axes.vlines(bars, place + MARK_AT - HALF, place + MARK_AT + HALF, color=GREY, linewidth=1.6, zorder=1)


def _draw_row(axes: Axes, place: float, row: pd.Series) -> None:
    colour, marker = STYLES.get(row["verdict"], OPEN_LOOK)
    across = axes.get_yaxis_transform()
    axes.text(0.01, place + WORDS_AT, row["words"], transform=across, va="bottom", fontsize=7.5, linespacing=1.05)
    place += MARK_AT
    if np.isfinite(row["low"]) and np.isfinite(row["high"]):
        axes.hlines(place, row["low"], row["high"], color=colour, linewidth=1.6)
        axes.plot([row["low"], row["high"]], [place] * 2, "|", color=colour, markersize=5)
    fill = colour if row["verdict"] in STYLES else "white"
    axes.plot([row["effect"]], [place], marker, color=colour, mfc=fill, markersize=5.5, zorder=3)

"""Draw a forest plot: one row per effect, with its interval, the threshold it is compared with, and the verdict.

Each unit has its own panel, one below the other, since points, doublings and correlations cannot share an axis. If the
effects of a panel differ greatly in size, its axis is linear near zero and logarithmic beyond.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, SymmetricalLogLocator

from figures.style import GREY, format_value, make_axes

INCHES_PER_ROW, INCHES_PER_PANEL, WIDTH = 0.36, 0.5, 4.0
"""Narrow enough for a phone: text stands above its row, not next to it."""
TEXT_OFFSET, MARK_OFFSET, HALF_BAR, TEXT_LINE_HEIGHT = -0.14, 0.16, 0.26, 0.34
"""Position of a row's text and mark, half the height of its bar, and the extra height per line of text.

Rows with one line of text are 1 apart, from top to bottom.
"""
LOG_RATIO = 12.0
"""The axis becomes logarithmic if the largest number of a panel exceeds the median by this factor."""
STYLES: Mapping[str, tuple[str, str]] = {
    "HOLDS": ("#17692f", "o"),
    "DIFFERS": ("#a8201a", "X"),
    "SMALL": ("#3b5b92", "s"),
}
OPEN_STYLE = ("#7a5300", "D")
"""Colour and marker of any other verdict."""


def draw_forest(frame: pd.DataFrame) -> tuple[Figure, str]:
    """Return the figure and a description of its marks.

    Columns: name, words, unit, effect, low, high, bar_low, bar_high, verdict. The claim holds if the effect lies above
    `bar_low` and below `bar_high`, in its unit. A missing threshold is NaN. An effect without an interval is drawn as
    its mark alone.
    """
    units = list(dict.fromkeys(frame["unit"]))
    sizes = frame["words"].map(_get_row_height).groupby(frame["unit"]).sum()
    heights = [INCHES_PER_PANEL + INCHES_PER_ROW * sizes[unit] for unit in units]
    figure, panels = make_axes(
        WIDTH, sum(heights) / len(units), num_panels=len(units), num_columns=1, sharey=False, height_ratios=heights
    )
    for unit, axes in zip(units, panels, strict=True):
        _draw_panel(frame[frame["unit"] == unit].reset_index(drop=True), axes, str(unit))
    note = "mark: effect; whiskers: interval; upright stroke: threshold; shaded: where it holds; open mark: OPEN, or no verdict"
    is_log = any(axes.get_xscale() == "symlog" for axes in panels)
    return figure, note + ("; axes in powers of ten are logarithmic beyond the marks next to 0" if is_log else "")


def _get_row_height(text: str) -> float:
    """Return the height of a row with this text above it."""
    return 1 + TEXT_LINE_HEIGHT * text.count("\n")


def _draw_panel(rows: pd.DataFrame, axes: Axes, unit: str) -> None:
    _set_scale(axes, rows)
    low, high = axes.get_xlim()
    ends = rows["words"].map(_get_row_height).cumsum()
    # the first row with one line of text is at 0
    positions = ends - 1
    for position, (_, row) in zip(positions, rows.iterrows(), strict=True):
        _draw_regions(axes, position, row, low, high)
        _draw_row(axes, position, row)
    middles = positions + MARK_OFFSET
    axes.vlines([0] * len(rows), middles - HALF_BAR, middles + HALF_BAR, color=GREY, linewidth=0.8, zorder=0)
    axes.set_xlim(low, high)
    axes.set_ylim(ends.iloc[-1] - 0.45, -0.55)
    axes.set_yticks(positions + MARK_OFFSET, rows["name"], fontsize="small", fontweight="bold")
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_xlabel(unit, fontsize="small", loc="right", labelpad=1)
    axes.tick_params(axis="x", labelsize="small")
    verdict_axis = axes.secondary_yaxis("right")
    verdict_axis.set_yticks(positions + MARK_OFFSET, rows["verdict"].str.lower(), fontsize="small")
    verdict_axis.tick_params(length=0)
    verdict_axis.spines["right"].set_visible(False)
    for label, verdict in zip(verdict_axis.get_yticklabels(), rows["verdict"], strict=True):
        label.set_color(STYLES.get(verdict, OPEN_STYLE)[0])


def _set_scale(axes: Axes, rows: pd.DataFrame) -> None:
    """Set the limits and, if effects differ greatly in size, a symmetric logarithmic scale."""
    values = rows[["effect", "low", "high", "bar_low", "bar_high"]].to_numpy(float)
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    largest = float(sizes.max(initial=0.0)) or 1.0
    typical = float(np.median(sizes)) if len(sizes) else 1.0
    if largest > LOG_RATIO * typical:
        threshold = 10.0 ** np.floor(np.log10(typical))
        axes.set_xscale("symlog", linthresh=threshold, linscale=1.0)
        axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=threshold))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))
    low, high = np.nanmin(values, initial=0.0), np.nanmax(values, initial=0.0)
    margin = 0.06 * (high - low or 1.0)
    axes.set_xlim(1.3 * low - margin * (low == 0), 1.3 * high + margin * (high == 0))
    axes.minorticks_off()


def _draw_regions(axes: Axes, position: float, row: pd.Series, low: float, high: float) -> None:
    """Shade where the claim holds and draw its thresholds."""
    # nanmax and nanmin ignore a missing threshold
    start, end = np.nanmax([low, row["bar_low"]]), np.nanmin([high, row["bar_high"]])
    middle = position + MARK_OFFSET
    if start < end:
        axes.barh(middle, end - start, height=2 * HALF_BAR, left=start, color="#e4e7ea", linewidth=0, zorder=0)
    thresholds = [threshold for threshold in (row["bar_low"], row["bar_high"]) if np.isfinite(threshold)]
    axes.vlines(thresholds, middle - HALF_BAR, middle + HALF_BAR, color=GREY, linewidth=1.6, zorder=1)


def _draw_row(axes: Axes, position: float, row: pd.Series) -> None:
    colour, marker = STYLES.get(row["verdict"], OPEN_STYLE)
    text_style: dict[str, Any] = {"va": "bottom", "fontsize": 7.5, "linespacing": 1.05}
    axes.text(0.01, position + TEXT_OFFSET, row["words"], transform=axes.get_yaxis_transform(), **text_style)
    middle = position + MARK_OFFSET
    if np.isfinite(row["low"]) and np.isfinite(row["high"]):
        axes.hlines(middle, row["low"], row["high"], color=colour, linewidth=1.6)
        axes.plot([row["low"], row["high"]], [middle] * 2, "|", color=colour, markersize=5)
    fill = colour if row["verdict"] in STYLES else "white"
    axes.plot([row["effect"]], [middle], marker, color=colour, mfc=fill, markersize=5.5, zorder=3)

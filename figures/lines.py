"""Draw lines: a measure against an axis, one line per group, with an interval over seeds."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from figures.intervals import describe_interval, format_counts, summarise_seeds
from figures.style import DASHES, MARKERS, format_fixed, label_values, make_palette, place_legend_above, sort_values

MIN_LINE_POINTS = 3
"""Fewer points have no trend to see. They are not joined, and each has a bar instead of a band."""
MAX_REFERENCE_DISTANCE = 2.0
"""Distance, in ranges of the lines, beyond which a reference is not drawn."""


def draw_lines(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str) -> str:
    """Draw the mean of `y` over seeds at each `x`, one line for each value of `group`.

    Lines differ in colour, marker and dashes. A group without any `x` (a reference system) is a level line. Words on
    the x axis are equally spaced. Returns a description of the bands.
    """
    values = sort_values(frame[x])
    is_numeric = pd.api.types.is_numeric_dtype(frame[x].dropna().infer_objects())
    positions = [float(position) for position in (values if is_numeric else range(len(values)))]
    groups = list(dict.fromkeys(frame[group]))
    counts: list[int] = []
    references: list[tuple[pd.DataFrame, str, dict[str, Any]]] = []
    for index, (name, colour) in enumerate(zip(groups, make_palette(len(groups)), strict=True)):
        members = frame[frame[group] == name]
        style: dict[str, Any] = {"color": colour, "dashes": DASHES[index % len(DASHES)] or (1, 0)}
        if members[x].isna().all():
            references.append((members, str(name), style))
            continue
        summary = summarise_seeds(members, x, y).reindex([value for value in values if value in set(members[x])])
        line_positions = [positions[values.index(value)] for value in summary.index]
        label = f"{name} ({format_counts(summary['n'])})"
        marker = MARKERS[index % len(MARKERS)]
        is_line = len(line_positions) >= MIN_LINE_POINTS
        line_style = style if is_line else {"color": colour, "linestyle": "none"}
        axes.plot(line_positions, summary["mean"], marker=marker, markersize=5, label=label, **line_style)
        if is_line:
            axes.fill_between(line_positions, summary["low"], summary["high"], color=colour, alpha=0.2, linewidth=0)
        else:
            axes.vlines(line_positions, summary["low"], summary["high"], color=colour)
        counts += list(summary["n"])
    low, high = axes.get_ylim() if len(references) < len(groups) else (0.0, 0.0)
    for members, name, style in references:
        counts += _draw_level(members, axes, y, name, style, low, high)
    label_values(axes, values, positions)
    place_legend_above(axes)
    if not counts:
        return ""
    return describe_interval(counts, "bands" if len(values) >= MIN_LINE_POINTS else "bars")


def _draw_level(
    members: pd.DataFrame, axes: Axes, y: str, name: str, style: dict[str, Any], low: float, high: float
) -> list[int]:
    """Draw a reference as a level line with its band and return its number of seeds if it has a band.

    The lines lie between `low` and `high`, which are equal if there are none. A reference far outside would flatten them.
    It only has its value in the legend.
    """
    summary = summarise_seeds(members.assign(level=0), "level", y).loc[0]
    count, mean = int(summary["n"]), float(summary["mean"])
    if max(low - mean, mean - high) > MAX_REFERENCE_DISTANCE * (high - low) > 0:
        place = f"{format_fixed(mean, 1)}, {'below' if mean < low else 'above'} the axis"
        axes.plot([], [], label=f"{name}: {place} ({format_counts([count])})", **style)
        return []
    axes.axhline(mean, label=f"{name} ({format_counts([count])})", **style)
    if summary["high"] > summary["low"]:
        axes.axhspan(summary["low"], summary["high"], color=style["color"], alpha=0.12, linewidth=0)
    return [count] if count > 1 else []

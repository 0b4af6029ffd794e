"""Draw lines: a measure against an axis, one line per group, with an interval over seeds."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from figures.intervals import describe_interval, format_counts, summarise_seeds
from figures.style import DASHES, MARKERS, label_values, make_palette, place_legend_above, sort_values

FAR = 2.0
"""Ranges of the lines beyond which a reference is left outside the axis."""


def draw_lines(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str) -> str:
    """Draw the mean of `y` over seeds at each `x`, one line for each value of `group`.

    Return a description of the bands.

    Lines differ in colour, marker and dashes. A group without any `x` (a reference system) is a level line. Words on
    the x axis are equally spaced.
    """
    values = sort_values(frame[x])
    is_numeric = pd.api.types.is_numeric_dtype(frame[x].dropna().infer_objects())
    places = [float(value) for value in values] if is_numeric else [float(n) for n in range(len(values))]
    groups, counts = list(dict.fromkeys(frame[group])), []
    levels: list[tuple[pd.DataFrame, str, dict[str, Any]]] = []
    ends: list[float] = []
    for number, (name, colour) in enumerate(zip(groups, make_palette(len(groups)), strict=True)):
        members = frame[frame[group] == name]
        look: dict[str, Any] = {"color": colour, "dashes": DASHES[number % len(DASHES)] or (1, 0)}
        if members[x].isna().all():
            levels.append((members, str(name), look))
            continue
        found = summarise_seeds(members, x, y).reindex([value for value in values if value in set(members[x])])
        at = [places[values.index(value)] for value in found.index]
        label = f"{name} ({format_counts(found['n'])})"
        axes.plot(at, found["mean"], marker=MARKERS[number % len(MARKERS)], markersize=5, label=label, **look)
        if len(at) > 1:
            axes.fill_between(at, found["low"], found["high"], color=colour, alpha=0.2, linewidth=0)
        else:
            # a band without width would be invisible
            axes.vlines(at, found["low"], found["high"], color=colour)
        counts += list(found["n"])
        ends += [float(found["low"].min()), float(found["high"].max())]
    for members, name, look in levels:
        counts += _draw_level(members, axes, y, name, look, ends)
    label_values(axes, values, places)
    place_legend_above(axes)
    return describe_interval(counts, "bands" if len(values) > 1 else "bars") if counts else ""


def _draw_level(
    members: pd.DataFrame, axes: Axes, y: str, name: str, look: dict[str, Any], ends: list[float]
) -> list[int]:
    """Draw a reference as a level line with its band and return its number of seeds if it has a band.

    `ends` are the lowest and highest values of the lines. A reference far outside them would flatten them. It is drawn
    as an arrowhead at the edge instead, and its value is written in the legend.
    """
    found = summarise_seeds(members.assign(level=0), "level", y).loc[0]
    count, mean = int(found["n"]), float(found["mean"])
    words = format_counts([count])
    low, high = (min(ends), max(ends)) if ends else (mean, mean)
    if max(low - mean, mean - high) > FAR * (high - low) > 0:
        is_below = mean < low
        where, at, marker = ("below", 0.03, "v") if is_below else ("above", 0.97, "^")
        label = f"{name}: {mean:.1f}, {where} the axis ({words})"
        style: dict[str, Any] = {"marker": marker, "linestyle": "none", "color": look["color"], "markersize": 7}
        axes.plot([0.97], [at], transform=axes.transAxes, label=label, **style)
        return []
    axes.axhline(mean, label=f"{name} ({words})", **look)
    if found["high"] > found["low"]:
        axes.axhspan(found["low"], found["high"], color=look["color"], alpha=0.12, linewidth=0)
    return [count] if count > 1 else []

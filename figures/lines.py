"""Lines: a measure against an axis, one line a group, with an interval over seeds."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from figures.intervals import count_words, format_interval_words, over_seeds
from figures.style import DASHES, MARKERS, label_values, legend_above, palette, sort_values


def draw_lines(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str) -> str:
    """Draw the mean of `y` over seeds at each `x`, one line for each value of `group`; return what the bands are.

    Lines differ in colour, marker and dashes. A group without any `x` (a reference system) is a level line. Words on
    the x axis stand at equal distances.
    """
    values = sort_values(frame[x])
    is_numeric = pd.api.types.is_numeric_dtype(frame[x].dropna().infer_objects())
    places = [float(value) for value in values] if is_numeric else [float(n) for n in range(len(values))]
    groups, counts = list(dict.fromkeys(frame[group])), []
    for number, (name, colour) in enumerate(zip(groups, palette(len(groups)), strict=True)):
        members = frame[frame[group] == name]
        look: dict[str, Any] = {"color": colour, "dashes": DASHES[number % len(DASHES)] or (1, 0)}
        if members[x].isna().all():
            counts += _draw_level(members, axes, y, str(name), look)
            continue
        found = over_seeds(members, x, y).reindex([value for value in values if value in set(members[x])])
        at = [places[values.index(value)] for value in found.index]
        label = f"{name} ({count_words(found['n'])})"
        axes.plot(at, found["mean"], marker=MARKERS[number % len(MARKERS)], markersize=5, label=label, **look)
        if len(at) > 1:
            axes.fill_between(at, found["low"], found["high"], color=colour, alpha=0.2, linewidth=0)
        else:  # a band of no width would not be seen
            axes.vlines(at, found["low"], found["high"], color=colour)
        counts += list(found["n"])
    label_values(axes, values, places)
    legend_above(axes)
    return format_interval_words(counts, "bands" if len(values) > 1 else "bars") if counts else ""


def _draw_level(members: pd.DataFrame, axes: Axes, y: str, name: str, look: dict[str, Any]) -> list[int]:
    """Draw the mean of a reference and its band; return its number of seeds where it has a band."""
    found = over_seeds(members.assign(level=0), "level", y).loc[0]
    count = int(found["n"])
    axes.axhline(found["mean"], label=f"{name} ({count_words([count])})", **look)
    if found["high"] > found["low"]:
        axes.axhspan(found["low"], found["high"], color=look["color"], alpha=0.12, linewidth=0)
    return [count] if count > 1 else []

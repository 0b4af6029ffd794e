"""Bars and dots: a measure by category, groups beside each other, with an interval over seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from figures.intervals import count_words, interval_words, over_seeds
from figures.style import INK, MARKERS, in_order, label_values, legend_above, palette

HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")
GOLDEN_RATIO = 0.618034
ROOM = 0.8
"""The share of a category's width that its groups fill."""


def draw_bars(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str) -> str:
    """Draws a bar from zero for each category and group, with its interval; gives what the whiskers are."""
    return _draw(frame, axes, x=x, y=y, group=group, are_bars=True)


def draw_dots(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str) -> str:
    """Draws a pale dot a row and a mark for their mean with its interval; gives what the whiskers are."""
    return _draw(frame, axes, x=x, y=y, group=group, are_bars=False)


def _draw(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str, are_bars: bool) -> str:
    values, groups = in_order(frame[x]), list(dict.fromkeys(frame[group]))
    width, counts = ROOM / len(groups), []
    for number, (name, colour) in enumerate(zip(groups, palette(len(groups)), strict=True)):
        members = frame[frame[group] == name]
        found = over_seeds(members, x, y)
        at = np.array([values.index(value) for value in found.index]) + (number - (len(groups) - 1) / 2) * width
        label, mean = f"{name} ({count_words(found['n'])})", found["mean"].to_numpy()
        spread = np.abs(found[["low", "high"]].to_numpy().T - mean)
        if are_bars:
            axes.bar(at, mean, 0.9 * width, color=colour, hatch=HATCHES[number % len(HATCHES)], ec="white", label=label)
            axes.errorbar(at, mean, spread, fmt="none", ecolor=INK, capsize=3, linewidth=1.2)
        else:
            _draw_each(members, axes, dict(zip(found.index, at, strict=True)), x=x, y=y, width=width, colour=colour)
            marker = MARKERS[number % len(MARKERS)]
            axes.errorbar(at, mean, spread, fmt=marker, color=colour, ecolor=INK, capsize=3, mec=INK, label=label)
        counts += list(found["n"])
    label_values(axes, values, [float(place) for place in range(len(values))])
    if len(groups) > 1:
        legend_above(axes)
    return interval_words(counts, "whiskers") + f", {count_words(counts)}"


def _draw_each(
    members: pd.DataFrame, axes: Axes, places: dict[object, float], *, x: str, y: str, width: float, colour: object
) -> None:
    """Spreads the dots of a category evenly, neighbours far apart, lest their order looks like a trend.

    There is no randomness in it: the same data gives the same picture.
    """
    for value, rows in members.groupby(x, sort=False):
        offsets = (np.arange(len(rows)) + 0.5) * GOLDEN_RATIO % 1 - 0.5
        axes.plot(places[value] + 0.7 * width * offsets, rows[y], "o", color=colour, alpha=0.35, markersize=3.5)

"""Bars and dots: a measure by category, groups beside each other, with an interval over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from figures.intervals import count_words, format_interval_words, over_seeds
from figures.style import GREY, INK, MARKERS, format_value, label_values, legend_above, palette, sort_values

HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")
GOLDEN_RATIO = 0.618034
ROOM = 0.8
"""The share of a category's width that its groups fill."""
SHARE_OF_DOTS = 0.6
"""Of a group's room; the rest is of its mean and whiskers, beside the dots."""


def draw_bars(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str) -> str:
    """Draw a bar from zero for each category and group, with its interval; return what the whiskers are."""
    values, groups = sort_values(frame[x]), list(dict.fromkeys(frame[group]))
    width, counts = ROOM / len(groups), []
    for number, (name, colour) in enumerate(zip(groups, palette(len(groups)), strict=True)):
        found = over_seeds(frame[frame[group] == name], x, y)
        at = _places(found.index, values) + (number - (len(groups) - 1) / 2) * width
        mean = found["mean"].to_numpy()
        label = f"{name} ({count_words(found['n'])})"
        axes.bar(at, mean, 0.9 * width, color=colour, hatch=HATCHES[number % len(HATCHES)], ec="white", label=label)
        spread = np.abs(found[["low", "high"]].to_numpy().T - mean)
        many = (found["n"] > 1).to_numpy()  # the whiskers of one would look like a sure number
        axes.errorbar(at[many], mean[many], spread[:, many], fmt="none", ecolor=INK, capsize=3, linewidth=1.2)
        counts += list(found["n"])
    label_values(axes, values, [float(place) for place in range(len(values))])
    if len(groups) > 1:
        legend_above(axes)
    return format_interval_words(counts, "whiskers") + f", {count_words(counts)}"


def draw_dots(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str, mark: str = "") -> str:
    """Draw a dot a row and beside the dots of a group their mean with its interval; return what the whiskers are.

    Groups differ in colour and place, values of the column `mark` in the shape of the dot.
    """
    values, groups = sort_values(frame[x]), list(dict.fromkeys(frame[group]))
    marks = sort_values(frame[mark]) if mark else []
    shapes = dict(zip(marks, MARKERS, strict=False))
    width, counts, handles = ROOM / len(groups), [], []
    for number, (name, colour) in enumerate(zip(groups, palette(len(groups)), strict=True)):
        members = frame[frame[group] == name]
        found = over_seeds(members, x, y)
        at = _places(found.index, values) + (number - (len(groups) - 1) / 2) * width
        shape = "o" if marks else MARKERS[number % len(MARKERS)]  # colour alone is lost in grey
        look = {"color": colour, "mark": mark, "shapes": shapes, "shape": shape}
        _draw_each(members, axes, dict(zip(found.index, at, strict=True)), x=x, y=y, width=width, look=look)
        _draw_means(found, axes, at + 0.36 * width)
        drawn = {"linewidth": 6} if marks else {"marker": shape, "linestyle": "none"}
        handles.append(Line2D([], [], color=colour, label=f"{name} ({count_words(found['n'])})", **drawn))
        counts += list(found["n"])
    for value, shape in shapes.items():
        label = f"{mark.replace('_', ' ')} {format_value(value)}"
        handles.append(Line2D([], [], color=GREY, marker=shape, linestyle="none", label=label))
    label_values(axes, values, [float(place) for place in range(len(values))])
    if len(handles) > 1:
        legend_above(axes, handles, handlelength=1.2, most_columns=2 if marks else 9)
    return f"{format_interval_words(counts, 'dash and whiskers')}, {count_words(counts)}"


def _places(found: pd.Index, values: list[Any]) -> np.ndarray:
    return np.array([values.index(value) for value in found], dtype=float)


def _draw_means(found: pd.DataFrame, axes: Axes, at: np.ndarray) -> None:
    mean = found["mean"].to_numpy()
    spread = np.abs(found[["low", "high"]].to_numpy().T - mean)
    axes.errorbar(at, mean, spread, fmt="_", markersize=9, color=INK, ecolor=INK, capsize=3, linewidth=1.2, mew=2)


def _draw_each(
    members: pd.DataFrame,
    axes: Axes,
    places: dict[object, float],
    *,
    x: str,
    y: str,
    width: float,
    look: Mapping[str, Any],
) -> None:
    """Spread the dots of a category evenly, neighbours far apart, lest their order looks like a trend.

    There is no randomness in it: the same data gives the same picture.
    """
    for value, rows in members.groupby(x, sort=False):
        offsets = (np.arange(len(rows)) + 0.5) * GOLDEN_RATIO % 1 - 0.5
        at = places[value] + width * (SHARE_OF_DOTS * offsets - 0.1)
        marks = rows[look["mark"]] if look["mark"] else pd.Series(0, index=rows.index)
        for mark in dict.fromkeys(marks):
            is_so = (marks == mark).to_numpy()
            shape = look["shapes"].get(mark, look["shape"])
            axes.plot(at[is_so], rows[y][is_so], shape, color=look["color"], alpha=0.7, markersize=4.5, mew=0)

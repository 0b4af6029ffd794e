"""Lines: a measure against an axis, one line a group, with an interval over repetitions."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from figures.style import DASHES, MARKERS, palette


def draw_lines(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, hue: str) -> None:
    """Draws the mean of `y` over repetitions at each `x`, one line for each value of `hue`, with min and max as a band.

    Lines differ in colour, marker and dashes; the legend says how many repetitions each point has.
    """
    groups = list(dict.fromkeys(frame[hue]))
    for number, (group, colour) in enumerate(zip(groups, palette(len(groups)), strict=True)):
        chosen = frame[frame[hue] == group].groupby(x)[y]
        low, mean, high, count = chosen.min(), chosen.mean(), chosen.max(), chosen.count()
        marker, dashes = MARKERS[number % len(MARKERS)], DASHES[number % len(DASHES)]
        label = f"{group} (n = {count.min()})"
        line = axes.plot(mean.index, mean, color=colour, marker=marker, markersize=5, label=label)[0]
        if dashes:
            line.set_dashes(dashes)
        axes.fill_between(mean.index, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.legend(frameon=False)

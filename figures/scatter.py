"""Scatter: one measure against another, a dot a run or dataset, with each group's straight line and its correlation.

Dots of one group that share their x to the last digit are one thing measured again, as a dataset is by several seeds:
their mean is drawn, since counting them one by one would make the interval too narrow.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from figures.style import DASHES, MARKERS, legend_above, palette

FEWEST_FOR_INTERVAL = 4


def draw_scatter(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str, x_is_log: bool) -> str:
    """Draws the dots and the least-squares line of each group; the legend has Pearson's r, its interval and n.

    On a logarithmic axis line and correlation are of the logarithm.
    """
    groups = list(dict.fromkeys(frame[group]))
    for number, (name, colour) in enumerate(zip(groups, palette(len(groups)), strict=True)):
        members = frame[frame[group] == name].dropna(subset=[x, y]).groupby(x, as_index=False, sort=False)[y].mean()
        at, values = members[x].to_numpy(float), members[y].to_numpy(float)
        along = np.log10(at) if x_is_log else at
        label = f"{name}: {correlation_words(along, values)}"
        axes.plot(
            at, values, linestyle="none", marker=MARKERS[number % len(MARKERS)], color=colour, alpha=0.8, label=label
        )
        if len(at) > 1 and np.ptp(along) > 0:
            fit, ends = stats.linregress(along, values), np.array([along.argmin(), along.argmax()])
            line = fit.intercept + fit.slope * along[ends]
            axes.plot(at[ends], line, color=colour, dashes=DASHES[number % len(DASHES)] or (1, 0), linewidth=1.2)
    legend_above(axes)
    return "r: Pearson over the dots, with its 95 % interval" + (" (of log x)" if x_is_log else "")


def correlation_words(x: np.ndarray, y: np.ndarray) -> str:
    """Gives Pearson's r with its 95 % interval (Fisher's z, from four pairs on) and the number of pairs."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return f"r = –, n = {len(x)}"
    found = stats.pearsonr(x, y)
    if len(x) < FEWEST_FOR_INTERVAL:
        return f"r = {found.statistic:+.2f}, n = {len(x)}"
    low, high = found.confidence_interval(0.95)
    return f"r = {found.statistic:+.2f} [{low:+.2f}, {high:+.2f}], n = {len(x)}"

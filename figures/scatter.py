"""Scatter: one measure against another, a dot a run or dataset, with each group's straight line and its correlation.

Dots of one group that share their x to the last digit are one thing measured again, as a dataset is by several seeds:
their mean is drawn. Dots that are seeds of one setting, each with its own x, are drawn one by one; an interval that
counted them as independent would be too narrow, so none is given.
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
        rows = frame[frame[group] == name].dropna(subset=[x, y])
        members = rows.groupby(x, as_index=False, sort=False)[y].mean()
        at, values = members[x].to_numpy(float), members[y].to_numpy(float)
        along = np.log10(at) if x_is_log else at
        label = f"{name}: {correlation_words(along, values, _num_settings(rows))}"
        axes.plot(
            at, values, linestyle="none", marker=MARKERS[number % len(MARKERS)], color=colour, alpha=0.8, label=label
        )
        if len(at) > 1 and np.ptp(along) > 0:
            fit, ends = stats.linregress(along, values), np.array([along.argmin(), along.argmax()])
            line = fit.intercept + fit.slope * along[ends]
            axes.plot(at[ends], line, color=colour, dashes=DASHES[number % len(DASHES)] or (1, 0), linewidth=1.2)
    legend_above(axes)
    note = "r: Pearson over the dots" + (" (of log x)" if x_is_log else "")
    has_interval = any("[" in label for label in axes.get_legend_handles_labels()[1])
    return note + (", its 95 % interval if they are independent" if has_interval else "")


def _num_settings(rows: pd.DataFrame) -> int:
    """Gives how many settings the dots of a group are seeds of; 0 when a dot is not a seed of a setting."""
    if "setting" not in rows or rows.duplicated(["setting", "seed"]).any():
        return 0
    return int(rows["setting"].nunique())


def correlation_words(x: np.ndarray, y: np.ndarray, num_settings: int = 0) -> str:
    """Gives Pearson's r and the number of pairs, of how many settings if fewer; else with its 95 % interval.

    The interval is Fisher's z, from four pairs on.
    """
    of = f" of {num_settings} settings" if 0 < num_settings < len(x) else ""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return f"r = –, n = {len(x)}{of}"
    found = stats.pearsonr(x, y)
    if len(x) < FEWEST_FOR_INTERVAL or of:
        return f"r = {found.statistic:+.2f}, n = {len(x)}{of}"
    low, high = found.confidence_interval(0.95)
    return f"r = {found.statistic:+.2f} [{low:+.2f}, {high:+.2f}], n = {len(x)}"

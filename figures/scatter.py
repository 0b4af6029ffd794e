"""Scatter: one measure against another, a dot a run or dataset, with each group's straight line and its correlation.

Dots of one group that share their x to the last digit are one thing measured again, as a dataset is by several seeds:
their mean is drawn, and r is over things. Seeds of a few settings, each with an x of its own, are no independent draws:
they are drawn faintly, and beside them each setting's mean over its seeds, of which line and r are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from figures.intervals import LEVEL
from figures.style import DASHES, MARKERS, legend_above, palette

FEWEST_FOR_INTERVAL = 4


def draw_scatter(
    frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str, x_is_log: bool, groups: Iterable[str] = ()
) -> str:
    """Draw the dots and the least-squares line of each group; the legend has Pearson's r, its interval and n.

    On a logarithmic axis line and correlation are of the logarithm. `groups` names all groups of the figure, where a
    panel may lack some. Return what r and its interval are.
    """
    every, is_of_seeds = list(groups) or list(dict.fromkeys(frame[group])), False
    for number, (name, colour) in enumerate(zip(every, palette(len(every)), strict=True)):
        rows = frame[frame[group] == name].dropna(subset=[x, y])
        if rows.empty:
            continue
        marker = MARKERS[number % len(MARKERS)]
        style: dict[str, Any] = {"linestyle": "none", "marker": marker, "color": colour}
        if _are_seeds_of_settings(rows):
            is_of_seeds = True
            axes.plot(rows[x], rows[y], alpha=0.3, markersize=3, **style)
            members = rows.groupby("setting", as_index=False, sort=False)[[x, y]].mean()
        else:
            members = rows.groupby(x, as_index=False, sort=False)[y].mean()
        at, values = members[x].to_numpy(float), members[y].to_numpy(float)
        along = np.log10(at) if x_is_log else at
        label = f"{name}: {format_correlation_words(along, values)}"
        axes.plot(at, values, alpha=0.8, markersize=6, label=label, **style)
        if len(at) > 1 and np.ptp(along) > 0:
            fit, ends = stats.linregress(along, values), np.array([along.argmin(), along.argmax()])
            line = fit.intercept + fit.slope * along[ends]
            axes.plot(at[ends], line, color=colour, dashes=DASHES[number % len(DASHES)] or (1, 0), linewidth=1.2)
    num_panels = len(axes.figure.axes)
    legend_above(axes, handlelength=1.0, most_columns=1 if num_panels > 1 else 2)
    labels = [str(line.get_label()) for line in axes.get_lines()]
    return _note(is_of_seeds, x_is_log, any("[" in label for label in labels))


def _note(is_of_seeds: bool, x_is_log: bool, has_interval: bool) -> str:
    what = "n settings, each the mean over its seeds" if is_of_seeds else "the n dots"
    note = f"r: Pearson's, over {what}" + (" (of log x)" if x_is_log else "")
    return note + (f"; [ ]: 95 % interval if {'settings' if is_of_seeds else 'dots'} are independent" * has_interval)


def _are_seeds_of_settings(rows: pd.DataFrame) -> bool:
    """Return whether dots are several seeds of settings; a dataset's dot is not."""
    if "setting" not in rows or rows.duplicated(["setting", "seed"]).any():
        return False
    return int(rows["setting"].nunique()) < len(rows)


def format_correlation_words(x: np.ndarray, y: np.ndarray) -> str:
    """Return Pearson's r and the number of pairs, from four pairs on with its 95 % interval by Fisher's z."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return f"r = –, n = {len(x)}"
    found = stats.pearsonr(x, y)
    if len(x) < FEWEST_FOR_INTERVAL:
        return f"r = {found.statistic:+.2f}, n = {len(x)}"
    low, high = found.confidence_interval(LEVEL)
    return f"r = {found.statistic:+.2f} [{low:+.2f}, {high:+.2f}], n = {len(x)}"

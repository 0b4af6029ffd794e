"""Scatter: one measure against another, a dot a run or dataset, with each group's straight line and its correlation.

Dots of one group that share their x to the last digit are one thing measured again, as a dataset is by several seeds:
their mean is drawn, and r is over things. Dots that are seeds of a few settings, each with its own x, are drawn one by
one; they are no independent draws, so r is taken over the settings of each seed, and its mean over seeds is given.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from figures.intervals import ENOUGH_SEEDS, LEVEL
from figures.style import DASHES, MARKERS, legend_above, palette

FEWEST_FOR_INTERVAL = 4
FEWEST_SETTINGS = 3


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
        members = rows.groupby(x, as_index=False, sort=False)[y].mean()
        at, values = members[x].to_numpy(float), members[y].to_numpy(float)
        along = np.log10(at) if x_is_log else at
        if _are_seeds_of_settings(rows):
            is_of_seeds, words = True, seeds_words(rows, x, y, x_is_log=x_is_log)
        else:
            words = correlation_words(along, values)
        marker = MARKERS[number % len(MARKERS)]
        label = f"{name}: {words}"
        axes.plot(at, values, linestyle="none", marker=marker, color=colour, alpha=0.8, markersize=5, label=label)
        if len(at) > 1 and np.ptp(along) > 0:
            fit, ends = stats.linregress(along, values), np.array([along.argmin(), along.argmax()])
            line = fit.intercept + fit.slope * along[ends]
            axes.plot(at[ends], line, color=colour, dashes=DASHES[number % len(DASHES)] or (1, 0), linewidth=1.2)
    num_panels = len(axes.figure.axes)
    legend_above(axes, handlelength=1.0, most_columns=1 if num_panels > 1 else 2)
    labels = [str(line.get_label()) for line in axes.get_lines()]
    return _note(is_of_seeds, x_is_log, any("[" in label for label in labels))


def _note(is_of_seeds: bool, x_is_log: bool, has_interval: bool) -> str:
    what = "Pearson's, over the settings of a seed, mean over n seeds" if is_of_seeds else "Pearson's, over the n dots"
    note = f"r: {what}" + (" (of log x)" if x_is_log else "")
    kind = "95 % interval of that mean (Student's t), the settings as they are"
    return note + (f"; [ ]: {kind if is_of_seeds else '95 % interval if dots are independent'}" if has_interval else "")


def _are_seeds_of_settings(rows: pd.DataFrame) -> bool:
    """Return whether dots are several seeds of settings; a dataset's dot is not."""
    if "setting" not in rows or rows.duplicated(["setting", "seed"]).any():
        return False
    return int(rows["setting"].nunique()) < len(rows)


def seeds_words(rows: pd.DataFrame, x: str, y: str, *, x_is_log: bool) -> str:
    """Return the mean over seeds of Pearson's r over settings, from three seeds on with Student's 95 % interval.

    A seed with fewer than three settings, or without variation, has no r.
    """
    found = []
    for _, one in rows.groupby("seed"):
        along = np.log10(one[x].to_numpy(float)) if x_is_log else one[x].to_numpy(float)
        values = one[y].to_numpy(float)
        if len(one) >= FEWEST_SETTINGS and np.ptp(along) > 0 and np.ptp(values) > 0:
            found.append(float(stats.pearsonr(along, values).statistic))
    count = f"n = {len(found) or rows['seed'].nunique()}"
    if not found:
        return f"r = –, {count}"
    mean = float(np.mean(found))
    if len(found) < ENOUGH_SEEDS:
        return f"r = {mean:+.2f}, {count}"
    half = stats.t.ppf((1 + LEVEL) / 2, len(found) - 1) * stats.sem(found)
    return f"r = {mean:+.2f} [{max(-1.0, mean - half):+.2f}, {min(1.0, mean + half):+.2f}], {count}"


def correlation_words(x: np.ndarray, y: np.ndarray) -> str:
    """Return Pearson's r and the number of pairs, from four pairs on with its 95 % interval by Fisher's z."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return f"r = –, n = {len(x)}"
    found = stats.pearsonr(x, y)
    if len(x) < FEWEST_FOR_INTERVAL:
        return f"r = {found.statistic:+.2f}, n = {len(x)}"
    low, high = found.confidence_interval(LEVEL)
    return f"r = {found.statistic:+.2f} [{low:+.2f}, {high:+.2f}], n = {len(x)}"

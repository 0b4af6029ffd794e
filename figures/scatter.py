"""Draw a scatter: one measure against another, with the straight line and the correlation of each group.

Dots of one group with exactly the same x are repeated measurements of one thing, for example a dataset with several
seeds. Their mean is drawn, and r is over the means. Seeds of a few settings, each with its own x, are not independent.
They are drawn faintly, next to the mean of each setting over its seeds. Line and r are over these means.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from figures.intervals import LEVEL
from figures.style import DASHES, MARKERS, make_palette, place_legend_above

MIN_POINTS_FOR_CORRELATION = 5
"""Fewer points get no correlation and no fitted line. They are joined instead."""


def draw_scatter(
    frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str, x_is_log: bool, groups: Iterable[str] = ()
) -> str:
    """Draw the dots and the least-squares line of each group. The legend has Pearson's r, its interval and n.

    On a logarithmic axis, line and correlation are of the logarithm. `groups` names all groups of the figure, because a
    panel may lack some. Returns a description of r and its interval.
    """
    every, is_of_seeds = list(groups) or list(dict.fromkeys(frame[group])), False
    for number, (name, colour) in enumerate(zip(every, make_palette(len(every)), strict=True)):
        rows = frame[frame[group] == name].dropna(subset=[x, y])
        if rows.empty:
            continue
        marker, dashes = MARKERS[number % len(MARKERS)], DASHES[number % len(DASHES)] or (1, 0)
        style: dict[str, Any] = {"linestyle": "none", "marker": marker, "color": colour}
        if _are_seeds_of_settings(rows):
            is_of_seeds = True
            axes.plot(rows[x], rows[y], alpha=0.3, markersize=3, **style)
            members = rows.groupby("setting", as_index=False, sort=False)[[x, y]].mean()
        else:
            members = rows.groupby(x, as_index=False, sort=False)[y].mean()
        at, values = members[x].to_numpy(float), members[y].to_numpy(float)
        along = np.log10(at) if x_is_log else at
        label = f"{name}: {format_correlation(along, values)}"
        axes.plot(at, values, alpha=0.8, markersize=6, label=label, **style)
        if len(at) < MIN_POINTS_FOR_CORRELATION:
            order = np.argsort(along)
            axes.plot(at[order], values[order], color=colour, dashes=dashes, linewidth=0.8)
        elif np.ptp(along) > 0:
            fit, ends = stats.linregress(along, values), np.array([along.argmin(), along.argmax()])
            line = fit.intercept + fit.slope * along[ends]
            axes.plot(at[ends], line, color=colour, dashes=dashes, linewidth=1.2)
    num_panels = len(axes.figure.axes)
    place_legend_above(axes, handlelength=1.0, most_columns=1 if num_panels > 1 else 2)
    labels = [str(line.get_label()) for line in axes.get_lines()]
    return _write_note(labels, is_of_seeds=is_of_seeds, x_is_log=x_is_log)


def _write_note(labels: list[str], *, is_of_seeds: bool, x_is_log: bool) -> str:
    """Return the note that explains the marks, r, and a missing r."""
    points = "settings" if is_of_seeds else "dots"
    parts = ["mark: mean of a setting over its seeds (small and faint: single seeds)"] * is_of_seeds
    if any("[" in label for label in labels):
        parts.append(f"r: Pearson's, over n {points}{' (of log x)' * x_is_log}")
        parts.append(f"[ ]: 95 % interval if {points} are independent")
    if any("r = –" in label for label in labels):
        parts.append(f"r = –: no correlation of fewer than {MIN_POINTS_FOR_CORRELATION} {points}")
    return "; ".join(parts)


def _are_seeds_of_settings(rows: pd.DataFrame) -> bool:
    """Return whether the dots are several seeds of a few settings, rather than one dot per dataset."""
    if "setting" not in rows or rows.duplicated(["setting", "seed"]).any():
        return False
    return int(rows["setting"].nunique()) < len(rows)


def format_correlation(x: np.ndarray, y: np.ndarray) -> str:
    """Return Pearson's r with its 95 % interval (Fisher's z) and the number of pairs. No r for fewer than five."""
    if len(x) < MIN_POINTS_FOR_CORRELATION or np.ptp(x) == 0 or np.ptp(y) == 0:
        return f"r = –, n = {len(x)}"
    found = stats.pearsonr(x, y)
    low, high = found.confidence_interval(LEVEL)
    return f"r = {found.statistic:+.2f} [{low:+.2f}, {high:+.2f}], n = {len(x)}"

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
from figures.style import DASHES, MARKERS, format_fixed, make_palette, place_legend_above

MIN_POINTS_FOR_CORRELATION = 5
"""Fewer points get no correlation and no fitted line."""


def draw_scatter(
    frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str, x_is_log: bool, groups: Iterable[str] = ()
) -> str:
    """Draw the dots and the least-squares line of each group. The legend has Pearson's r, its interval and n.

    On a logarithmic axis, line and correlation are of the logarithm. `groups` names all groups of the figure, because a
    panel may lack some. Returns a description of r and its interval.
    """
    names = list(groups) or list(dict.fromkeys(frame[group]))
    has_seeds = False
    for index, (name, colour) in enumerate(zip(names, make_palette(len(names)), strict=True)):
        rows = frame[frame[group] == name].dropna(subset=[x, y])
        if rows.empty:
            continue
        dashes = DASHES[index % len(DASHES)] or (1, 0)
        style: dict[str, Any] = {"linestyle": "none", "marker": MARKERS[index % len(MARKERS)], "color": colour}
        if _are_seeds_of_settings(rows):
            has_seeds = True
            axes.plot(rows[x], rows[y], alpha=0.3, markersize=3, **style)
            members = rows.groupby("setting", as_index=False, sort=False)[[x, y]].mean()
        else:
            members = rows.groupby(x, as_index=False, sort=False)[y].mean()
        x_values, y_values = members[x].to_numpy(float), members[y].to_numpy(float)
        scaled_x = np.log10(x_values) if x_is_log else x_values
        label = f"{name}: {format_correlation(scaled_x, y_values)}"
        axes.plot(x_values, y_values, alpha=0.8, markersize=6, label=label, **style)
        if len(x_values) >= MIN_POINTS_FOR_CORRELATION and np.ptp(scaled_x) > 0:
            fit = stats.linregress(scaled_x, y_values)
            ends = np.array([scaled_x.argmin(), scaled_x.argmax()])
            line = fit.intercept + fit.slope * scaled_x[ends]
            axes.plot(x_values[ends], line, color=colour, dashes=dashes, linewidth=1.2)
    num_panels = len(axes.figure.axes)
    place_legend_above(axes, handlelength=1.0, max_columns=1 if num_panels > 1 else 2)
    labels = [str(line.get_label()) for line in axes.get_lines()]
    return _write_note(labels, has_seeds=has_seeds, x_is_log=x_is_log)


def _write_note(labels: list[str], *, has_seeds: bool, x_is_log: bool) -> str:
    """Return the note that explains the marks, r, and a missing r."""
    points = "settings" if has_seeds else "dots"
    parts = ["mark: mean of a setting over its seeds (small and faint: single seeds)"] if has_seeds else []
    if any("[" in label for label in labels):
        parts.append(f"r: Pearson's, over n {points}{' (of log x)' if x_is_log else ''}")
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
    result = stats.pearsonr(x, y)
    low, high = result.confidence_interval(LEVEL)
    r, low, high = (format_fixed(number, 2, "+") for number in (result.statistic, low, high))
    return f"r = {r} [{low}, {high}], n = {len(x)}"

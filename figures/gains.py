"""Draw gains: a horizontal bar from zero for each series, its interval over seeds, and the value printed in the paper."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from figures.intervals import describe_interval, format_counts, summarise_seeds
from figures.style import INK, format_fixed, make_axes

ROW_HEIGHT, WIDTH = 0.42, 8.0
"""Inches."""
BAR, MARK = "#3b6ea8", "#b35900"


def draw_gains(frame: pd.DataFrame, *, y: str, y_label: str) -> tuple[Figure, str]:
    """Return the figure and a description of its marks. The column "paper" has the printed value of a series, or None."""
    names = list(dict.fromkeys(frame["series"]))
    figure, (axes,) = make_axes(WIDTH, 0.75 + ROW_HEIGHT * len(names))
    summary = summarise_seeds(frame, "series", y).loc[names]
    printed = frame.groupby("series")["paper"].first().loc[names].to_numpy(float)
    mean = summary["mean"].to_numpy()
    positions = np.arange(len(names))
    counts = summary["n"].to_numpy()
    # One seed has no interval.
    spread = np.where(counts > 1, np.abs(summary[["low", "high"]].to_numpy().T - mean), np.nan)
    axes.barh(positions, mean, height=0.6, color=BAR)
    axes.errorbar(mean, positions, xerr=spread, fmt="none", ecolor=INK, capsize=4, linewidth=1.4)
    axes.plot(printed, positions, linestyle="none", marker="D", color=MARK, markersize=7)
    axes.axvline(0, color=INK, linewidth=1)
    remarks = ["" if np.isnan(value) else f" (paper {format_fixed(value, 1, '+')})" for value in printed]
    remarks = [text if n == max(counts) else f"{text}, n = {n}" for text, n in zip(remarks, counts, strict=True)]
    numbers = [f"{format_fixed(value, 1, '+')}{text}" for value, text in zip(mean, remarks, strict=True)]
    axes.set_yticks(positions, [f"{name}: {text}" for name, text in zip(names, numbers, strict=True)])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(y_label, loc="right")  # centred it might be cut by the edge
    interval = describe_interval(summary["n"], "whiskers")
    return figure, f"bar: mean over {format_counts(summary['n'])} seeds; {interval}; diamond: the paper"

"""Draw gains: a horizontal bar from zero for each row of a table, its interval over seeds, and the printed value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from figures.intervals import describe_interval, format_counts, summarise_seeds
from figures.style import INK, format_fixed, make_axes, write_note, write_svg, write_title

ROW_HEIGHT, WIDTH = 0.42, 8.0
"""Inches."""
BAR, MARK = "#3b6ea8", "#b35900"


def gains_svg(rows: Sequence[Mapping[str, Any]], *, title: str, x_label: str) -> str:
    """Return a picture as SVG text.

    Each of `rows` has "row", "seed", "gain" and "paper" (None: no printed value). The same rows give the same text.
    """
    frame = pd.DataFrame(rows)
    names = list(dict.fromkeys(frame["row"]))
    figure, (axes,) = make_axes(WIDTH, 1.0 + ROW_HEIGHT * len(names))
    summary = summarise_seeds(frame, "row", "gain").loc[names]
    printed = frame.groupby("row")["paper"].first().loc[names].to_numpy(float)
    mean = summary["mean"].to_numpy()
    positions = np.arange(len(names))
    spread = np.abs(summary[["low", "high"]].to_numpy().T - mean)
    axes.barh(positions, mean, height=0.6, color=BAR)
    axes.errorbar(mean, positions, xerr=spread, fmt="none", ecolor=INK, capsize=4, linewidth=1.4)
    axes.plot(printed, positions, linestyle="none", marker="D", color=MARK, markersize=7)
    axes.axvline(0, color=INK, linewidth=1)
    printed_texts = ["" if np.isnan(value) else f" (paper {format_fixed(value, 1, '+')})" for value in printed]
    numbers = [f"{format_fixed(value, 1, '+')}{text}" for value, text in zip(mean, printed_texts, strict=True)]
    axes.set_yticks(positions, [f"{name}: {text}" for name, text in zip(names, numbers, strict=True)])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(x_label)
    counts = f"{format_counts(summary['n'])} seeds shared with the first row"
    write_note(figure, f"bar: mean over {counts}; {describe_interval(summary['n'], 'whiskers')}; diamond: the paper")
    write_title(figure, title)
    return write_svg(figure)

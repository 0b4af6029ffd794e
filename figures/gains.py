"""Draw gains: a horizontal bar from zero for each row of a table, its interval over seeds, and the printed value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine

from figures.intervals import describe_interval, format_counts, summarise_seeds
from figures.style import SETTINGS, format_fixed, write_svg

ROW_HEIGHT, WIDTH = 0.42, 8.0
"""Inches."""
INK, FAINT, BAR, MARK = "#1f2328", "#59636e", "#3b6ea8", "#b35900"


def gains_svg(rows: Sequence[Mapping[str, Any]], *, title: str, x_label: str) -> str:
    """Return a picture for light pages as SVG text. `figures.theme.recolour` makes the one for dark pages.

    Each of `rows` has "row", "seed", "gain" and "paper" (None: no printed value). The same rows give the same text.
    """
    frame = pd.DataFrame(rows)
    mpl.use("Agg")
    settings: dict[Any, Any] = {**mpl.rcParamsDefault, **SETTINGS, "backend": "agg", "text.color": INK}
    with mpl.rc_context(settings):
        height = 1.5 + ROW_HEIGHT * frame["row"].nunique()
        # The viewer's font may be wider than the one used for the layout.
        layout = ConstrainedLayoutEngine(rect=(0, 0, 0.97, 1))
        figure, axes = plt.subplots(figsize=(WIDTH, height), layout=layout)
        note = _draw(frame, axes)
        axes.set_title(title, loc="left", color=INK)
        axes.set_xlabel(x_label, color=INK)
        figure.supxlabel(note, fontsize="small", color=FAINT, x=0.99, ha="right")
        figure.patch.set_visible(False)
        svg = write_svg(figure)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def _draw(frame: pd.DataFrame, axes: Axes) -> str:
    names = list(dict.fromkeys(frame["row"]))
    summary = summarise_seeds(frame, "row", "gain").loc[names]
    printed = frame.groupby("row")["paper"].first().loc[names].to_numpy(float)
    mean = summary["mean"].to_numpy()
    positions = np.arange(len(names))
    spread = np.abs(summary[["low", "high"]].to_numpy().T - mean)
    axes.barh(positions, mean, height=0.6, color=BAR)
    axes.errorbar(mean, positions, xerr=spread, fmt="none", ecolor=INK, capsize=4, linewidth=1.4)
    axes.plot(printed, positions, linestyle="none", marker="D", color=MARK, markersize=7)
    for x, name, colour, values in ((1.11, "■ here", BAR, mean), (1.24, "◆ paper", MARK, printed)):
        text_style: dict[str, Any] = {"color": colour, "va": "center", "ha": "right"}
        text_style["transform"] = axes.get_yaxis_transform()
        axes.text(x, -0.6, name, fontsize="small", **text_style)
        for position, value in enumerate(values):
            axes.text(x, position, format_fixed(value, 1, "+"), **text_style)
    axes.set_yticks(positions, names)
    axes.invert_yaxis()
    _style_axes(axes)
    counts = format_counts(summary["n"])
    whiskers = describe_interval(summary["n"], "whiskers")
    return f"{counts} seeds that a row has in common with the first; {whiskers}"


def _style_axes(axes: Axes) -> None:
    """Colour axes and labels for a background that shows through."""
    axes.tick_params(colors=INK)
    axes.axvline(0, color=INK, linewidth=1)
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(FAINT)
    axes.patch.set_visible(False)
    axes.margins(x=0.08)

"""Heat maps: a measure in the cells of two axes, the number written in each, the best of a row framed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.patches import Rectangle

from figures.intervals import count_words
from figures.style import format_value, label_values, sort_values

COLOURS = "YlGnBu"  # its lightness falls evenly, so the order of cells survives in grey
BRIGHT = 0.179
"""The luminance on which black and white text stand out alike (WCAG's contrast)."""


def draw_heatmap(frame: pd.DataFrame, panels: list[Axes], *, x: str, y: str, cell: str, group: str) -> str:
    """Draw one panel for each value of `group`, on one scale of colours; return what the numbers are.

    The best of a row is framed, and what equals it. A cell without a value has a dash. Numbers rise upwards, words go
    down in the order of the data.
    """
    columns, rows = sort_values(frame[x]), sort_values(frame[y])
    if rows and isinstance(rows[0], str):
        rows = rows[::-1]
    span = (float(frame[cell].min()), float(frame[cell].max()))
    for axes, name in zip(panels, dict.fromkeys(frame[group]), strict=True):
        members = frame[frame[group] == name]
        values = members.pivot_table(index=y, columns=x, values=cell, aggfunc="mean").reindex(rows, axis=0)
        mesh = _draw_panel(values.reindex(columns, axis=1), axes, span)
        axes.set_title(str(name))
    panels[0].figure.colorbar(mesh, ax=panels, label=cell)
    counts = frame.groupby([group, x, y])["seed"].nunique()
    return f"cells: mean over seeds, {count_words(counts)}; framed: best of its row"


def _draw_panel(values: pd.DataFrame, axes: Axes, span: tuple[float, float]) -> QuadMesh:
    numbers = np.ma.masked_invalid(values.to_numpy(float))
    mesh = axes.pcolormesh(numbers, cmap=COLOURS, vmin=span[0], vmax=span[1])
    best = numbers.max(axis=1)
    for (row, column), number in np.ndenumerate(values.to_numpy(float)):
        colour = "black" if np.isnan(number) or luminance(mesh.to_rgba(number)) > BRIGHT else "white"
        text = "–" if np.isnan(number) else f"{number:.{_decimals(span)}f}"
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour, fontsize="small")
        if not np.isnan(number) and number >= best[row]:
            axes.add_patch(
                Rectangle((column + 0.06, row + 0.06), 0.88, 0.88, fill=False, edgecolor=colour, linewidth=1.6)
            )
    label_values(axes, list(values.columns), [column + 0.5 for column in range(values.shape[1])])
    axes.set_yticks(np.arange(len(values)) + 0.5, [format_value(value) for value in values.index])
    axes.grid(False)
    return mesh


def luminance(colour: Sequence[float] | np.ndarray) -> float:
    """Return the relative luminance of an sRGB colour (WCAG 2), 0 to 1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _decimals(span: tuple[float, float]) -> int:
    """Return the decimals that tell cells apart: one for points, more where all numbers are small."""
    widest = max(abs(span[0]), abs(span[1]))
    return 1 if widest >= 5 else 2 if widest >= 0.5 else 3

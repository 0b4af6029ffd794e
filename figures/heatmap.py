"""Draw heat maps: a measure in the cells of two axes, with its numbers. The clear best of a row is framed."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.patches import Rectangle

from figures.intervals import ENOUGH_SEEDS, compute_intervals, format_counts
from figures.style import format_value, label_values, sort_values

COLOURS = "YlGnBu"  # its lightness falls evenly, so the order of cells survives in grey
BRIGHT = 0.179
"""Luminance at which black and white text have the same contrast (WCAG)."""


def draw_heatmap(frame: pd.DataFrame, panels: list[Axes], *, x: str, y: str, cell: str, group: str) -> str:
    """Draw one panel for each value of `group`, on one colour scale. Return a description of the numbers.

    The best of a row is framed if it is clear of the second best. A cell without a value has a dash. Numbers increase
    upwards, and words run down in the order of the data.
    """
    columns, rows = sort_values(frame[x]), sort_values(frame[y])
    if rows and isinstance(rows[0], str):
        rows = rows[::-1]
    is_clear: list[bool] = []
    span = (float(frame[cell].min()), float(frame[cell].max()))
    for axes, name in zip(panels, dict.fromkeys(frame[group]), strict=True):
        members = frame[frame[group] == name]
        by_seed = members.pivot_table(index=[y, "seed"], columns=x, values=cell, aggfunc="mean")
        values = by_seed.groupby(level=0).mean().reindex(rows, axis=0).reindex(columns, axis=1)
        # a panel may lack a row that another one has
        present = set(by_seed.index.get_level_values(0))
        clear = {
            row: best for row in rows if row in present and (best := _find_clear_best(by_seed.loc[row])) is not None
        }
        mesh = _draw_panel(values, axes, span, {(rows.index(row), columns.index(best)) for row, best in clear.items()})
        is_clear += [row in clear for row in values.dropna(how="all").index]
        axes.set_title(str(name))
    panels[0].figure.colorbar(mesh, ax=panels, label=cell)
    counts = frame.groupby([group, x, y])["seed"].nunique()
    framed = "framed: best of its row, clear of the second best (95 % interval of the paired difference)"
    unclear = "best of a row not clear" if not any(is_clear) else "no frame: best not clear"
    parts = [framed] * any(is_clear) + [unclear] * (not all(is_clear))
    return "; ".join([f"cells: mean over seeds, {format_counts(counts)}", *parts])


def _find_clear_best(scores: pd.DataFrame) -> Hashable | None:
    """Return the column with the best mean over seeds if it is clear of the second best, else None.

    Args:
        scores: one row per seed, one column per cell of a row of the heat map.

    It is clear if the interval of their difference, paired by seed, lies above zero. This needs three seeds.
    """
    ranked = scores.mean().dropna().sort_values(ascending=False, kind="stable").index
    if len(ranked) < 2:
        return None
    lead = (scores[ranked[0]] - scores[ranked[1]]).dropna()
    found = compute_intervals(lead.groupby(np.zeros(len(lead)))).iloc[0] if len(lead) >= ENOUGH_SEEDS else None
    return ranked[0] if found is not None and found["low"] > 0 else None


def _draw_panel(
    values: pd.DataFrame, axes: Axes, span: tuple[float, float], framed: Collection[tuple[int, int]]
) -> QuadMesh:
    numbers = np.ma.masked_invalid(values.to_numpy(float))
    mesh = axes.pcolormesh(numbers, cmap=COLOURS, vmin=span[0], vmax=span[1])
    for (row, column), number in np.ndenumerate(values.to_numpy(float)):
        colour = "black" if np.isnan(number) or luminance(mesh.to_rgba(number)) > BRIGHT else "white"
        text = "–" if np.isnan(number) else f"{number:.{_decimals(span)}f}"
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour, fontsize="small")
        if (row, column) in framed:
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
    """Return the number of decimals that distinguishes the cells: one for points, more if all numbers are small."""
    widest = max(abs(span[0]), abs(span[1]))
    return 1 if widest >= 5 else 2 if widest >= 0.5 else 3

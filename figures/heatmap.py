"""Draw heat maps: a measure in the cells of two axes, with its numbers. The clear best of a row is framed."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.patches import Rectangle

from figures.intervals import MIN_SEEDS_FOR_INTERVAL, compute_intervals, format_counts
from figures.style import format_fixed, format_value, label_values, sort_values

COLOURS = "YlGnBu"  # its lightness falls evenly, so the order of cells survives in grey
FRAME = "#d95f02"


def draw_heatmap(frame: pd.DataFrame, panels: list[Axes], *, x: str, y: str, cell: str, group: str) -> str:
    """Draw one panel for each value of `group`, on one colour scale. Return a description of the numbers.

    The best of a row is framed if it is clear of the second best. A cell without a value is empty. Numbers increase
    upwards, and words run down in the order of the data.
    """
    columns, rows = sort_values(frame[x]), sort_values(frame[y])
    clear_flags: list[bool] = []
    span = (float(frame[cell].min()), float(frame[cell].max()))
    for axes, name in zip(panels, dict.fromkeys(frame[group]), strict=True):
        members = frame[frame[group] == name]
        by_seed = members.pivot_table(index=[y, "seed"], columns=x, values=cell, aggfunc="mean")
        values = by_seed.groupby(level=0).mean().reindex(rows, axis=0).reindex(columns, axis=1)
        best_of = {row: _find_clear_best(by_seed.loc[row]) for row in by_seed.index.unique(level=0)}
        framed = [(columns.index(best), rows.index(row)) for row, best in best_of.items() if best is not None]
        mesh = draw_cells(values, axes, _get_decimals(span), cmap=COLOURS, vmin=span[0], vmax=span[1])
        for column, row in framed:
            axes.add_patch(
                Rectangle((column + 0.06, row + 0.06), 0.88, 0.88, fill=False, edgecolor=FRAME, linewidth=1.6)
            )
        if not isinstance(rows[0], str):
            axes.invert_yaxis()
        clear_flags += [best_of[row] is not None for row in values.dropna(how="all").index]
        axes.set_title(str(name))
    panels[0].figure.colorbar(mesh, ax=panels, label=cell)
    counts = frame.groupby([group, x, y])["seed"].nunique()
    notes = [f"cells: mean over seeds, {format_counts(counts)}"]
    if any(clear_flags):
        notes.append("framed: best of its row, clear of the second best (95 % interval of the paired difference)")
    if counts.max() == 1:
        notes.append("one seed: no best cell is marked")
    elif not all(clear_flags):
        notes.append("no frame: no clear best" if any(clear_flags) else "no cell is clearly the best of its row")
    return "; ".join(notes)


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
    if len(lead) < MIN_SEEDS_FOR_INTERVAL:
        return None
    interval = compute_intervals(lead.groupby(np.zeros(len(lead)))).iloc[0]
    return ranked[0] if interval["low"] > 0 else None


def draw_cells(values: pd.DataFrame, axes: Axes, decimals: int, sign: str = "", **colours: Any) -> QuadMesh:
    """Draw a table of numbers as coloured cells, the first row at the top. A missing value leaves its cell empty."""
    texts = values.map(lambda value: format_fixed(value, decimals, sign))
    sns.heatmap(values, annot=texts, fmt="", annot_kws={"fontsize": "small"}, cbar=False, ax=axes, **colours)
    label_values(axes, list(values.columns), [column + 0.5 for column in range(values.shape[1])])
    axes.set_yticks(np.arange(len(values)) + 0.5, [format_value(value) for value in values.index], rotation=0)
    axes.set(xlabel="", ylabel="")
    axes.grid(False)
    mesh = axes.collections[0]
    assert isinstance(mesh, QuadMesh), "seaborn draws cells as a mesh"
    return mesh


def _get_decimals(span: tuple[float, float]) -> int:
    """Return the number of decimals that distinguishes the cells: one for points, more if all numbers are small."""
    largest = max(abs(span[0]), abs(span[1]))
    if largest >= 5:
        return 1
    return 2 if largest >= 0.5 else 3

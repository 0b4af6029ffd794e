"""Draw a crossed heat map: scores of each row under each column, as differences from the row's own column.

Rows and columns have the same names. The diagonal shows a row's own score. The picture answers whether a row scores
better in another's column than in its own. Colours are diverging, centred at zero and symmetric.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from figures.heatmap import draw_cells
from figures.intervals import compute_intervals, describe_interval, format_counts
from figures.style import format_fixed, make_axes, sort_values

COLOURS = "PuOr"
"""Two hues whose lightness falls evenly from the middle. Numbers show the sign, and strength is visible in grey too."""
MIN_COARSE_DIFFERENCE = 1.0
"""If no cell differs by this much, numbers get a second decimal."""


def draw_crossed(
    frame: pd.DataFrame, *, x: str, y: str, cell: str, x_label: str, y_label: str, unit: str
) -> tuple[Figure, str]:
    """Return the figure of one system under each column, and a description of its numbers and brackets.

    Differences are computed within each seed. A row without its own score has no differences.
    """
    names = sort_values(frame[y] if frame[y].nunique() >= frame[x].nunique() else frame[x])
    scores = frame.pivot_table(index=["seed", y], columns=x, values=cell).reindex(columns=names)
    own = pd.Series({place: row.get(place[1]) for place, row in scores.iterrows()}, dtype=float)
    differences = scores.sub(own, axis=0)
    cells = differences.groupby(level=1).mean().reindex(names)
    largest = cells.abs().max(axis=None)
    figure, (axes,) = make_axes(4.0 + 0.5 * len(names), 1.2 + 0.34 * len(names))
    decimals = 1 if largest >= MIN_COARSE_DIFFERENCE else 2
    mesh = draw_cells(cells, axes, decimals, "+", cmap=COLOURS, vmin=-largest or -1, vmax=largest or 1)
    for text in axes.texts:
        column, row = map(int, text.get_position())
        if column == row:
            text.set_text(format_fixed(own.groupby(level=1).mean()[names[row]], 1))
            text.set_fontweight("bold")
    figure.colorbar(mesh, ax=axes, label=f"other context − in-corpus context\n{unit}".rstrip(), aspect=30)
    is_own = [[name == row for name in names] for _, row in differences.index]
    means = compute_intervals(differences.mask(np.array(is_own)).mean(axis=1).groupby(level=1)).reindex(names)
    axes.set_yticks(axes.get_yticks(), [f"{name}: {_format_mean(mean)}" for name, mean in means.iterrows()])
    axes.set(xlabel=x_label, ylabel=y_label)
    counts = frame.groupby([x, y])["seed"].nunique()
    note = f"cells and diagonal: mean over seeds, {format_counts(counts)}; after a name: mean of the other cells of its row"
    return figure, f"{note}; {describe_interval(means['n'], 'brackets')}"


def _format_mean(mean: pd.Series) -> str:
    value, low, high = (format_fixed(mean[name], 2, "+") for name in ("mean", "low", "high"))
    return f"{value} ({low} to {high})"

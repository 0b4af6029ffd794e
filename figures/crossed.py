"""Draw a crossed heat map: the difference of each cell from its row's diagonal, and the mean per row with its interval.

Rows and columns have the same names. The diagonal shows a row's own score. The picture answers whether a row scores
better in another's column than in its own. Colours are diverging, centred at zero and symmetric.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from figures.heatmap import choose_ink, write_cell
from figures.intervals import compute_intervals, describe_interval, format_counts
from figures.style import GREY, INK, format_fixed, format_value, label_values, make_axes, sort_values

COLOURS = "PuOr"
"""Two hues whose lightness falls evenly from the middle. Numbers show the sign, and strength is visible in grey too."""
MEAN_LABEL = "mean over rows"
MIN_COARSE_DIFFERENCE = 1.0
"""If no cell differs by this much, numbers get a second decimal."""


def draw_crossed(
    frame: pd.DataFrame, *, x: str, y: str, cell: str, x_label: str, y_label: str, unit: str
) -> tuple[Figure, str]:
    """Return the figure of one system under each column, and a description of its numbers and whiskers.

    Differences are computed within each seed. A row without its own score has no differences. A seed without any other
    score has no mean.
    """
    names = sort_values(frame[y]) if frame[y].nunique() >= frame[x].nunique() else sort_values(frame[x])
    scores = frame.pivot_table(index=["seed", y], columns=x, values=cell).reindex(columns=names)
    diagonal = pd.Series({(seed, name): row.get(name, np.nan) for (seed, name), row in scores.iterrows()}, dtype=float)
    differences = scores.sub(diagonal, axis=0)
    for seed, name in differences.index:
        differences.loc[(seed, name), name] = np.nan
    count = len(names)
    height = 1.2 + 0.34 * (count + 1)
    figure, (cell_axes, mean_axes) = make_axes(
        1.6 + 0.43 * count, height, num_panels=2, width_ratios=(max(2.0, 0.5 * count), 2.0), sharey=True
    )
    figure.set_size_inches(3.6 + 0.5 * count, height)
    cells = differences.groupby(level=1).mean().reindex(names)
    mesh = _draw_cells(cells, diagonal.groupby(level=1).mean().reindex(names), cell_axes)
    bar = figure.colorbar(
        mesh, ax=[cell_axes, mean_axes], label=f"other context − in-corpus context {unit}".rstrip(), aspect=30
    )
    bar.outline.set_visible(False)
    means = _compute_cell_means(differences, names)
    _draw_means(means, mean_axes, unit)
    cell_axes.set(xlabel=x_label, ylabel=y_label)
    cell_axes.set_yticks([*np.arange(count) + 0.5, count + 0.5], [*map(format_value, names), MEAN_LABEL])
    cell_axes.set_ylim(count + 1, 0)
    counts = frame.groupby([x, y])["seed"].nunique()
    note = f"cells and diagonal: mean over seeds, {format_counts(counts)}; " + describe_interval(means["n"], "whiskers")
    return figure, note


def _draw_cells(differences: pd.DataFrame, diagonal: pd.Series, axes: Axes) -> QuadMesh:
    """Draw the differences, the scores on the diagonal, and the mean difference of each column in the last row."""
    values = np.vstack([differences.to_numpy(float), differences.mean().to_numpy(float)])
    largest = np.nanmax(np.abs(values), initial=0.0) or 1.0
    count = len(differences)
    norm = TwoSlopeNorm(0.0, -largest, largest)
    decimals = 1 if largest >= MIN_COARSE_DIFFERENCE else 2
    mesh = axes.pcolormesh(np.ma.masked_invalid(values), cmap=COLOURS, norm=norm)
    for (row, column), value in np.ndenumerate(values):
        if row == column:
            write_cell(axes, row, column, format_fixed(diagonal.iloc[row], 1), INK, "bold")
        else:
            ink = INK if np.isnan(value) else choose_ink(mesh.to_rgba(value))
            write_cell(axes, row, column, format_fixed(value, decimals, "+"), ink)
    label_values(axes, list(differences.columns), [index + 0.5 for index in range(count)])
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.axhline(count, color=GREY, linewidth=0.9)
    return mesh


def _compute_cell_means(differences: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return mean, low, high and n over seeds of each row's mean difference, and of the mean over rows."""
    by_seed = differences.mean(axis=1)
    overall = by_seed.groupby(level=0).mean()
    overall.index = pd.MultiIndex.from_product([overall.index, [MEAN_LABEL]])
    return compute_intervals(pd.concat([by_seed, overall]).groupby(level=1)).reindex([*names, MEAN_LABEL])


def _draw_means(means: pd.DataFrame, axes: Axes, unit: str) -> None:
    positions = np.arange(len(means)) + 0.5
    mean = means["mean"].to_numpy(float)
    spread = np.abs(means[["low", "high"]].to_numpy(float).T - mean)
    axes.axvline(0, color=GREY, linewidth=0.9)
    axes.axhline(len(means) - 1, color=GREY, linewidth=0.9)
    axes.errorbar(mean, positions, xerr=spread, fmt="o", markersize=4, color=INK, ecolor=INK, capsize=3, linewidth=1.2)
    axes.set_xlabel(f"mean over other contexts\n− in-corpus {unit}".rstrip())
    axes.tick_params(axis="y", length=0)

"""One look for all pictures: readable in grey, printed or projected; saved as vector with its data beside it."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[tuple[int, ...], ...] = ((), (4, 2), (1, 1), (5, 1, 1, 1), (3, 1, 1, 1, 1, 1), (2, 2), (6, 2), (1, 3))


def new_axes(width: float = 5.0, height: float = 3.2) -> tuple[Figure, Axes]:
    """Gives an empty figure of this size (inches) and its axes, in the common style."""
    mpl.use("Agg")
    sns.set_theme(context="paper", style="ticks", font_scale=1.05)
    mpl.rcParams.update({"svg.hashsalt": "figure", "svg.fonttype": "none", "axes.grid": True, "grid.alpha": 0.3})
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    sns.despine(figure)
    return figure, axes


def palette(count: int) -> list[tuple[float, float, float]]:
    """Gives colours whose lightness differs, so that they stay apart in grey."""
    return [tuple(colour) for colour in sns.color_palette("viridis", count + 1)[:count]]


def save_figure(figure: Figure, frame: pd.DataFrame, path: Path) -> None:
    """Writes path.svg, path.png and the plotted data as path.csv; the same data gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=150)
    frame.to_csv(path.with_suffix(".csv"), index=False, lineterminator="\n")
    plt.close(figure)

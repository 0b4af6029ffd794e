"""Draws a picture of a named kind from a table of values, and saves it with its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from figures.lines import draw_lines
from figures.style import new_axes, save_figure

KINDS = {"lines": draw_lines}


def draw(
    rows: Sequence[Mapping[str, Any]], path: Path, *, kind: str, x: str, y: str, labels: Mapping[str, str]
) -> Path:
    """Writes path.svg, path.png and path.csv and gives the first; ValueError for an unknown kind or no rows.

    `labels` has "x", "y" and "title"; "x_scale" is "linear" or "log".
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of picture {kind!r}; choose of {list(KINDS)}")
    if not rows:
        raise ValueError(f"nothing to draw for {path.name}: no record has its values")
    frame = pd.DataFrame(rows)
    figure, axes = new_axes()
    KINDS[kind](frame, axes, x=x, y=y, hue="series")
    axes.set(xlabel=labels["x"], ylabel=labels["y"], title=labels["title"], xscale=labels.get("x_scale", "linear"))
    save_figure(figure, frame, path)
    return path.with_suffix(".svg")

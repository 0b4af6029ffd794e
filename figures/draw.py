"""Draws a picture of a named kind from a table of values, and saves it with its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.bars import draw_bars, draw_dots
from figures.heatmap import draw_heatmap
from figures.lines import draw_lines
from figures.scatter import draw_scatter
from figures.style import new_axes, save_figure, value_text, write_note

ON_ONE_AXIS = {"lines": draw_lines, "bars": draw_bars, "dots": draw_dots}
KINDS = (*ON_ONE_AXIS, "scatter", "heatmap")
GROUP = "group"
NARROWEST = 4.8
"""Inches of a heat map, so that its words fit."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """How rows become a picture: its kind, which columns are its axes, and the words on them.

    Columns that are always there: "series", "seed". `hue` splits each series further. A heat map has `cell` in its
    cells, named `cell_label`, and frames what is within `mark_within` of the best of a row. `own` draws what no kind
    can, from the same rows.
    """

    kind: str
    x: str
    y: str
    x_label: str
    y_label: str
    title: str = ""
    hue: str = ""
    cell: str = ""
    cell_label: str = ""
    mark_within: float | None = None
    x_is_log: bool = False
    own: Callable[[pd.DataFrame, Axes], None] | None = None


def draw(rows: Sequence[Mapping[str, Any]], path: Path, picture: Picture) -> Path:
    """Writes path.svg, path.png and path.csv and gives the first; ValueError for an unknown kind or no rows."""
    figure, frame = plot(rows, picture, name=path.name)
    save_figure(figure, frame, path)
    return path.with_suffix(".svg")


def plot(
    rows: Sequence[Mapping[str, Any]], picture: Picture, *, name: str = "a picture"
) -> tuple[Figure, pd.DataFrame]:
    """Gives the drawn figure and its data; ValueError for an unknown kind or no rows."""
    frame = pd.DataFrame(rows)
    if picture.own is not None:
        figure, (axes,) = new_axes()
        axes.set(xlabel=picture.x_label, ylabel=picture.y_label, title=picture.title)
        picture.own(frame, axes)
        return figure, frame
    if picture.kind not in KINDS:
        raise ValueError(f"unknown kind of picture {picture.kind!r}; choose of {list(KINDS)}")
    if not rows:
        raise ValueError(f"nothing to draw for {name}: no record has its values")
    grouped = frame.assign(**{GROUP: _group_names(frame, picture.hue)})
    return (_heatmap if picture.kind == "heatmap" else _one_panel)(grouped, picture), frame


def _group_names(frame: pd.DataFrame, hue: str) -> pd.Series:
    """Gives each row's group: its series, its value of `hue`, or both where there is more than one series."""
    if not hue:
        return frame["series"]
    name = "" if hue.startswith("part") else f"{hue.replace('_', ' ')} "
    words = frame[hue].map(lambda value: "" if pd.isna(value) else name + value_text(value))
    both = frame["series"] + ", " + words if frame["series"].nunique() > 1 else words
    return both.where(words != "", frame["series"])


def _one_panel(frame: pd.DataFrame, picture: Picture) -> Figure:
    figure, (axes,) = new_axes()
    if picture.x_is_log:
        _set_log(axes, frame[picture.x])
    if picture.kind == "scatter":
        note = draw_scatter(frame, axes, x=picture.x, y=picture.y, group=GROUP, x_is_log=picture.x_is_log)
    else:
        note = ON_ONE_AXIS[picture.kind](frame, axes, x=picture.x, y=picture.y, group=GROUP)
    axes.set(xlabel=picture.x_label, ylabel=picture.y_label, title=picture.title)
    write_note(figure, note)
    return figure


def _set_log(axes: Axes, values: pd.Series) -> None:
    """Sets a logarithmic axis; one that also has zero is linear up to the smallest positive value."""
    if (values <= 0).any():
        axes.set_xscale("symlog", linthresh=float(values[values > 0].min()))
    else:
        axes.set_xscale("log")


def _heatmap(frame: pd.DataFrame, picture: Picture) -> Figure:
    num_columns, num_rows = (max(3, frame[name].nunique()) for name in (picture.x, picture.y))
    num_panels = frame[GROUP].nunique()
    width, height = max(1.4 + 0.55 * num_columns, NARROWEST / num_panels), 1.6 + 0.36 * num_rows
    figure, panels = new_axes(width, height, num_panels=num_panels)
    note = draw_heatmap(
        frame.rename(columns={picture.cell: picture.cell_label or picture.cell}),
        panels,
        x=picture.x,
        y=picture.y,
        cell=picture.cell_label or picture.cell,
        group=GROUP,
        mark_within=picture.mark_within,
    )
    for axes in panels:
        axes.set_xlabel(picture.x_label)
    panels[0].set_ylabel(picture.y_label)
    figure.suptitle(picture.title, fontsize="medium")
    write_note(figure, note)
    return figure

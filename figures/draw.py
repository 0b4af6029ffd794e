"""Draw a picture of a given kind from a table of values and save it together with its data."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from figures.crossed import draw_crossed
from figures.dots import draw_dots
from figures.gains import draw_gains
from figures.heatmap import draw_heatmap
from figures.lines import draw_lines
from figures.scatter import draw_scatter
from figures.style import format_value, grow, make_axes, save_figure, write_note, write_powers, write_title

KINDS = ("lines", "dots", "scatter", "heatmap", "crossed", "gains")
GROUP = "group"
MIN_HEATMAP_WIDTH = 4.8
"""Minimum width of a heat map in inches, so that its labels fit."""
PANEL_SIZE, INCHES_PER_LINE = (3.6, 2.4), 0.2
"""Size of one of several panels, and of a line of its legend, in inches."""
MAX_LABEL_LINE, MAX_Y_LABEL_LINE = 36, 30
"""Letters per line of the label below such a panel, and of the label beside a single panel."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """How rows become a picture: its kind, the columns on its axes, and its labels.

    The columns "series" and "seed" are always present. `hue` splits each series further and is labelled `hue_label`. A
    heat map shows the column `cell`, labelled `cell_label`, and frames the clear best of a row. `mark` gives dots their
    shape. `is_panelled` draws each series of a scatter in its own panel. `is_paired` says that rows are already
    differences from the first x of the same seed, which removes what seeds share. `own` draws a picture of no common kind
    from the same rows. The title states the result, and the subtitle, which describes the data, opens the note.
    """

    kind: str
    x: str
    y: str
    x_label: str
    y_label: str
    title: str = ""
    subtitle: str = ""
    hue: str = ""
    hue_label: str = ""
    cell: str = ""
    cell_label: str = ""
    x_is_log: bool = False
    y_is_log: bool = False
    is_panelled: bool = False
    is_paired: bool = False
    own: Callable[[pd.DataFrame, Axes], str | None] | None = None
    """Draw the frame and optionally return a note, the small print under the picture."""


def draw(rows: Sequence[Mapping[str, Any]], path: Path, picture: Picture) -> Path:
    """Write path.svg, path.png and path.csv. Return the path of the SVG.

    Raises ValueError for an unknown kind or no rows.
    """
    figure, frame = plot(rows, picture, name=path.name)
    save_figure(figure, frame, path)
    return path.with_suffix(".svg")


def plot(
    rows: Sequence[Mapping[str, Any]], picture: Picture, *, name: str = "a picture"
) -> tuple[Figure, pd.DataFrame]:
    """Return the drawn figure and its data. Raises ValueError for an unknown kind or no rows."""
    frame = pd.DataFrame(rows)
    if picture.own is None and picture.kind not in KINDS:
        raise ValueError(f"unknown kind of picture {picture.kind!r}; choose one of {list(KINDS)}")
    if picture.own is None and not rows:
        raise ValueError(f"nothing to draw for {name}: no record has its values")
    figure, note = _draw_kind(frame, picture)
    write_note(figure, "; ".join(filter(None, (picture.subtitle, note))))
    write_title(figure, picture.title)
    return figure, frame


def _draw_kind(frame: pd.DataFrame, picture: Picture) -> tuple[Figure, str]:
    """Return the figure and a description of its bands and numbers."""
    if picture.own is not None:
        figure, (axes,) = make_axes()
        axes.set(xlabel=picture.x_label, ylabel=picture.y_label)
        return figure, picture.own(frame, axes) or ""
    if picture.kind == "crossed":
        labels = {"x_label": picture.x_label, "y_label": picture.y_label, "unit": picture.cell_label}
        return draw_crossed(frame, x=picture.x, y=picture.y, cell=picture.cell, **labels)
    if picture.kind == "gains":
        return draw_gains(frame, y=picture.y, y_label=picture.y_label)
    grouped = frame.assign(**{GROUP: _group_names(frame, picture)})
    if picture.kind == "heatmap":
        return _make_heatmap(grouped, picture)
    if picture.is_panelled:
        return _make_panels(grouped, picture)
    return _make_one_panel(grouped, picture)


def _group_names(frame: pd.DataFrame, picture: Picture) -> pd.Series:
    """Return the group of each row: its series, its value of `hue`, or both if one panel has several series."""
    hue = picture.hue
    if not hue:
        return frame["series"]
    prefix = "" if hue.startswith("part") else f"{picture.hue_label or hue.replace('_', ' ')} "
    labels = frame[hue].map(lambda value: "" if pd.isna(value) else prefix + format_value(value))
    is_split = frame["series"].nunique() > 1 and not picture.is_panelled
    # With one series, its name would repeat in every entry of the legend.
    names = frame["series"] + ", " + labels if is_split else labels
    return names.where(labels != "", frame["series"])


def _make_one_panel(frame: pd.DataFrame, picture: Picture) -> tuple[Figure, str]:
    figure, (axes,) = make_axes()
    columns = {"x": picture.x, "y": picture.y, "group": GROUP}
    if picture.x_is_log:
        _set_log(axes, frame[picture.x])
    if picture.y_is_log:
        axes.set_yscale("log")
        write_powers(axes.yaxis, LogLocator(subs=(1, 2, 5)))
    if picture.kind == "scatter":
        note = draw_scatter(frame, axes, **columns, x_is_log=picture.x_is_log)
    elif picture.kind == "dots":
        note = draw_dots(frame, axes, **columns)
    else:
        note = draw_lines(frame, axes, **columns)
    if picture.is_paired:
        axes.axhline(0, color="grey", linewidth=0.8, zorder=0)
        note += "; each seed less its own value at the first mark of the line"
    axes.set(xlabel=picture.x_label, ylabel=textwrap.fill(picture.y_label, MAX_Y_LABEL_LINE))
    pixels = max((label.get_window_extent().height for label in axes.get_xticklabels()), default=0)
    legend = axes.get_legend()
    if legend is not None:
        pixels += legend.get_window_extent().height
    grow(figure, pixels / figure.dpi)
    return figure, note


def _make_panels(frame: pd.DataFrame, picture: Picture) -> tuple[Figure, str]:
    """Draw a scatter with one panel per series, all on the same axes."""
    names = list(dict.fromkeys(frame["series"]))
    note = ""
    width, height = PANEL_SIZE
    # Legends stand above the panels, so panels are as tall as the longest one needs.
    height += INCHES_PER_LINE * frame.groupby("series")[GROUP].nunique().max()
    figure, panels = make_axes(width, height, num_panels=len(names), num_columns=2, sharex=True)
    for axes, name in zip(panels, names, strict=True):
        members = frame[frame["series"] == name]
        if picture.x_is_log:
            _set_log(axes, frame[picture.x])
        # Groups of all panels, so that a colour means the same in each of them.
        groups = dict.fromkeys(frame[GROUP] if picture.hue else members[GROUP])
        note = draw_scatter(
            members, axes, x=picture.x, y=picture.y, group=GROUP, x_is_log=picture.x_is_log, groups=groups
        )
        if picture.hue:
            axes.set_title(name, fontsize="medium", pad=6 + 13 * members[GROUP].nunique())
        else:
            _set_panel_name(axes)
    figure.supylabel(picture.y_label, fontsize="medium")
    # The lowest panel of each column.
    for axes in panels[-2:]:
        axes.set_xlabel(textwrap.fill(picture.x_label, MAX_LABEL_LINE))
        # Shared axes hide these labels above the bottom row.
        axes.xaxis.set_tick_params(labelbottom=True)
    return figure, note


def _set_panel_name(axes: Axes) -> None:
    """Turn the legend of a single group into the panel's title, which saves space next to the panel."""
    legend = axes.get_legend()
    if legend is not None:
        legend.remove()
    label = str(axes.get_lines()[0].get_label())
    axes.set_title(label.replace(": ", "\n", 1), fontsize="small", loc="left")


def _set_log(axes: Axes, values: pd.Series) -> None:
    """Set a logarithmic axis. If the values include zero, it is linear up to the smallest positive value."""
    if (values <= 0).any():
        axes.set_xscale("symlog", linthresh=float(values[values > 0].min()))
    else:
        axes.set_xscale("log")
    write_powers(axes.xaxis)


def _make_heatmap(frame: pd.DataFrame, picture: Picture) -> tuple[Figure, str]:
    num_columns = max(3, frame[picture.x].nunique())
    num_rows = max(3, frame[picture.y].nunique())
    num_panels = frame[GROUP].nunique()
    # Cells have a fixed size, so that numbers of several heat maps are equally large.
    width = max(1.4 + 0.55 * num_columns, MIN_HEATMAP_WIDTH / num_panels)
    figure, panels = make_axes(width, 1.45 + 0.36 * num_rows, num_panels=num_panels)
    label = picture.cell_label or picture.cell
    renamed = frame.rename(columns={picture.cell: label})
    note = draw_heatmap(renamed, panels, x=picture.x, y=picture.y, cell=label, group=GROUP)
    for axes in panels:
        axes.set_xlabel(picture.x_label)
    panels[0].set_ylabel(picture.y_label)
    return figure, note

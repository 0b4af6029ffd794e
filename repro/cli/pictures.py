"""Draws what a verb shows, where it has not been drawn from the same data before; matplotlib is loaded only then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.report.artefacts import RECORD_WORDS, records_of
from repro.report.figure_data import column_label, figure_rows, number_of, subtitle_of
from repro.report.kept_pictures import kept_picture
from repro.spec import Figure
from repro.spec.registry import experiment_of
from repro.storage.paths import figures_folder

if TYPE_CHECKING:  # what a section is made of loads the data and the measures
    from repro.report.sections import Rows

COPIED = (
    *("kind", "x", "y", "x_label", "y_label", "hue", "hue_label", "cell", "mark_within", "x_is_log", "mark"),
    "is_panelled",
)


def paint_from_records(figure: Figure, scale: str, whose: str) -> Path | None:
    """Draw a figure from the published records or yours; return the vector file, None when there is nothing to draw."""
    runs = experiment_of(figure.name).runs(scale)
    return paint(figure, scale, whose, figure_rows(figure, runs, records_of(runs, whose)))


def paint(figure: Figure, scale: str, whose: str, rows: Rows, *, with_png: bool = True) -> Path | None:
    """Draw a figure from the rows of the published records or yours; return the vector file, None for nothing drawn."""
    needs_no_record = figure.draw is not None and not figure.series and whose == "published"
    if not rows and not needs_no_record:
        return None
    picture = {
        **{name: getattr(figure, name) for name in COPIED},
        "title": figure.title,
        "subtitle": subtitle_of(figure, scale, "" if needs_no_record else RECORD_WORDS[whose], rows),
        "cell_label": column_label(figure, number_of(figure)) if figure.cell else "",
        "own": figure.draw,
    }
    return drawn_once(rows, f"{figure.name}-{scale}-{whose}", picture, with_png=with_png)


def paint_forest(rows: Sequence[Mapping[str, Any]], scale: str) -> Path | None:
    """Draw the forest plot of all claims from its rows, as vectors for a page; return the file."""
    title = "What was found, and the bar each claim is held against"
    picture = {"kind": "forest", "x": "effect", "y": "name", "x_label": "", "y_label": "", "title": title}
    picture |= {"subtitle": f"scale {scale}, {RECORD_WORDS['published']}"}
    return drawn_once(rows, f"claims-{scale}-published", picture, with_png=False)


def drawn_once(rows: Sequence[Mapping[str, Any]], name: str, picture: Mapping[str, Any], *, with_png: bool) -> Path:
    """Return the vector file of a picture, drawn now unless the same one lies there."""
    path = figures_folder() / name
    kept, endings = kept_picture(path, rows, picture), ("svg", "csv", *(["png"] if with_png else []))
    if not kept.is_there(endings):
        from figures.draw import Picture, draw

        draw(rows, path, Picture(**picture), with_png=with_png)
        kept.remember(endings)
    return path.with_suffix(".svg")

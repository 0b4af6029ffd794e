"""Draw the figures that a verb shows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.report.artefacts import RECORD_WORDS, load_records
from repro.report.figure_data import format_column_label, format_subtitle, get_value_column, list_figure_rows
from repro.report.gallery import FIELDS, compute_digest, get_picture_path, iter_gallery_figures, list_rows
from repro.spec import Figure
from repro.spec.artefact import PAPERS
from repro.spec.registry import artefacts, find_experiment
from repro.storage.paths import get_figures_folder

# sections load the data and the analyses
if TYPE_CHECKING:
    from repro.report.sections import Rows

FRONT_PICTURE, FRONT_SCALE = "table1_gains", "mini2"


def draw_and_report(figures: Iterable[Figure], scale: str) -> Iterator[str]:
    """Draw figures from published and local records, and yield a line per figure with its path or the error."""
    for figure in figures:
        for origin in RECORD_WORDS:
            try:
                path = draw_from_records(figure, scale, origin)
            except OSError as error:
                # for example a read-only REPRO_HOME, after the tables were shown
                yield f"{figure.name} is not drawn: {error}"
            else:
                if path is not None:
                    yield f"picture: {path}, with its data as .csv"


def draw_from_records(figure: Figure, scale: str, origin: str) -> Path | None:
    """Draw a figure from published or local records, and return the vector file, or None if there is no data.

    Raises ValueError if it cannot be drawn, and OSError if a file cannot be written.
    """
    runs = find_experiment(figure.name).runs(scale)
    rows = list_figure_rows(figure, runs, load_records(runs, origin))
    if not rows:
        return None
    use_headless_backend()
    from figures.draw import Picture, draw

    path = get_figures_folder() / f"{figure.name}-{scale}-{origin}"
    return draw(rows, path, Picture(**describe_picture(figure, scale, origin, rows)))


def describe_picture(figure: Figure, scale: str, origin: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings of the picture of a figure, as keyword arguments of `figures.draw.Picture`."""
    return {
        **{name: getattr(figure, name) for name in FIELDS},
        "subtitle": format_subtitle(figure, scale, RECORD_WORDS[origin], list(rows)),
        "cell_label": format_column_label(figure, get_value_column(figure)) if figure.cell else "",
        "own": figure.draw,
    }


def make_gallery_pictures() -> dict[Path, str]:
    """Return the SVG text of every figure of the results page, by path."""
    return {
        get_picture_path(figure.name): draw_svg(figure, scale, "published", rows)
        for _, figure, scale, rows in iter_gallery_figures(*PAPERS)
    }


def draw_front_picture() -> str:
    """Return the picture at the top of the report, which is also that of the front page, as SVG text."""
    experiment, figure = artefacts()[FRONT_PICTURE]
    assert isinstance(figure, Figure), f"{FRONT_PICTURE} is a figure"
    return draw_svg(figure, FRONT_SCALE, "published", list_rows(experiment, figure, FRONT_SCALE))


def draw_svg(figure: Figure, scale: str, origin: str, rows: Rows) -> str:
    """Return a figure as SVG text: the committed picture of the results page if it shows the same, else a new one.

    The same rows give the same text. Raises ValueError if it cannot be drawn.
    """
    path, marker = get_picture_path(figure.name), f"<!-- rows {compute_digest(figure, rows, scale)} -->\n"
    if origin == "published" and path.is_file() and (text := path.read_text(encoding="utf-8")).endswith(marker):
        return text
    use_headless_backend()
    from figures.draw import Picture, plot
    from figures.style import write_svg

    drawing, _ = plot(rows, Picture(**describe_picture(figure, scale, origin, rows)), name=figure.name)
    return write_svg(drawing) + marker


def use_headless_backend() -> None:
    """Select matplotlib's backend without a screen. A notebook may have set another one for its child processes."""
    os.environ["MPLBACKEND"] = "agg"

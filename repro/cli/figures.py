"""Draw the figures that a verb shows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.report.artefacts import RECORD_WORDS, load_records
from repro.report.figure_data import format_column_label, format_subtitle, get_value_column, list_figure_rows
from repro.report.gallery import FIELDS, compute_digest, get_picture_path, is_current, iter_gallery_figures
from repro.spec import Figure
from repro.spec.artefact import PAPERS
from repro.spec.registry import find_experiment
from repro.storage.paths import get_figures_folder

# sections load the data and the analyses
if TYPE_CHECKING:
    from repro.report.sections import Rows


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
        "title": figure.title,
        "subtitle": format_subtitle(figure, scale, RECORD_WORDS[origin], list(rows)),
        "cell_label": format_column_label(figure, get_value_column(figure)) if figure.cell else "",
        "own": figure.draw,
    }


def make_gallery_pictures() -> dict[Path, str]:
    """Return the SVG text of every figure of the results page in the light and dark themes, by path.

    Current pictures are read, not drawn again.
    """
    texts: dict[Path, str] = {}
    for _, figure, scale, rows in iter_gallery_figures(*PAPERS):
        digest = compute_digest(figure, rows, scale)
        paths = {theme: get_picture_path(figure.name, theme) for theme in ("light", "dark")}
        if all(is_current(path, digest) for path in paths.values()):
            texts |= {path: path.read_text(encoding="utf-8") for path in paths.values()}
            continue
        from figures.theme import recolour

        svg = draw_new_svg(figure, scale, "published", rows)
        for theme, path in paths.items():
            lines = recolour(svg, theme).splitlines()
            texts[path] = "\n".join(line.rstrip() for line in lines) + f"\n<!-- rows {digest} -->\n"
    return texts


def draw_svg(figure: Figure, scale: str, origin: str, rows: Rows) -> str:
    """Return a figure as SVG text: the committed picture of the results page if it shows the same, else a new one."""
    path = get_picture_path(figure.name, "light")
    if origin == "published" and is_current(path, compute_digest(figure, rows, scale)):
        return path.read_text(encoding="utf-8")
    return draw_new_svg(figure, scale, origin, rows)


def draw_new_svg(figure: Figure, scale: str, origin: str, rows: Rows) -> str:
    """Return a figure as SVG text. The same rows give the same text. Raises ValueError if it cannot be drawn."""
    use_headless_backend()
    from figures.draw import Picture, plot
    from figures.style import write_svg

    drawing, _ = plot(rows, Picture(**describe_picture(figure, scale, origin, rows)), name=figure.name)
    return write_svg(drawing)


def use_headless_backend() -> None:
    """Select matplotlib's backend without a screen. A notebook may have set another one for its child processes."""
    os.environ["MPLBACKEND"] = "agg"

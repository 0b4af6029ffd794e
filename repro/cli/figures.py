"""Draw the figures that a verb shows. A figure already drawn from the same data is reused without matplotlib."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.report.artefacts import RECORD_WORDS, load_records
from repro.report.figure_data import format_column_label, format_subtitle, get_value_column, list_figure_rows
from repro.report.gallery import (
    FIELDS,
    compute_digest,
    get_picture_path,
    is_current,
    iter_gallery_figures,
    needs_no_record,
)
from repro.report.picture_cache import get_cached_picture
from repro.report.pivot import Pivot, make_sort_key
from repro.spec import Figure
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
    """Draw a figure from published or local records, and return the vector file, or None if there is no data."""
    runs = find_experiment(figure.name).runs(scale)
    return render(figure, scale, origin, list_figure_rows(figure, runs, load_records(runs, origin)))


def render(figure: Figure, scale: str, origin: str, rows: Rows, *, with_png: bool = True) -> Path | None:
    """Draw a figure from the rows of published or local records, and return the vector file. None without data."""
    if not rows and not (needs_no_record(figure) and origin == "published"):
        return None
    picture = describe_picture(figure, scale, origin, rows)
    return draw_once(rows, f"{figure.name}-{scale}-{origin}", picture, with_png=with_png)


def describe_picture(figure: Figure, scale: str, origin: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings of the picture of a figure, as keyword arguments of `figures.draw.Picture`."""
    records = "" if needs_no_record(figure) and origin == "published" else RECORD_WORDS[origin]
    return {
        **{name: getattr(figure, name) for name in FIELDS},
        "title": figure.title,
        "subtitle": format_subtitle(figure, scale, records, list(rows)),
        "cell_label": format_column_label(figure, get_value_column(figure)) if figure.cell else "",
        "own": figure.draw,
    }


def render_forest(rows: Rows, scale: str) -> Path:
    """Draw the forest plot of all claims from its rows, and return the vector file."""
    title = "What was found, and the threshold of each claim"
    subtitle = f"scale {scale}, {RECORD_WORDS['published']}"
    picture = {
        "kind": "forest",
        "x": "effect",
        "y": "name",
        "x_label": "",
        "y_label": "",
        "title": title,
        "subtitle": subtitle,
    }
    return draw_once(rows, f"claims-{scale}-published", picture, with_png=False)


def render_pivot(pivot: Pivot, *, grid: str = "grid") -> Path:
    """Draw the scores of a grid over two fields as a heat map, and return the vector file. `grid` names it."""
    x, y = pivot.x, pivot.y
    # Each row already has a column "seed", by which the heat map pairs its cells.
    columns = {name: f"{name} (axis)" if name == "seed" else name for name in (x, y)}
    # A heat map has no place for a missing value, so an axis with one is drawn as words.
    has_missing = {name for name in (x, y) if None in pivot.values[name]}
    averaged = [name for name in pivot.averaged if name != "seed"]
    plain_rows = [
        {
            "series": "",
            "seed": run.seed,
            **{
                column: pivot.values[name][getattr(run, name)] if name in has_missing else getattr(run, name)
                for name, column in columns.items()
            },
            # not drawn, but in the file of its data
            **{name: getattr(run, name) for name in averaged},
            "NDCG@10, points": score,
        }
        # Words are drawn in the order of the rows.
        for run, score in sorted(
            pivot.scores.items(),
            key=lambda item: [*(make_sort_key(getattr(item[0], name)) for name in (x, y)), item[0].seed],
        )
    ]
    picture = {
        "kind": "heatmap",
        "x": columns[x],
        "y": columns[y],
        "x_label": x,
        "y_label": y,
        "cell": "NDCG@10, points",
        "title": f"NDCG@10 by {x} and {y}",
        "subtitle": f"mean over {', '.join(averaged)}" if averaged else "",
        "cell_label": "NDCG@10, points",
    }
    return draw_once(plain_rows, f"{grid}-by-{x}-{y}", picture, with_png=True)


def draw_once(rows: Rows, name: str, picture: Mapping[str, Any], *, with_png: bool) -> Path:
    """Draw a picture, unless the cached files match its rows and settings, and return the vector file.

    Raises ValueError if it cannot be drawn, and OSError if a file cannot be written.
    """
    # `Path.with_suffix` would cut the name of a grid after its last dot
    path = get_figures_folder() / name.replace(".", "_")
    cached = get_cached_picture(path, rows, picture)
    endings = ("svg", "csv", "png") if with_png else ("svg", "csv")
    if cached.is_current(endings):
        return path.with_suffix(".svg")
    use_headless_backend()
    from figures.draw import Picture, draw

    vector_file = draw(rows, path, Picture(**picture), with_png=with_png)
    if not with_png:
        # a png of older rows would not match the new files
        vector_file.with_suffix(".png").unlink(missing_ok=True)
    cached.write(endings)
    return vector_file


def make_gallery_pictures() -> dict[Path, str]:
    """Return the SVG text of every figure of the results page in the light and dark themes, by path.

    Current pictures are read, not drawn again.
    """
    texts: dict[Path, str] = {}
    for _, figure, scale, rows in iter_gallery_figures():
        digest = compute_digest(figure, rows, scale)
        paths = {theme: get_picture_path(figure.name, theme) for theme in ("light", "dark")}
        if all(is_current(path, digest) for path in paths.values()):
            texts |= {path: path.read_text(encoding="utf-8") for path in paths.values()}
            continue
        from figures.theme import recolour

        svg = draw_svg(figure, scale, rows)
        for theme, path in paths.items():
            lines = recolour(svg, theme).splitlines()
            texts[path] = "\n".join(line.rstrip() for line in lines) + f"\n<!-- rows {digest} -->\n"
    return texts


def draw_svg(figure: Figure, scale: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a figure as SVG text. The same rows give the same text."""
    import matplotlib.pyplot as plt

    from figures.draw import Picture, plot

    drawing, _ = plot(rows, Picture(**describe_picture(figure, scale, "published", rows)), name=figure.name)
    buffer = io.StringIO()
    drawing.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(drawing)
    return buffer.getvalue()


def use_headless_backend() -> None:
    """Select matplotlib's backend without a screen. A notebook may have set another one for its child processes."""
    os.environ["MPLBACKEND"] = "agg"

"""Draw the figures that a verb shows. A figure already drawn from the same data is reused without matplotlib.

For a page with many figures, worker processes draw while the page reads records. On two cores this halves the time.
"""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
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
from repro.report.picture_cache import CachedPicture, get_cached_picture
from repro.report.scores import list_averaged_fields, make_sort_key
from repro.spec import Figure
from repro.spec.registry import find_experiment
from repro.storage.paths import get_figures_folder
from repro.storage.platform_info import count_usable_cores

# sections load the data and the analyses
if TYPE_CHECKING:
    from repro.report.sections import Drawing, ForestRenderer, Renderer, Rows

MAX_PROCESSES = 3
"""Upper limit of drawing processes. Reading the records takes about as long as two of them need to draw."""


@contextmanager
def open_renderers(num_cores: int | None = None) -> Iterator[tuple[Renderer, ForestRenderer]]:
    """Yield the functions that start a figure and the forest plot, in worker processes if a second core is available."""
    num_spare_cores = (num_cores or count_usable_cores()) - 1
    executor: Executor | None = None
    if num_spare_cores >= 1:
        # a fork would copy locks held by threads of this process
        context = get_context("spawn")
        executor = ProcessPoolExecutor(
            min(num_spare_cores, MAX_PROCESSES), mp_context=context, initializer=_prepare_worker
        )
    try:
        # a page embeds the vector file, and drawing the png too would double the time
        yield partial(render, with_png=False, executor=executor), partial(render_forest, executor=executor)
    finally:
        if executor is not None:
            executor.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """Ignore Ctrl-C, which the parent process handles, and exit when the parent ends for any reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "only a process that was started to draw waits for another"
    parent.join()
    os._exit(1)


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
    picture = render(figure, scale, origin, list_figure_rows(figure, runs, load_records(runs, origin)), None)
    return None if picture is None else picture()


def render(
    figure: Figure, scale: str, origin: str, rows: Rows, executor: Executor | None, *, with_png: bool = True
) -> Drawing | None:
    """Start to draw a figure from the rows of published or local records, or return None if there is no data."""
    if not rows and not (needs_no_record(figure) and origin == "published"):
        return None
    picture = describe_picture(figure, scale, origin, rows)
    return draw_once(rows, f"{figure.name}-{scale}-{origin}", picture, executor, with_png=with_png)


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


def render_forest(rows: Sequence[Mapping[str, Any]], scale: str, executor: Executor | None) -> Drawing:
    """Start to draw the forest plot of all claims from its rows, as a vector file for a page."""
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
    return draw_once(rows, f"claims-{scale}-published", picture, executor, with_png=False)


def render_pivot(rows: Sequence[Mapping[str, Any]], x: str, y: str, *, grid: str = "grid") -> Path:
    """Draw the scores of a grid over two fields as a heat map, and return the vector file. `grid` names it."""
    # Each row already has a column "seed", by which the heat map pairs its cells.
    columns = {name: f"{name} (axis)" if name == "seed" else name for name in (x, y)}
    # A heat map has no place for a missing value, so an axis with one is drawn as words.
    has_missing = {name for name in (x, y) if any(row["order"][name] is None for row in rows)}
    plain_rows = [
        {
            "series": "",
            "seed": row["run"].seed,
            **{column: row[name] if name in has_missing else row["order"][name] for name, column in columns.items()},
            "NDCG@10, points": row["score"],
        }
        # Words are drawn in the order of the rows.
        for row in sorted(
            rows, key=lambda row: [*(make_sort_key(row["order"][name]) for name in (x, y)), row["run"].seed]
        )
    ]
    averaged = [name for name in list_averaged_fields(rows, x, y) if name != "seed"]
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
    return draw_once(plain_rows, f"{grid}-by-{x}-{y}", picture, None, with_png=True)()


def draw_once(
    rows: Sequence[Mapping[str, Any]],
    name: str,
    picture: Mapping[str, Any],
    executor: Executor | None,
    *,
    with_png: bool,
) -> Drawing:
    """Start to draw a picture, unless the cached files match its rows and settings, and return its drawing.

    `executor` draws in worker processes. If it is None, or if such a process is killed, for example for its memory, this
    process draws.
    """
    # `Path.with_suffix` would cut the name of a grid after its last dot
    path = get_figures_folder() / name.replace(".", "_")
    cached = get_cached_picture(path, rows, picture)
    endings = ("svg", "csv", "png") if with_png else ("svg", "csv")
    if cached.is_current(endings):
        return lambda: path.with_suffix(".svg")
    here = partial(_draw, rows, picture, cached, endings)
    if executor is None:
        return here
    try:
        elsewhere = executor.submit(here)
    except BrokenExecutor:
        return here

    def wait() -> Path:
        try:
            return elsewhere.result()
        except BrokenExecutor:
            return here()

    return wait


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


def _draw(
    rows: Sequence[Mapping[str, Any]], picture: Mapping[str, Any], cached: CachedPicture, endings: Sequence[str]
) -> Path:
    use_headless_backend()
    from figures.draw import Picture, draw

    vector_file = draw(rows, cached.path, Picture(**picture), with_png="png" in endings)
    if "png" not in endings:
        # a png of older rows would not match the new files
        vector_file.with_suffix(".png").unlink(missing_ok=True)
    cached.write(endings)
    return vector_file

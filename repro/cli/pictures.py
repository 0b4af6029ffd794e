"""Draws what a verb shows, where it has not been drawn from the same data before; matplotlib is loaded only then.

A page of many pictures has them drawn in processes of their own while it goes on reading records: on two cores it is
ready in about half the time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from repro.report.artefacts import RECORD_WORDS, load_records
from repro.report.figure_data import format_column_label, format_subtitle, get_value_column, list_figure_rows
from repro.report.kept_pictures import KeptPicture, kept_picture
from repro.spec import Figure
from repro.spec.registry import find_experiment
from repro.storage.machine import cores_here
from repro.storage.paths import get_figures_folder

if TYPE_CHECKING:  # what a section is made of loads the data and the measures
    from repro.report.sections import ForestPainter, Painter, Rows

COPIED = (
    *("kind", "x", "y", "x_label", "y_label", "hue", "hue_label", "cell", "x_is_log", "y_is_log"),
    *("mark", "is_panelled"),
)
P = ParamSpec("P")
T = TypeVar("T")
MOST_PROCESSES = 3
"""That draw: reading the records takes about as long as two of them do."""


class AtOnce(Executor):
    """Does what it is given at once, in this process."""

    def submit(self, does: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return the future of a call that has ended."""
        ended: Future[T] = Future()
        try:
            ended.set_result(does(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 — raised where the result is asked for
            ended.set_exception(error)
        return ended


@dataclass(frozen=True)
class Begun:
    """A picture that another process draws, and this one where that was killed, as one that takes much memory may be"""

    elsewhere: Future[Path]
    here: Callable[[], Path]

    def result(self) -> Path:
        """Return the vector file, waiting for it; raises what drawing it raised."""
        try:
            return self.elsewhere.result()
        except BrokenExecutor:
            return self.here()


@contextmanager
def painting_beside(num_cores: int | None = None) -> Iterator[tuple[Painter, ForestPainter]]:
    """Yield what begins a figure, and what begins the forest plot, beside this process where a second core is free."""
    num_others = (num_cores or cores_here()) - 1
    if num_others < 1:
        executor: Executor = AtOnce()
    else:
        spawned = get_context("spawn")  # a fork would copy locks that threads of this process hold
        executor = ProcessPoolExecutor(min(num_others, MOST_PROCESSES), mp_context=spawned, initializer=_serve)
    try:
        # a page has the vectors: pixels would take as long again
        yield partial(paint, with_png=False, executor=executor), partial(paint_forest, executor=executor)
    finally:
        executor.shutdown(cancel_futures=True)


def _serve() -> None:
    """Leave Ctrl-C to the process that asks, and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "only a process that was started to draw waits for another"
    parent.join()
    os._exit(1)


def draw_and_report(figures: Iterable[Figure], scale: str) -> Iterator[str]:
    """Draw figures from the published records and from yours; give a line for each: where it is, or why it is not."""
    for figure in figures:
        for whose in RECORD_WORDS:
            try:
                path = draw_from_records(figure, scale, whose)
            except OSError as error:  # as in somebody else's REPRO_HOME: what was shown has been shown
                yield f"{figure.name} is not drawn: {error}"
            else:
                if path is not None:
                    yield f"drawn: {path}, its data beside it as .csv"


def draw_from_records(figure: Figure, scale: str, whose: str) -> Path | None:
    """Draw a figure from the published records or yours; return the vector file, None when there is nothing to draw."""
    runs = find_experiment(figure.name).runs(scale)
    begun = paint(figure, scale, whose, list_figure_rows(figure, runs, load_records(runs, whose)), AtOnce())
    return None if begun is None else begun.result()


def paint(
    figure: Figure, scale: str, whose: str, rows: Rows, executor: Executor, *, with_png: bool = True
) -> Begun | None:
    """Begin to draw a figure from the rows of the published records or yours; None when there is nothing to draw."""
    needs_no_record = figure.draw is not None and not figure.series and whose == "published"
    if not rows and not needs_no_record:
        return None
    picture = {
        **{name: getattr(figure, name) for name in COPIED},
        "title": figure.title,
        "subtitle": format_subtitle(figure, scale, "" if needs_no_record else RECORD_WORDS[whose], rows),
        "cell_label": format_column_label(figure, get_value_column(figure)) if figure.cell else "",
        "own": figure.draw,
    }
    return drawn_once(rows, f"{figure.name}-{scale}-{whose}", picture, executor, with_png=with_png)


def paint_forest(rows: Sequence[Mapping[str, Any]], scale: str, executor: Executor) -> Begun:
    """Begin to draw the forest plot of all claims from its rows, as vectors for a page."""
    title = "What was found, and the threshold of each claim"
    picture = {"kind": "forest", "x": "effect", "y": "name", "x_label": "", "y_label": "", "title": title}
    picture |= {"subtitle": f"scale {scale}, {RECORD_WORDS['published']}"}
    return drawn_once(rows, f"claims-{scale}-published", picture, executor, with_png=False)


def paint_pivot(rows: Sequence[Mapping[str, Any]], x: str, y: str) -> Path:
    """Draw the scores of a grid over two of its fields as a heat map; return the vector file."""
    plain = [
        {"series": "", "seed": row["run"].seed, **row["order"], "NDCG@10, points": row["score"]}
        for row in sorted(rows, key=lambda row: row["run"].seed)
    ]
    picture = {"kind": "heatmap", "x": x, "y": y, "x_label": x, "y_label": y, "cell": "NDCG@10, points"}
    picture |= {"title": f"NDCG@10 by {x} and {y}", "cell_label": "NDCG@10, points"}
    return drawn_once(plain, f"pivot-{x}-{y}", picture, AtOnce(), with_png=True).result()


def drawn_once(
    rows: Sequence[Mapping[str, Any]], name: str, picture: Mapping[str, Any], executor: Executor, *, with_png: bool
) -> Begun:
    """Return the vector file of a picture to come, drawn by `executor` unless the same one lies there."""
    path = get_figures_folder() / name
    kept, endings = kept_picture(path, rows, picture), ("svg", "csv", *(["png"] if with_png else []))
    if kept.is_there(endings):
        return Begun(AtOnce().submit(path.with_suffix, ".svg"), here=lambda: path.with_suffix(".svg"))
    here = partial(_draw, rows, picture, kept, endings)
    try:
        return Begun(executor.submit(here), here)
    except BrokenExecutor:
        return Begun(AtOnce().submit(here), here)


def draw_to_files() -> None:
    """Let matplotlib need no screen, and not the backend that a notebook named for the programs that it starts."""
    os.environ["MPLBACKEND"] = "agg"


def _draw(
    rows: Sequence[Mapping[str, Any]], picture: Mapping[str, Any], kept: KeptPicture, endings: Sequence[str]
) -> Path:
    draw_to_files()
    from figures.draw import Picture, draw

    drawn = draw(rows, kept.path, Picture(**picture), with_png="png" in endings)
    if "png" not in endings:  # one of other rows would stay beside these
        drawn.with_suffix(".png").unlink(missing_ok=True)
    kept.remember(endings)
    return drawn

"""The results page: for each experiment its picture or table, what is seen, the command and its claims.

Pictures are committed as SVG for light and dark pages. Each stores a digest of the rows it was drawn from, so that a
test can tell whether it is current without drawing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repro.report.artefacts import load_records, make_artefact_views
from repro.report.figure_data import list_figure_rows
from repro.report.formats import as_markdown
from repro.report.names import format_heading, format_title
from repro.spec import Exhibit, Experiment, Figure, Table
from repro.spec.artefact import PAPERS
from repro.spec.registry import declared_notes, experiments
from repro.storage.paths import CHECKOUT

PICTURES = Path("docs") / "pictures"
SCALES = ("desk", "lab", "mini")
"""An artefact is shown at the first of these scales at which it has a published record."""
MOST_ROWS = 24
"""Longer tables are left to `show`."""
KEPT_LIGHT = ("heatmap", "crossed")
"""Kinds whose cells have a colour scale, which must not be recoloured."""
FIELDS = (
    *("kind", "x", "y", "x_label", "y_label", "hue", "hue_label", "cell", "x_is_log", "y_is_log", "mark"),
    "is_panelled",
)


def shown_figures() -> Iterator[tuple[Experiment, Figure, str, list[dict[str, Any]]]]:
    """Yield each figure that can be drawn, with its experiment, scale and rows."""
    for experiment in experiments():
        for figure in (shown for shown in experiment.shows if isinstance(shown, Figure)):
            for scale in SCALES:
                rows = list_rows(experiment, figure, scale)
                if rows or (figure.draw is not None and not figure.series):
                    yield experiment, figure, scale, rows
                    break


def list_rows(experiment: Experiment, figure: Figure, scale: str) -> list[dict[str, Any]]:
    """Return the rows of a figure from the published records of one scale."""
    runs = experiment.runs(scale) if scale in experiment.scales else ()
    if not runs or runs[0].scale != scale:
        return []
    return list_figure_rows(figure, runs, load_records(runs, "published"))


def compute_digest(figure: Figure, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return 16 hex digits of the rows and words of a picture."""
    words = [getattr(figure, name) for name in (*FIELDS, "title")]
    content = json.dumps([words, [dict(row) for row in rows]], default=repr, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def get_picture_path(name: str, theme: str, folder: Path = CHECKOUT) -> Path:
    """Return where the picture of a figure lies."""
    return folder / PICTURES / f"{name}-{theme}.svg"


def is_current(path: Path, digest: str) -> bool:
    """Return whether a committed picture was drawn from rows with this digest."""
    return path.is_file() and f"<!-- rows {digest} -->" in path.read_text(encoding="utf-8")


def make_gallery() -> str:
    """Return the results page's sections as Markdown."""
    findings: Mapping[int, str] = declared_notes("FINDINGS")
    scales = {figure.name: scale for _, figure, scale, _ in shown_figures()}
    parts: list[str] = []
    for paper, title in PAPERS.items():
        own = [experiment for experiment in experiments() if experiment.paper == paper]
        parts += [f"## {title or 'Tables and figures'}"] if own else []
        for experiment in own:
            parts += list(make_section(experiment, findings, scales))
    return "\n\n".join(parts) + "\n"


def make_section(experiment: Experiment, findings: Mapping[int, str], scales: Mapping[str, str]) -> Iterator[str]:
    """Yield the paragraphs of one experiment."""
    yield f"### {', '.join(format_heading(shown.name) for shown in experiment.shows)}: {experiment.title}"
    if experiment.number in findings:
        yield findings[experiment.number]
    for shown in experiment.shows:
        if isinstance(shown, Figure) and shown.name in scales:
            yield make_picture(shown, format_title(experiment, shown), scales[shown.name])
    if not any(isinstance(shown, Figure) for shown in experiment.shows):
        yield from make_first_table(experiment)
    claims = ", ".join(f"[{claim.id}](CLAIMS.md)" for claim in experiment.claims)
    yield f"`python -m repro.{experiment.artefacts[0]}`" + (f" · claims {claims}" if claims else "")


def make_picture(figure: Figure, title: str, scale: str) -> str:
    """Return the Markdown of one picture for light and dark pages."""
    name = figure.name
    return (
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="pictures/{name}-dark.svg">\n'
        f'  <img alt="{title} ({scale})" src="pictures/{name}-light.svg">\n</picture>'
    )


def make_first_table(experiment: Experiment) -> Iterator[str]:
    """Yield the first table of an experiment that is short enough for the page."""
    for scale in SCALES:
        runs = experiment.runs(scale) if scale in experiment.scales else ()
        if not runs or runs[0].scale != scale or not load_records(runs, "published"):
            continue
        views = make_artefact_views(experiment, scale, with_yours=False)
        for shown in experiment.shows:
            if isinstance(shown, Table | Exhibit) and len(views[shown.name].rows) <= MOST_ROWS:
                yield as_markdown(views[shown.name])
                return

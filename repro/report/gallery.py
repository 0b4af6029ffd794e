"""Results page and its pictures: for each experiment the picture or table, the finding, the command and the claims.

Pictures are committed as SVG. Each stores a digest of its rows, so that a test can check whether it is current without
drawing it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro.report.artefacts import load_records, make_artefact_views
from repro.report.figure_data import describe_claim_seeds, list_figure_rows
from repro.report.formats import as_markdown
from repro.report.names import format_heading, format_title, split_name
from repro.report.view import View
from repro.spec import Exhibit, Experiment, Figure, Run, Table
from repro.spec.artefact import MAIN
from repro.spec.registry import experiments, find_experiment, load_front_page
from repro.storage.digests import hash_python_files
from repro.storage.paths import CHECKOUT, SOURCES

PICTURES = Path("docs") / "pictures"
PRETRAINED = ("mini", "mini2")
SCALES = ("desk", "lab", *PRETRAINED)
"""An artefact is shown at the first of these scales at which it has a published record."""
MAX_ROWS, MAX_OWN_ROWS = 24, 12
"""Largest number of rows of a table on the page, and of one of our own. Longer tables are available by `show`."""
FIELDS = (
    *("kind", "x", "y", "x_label", "y_label", "hue", "hue_label", "cell", "x_is_log", "y_is_log"),
    *("is_panelled", "is_paired", "title"),
)


def iter_gallery_figures(*papers: str) -> Iterator[tuple[Experiment, Figure, str, list[dict[str, Any]]]]:
    """Yield each figure of these papers that can be drawn, with its experiment, scale and rows."""
    for experiment in (each for each in experiments() if each.paper in papers):
        for figure in (artefact for artefact in experiment.artefacts if isinstance(artefact, Figure)):
            for scale in SCALES:
                rows = list_rows(experiment, figure, scale)
                if rows:
                    yield experiment, figure, scale, rows
                    break


def list_rows(experiment: Experiment, figure: Figure, scale: str) -> list[dict[str, Any]]:
    """Return the rows of a figure from the published records of one scale."""
    runs = _list_own_runs(experiment, scale)
    return list_figure_rows(figure, runs, load_records(runs, "published")) if runs else []


def _list_own_runs(experiment: Experiment, scale: str) -> tuple[Run, ...]:
    """Return the runs of an experiment at a scale, or none if it repeats those of another scale there."""
    runs = experiment.runs(scale)
    return runs if runs and runs[0].scale == scale else ()


def compute_digest(figure: Figure, rows: Sequence[Mapping[str, Any]], scale: str) -> str:
    """Return 16 hex digits of the rows and labels of a picture, and of the code that draws it.

    A note on the seeds of its claims is included too, if there is one.
    """
    settings = [getattr(figure, name) for name in FIELDS]
    code = hash_python_files((SOURCES / "figures",))
    content = json.dumps([settings, [dict(row) for row in rows], code], default=repr, sort_keys=True)
    if figure.draw is not None:
        # the whole module, because `draw` uses its helpers and constants
        content += inspect.getsource(sys.modules[figure.draw.__module__])
    content += describe_claim_seeds(figure, scale, rows)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def get_picture_path(name: str) -> Path:
    """Return the path of the committed picture of a figure."""
    return CHECKOUT / PICTURES / f"{name}.svg"


def make_gallery(paper: str = MAIN) -> str:
    """Return the sections of a paper's results page as Markdown.

    The page of this suite has the main artefacts first, then the others of the paper, then our own. Raises ValueError if
    a main artefact is not declared.
    """
    findings = load_findings()
    scales = {figure.name: scale for _, figure, scale, _ in iter_gallery_figures(paper)}
    main = {each.number: each for each in map(find_experiment, load_front_page()["main_artefacts"])}
    others = [each for each in experiments() if each.paper == paper and each.number not in main]
    groups = {"": others}
    if paper == MAIN:
        groups = {
            "The main artefacts": list(main.values()),
            "Other tables and figures of the paper": [each for each in others if _is_in_paper(each)],
            "Our own experiments": [each for each in others if not _is_in_paper(each)],
        }
    parts: list[str] = []
    for title, group in groups.items():
        parts += [f"## {title}"] if title else []
        for experiment in group:
            parts += make_section(experiment, findings, scales, is_main=experiment.number in main)
    return "\n\n".join(parts) + "\n"


def _is_in_paper(experiment: Experiment) -> bool:
    """Return whether an artefact of an experiment is a numbered table or figure of the paper."""
    return any(split_name(name)[1] for name in experiment.artefact_names)


def load_findings() -> dict[int, str]:
    """Return the main result of each experiment by its number, from experiments/findings.md."""
    text = re.sub(r"<!--.*?-->", "", (SOURCES / "experiments" / "findings.md").read_text("utf-8"), flags=re.DOTALL)
    sections = re.findall(r"^## (\d+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return {int(number): " ".join(finding.split()) for number, finding in sections}


def format_section_title(experiment: Experiment) -> str:
    """Return the names of an experiment's artefacts and its title. Variants such as "Table 1 (context)" are not listed."""
    names: list[str] = []
    for artefact in experiment.artefacts:
        name = format_heading(artefact.name)
        if name.partition(" (")[0] not in [*names, experiment.title]:
            names.append(name)
    return f"{', '.join(names)}: {experiment.title}" if names else experiment.title


def make_section(
    experiment: Experiment, findings: Mapping[int, str], scales: Mapping[str, str], *, is_main: bool
) -> Iterator[str]:
    """Yield the paragraphs of one experiment."""
    yield f"### {format_section_title(experiment)}"
    if experiment.number in findings:
        yield findings[experiment.number]
    for artefact in experiment.artefacts:
        if isinstance(artefact, Figure) and artefact.name in scales:
            title = format_title(experiment, artefact)
            yield f"![{title} ({scales[artefact.name]})](pictures/{artefact.name}.svg)"
    if is_main or not any(isinstance(artefact, Figure) for artefact in experiment.artefacts):
        yield from make_first_tables(experiment, is_main=is_main)
    claims = ", ".join(claim.id for claim in experiment.claims)
    first = next(scale for scale in SCALES if _list_own_runs(experiment, scale))
    command = f"python -m repro.{experiment.artefact_names[0]}" + (f" --scale {first}" if first != SCALES[0] else "")
    yield f"`{command}`" + (f" · claims {claims}" if claims else "")


def make_first_tables(experiment: Experiment, *, is_main: bool) -> Iterator[str]:
    """Yield the first table of an experiment that is short enough for the page, at its first scale.

    A main artefact also has one at each scale that starts from MiniLM.
    """
    scales = [scale for scale in SCALES if load_records(_list_own_runs(experiment, scale), "published")]
    for scale in [scale for scale in scales if scale == scales[0] or (is_main and scale in PRETRAINED)]:
        views = make_artefact_views(experiment, scale, with_yours=False)
        tables = [artefact for artefact in experiment.artefacts if isinstance(artefact, Table | Exhibit)]
        for view in (_drop_rows_without_records(views[artefact.name]) for artefact in tables):
            if 0 < len(view.rows) <= (MAX_ROWS if is_main or _is_in_paper(experiment) else MAX_OWN_ROWS):
                yield as_markdown(view)
                break


def _drop_rows_without_records(view: View) -> View:
    """Return a table without the rows whose column of seeds is 0/n. `show` prints them."""
    rows = [row for row in view.rows if not (len(row) > 2 and row[2].startswith("0/"))]
    return replace(view, rows=tuple(rows)) if rows else view

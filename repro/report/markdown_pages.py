"""The parts of the pages that the program writes, each between `<!-- name -->` and `<!-- name end -->`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from repro.report.artefacts import judgements, make_artefact_views
from repro.report.contents import file_map, make_artefact_table, make_folder_table, make_notes_table
from repro.report.formats import as_markdown
from repro.report.headlines import make_headlines_view
from repro.report.tables import by_paper, make_claims_view, sort_judgements
from repro.report.view import View
from repro.spec.artefact import MAIN
from repro.spec.registry import experiments, find_experiment
from repro.statistics.judge import Judgement
from repro.storage.paths import CHECKOUT

LEDGER = ("claims", "RESULTS.md")
LEDGERS = {MAIN: LEDGER[0], "GTE": "claims_gte", "MRL": "claims_mrl"}
"""The block of that page that has a paper's claims."""
DESK, LAB = "desk", "lab"
DEARER = "claims_lab"
"""The block of the ledger's page that has what is judged at lab, which outranks desk."""
TABLES = {
    "table1": ("table1", DESK, "README.md"),
    "table1_lab": ("table1", LAB, "RESULTS.md"),
    "recipes": ("recipes", DESK, "RESULTS.md"),
    "context_use": ("context_use", DESK, "RESULTS.md"),
    "context_headroom_table": ("context_headroom_table", DESK, "RESULTS.md"),
    "context_emergence_table": ("context_emergence_table", DESK, "RESULTS.md"),
    "context_emergence_table_lab": ("context_emergence_table", LAB, "RESULTS.md"),
    "batches_of_views": ("batches_of_views", LAB, "RESULTS.md"),
    "context_designs": ("context_designs", DESK, "RESULTS.md"),
}
"""Of each block that shows a table whole: which table, at which scale, on which page."""
CONTENTS = {
    ("artefacts", "README.md"): make_artefact_table,
    ("folders", "README.md"): make_folder_table,
    ("files", "ARCHITECTURE.md"): file_map,
    ("not_judged", "RESULTS.md"): lambda folder: make_notes_table("not_judged"),
    ("contradictions", "ERRATA.md"): lambda folder: make_notes_table("contradictions"),
    ("deviations", "REPRODUCING.md"): lambda folder: make_notes_table("deviations"),
}
"""What is read from the source alone."""


def renewed_pages(judged: Sequence[Judgement], scale: str, folder: Path = CHECKOUT) -> dict[Path, str]:
    """Return the pages as source and published records would have them today.

    ValueError when there are no pages (an installed copy), or when a marker is not there once.
    """
    if not (folder / LEDGER[1]).is_file():
        raise ValueError(f"{folder} has no {LEDGER[1]}: pages are renewed in a checkout, not in an installed copy")
    apart = by_paper(judged)
    title = f"Claims at scale `{scale}`, from the published records"
    blocks = {
        (name, LEDGER[1]): as_markdown(make_claims_view(apart.get(paper, []), title)) for paper, name in LEDGERS.items()
    }
    blocks |= {place: write(folder) for place, write in CONTENTS.items()}
    if scale == DESK:
        at_lab = judge_measured(LAB)
        blocks[DEARER, LEDGER[1]] = as_markdown(make_claims_view(at_lab, f"Claims that records at `{LAB}` judge"))
        blocks["headlines", LEDGER[1]] = as_markdown(make_headlines_view({DESK: judged, LAB: at_lab}))
        for block, (name, at, page) in TABLES.items():
            view = make_artefact_views(find_experiment(name), at, with_yours=False)[name]
            blocks[block, page] = as_markdown(view if at == DESK else list_begun_rows(view))
    pages: dict[Path, str] = {}
    for (name, page), block in blocks.items():
        path = folder / page
        pages[path] = replace_block(path, pages.get(path) or path.read_text(), name, block)
    return pages


def list_begun_rows(view: View) -> View:
    """Return a table of runs without the rows of which no seed has a record: dear ones come in one by one."""
    seeds = view.header.index("seeds")
    return replace(view, rows=tuple(row for row in view.rows if not row[seeds].startswith("0/")))


def judge_measured(scale: str) -> list[Judgement]:
    """Return what the published records of a scale say of claims, without those that have none or are arithmetic.

    Experiments whose runs are those of another scale are left out: they are judged there.
    """
    own = (experiment for experiment in experiments() if scale in {run.scale for run in experiment.runs(scale)})
    judged = (one for experiment in own for one in judgements(experiment, scale))
    return sort_judgements(one for one in judged if one.effect is not None)


def replace_block(path: Path, text: str, name: str, block: str) -> str:
    """Return a page's text with another block between a name's markers; ValueError unless each is there once."""
    start, end = f"<!-- {name} -->", f"<!-- {name} end -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"{path} must have {start!r} and {end!r} once each; put them where the block goes")
    before, rest = text.split(start)
    return f"{before}{start}\n\n{block}\n{end}{rest.split(end)[1]}"

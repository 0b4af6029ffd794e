"""The parts of the pages that the program writes, each between `<!-- name -->` and `<!-- name end -->`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repro.report.artefacts import judgements
from repro.report.contents import make_artefact_table, make_notes_table
from repro.report.coverage import make_coverage_table
from repro.report.formats import as_markdown
from repro.report.gallery import make_gallery
from repro.report.headlines import make_headlines_view
from repro.report.tables import by_paper, make_claims_view, sort_judgements
from repro.spec.artefact import MAIN
from repro.spec.registry import experiments
from repro.statistics.judge import Judgement
from repro.storage.paths import CHECKOUT

LEDGER = ("claims", "docs/CLAIMS.md")
LEDGERS = {MAIN: LEDGER[0], "GTE": "claims_gte", "MRL": "claims_mrl"}
"""The block of the ledger page for each paper."""
DESK, LAB, MINI = "desk", "lab", "mini"
DEARER = {LAB: "claims_lab", MINI: "claims_mini"}
"""The blocks of the ledger page for the scales that outrank desk."""
RESULTS = "docs/RESULTS.md"
CONTENTS = {
    ("artefacts", "docs/ARTEFACTS.md"): make_artefact_table,
    ("coverage", "docs/COVERAGE.md"): make_coverage_table,
    ("not_judged", "docs/COVERAGE.md"): lambda folder: make_notes_table("not_judged"),
    ("contradictions", "docs/ERRATA.md"): lambda folder: make_notes_table("contradictions"),
    ("deviations", "REPRODUCING.md"): lambda folder: make_notes_table("deviations"),
}
"""Blocks that are read from the source alone."""


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
        dearer = {at: judge_measured(at) for at in DEARER}
        for at, block in DEARER.items():
            view = make_claims_view(dearer[at], f"Claims that records at `{at}` judge")
            blocks[block, LEDGER[1]] = as_markdown(view)
        headlines = as_markdown(make_headlines_view({DESK: judged, LAB: dearer[LAB]}))
        blocks |= {("headlines", RESULTS): headlines, ("headlines", "README.md"): headlines}
        blocks["gallery", RESULTS] = make_gallery()
    pages: dict[Path, str] = {}
    for (name, page), block in blocks.items():
        path = folder / page
        pages[path] = replace_block(path, pages.get(path) or path.read_text(), name, block)
    return pages


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

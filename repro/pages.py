"""The parts of the pages that the program writes: the claims in REPRODUCING.md, and some tables where they are told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repro.claims import Judgement
from repro.places import CHECKOUT
from repro.registry import experiment_of
from repro.report import as_markdown, claims_view
from repro.views import artefact_views

CLAIMS_MARKERS = ("<!-- claims: written by `repro check --write` -->", "<!-- claims: end -->")
TABLES = {"table1": "README.md", "recipes": "REPRODUCING.md", "context_use": "REPRODUCING.md"}
"""Which page shows an artefact whole, between `<!-- name -->` and `<!-- name end -->`."""
TABLE_SCALE = "desk"
"""The scale of those tables; claims are written at any."""


def renewed_pages(judged: Sequence[Judgement], scale: str, folder: Path = CHECKOUT) -> dict[Path, str]:
    """Gives the pages as the published records would have them today; ValueError when a marker is not there once."""
    claims = as_markdown(claims_view(judged, f"Claims at scale `{scale}`, from the published records."))
    blocks = [("REPRODUCING.md", CLAIMS_MARKERS, claims)]
    for name, page in TABLES.items() if scale == TABLE_SCALE else ():
        view = artefact_views(experiment_of(name), scale, with_yours=False)[name]
        blocks.append((page, (f"<!-- {name} -->", f"<!-- {name} end -->"), as_markdown(view)))
    pages: dict[Path, str] = {}
    for page, markers, block in blocks:
        path = folder / page
        pages[path] = replace_block(path, pages.get(path) or path.read_text(), markers, block)
    return pages


def replace_block(path: Path, text: str, markers: tuple[str, str], block: str) -> str:
    """Gives a page's text with another block between its markers; ValueError when they are not there once each."""
    start, end = markers
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"{path} must have {start!r} and {end!r} once each; put them where the block goes")
    before, rest = text.split(start)
    return f"{before}{start}\n\n{block}\n{end}{rest.split(end)[1]}"

"""The parts of the pages that the program writes: the claims in REPRODUCING.md, Table 1 in README.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repro.claims import Judgement
from repro.places import CHECKOUT
from repro.registry import experiment_of
from repro.report import as_markdown, claims_view
from repro.views import artefact_views

CLAIMS_MARKERS = ("<!-- claims: written by `repro check --write` -->", "<!-- claims: end -->")
TABLE_MARKERS = ("<!-- table1 -->", "<!-- table1 end -->")
TABLE_SCALE = "desk"
"""The scale of the table on the first page; claims are written at any."""


def renewed_pages(judged: Sequence[Judgement], scale: str, folder: Path = CHECKOUT) -> dict[Path, str]:
    """Gives the pages as the published records would have them today; ValueError when a marker is not there once."""
    claims = as_markdown(claims_view(judged, f"Claims at scale `{scale}`, from the published records."))
    pages = {folder / "REPRODUCING.md": (CLAIMS_MARKERS, claims)}
    if scale == TABLE_SCALE:
        table = artefact_views(experiment_of("table1"), scale, with_yours=False)["table1"]
        pages[folder / "README.md"] = (TABLE_MARKERS, as_markdown(table))
    return {path: replace_block(path, markers, block) for path, (markers, block) in pages.items()}


def replace_block(path: Path, markers: tuple[str, str], block: str) -> str:
    """Gives a page with another block between its markers; ValueError when they are not there once each."""
    text = path.read_text()
    start, end = markers
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"{path} must have {start!r} and {end!r} once each; put them where the block goes")
    before, rest = text.split(start)
    return f"{before}{start}\n\n{block}\n{end}{rest.split(end)[1]}"

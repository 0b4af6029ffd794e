"""Write one static HTML page from records. It works offline, loads nothing from outside, and escapes all data."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from repro.report.artefacts import RECORD_WORDS
from repro.report.markdown_pages import HEADLINE_SCALES, judge_results, make_headlines_view, read_summary
from repro.report.sections import ScaleReport
from repro.report.tables import INTERVAL_NOTE, LEDGER_HEADER, format_claim_row, format_summary_line
from repro.spec.artefact import PAPERS
from repro.spec.identity import format_overrides
from repro.storage.files import atomic_file

TEMPLATE = "report.html.j2"
SIGNS = {"HOLDS": "✓", "DIFFERS": "✗", "SMALL": "=", "OPEN": "?"}
TITLES_OF_UNJUDGED = {"other scale": "cannot be judged", "not run": "not run"}
"""Verdicts without a number, and the title of the folded list that shows them."""


def write_report(out: Path, scales: Iterable[ScaleReport], front_picture: str) -> Path:
    """Write the page with the content of some scales, and return its path.

    The page opens with the sentences, the picture (SVG text) and the table of the front page.
    """
    # Fail before minutes of drawing, because the scales may be made while they are read.
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(out) as part:
        part.write_text(render_page(list(scales), out.resolve().parent, front_picture), encoding="utf-8")
    return out


def render_page(scales: Sequence[ScaleReport], folder: Path, front_picture: str) -> str:
    """Return the page as text. Links to records are relative to `folder`, the folder of the page."""

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "anchor": lambda verdict: verdict.lower().replace(" ", "-"),
        "sign": lambda word: SIGNS.get(word, "·"),
        "image": embed_picture,
        "inline": render_inline_markdown,
        "origin": RECORD_WORDS.__getitem__,
        "words": lambda record: format_overrides(record.run),
        "path": lambda record: os.path.relpath(record.path, folder),
        "summary": format_summary_line,
        "cells": lambda judged: dict(zip(LEDGER_HEADER, format_claim_row(judged), strict=True)),
    }
    judged = {part.scale.name: part.verdicts for part in scales}
    sections = [section for part in scales for section in part.sections]
    introduction, sentences = read_summary()
    return environment.get_template(TEMPLATE).render(
        introduction=render_inline_markdown(introduction),
        sentences=[render_inline_markdown(sentence) for sentence in sentences],
        front_picture=front_picture,
        headlines=make_headlines_view({scale: judged.get(scale) or judge_results(scale) for scale in HEADLINE_SCALES}),
        papers=PAPERS,
        titles_of_unjudged=TITLES_OF_UNJUDGED,
        intervals=INTERVAL_NOTE,
        scales=scales,
        artefacts={judged.claim.id: section.artefact.name for section in sections for judged in section.verdicts},
        num_records=len({record.path for section in sections for _, record in section.records}),
    )


def render_inline_markdown(text: str) -> Markup:
    """Return a sentence with bold text and code as HTML, and links as their text. All else is escaped."""
    html = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", str(escape(text)))
    html = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html)
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", html))


def embed_picture(svg: str, label: str) -> Markup:
    """Return a picture as an HTML image, in which a browser runs no script and loads nothing."""
    encoded = base64.b64encode(svg.encode()).decode()
    return Markup('<img alt="{}" src="data:image/svg+xml;base64,{}">').format(label, encoded)

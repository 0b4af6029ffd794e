"""One static HTML page from records: opens offline, asks for nothing from outside, escapes whatever the data says."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from repro.claims.contrasts import WHAT_IS_RANDOM
from repro.records.spent import seconds_of
from repro.report.artefacts import RECORD_WORDS
from repro.report.known import ForestPainter, forest_rows, known_sentence
from repro.report.sections import (
    Line,
    Painter,
    Picture,
    Section,
    deviations,
    machines_of,
    sections_of,
)
from repro.report.tables import INTERVAL_WORDS, LEDGER_ORDER, summary_line
from repro.report.view import format_seconds
from repro.spec import Experiment
from repro.spec.identity import difference_in_words
from repro.spec.registry import experiments
from repro.spec.scales import scale_named
from repro.storage.atomic import check_replaceable, whole_file

TEMPLATE = "report.html.j2"
SVG, LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
SIGNS = {"HOLDS": "✓", "DIFFERS": "✗", "NO EFFECT": "=", "UNDECIDED": "?", "NOT RUN": "–", "WRONG SCALE": "·"}

PIXELS_A_POINT, MOST_ENLARGED, LEAST_SHRUNK = 4 / 3, 1.15, 0.85
UNJUDGED = {"WRONG SCALE": "cannot be judged", "NOT RUN": "not run"}
"""Verdicts that say nothing of the paper, folded away below the others; and how the fold is called."""


def write_report(
    scale: str,
    out: Path,
    paint: Painter,
    shown: Iterable[Experiment] | None = None,
    *,
    paint_forest: ForestPainter | None = None,
) -> Path:
    """Write the page for all experiments (or those `shown`) at a scale and gives its path.

    It opens with the forest plot of all claims where `paint_forest` draws one.
    """
    check_replaceable(out)  # before minutes of drawing
    chosen = experiments() if shown is None else shown
    sections = [section for experiment in chosen for section in sections_of(experiment, scale, paint)]
    sections.sort(key=lambda section: section.order)
    rows = forest_rows(line.judged for section in sections for line in section.lines)
    svg = paint_forest(rows, scale) if paint_forest and rows else None
    forest = None if svg is None else Picture("published", svg)
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(out) as part:
        part.write_text(render_page(scale, sections, out.resolve().parent, forest), encoding="utf-8")
    return out


def render_page(scale: str, sections: Sequence[Section], folder: Path, forest: Picture | None = None) -> str:
    """Return the page as text; links to records are relative to `folder`, where it will lie."""
    lines = sorted((line for section in sections for line in section.lines), key=_place)
    records = {record.id: (whose, record) for section in sections for whose, record in reversed(section.records)}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "anchor": lambda verdict: verdict.lower().replace(" ", "-"),
        "sign": SIGNS.__getitem__,
        "svg": lambda picture, name, label: inline_svg(picture.svg, f"{name}-{picture.whose}-", label),
        "csv_link": csv_link,
        "whose": RECORD_WORDS.__getitem__,
        "fields": lambda record: asdict(record.run).items(),
        "words": lambda record: difference_in_words(record.run),
        "path": lambda record: os.path.relpath(record.path, folder),
        "duration": format_seconds,
        "spent": lambda records: seconds_of([record for _, record in records]),
        "machines": lambda records: machines_of([record for _, record in records]),
    }
    return environment.get_template(TEMPLATE).render(
        scale=scale_named(scale),
        summary=summary_line([line.judged for line in lines]),
        known=known_sentence([line.judged for line in lines]),
        forest=forest,
        intervals=INTERVAL_WORDS,
        random=WHAT_IS_RANDOM,
        judged=[line for line in lines if line.judged.verdict not in UNJUDGED],
        unjudged={words: [line for line in lines if line.judged.verdict == name] for name, words in UNJUDGED.items()},
        sections=sections,
        deviations=deviations(scale),
        records=sorted(records.items()),
    )


def _place(line: Line) -> int:
    return LEDGER_ORDER.index(line.judged.verdict)


def inline_svg(path: Path, prefix: str, label: str) -> Markup:
    """Return a drawn figure as an element of the page: ids of its own, no style for others, a label to be read aloud"""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", LINK)
    root = ElementTree.parse(path).getroot()
    for parent in root.iter():
        for child in [one for one in parent if one.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style")]:
            parent.remove(child)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "id":
                element.set(name, prefix + value)
            elif name == f"{{{LINK}}}href" and value.startswith("#"):
                element.set(name, f"#{prefix}{value[1:]}")
            elif "url(#" in value:
                element.set(name, value.replace("url(#", f"url(#{prefix}"))
    width = float(root.attrib.pop("width").removesuffix("pt")) * PIXELS_A_POINT
    root.attrib.pop("height")
    least, most = LEAST_SHRUNK * width, MOST_ENLARGED * width  # text stays large enough to be read; the box scrolls
    root.set("style", f"max-width: {most:.0f}px; min-width: {least:.0f}px")
    root.set("role", "img")
    root.set("aria-label", label)
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # made by our own drawing, its text escaped there


def csv_link(picture: Picture) -> str:
    """Return the plotted data as a link that needs no file beside the page."""
    return "data:text/csv;base64," + base64.b64encode(picture.data.read_bytes()).decode()

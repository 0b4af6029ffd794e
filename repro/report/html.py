"""Write one static HTML page from records. It works offline, loads nothing from outside, and escapes all data."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from repro.records.provenance import sum_seconds
from repro.report.artefacts import RECORD_WORDS
from repro.report.claims_overview import list_forest_rows, make_counts_view
from repro.report.sections import (
    ForestRenderer,
    Line,
    Picture,
    Renderer,
    Section,
    list_machines,
    make_deviations_view,
    make_sections,
)
from repro.report.tables import INTERVAL_NOTE, format_summary_line, get_ledger_rank
from repro.report.view import View
from repro.spec import Experiment
from repro.spec.artefact import MAIN, PAPERS
from repro.spec.identity import format_overrides
from repro.spec.registry import find_paper
from repro.spec.scales import get_scale
from repro.storage.files import atomic_file
from repro.text import ABSENT, format_seconds

ALLOWED_ELEMENTS = {
    f"{{http://www.w3.org/2000/svg}}{name}"
    for name in (
        *("svg", "g", "defs", "use", "symbol", "clipPath", "mask", "marker", "pattern", "image"),
        *("path", "rect", "line", "circle", "ellipse", "polyline", "polygon", "text", "tspan"),
        *("title", "desc", "linearGradient", "radialGradient", "stop"),
    )
}
"""Allowed SVG elements. All others are removed, including `style` and `metadata`."""
TEMPLATE = "report.html.j2"
HEADLINE = "table1"
"""Artefact that opens the page."""
HEADLINE_COLUMNS = ("origin", "seeds", "NDCG@10", "unlike training", "batch", "cluster")
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
SIGNS = {"HOLDS": "✓", "DIFFERS": "✗", "SMALL": "=", "OPEN": "?"}

PIXELS_PER_POINT, MAX_PICTURE_SCALE, MIN_PICTURE_SCALE = 4 / 3, 1.15, 0.8
TITLES_OF_UNJUDGED = {"other scale": "cannot be judged", "not run": "not run"}
"""Verdicts without a number, and the title of the folded list that shows them."""


def write_report(
    scale: str,
    out: Path,
    render: Renderer,
    shown: Iterable[Experiment],
    *,
    render_forest: ForestRenderer | None = None,
    render_gains: Callable[[str], Path | None] | None = None,
) -> Path:
    """Write the page for some experiments at a scale, and return its path.

    The page opens with Table 1, with the picture (SVG) by `render_gains`. `render_forest` draws all claims.
    """
    chosen = (experiment for experiment in shown if experiment.runs(scale))
    sections = [section for experiment in chosen for section in make_sections(experiment, scale, render)]
    sections.sort(key=lambda section: section.order)
    rows = list_forest_rows(line.judged for section in sections if section.paper == MAIN for line in section.lines)
    forest_svg = render_forest(rows, scale) if render_forest and rows else None
    forest = Picture("published", forest_svg) if forest_svg else None
    gains = render_gains(scale) if render_gains else None
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(out) as part:
        part.write_text(render_page(scale, sections, out.resolve().parent, forest, gains), encoding="utf-8")
    return out


def render_page(
    scale: str, sections: Sequence[Section], folder: Path, forest: Picture | None = None, gains: Path | None = None
) -> str:
    """Return the page as text. Links to records are relative to `folder`, the folder of the page."""
    lines = sorted(
        (line for section in sections for line in section.lines), key=lambda line: get_ledger_rank(line.judged)
    )
    records = {(whose, record.id): record for section in sections for whose, record in section.records}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "anchor": lambda verdict: verdict.lower().replace(" ", "-"),
        "sign": lambda word: SIGNS.get(word, "·"),
        "svg": lambda picture, name, label: inline_svg(picture.svg, f"{name}-{picture.whose}-", label),
        "csv_link": csv_link,
        "origin": RECORD_WORDS.__getitem__,
        "fields": lambda record: fields_as_html(vars(record.run)),
        "words": lambda record: format_overrides(record.run),
        "path": lambda record: os.path.relpath(record.path, folder),
        "duration": format_seconds,
        "spent": lambda records: sum_seconds([record for _, record in records]),
        "machines": lambda records: list_machines([record for _, record in records]),
    }
    own, *companions = _split_ledgers(lines)
    first_section = next((section for section in sections if section.name == HEADLINE), None)
    return environment.get_template(TEMPLATE).render(
        scale=get_scale(scale),
        first=first_section,
        first_view=None if first_section is None else _shorten(first_section.view),
        gains=None if gains is None else inline_svg(gains, "gains-", f"{HEADLINE}: gain of each row", min_scale=0),
        known=make_counts_view([line.judged for line in own.lines]),
        companions=companions,
        papers=PAPERS,
        ledgers=[own, *companions],
        forest=forest,
        intervals=INTERVAL_NOTE,
        sections=sections,
        deviations=make_deviations_view(scale),
        records=sorted(records.items()),
    )


def _shorten(view: View) -> View:
    """Return the table with the columns that open the page. The score comes first, so that a phone shows it."""
    return view.with_columns([0, *(view.header.index(name) for name in HEADLINE_COLUMNS if name in view.header)])


def fields_as_html(values: Mapping[str, Any]) -> Markup:
    """Return values as HTML terms and definitions. They are cached, because thousands of runs share few values."""
    return Markup("").join(
        _format_definition(name, ABSENT if value is None else str(value)) for name, value in values.items()
    )


@lru_cache(maxsize=2**14)
def _format_definition(name: str, text: str) -> Markup:
    return Markup("<dt>{}</dt><dd>{}</dd>").format(name, text)


@dataclass(frozen=True)
class Ledger:
    """The claims of one paper."""

    paper: str
    title: str
    lines: tuple[Line, ...]

    @property
    def summary(self) -> str:
        """Number of claims per verdict."""
        return format_summary_line([line.judged for line in self.lines])

    @property
    def judged(self) -> list[Line]:
        """Claims with a number at this scale."""
        return [line for line in self.lines if line.judged.word not in TITLES_OF_UNJUDGED]

    @property
    def unjudged(self) -> dict[str, list[Line]]:
        """Claims without a number, grouped by the reason."""
        return {
            title: [line for line in self.lines if line.judged.word == verdict]
            for verdict, title in TITLES_OF_UNJUDGED.items()
        }


def _split_ledgers(lines: Sequence[Line]) -> list[Ledger]:
    """Return the ledger of this paper, and of each companion paper with claims."""
    by_paper = {paper: tuple(line for line in lines if find_paper(line.judged.claim.id) == paper) for paper in PAPERS}
    return [Ledger(paper, PAPERS[paper], group) for paper, group in by_paper.items() if group or paper == MAIN]


def inline_svg(path: Path, prefix: str, label: str, *, min_scale: float = MIN_PICTURE_SCALE) -> Markup:
    """Return a drawn figure as an HTML element with unique ids, no global style, and a label for screen readers."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.parse(path).getroot()
    _sanitize_svg(root)
    # Prefix all ids and references, so that several pictures on one page do not clash.
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "id":
                element.set(name, prefix + value)
            elif name == f"{{{XLINK}}}href" and value.startswith("#"):
                element.set(name, f"#{prefix}{value[1:]}")
            elif "url(#" in value:
                element.set(name, value.replace("url(#", f"url(#{prefix}"))
    width = float(root.attrib.pop("width").removesuffix("pt")) * PIXELS_PER_POINT
    root.attrib.pop("height")
    # With a minimum width text stays readable. A wider picture scrolls, an ordinary one fits a phone of 390 pixels.
    # Without one, a picture shrinks to the page. Nothing is cut, but its text is small on a phone.
    min_width, max_width = min_scale * width, MAX_PICTURE_SCALE * width
    root.set("style", f"max-width: {max_width:.0f}px; min-width: {min_width:.0f}px")
    root.set("role", "img")
    root.set("aria-label", label)
    # Safe, because the picture is sanitized and its text is escaped.
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _sanitize_svg(root: ElementTree.Element) -> None:
    """Remove everything except drawing: scripts, handlers, foreign elements, styles and external links.

    Others may have write access to the folder of pictures, and a browser would execute a script in them.
    """
    if root.tag not in ALLOWED_ELEMENTS:
        raise ValueError(f"a picture begins with {root.tag!r}, expected svg; remove it and it is drawn again")
    for parent in root.iter():
        # A copy, because children are removed while it is iterated.
        for child in list(parent):
            if child.tag not in ALLOWED_ELEMENTS:
                parent.remove(child)
    for element in root.iter():
        for name, value in list(element.attrib.items()):
            attribute = name.rpartition("}")[2].casefold()
            is_handler = attribute.startswith("on")
            is_link = attribute in ("href", "src") and not value.startswith(("#", "data:image/png;base64,"))
            has_link = re.search(r"url\((?!#)", value) or "javascript:" in value.casefold()
            if is_handler or is_link or has_link:
                del element.attrib[name]


def csv_link(picture: Picture) -> str:
    """Return the plotted data as a data link, so that the page needs no other file."""
    return "data:text/csv;base64," + base64.b64encode(picture.data.read_bytes()).decode()

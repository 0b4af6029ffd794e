"""The table of artefacts and lists of notes, read from the source of the experiments."""

from __future__ import annotations

import ast
import re
from dataclasses import astuple
from pathlib import Path

from repro.report.formats import as_markdown_table
from repro.spec import Experiment
from repro.spec.artefact import ABSENT, MAIN, PAPERS
from repro.spec.registry import declared_notes, experiments
from repro.storage.paths import CHECKOUT

ABBREVIATIONS = ("al", "cf", "e.g", "eq", "fig", "i.e", "vs")
"""What may stand before a full stop that ends no sentence."""


def extract_first_sentence(source: str) -> str:
    """Return the first sentence of a module's docstring, whole and without its full stop; "" when there is none.

    A full stop inside brackets, or behind an abbreviation, ends no sentence.
    """
    paragraph = " ".join((ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0].split())
    for stop in re.finditer(r"\.(?=\s|$)", paragraph):
        sentence = paragraph[: stop.start()]
        last_word = sentence.rpartition(" ")[2].lstrip("([").lower()
        if sentence.count("(") == sentence.count(")") and last_word not in ABBREVIATIONS:
            return sentence
    return paragraph


def make_artefact_table(folder: Path = CHECKOUT) -> str:
    """Return every experiment as a line of Markdown: its artefacts, its first sentence, its claims, its file.

    Those of companion papers come last, under a line with the paper's title.
    """
    lines: list[tuple[str, ...]] = []
    for paper, title in PAPERS.items():
        own = [_format_artefact_line(experiment, folder) for experiment in experiments() if experiment.paper == paper]
        heading = [(f"**{title}**", "", "", "")] if own and paper != MAIN else []
        lines += heading + own
    return as_markdown_table(("artefacts", "what is shown", "claims", "declared in"), lines)


def _format_artefact_line(experiment: Experiment, folder: Path) -> tuple[str, ...]:
    (path,) = (folder / "experiments").glob(f"e{experiment.number:02d}_*.py")
    names = ", ".join(f"`{name}`" for name in experiment.artefacts)
    claims = ", ".join(claim.id for claim in experiment.claims) or ABSENT
    return names, extract_first_sentence(path.read_text()), claims, f"[{path.stem[:3]}](../experiments/{path.name})"


NOTES = {
    "not_judged": ("NOT_JUDGED", ("where", "what the paper says", "why it is not judged")),
    "contradictions": ("ERRATA", ("where", "it says", "and also", "claim")),
    "deviations": ("DEVIATIONS", ("where", "the paper", "ours")),
}
"""Lists of experiments/unjudged.py and deviations.py by the block that shows them."""


def make_notes_table(block: str) -> str:
    """Return one of the lists of sentences that no claim judges, or that contradict each other, as Markdown."""
    name, header = NOTES[block]
    lines = [tuple(value or ABSENT for value in astuple(note)) for note in declared_notes(name)]
    return as_markdown_table(header, lines)

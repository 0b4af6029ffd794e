"""Tables of contents, read from the source itself: every artefact, every folder, every file with its one sentence."""

from __future__ import annotations

import ast
import re
from dataclasses import astuple
from graphlib import TopologicalSorter
from pathlib import Path

from repro.report.formats import as_markdown_table
from repro.spec import Experiment
from repro.spec.artefact import ABSENT, MAIN, PAPERS
from repro.spec.registry import experiments, format_declared_notes
from repro.storage.paths import CHECKOUT

FOLDERS = ("experiments", "figures", "slurm")
"""The packages beside `repro`."""
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
    return names, extract_first_sentence(path.read_text()), claims, f"[{path.stem[:3]}](experiments/{path.name})"


NOTES = {
    "not_judged": ("NOT_JUDGED", ("where", "what the paper says", "why it is not judged")),
    "contradictions": ("ERRATA", ("where", "it says", "and also", "claim")),
    "deviations": ("DEVIATIONS", ("where", "the paper", "ours")),
}
"""Lists of experiments/unjudged.py and deviations.py by the block that shows them."""


def make_notes_table(block: str) -> str:
    """Return one of the lists of sentences that no claim judges, or that contradict each other, as Markdown."""
    name, header = NOTES[block]
    lines = [tuple(value or ABSENT for value in astuple(note)) for note in format_declared_notes(name)]
    return as_markdown_table(header, lines)


def make_folder_table(folder: Path = CHECKOUT) -> str:
    """Return the packages as Markdown with one sentence each; the map by file has the rooms of `repro`, too."""
    lines = [(f"`{name}/`", read_first_sentence(folder / name / "__init__.py")) for name in ("repro", *FOLDERS)]
    return as_markdown_table(("folder", "what is in it"), lines)


def _packages(folder: Path) -> list[str]:
    return ["repro", *(f"repro/{name}" for name in rooms_from_the_ground_up(folder)), *FOLDERS]


def rooms_from_the_ground_up(folder: Path = CHECKOUT) -> list[str]:
    """Return the sub-packages of `repro` so that each imports only those before it, by name where that leaves a choice.

    ValueError (`graphlib.CycleError`) when two import each other.
    """
    below: dict[str, set[str]] = {}
    for path in sorted((folder / "repro").rglob("*.py")):
        room = path.relative_to(folder / "repro").parts[0].removesuffix(".py")
        below.setdefault(room, set()).update(_list_imported_packages(path))
    del below["__main__"], below["__init__"]  # they open the house, and stand in no room
    sorter, order = TopologicalSorter({room: used - {room} for room, used in below.items()}), []
    sorter.prepare()
    while ready := sorted(sorter.get_ready()):
        sorter.done(*ready)
        order += [room for room in ready if (folder / "repro" / room).is_dir()]
    return order


def _list_imported_packages(path: Path) -> set[str]:
    found = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    modules = [(node.module or "").split(".") for node in found]
    return {parts[1] for parts in modules if parts[0] == "repro" and len(parts) > 1}


def read_first_sentence(path: Path) -> str:
    """Return the first sentence of a file's docstring."""
    return extract_first_sentence(path.read_text(encoding="utf-8"))


def file_map(folder: Path = CHECKOUT) -> str:
    """Return every source file under its folder, as Markdown with a link and one sentence each."""
    parts = []
    for package in _packages(folder):
        nested = [] if package == "repro" else sorted(p.parent for p in (folder / package).glob("**/*/__init__.py"))
        for place in (folder / package, *nested):
            name = place.relative_to(folder).as_posix()
            files = [path for path in sorted(place.glob("*.py")) if path.name != "__init__.py"]
            lines = [f"- [`{path.name}`]({name}/{path.name}) {read_first_sentence(path)}" for path in files]
            parts.append("\n".join([f"**`{name}/`** {read_first_sentence(place / '__init__.py')}", "", *lines, ""]))
    return "\n".join(parts)

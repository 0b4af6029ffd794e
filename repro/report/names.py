"""An artefact's name as its paper writes it, "Figure 6 (sizes)" for figure6_sizes, and its title."""

from __future__ import annotations

import re
from collections.abc import Sequence

from repro.spec import Exhibit, Experiment, Figure, Table
from repro.spec.registry import artefacts

COMPANION = re.compile(r"(gte|mrl)_(?=table\d|figure\d)")
"""What the name of a companion paper's artefact begins with."""
END_OF_CLAUSE = re.compile(r"[:;.](?=\s|$)| \(")
"""What ends the first clause of a caption."""

LETTERS = {"T": "table", "F": "figure", "G": "gte_table", "GF": "gte_figure", "M": "mrl_figure"}
"""What the id of a claim begins with, and the name of its artefact."""


def split_name(name: str) -> tuple[str, int, str]:
    """Return kind, number and the words behind it, ("Figure", 6, "sizes"), a part's letter among them; what the paper
    lacks is words alone.
    """
    found = re.fullmatch(r"(table|figure)(\d+)(?:[_-](.*)|([a-z]))?", name)
    words = (found[3] or found[4] or "" if found else name).replace("_", " ").replace("-", " ")
    return (found[1].title(), int(found[2]), words) if found else ("", 0, words)


def format_heading(name: str) -> str:
    """Return the artefact's name as the paper writes it; what belongs to one has its own word in brackets."""
    companion = COMPANION.match(name)
    kind, number, rest = split_name(COMPANION.sub("", name))
    whose = f"{companion[1].upper()} " if companion else ""
    if number:
        return f"{whose}{kind} {number}" + (f" ({rest})" if rest else "")
    main = next((one for one in artefacts() if name.startswith(f"{one}_")), name)
    words = main.replace("_", " ").capitalize()
    return words if main == name else f"{words} ({name.removeprefix(main).replace('_', ' ').strip()})"


def format_title(experiment: Experiment, shown: Table | Figure | Exhibit) -> str:
    """Return what one artefact shows, in words that no other artefact of its experiment has.

    Its own title; else the experiment's, where that shows nothing else; else the first clause of its caption.
    """
    own = "" if isinstance(shown, Exhibit) else shown.title
    alone = experiment.title if len(experiment.shows) == 1 else ""
    return own or alone or END_OF_CLAUSE.split(shown.caption, maxsplit=1)[0]


def artefact_of(claim: str, artefacts: Sequence[str]) -> str:
    """Return the artefact a claim is of: T1.a of table1, F3.a of figure3, any other of the first."""
    found = re.match(r"([A-Z]+)(\d+)\.", claim)
    name = f"{LETTERS.get(found[1], '')}{found[2]}" if found else ""
    return name if name in artefacts else artefacts[0]


def format_spans(seeds: Sequence[int]) -> str:
    """Return numbers as spans, e.g. "3–7, 9"."""
    spans: list[list[int]] = []
    for seed in sorted(seeds):
        if spans and seed == spans[-1][-1] + 1:
            spans[-1].append(seed)
        else:
            spans.append([seed])
    return ", ".join(str(one[0]) if len(one) == 1 else f"{one[0]}–{one[-1]}" for one in spans)

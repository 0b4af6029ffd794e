"""Names and titles of artefacts for readers, for example "Figure 6 (sizes)" for figure6_sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from repro.spec import Exhibit, Experiment, Figure, Table
from repro.spec.registry import artefacts

COMPANION = re.compile(r"(gte|mrl)_(?=table\d|figure\d)")
"""Prefix of the artefacts of a companion paper."""
END_OF_CLAUSE = re.compile(r"[:;.](?=\s|$)| \(")
"""End of the first clause of a caption."""

LETTERS = {"T": "table", "F": "figure", "G": "gte_table", "GF": "gte_figure", "M": "mrl_figure"}
"""Prefix of a claim's id, and the kind of its artefact."""


def split_name(name: str) -> tuple[str, int, str]:
    """Return kind, number and suffix of a name, for example ("Figure", 6, "sizes").

    The letter of a part is a suffix, too. An artefact that is not in the paper has only a suffix.
    """
    found = re.fullmatch(r"(table|figure)(\d+)(?:[_-](.*)|([a-z]))?", name)
    words = (found[3] or found[4] or "" if found else name).replace("_", " ").replace("-", " ")
    return (found[1].title(), int(found[2]), words) if found else ("", 0, words)


def format_heading(name: str) -> str:
    """Return the name as the paper writes it, with the suffix in brackets."""
    companion = COMPANION.match(name)
    kind, number, rest = split_name(COMPANION.sub("", name))
    whose = f"{companion[1].upper()} " if companion else ""
    if number:
        return f"{whose}{kind} {number}" + (f" ({rest})" if rest else "")
    main = next((one for one in artefacts() if name.startswith(f"{one}_")), name)
    words = main.replace("_", " ").capitalize()
    return words if main == name else f"{words} ({name.removeprefix(main).replace('_', ' ').strip()})"


def format_title(experiment: Experiment, shown: Table | Figure | Exhibit) -> str:
    """Return a title that is unique within the experiment.

    This is the title of the artefact. If it has none, it is the title of an experiment with a single artefact, else
    the first clause of the caption.
    """
    own = "" if isinstance(shown, Exhibit) else shown.title
    alone = experiment.title if len(experiment.shows) == 1 else ""
    return own or alone or END_OF_CLAUSE.split(shown.caption, maxsplit=1)[0]


def find_artefact(claim: str, artefacts: Sequence[str]) -> str:
    """Return the artefact of a claim: table1 for T1.a, figure3 for F3.a, and the first artefact otherwise."""
    found = re.match(r"([A-Z]+)(\d+)\.", claim)
    name = f"{LETTERS.get(found[1], '')}{found[2]}" if found else ""
    return name if name in artefacts else artefacts[0]

"""Names and titles of artefacts for readers, for example "Figure 6 (sizes)" for figure6_sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from repro.spec import Claim, Exhibit, Experiment, Figure, Table
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
    match = re.fullmatch(r"(table|figure)(\d+)(?:[_-](.*)|([a-z]))?", name)
    suffix = (match[3] or match[4] or "" if match else name).replace("_", " ").replace("-", " ")
    return (match[1].title(), int(match[2]), suffix) if match else ("", 0, suffix)


def format_heading(name: str) -> str:
    """Return the name as the paper writes it, with the suffix in brackets."""
    companion = COMPANION.match(name)
    kind, number, suffix = split_name(COMPANION.sub("", name))
    prefix = f"{companion[1].upper()} " if companion else ""
    if number:
        return f"{prefix}{kind} {number}" + (f" ({suffix})" if suffix else "")
    main = next((artefact for artefact in artefacts() if name.startswith(f"{artefact}_")), name)
    heading = main.replace("_", " ").capitalize()
    return heading if main == name else f"{heading} ({name.removeprefix(main).replace('_', ' ').strip()})"


def format_title(experiment: Experiment, shown: Table | Figure | Exhibit) -> str:
    """Return a title that is unique within the experiment.

    This is the title of the artefact. If it has none, it is the title of an experiment with a single artefact, else
    the first clause of the caption.
    """
    own = "" if isinstance(shown, Exhibit) else shown.title
    single_title = experiment.title if len(experiment.artefacts) == 1 else ""
    return own or single_title or END_OF_CLAUSE.split(shown.caption, maxsplit=1)[0]


def find_artefact(claim: str, artefacts: Sequence[str]) -> str:
    """Return the artefact of a claim: table1 for T1.a, figure3 for F3.a, and the first artefact otherwise."""
    match = re.match(r"([A-Z]+)(\d+)\.", claim)
    name = f"{LETTERS.get(match[1], '')}{match[2]}" if match else ""
    return name if name in artefacts else artefacts[0]


def list_claims(experiment: Experiment, artefact: str) -> list[Claim]:
    """Return the claims of an experiment that are about one of its artefacts."""
    return [claim for claim in experiment.claims if find_artefact(claim.id, experiment.artefact_names) == artefact]

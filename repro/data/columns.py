"""Columns of pairs in users' files: their accepted names, and the layout of a row."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from repro.text import short

ACCEPTED: Mapping[str, tuple[str, ...]] = {
    "query": ("query", "anchor", "question"),
    "document": ("document", "positive", "pos", "answer", "passage", "text"),
    "negatives": ("negatives", "negative", "neg"),
    "domain": ("domain", "dataset", "source"),
    "label": (
        *("label", "labels", "relevance", "relevant", "is_relevant", "grade", "score", "similarity"),
        *("rel", "rating", "is_positive", "is_match", "is_duplicate", "similarity_score", "gold_label"),
    ),
}
"""Accepted names per column if no name is given, ignoring case. `negative_1`, `negative_2`, … are negatives too."""
SIDES = ("query", "document")
NO_TEXTS = ("_id", "id", "metadata")
"""Common columns that are neither side of a pair."""
LONGEST_NAME, WORDS_OF_A_NAME = 40, 4


@dataclass(frozen=True)
class Columns:
    """Names of the columns that differ from the accepted ones.

    Attributes:
        names: The given name per column.
        threshold: The lowest label of a pair. None: chosen for each source by `repro.data.labels`.
        no_labels: Columns of labels are not read, so every row is a pair.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    threshold: float | None = None
    no_labels: bool = False

    def __post_init__(self) -> None:
        if self.no_labels and ("label" in self.names or self.threshold is not None):
            raise ValueError("without labels there is no column and no threshold of labels: leave one of them out")
        unknown = sorted(set(self.names) - set(ACCEPTED))
        if unknown:
            raise ValueError(f"columns {unknown} mean nothing here; name some of {list(ACCEPTED)}")

    def resolve(self, found: Sequence[str], where: str, nested: Sequence[str] = ()) -> dict[str, str]:
        """Return the column of each part of a pair. Raises ValueError if there is none for query or document."""
        chosen = self.present(found)
        if lacking := [part for part in self.needed if part not in chosen]:
            raise ValueError(f"{where}: {self.complaint(lacking, found, nested)}")
        return chosen

    @property
    def needed(self) -> tuple[str, ...]:
        """The parts that a file must have: both sides of a pair, and all parts with a given name."""
        return tuple(part for part in ACCEPTED if part in self.names or part in SIDES)

    def present(self, found: Sequence[str]) -> dict[str, str]:
        """Return the column of each part that is among `found`. Exact names precede those with other case or spaces."""
        parts = (part for part in ACCEPTED if not (self.no_labels and part == "label"))
        columns = ((part, next(iter(self.fitting(part, found)), None)) for part in parts)
        return {part: name for part, name in columns if name is not None}

    def fitting(self, part: str, found: Sequence[str]) -> list[str]:
        """Return all columns among `found` that may be the column of a part, the first choice first."""
        names = self.accepted(part)
        # "Query " and "QUERY" are accepted, but an exact name has priority.
        alike = [one for name in names for one in found if one != name and _plain(one) == _plain(name)]
        return list(dict.fromkeys([*(name for name in names if name in found), *alike]))

    def complaint(self, parts: Sequence[str], found: Sequence[str], nested: Sequence[str] = ()) -> str:
        """Return the error that these parts have no column, and a remedy.

        `nested` are columns of objects or lists of objects, which cannot be texts.
        """
        names = short([short(name, 40) for name in sorted(found)], 400)
        taken = self.present(found).values()
        hint = _remedy(parts, [name for name in found if name not in taken], nested)
        lacking, accepted = (
            " and ".join(words)
            for words in ([f"the {part}" for part in parts], [str(list(self.accepted(part))) for part in parts])
        )
        return f"no column for {lacking}: found {names}, accepted {accepted}{hint}"

    def accepted(self, part: str) -> tuple[str, ...]:
        """Return the accepted names of the column of a part, the first choice first."""
        return (self.names[part],) if part in self.names else ACCEPTED[part]


def _plain(name: str) -> str:
    return name.strip().casefold()


def _is_name(name: str) -> bool:
    """Return whether a cell of the first line looks like the name of a column rather than a text."""
    return len(name) <= LONGEST_NAME and len(name.split()) <= WORDS_OF_A_NAME and name[-1:] not in ".?!"


def _remedy(parts: Sequence[str], left: Sequence[str], nested: Sequence[str] = ()) -> str:
    """Return a remedy for missing columns: another separator, the folder, or options that name them."""
    if len(left) == 1:
        for separator, called in ((";", "';'"), ("\t", "a tab"), ("|", "'|'"), (",", "a comma")):
            if separator in left[0]:
                return f"; the separator looks like {called}: a .csv has commas or semicolons, a .tsv tabs"
    if "_id" in left:
        return "; of a BEIR folder, give the folder"
    free = [name for name in left if _plain(name) not in NO_TEXTS and name not in nested]
    if len(free) < len(parts) and (objects := [name for name in nested if name in left]):
        return f"; {short(objects[0])} holds objects, not texts: write the text of each into a column of its own"
    names = [shlex.quote(name) for name in free if _is_name(name)]
    if len(names) < len(parts):
        if len(names) < len(free):
            return "; does the file have a header row?"
        names = ["COLUMN"] * len(parts) if free else []
    options = " ".join(f"--{part} {name}" for part, name in zip(parts, names, strict=False))
    return f"; name {'it' if len(parts) == 1 else 'them'}: {options}" if options else ""


class Layout(NamedTuple):
    """The columns of a row by name or index: one per part, and those of numbered negatives.

    `flaw` is the error if a side of the pair has no column.
    """

    chosen: dict[str, Any]
    numbered: tuple[Any, ...]
    flaw: str = ""

    def by_place(self, names: Sequence[str]) -> Layout:
        """Return the layout for rows that are sequences. Of columns with the same name, the last one counts."""
        place_of = {name: place for place, name in enumerate(names)}
        chosen = {part: place_of[name] for part, name in self.chosen.items()}
        return Layout(chosen, tuple(place_of[name] for name in self.numbered))


def layout_of_row(columns: Columns, names: tuple[str, ...], nested: Sequence[str] = ()) -> Layout:
    """Return the layout of a row with named columns. A missing side is a flaw, since other rows may have it."""
    chosen = columns.present(names)
    lacking = [part for part in SIDES if part not in chosen]
    if lacking:
        return Layout(chosen, (), columns.complaint(lacking, names, nested))
    return Layout(chosen, tuple(name for name in names if _is_numbered(name)))


def detect_layout(columns: Columns, names: Sequence[str], where: str, nested: Sequence[str] = ()) -> Layout:
    """Return the layout of a file with these columns. Raises ValueError if one is missing or occurs twice."""
    layout = Layout(
        columns.resolve(list(names), where, nested), tuple(name for name in dict.fromkeys(names) if _is_numbered(name))
    )
    if twice := sorted({name for name in (*layout.chosen.values(), *layout.numbered) if names.count(name) > 1}):
        raise ValueError(f"{where}: the column {short(twice[0])} occurs twice: rename or remove one")
    return layout


def describe_columns(columns: Columns, names: Sequence[str], layout: Layout) -> str:
    """Describe the column of each part and its alternatives, as in "document <- answer (also there: text)".

    Columns that could hold something else, such as labels under another name, are named as not read.
    """
    used = {part: [name] for part, name in layout.chosen.items()}
    if layout.numbered:
        used.setdefault("negatives", []).extend(layout.numbered)
    words = []
    for part in (one for one in ACCEPTED if one in used):
        left = [name for name in columns.fitting(part, names) if name not in layout.chosen.values()]
        also = f" (also there: {', '.join(left)})" if left else ""
        words.append(f"{part} <- {short(', '.join(used[part]))}{also}")
    named = {name for part in ACCEPTED for name in columns.fitting(part, names)} | {*layout.numbered}
    unread = [name for name in names if name not in named and _plain(name) not in NO_TEXTS]
    return ", ".join(words) + (f"; not read: {short(', '.join(unread))}" if unread else "")


def suggest_swapped_columns(words: str) -> str:
    """Return the options that swap query and document compared with a description by `describe_columns`."""
    also = r"(?: \(also there: .*?\))?"
    found = re.search(
        rf"query <- (.+?){also}, document <- (.+?){also}(?:, (?:negatives|domain|label) <- .*)?(?:; not read: .*)?$",
        words,
    )
    return f"--query {shlex.quote(found[2])} --document {shlex.quote(found[1])}" if found else ""


def _is_numbered(name: str) -> bool:
    return _plain(name).startswith("negative_") and _plain(name).removeprefix("negative_").isdigit()

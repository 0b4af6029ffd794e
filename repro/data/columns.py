"""Columns of pairs in users' files: their accepted names, and the layout of a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from repro.text import shorten

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
NON_TEXT_COLUMNS = ("_id", "id", "metadata")
"""Common columns that are neither side of a pair."""


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
        for name, count in Counter(self.names.values()).items():
            if count > 1:
                parts = " and ".join(f"the {part}" for part in self.names if self.names[part] == name)
                raise ValueError(f"the column {shorten(repr(name))} is given for {parts}: give a column for each")

    @property
    def options(self) -> tuple[str, ...]:
        """The given options of the command line."""
        threshold = () if self.threshold is None else ("--threshold",)
        return (*(f"--{part}" for part in self.names), *threshold, *(("--no-labels",) if self.no_labels else ()))

    @property
    def needed(self) -> tuple[str, ...]:
        """The parts that a file must have: both sides of a pair, and all parts with a given name."""
        return tuple(part for part in ACCEPTED if part in self.names or part in SIDES)

    def choose(self, names: Sequence[str]) -> dict[str, str]:
        """Return the column of each part that is among `names`. Exact names precede those with other case or spaces."""
        chosen = {}
        for part in ACCEPTED:
            candidates = self.find_candidates(part, names)
            if candidates and not (self.no_labels and part == "label"):
                chosen[part] = candidates[0]
        return chosen

    def find_candidates(self, part: str, names: Sequence[str]) -> list[str]:
        """Return all columns among `names` that may be the column of a part, the first choice first.

        A column that is given for another part is none of them.
        """
        candidates = match_names(self.accepted(part), tuple(names))
        taken = () if part in self.names else self.names.values()
        return [name for name in candidates if name not in taken]

    def explain_missing(self, parts: Sequence[str], names: Sequence[str]) -> str:
        """Return the error that these parts have no column among `names`, and remedies."""
        found = shorten([shorten(name, 40) for name in sorted(names)], 400)
        missing = " and ".join(f"the {part}" for part in parts)
        accepted = " and ".join(str(list(self.accepted(part))) for part in parts)
        options = " ".join(f"--{part} COLUMN" for part in parts)
        return (
            f"no column for {missing}: found {found}, accepted {accepted}; name another column of texts with {options}. "
            "A table has a header row, with commas or semicolons in a .csv and tabs in a .tsv. Of a BEIR folder, give "
            "the folder"
        )

    def accepted(self, part: str) -> tuple[str, ...]:
        """Return the accepted names of the column of a part, the first choice first."""
        return (self.names[part],) if part in self.names else ACCEPTED[part]


@lru_cache(maxsize=1024)
def match_names(accepted: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the `names` that are accepted, the first choice first."""
    # "Query " and "QUERY" are accepted, but an exact name has priority.
    exact = [name for name in accepted if name in names]
    similar = [name for target in accepted for name in names if _normalise(name) == _normalise(target)]
    return tuple(dict.fromkeys(exact + similar))


def _normalise(name: str) -> str:
    return name.strip().casefold()


class Layout(NamedTuple):
    """The columns of a row by name or index: one per part, and those of numbered negatives.

    `flaw` is the error if a side of the pair has no column.
    """

    chosen: dict[str, Any]
    numbered: tuple[Any, ...]
    flaw: str = ""

    def by_index(self, names: Sequence[str]) -> Layout:
        """Return the layout for rows that are sequences. Of columns with the same name, the last one counts."""
        indices = {name: index for index, name in enumerate(names)}
        chosen = {part: indices[name] for part, name in self.chosen.items()}
        return Layout(chosen, tuple(indices[name] for name in self.numbered))


def make_row_layout(columns: Columns, names: tuple[str, ...]) -> Layout:
    """Return the layout of a row with named columns. A missing side is a flaw, since other rows may have it."""
    chosen = columns.choose(names)
    missing = [part for part in SIDES if part not in chosen]
    if missing:
        return Layout(chosen, (), columns.explain_missing(missing, names))
    return Layout(chosen, _find_numbered(columns, names))


def detect_layout(columns: Columns, names: Sequence[str], location: str) -> Layout:
    """Return the layout of a file with these columns. Raises ValueError if one is missing or occurs twice."""
    chosen = columns.choose(names)
    missing = [part for part in columns.needed if part not in chosen]
    if missing:
        raise ValueError(f"{location}: {columns.explain_missing(missing, names)}")
    numbered = _find_numbered(columns, names)
    repeated = sorted({name for name in (*chosen.values(), *numbered) if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{location}: the column {shorten(repeated[0])} occurs twice: rename or remove one")
    return Layout(chosen, numbered)


def describe_columns(columns: Columns, names: Sequence[str], layout: Layout) -> str:
    """Describe the column of each part and its alternatives, as in "document <- answer (also there: text)".

    Columns that could hold something else, such as labels under another name, are named as not read.
    """
    used = {part: [name] for part, name in layout.chosen.items()}
    if layout.numbered:
        used.setdefault("negatives", []).extend(layout.numbered)
    descriptions = []
    recognised = set(layout.numbered)
    for part in ACCEPTED:
        candidates = columns.find_candidates(part, names)
        recognised.update(candidates)
        if part in used:
            unused = [name for name in candidates if name not in layout.chosen.values()]
            alternatives = f" (also there: {', '.join(unused)})" if unused else ""
            descriptions.append(f"{part} <- {shorten(', '.join(used[part]))}{alternatives}")
    unread = [name for name in names if name not in recognised and _normalise(name) not in NON_TEXT_COLUMNS]
    return ", ".join(descriptions) + (f"; not read: {shorten(', '.join(unread))}" if unread else "")


def _find_numbered(columns: Columns, names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns `negative_1`, `negative_2`, …, or none if the user names the column of negatives."""
    return () if "negatives" in columns.names else tuple(filter(_is_numbered, dict.fromkeys(names)))


def _is_numbered(name: str) -> bool:
    return _normalise(name).startswith("negative_") and _normalise(name).removeprefix("negative_").isdigit()

"""Columns of pairs in users' files: their accepted names, and the columns of a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

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
"""Accepted names per part of a pair if no name is given, ignoring case. `negative_1`, … are negatives, too."""
Chosen = Mapping[str, tuple[str, ...]]
"""The columns of each part. Only the negatives may have several."""


@dataclass(frozen=True)
class Columns:
    """How to read the columns of a source.

    Attributes:
        names: The given name per part.
        threshold: Which labels are those of pairs: the lowest one, or names. Empty: chosen by `repro.data.labels`.
        lower_is_better: Labels up to the threshold are those of pairs, as for distances and ranks.
        no_labels: Columns of labels are not read, so every row is a pair.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    threshold: str = ""
    lower_is_better: bool = False
    no_labels: bool = False

    def __post_init__(self) -> None:
        if self.no_labels and ("label" in self.names or self.threshold):
            raise ValueError("without labels there is no column and no threshold of labels: leave one of them out")
        if len({*self.names.values()}) < len(self.names):
            raise ValueError(f"one column is given for several of {list(self.names)}: give a column for each")

    @property
    def options(self) -> list[str]:
        """The given options of the command line."""
        flags = {"threshold": self.threshold, "lower-is-better": self.lower_is_better, "no-labels": self.no_labels}
        return [f"--{name}" for name in (*self.names, *filter(flags.get, flags))]

    def choose(self, names: Sequence[str]) -> Chosen:
        """Return the columns of each part among `names`. Exact names precede those with other case or spaces.

        Raises:
            ValueError: if a side of the pair has no column.
        """
        chosen = {part: self._find(part, names) for part in ACCEPTED}
        if "negatives" not in self.names:
            chosen["negatives"] += tuple(name for name in names if re.fullmatch(r"negative_\d+", _normalise(name)))
        if self.no_labels:
            chosen["label"] = ()
        if missing := [part for part in ("query", "document") if not chosen[part]]:
            raise ValueError(self.explain_missing(missing, names))
        return {part: columns for part, columns in chosen.items() if columns}

    def _find(self, part: str, names: Sequence[str]) -> tuple[str, ...]:
        if part in self.names:
            return match_names((self.names[part],), tuple(names))[:1]
        found = match_names(ACCEPTED[part], tuple(names))
        return tuple(name for name in found if name not in self.names.values())[:1]

    def explain_missing(self, parts: Sequence[str], names: Sequence[str]) -> str:
        """Return the error that these parts have no column among `names`, and remedies."""
        choices = {part: (self.names[part],) if part in self.names else ACCEPTED[part] for part in parts}
        missing = "; ".join(f"{part} ({', '.join(accepted)})" for part, accepted in choices.items())
        return (
            f"no column for {missing}, found {shorten(', '.join(sorted(names)), 400)}. Name another column of texts "
            f"with {' '.join(f'--{part} COLUMN' for part in parts)}. A table has a header row, with commas or semicolons in "
            "a .csv and tabs in a .tsv. Of a BEIR folder, give the folder"
        )


@lru_cache(maxsize=1024)
def match_names(accepted: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the `names` that are accepted, the first choice first."""
    # "Query " and "QUERY" are accepted, but an exact name has priority.
    exact = [name for name in accepted if name in names]
    similar = [name for target in accepted for name in names if _normalise(name) == _normalise(target)]
    return tuple(dict.fromkeys(exact + similar))


def _normalise(name: str) -> str:
    return name.strip().casefold()

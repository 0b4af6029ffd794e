"""Rows with labels: division into pairs and negatives.

1. The labels of a source are read once to choose a threshold.
2. Rows below it are not pairs.
3. If they are adjacent to a pair with the same query, as in most labelled files, their documents become its negatives.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from repro.data.columns import Columns
from repro.data.folders import is_beir, match_ending
from repro.data.readers import LOW_LABEL, Found, Taken, list_pair_paths, read_foreign

USED_AS_NEGATIVES, UNLABELLED = "used_as_negatives", "unlabelled"
ROWS_OF_A_QUERY, MAX_NEGATIVES = 4_096, 100
CHUNK = 2**20


@dataclass
class Labels:
    """The labels of a source, and the lowest one of a pair.

    Attributes:
        files: The files with a column of labels.
        num_rows: Number of labelled rows.
        smallest: The smallest label.
        largest: The largest label.
        is_whole: Whether all labels are whole numbers.
        given: The threshold of the user, or None.
    """

    files: set[Path]
    num_rows: int = 0
    smallest: float = math.inf
    largest: float = -math.inf
    is_whole: bool = True
    given: float | None = None

    def note(self, label: float) -> None:
        """Count a label."""
        # NaN, the missing label, differs from itself
        if label == label:
            self.num_rows += 1
            self.smallest, self.largest = min(self.smallest, label), max(self.largest, label)
            self.is_whole = self.is_whole and label.is_integer()

    @property
    def threshold(self) -> float:
        """The lowest label of a pair: the given one, or a default.

        Whole numbers are judgements, and those above 0 are relevant, as in trec_eval. On any other scale, from 0 to 1
        or longer, the upper half is relevant.
        """
        if self.given is not None:
            return self.given
        return 1.0 if self.is_whole else max(self.largest, 1.0) / 2

    def describe(self) -> str:
        """Return a line with the range of labels and the threshold."""
        chosen = "--threshold" if self.given is not None else "by default, --threshold X sets another"
        found = (
            f"labels from {self.smallest:g} to {self.largest:g}: rows from {self.threshold:g} on are pairs ({chosen}; "
            "--no-labels uses every row)"
        )
        if self.given is None and self.threshold <= self.smallest < self.largest:
            # for example ratings from 1 to 5, of which 1 is not a judgement "relevant"
            found += "; warning: no label is below the threshold, so the worst rows are pairs too"
        return found


def read_labels(source: Path, columns: Columns | None = None, *, skip_bad: bool = False) -> Labels | None:
    """Read the labels of a source. None if no file has a column of labels."""
    columns = columns or Columns()
    if columns.no_labels or is_beir(source):
        return None
    found = Labels(set(), given=columns.threshold)
    for path in list_pair_paths(source):
        if match_ending(path) == ".jsonl" and not _may_have_labels(path, columns):
            continue
        taken: Taken = {}
        for pair in read_foreign(path, columns, taken, skip_bad=skip_bad):
            if pair.label == pair.label:
                found.files.add(path)
                found.note(pair.label)
            elif match_ending(path) != ".jsonl" and not any("label <- " in words for words in taken):
                break
    return found if found.files else None


def _may_have_labels(path: Path, columns: Columns) -> bool:
    """Return whether a file contains the name of a column of labels. So most files are not parsed twice."""
    accepted = columns.accepted("label")
    # JSON may write any letter of a name as an escape, and usually does so for letters that are not ASCII
    if not all(name.isascii() for name in accepted):
        return True
    names = b"|".join(re.escape(name.encode()) for name in accepted)
    pattern, tail = re.compile(rb'"\s*(?:' + names + rb')\s*"\s*:', re.IGNORECASE), b""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            if pattern.search(tail + chunk):
                return True
            # a name may cross the border of two chunks
            tail = chunk[-CHUNK // 1024 :]
    return False


def split_by_label(rows: Iterable[Found], labels: Labels | None) -> Iterator[Found]:
    """Yield all rows. Rows below the threshold are marked as dropped, and are negatives of the pairs of their query."""
    if labels is None:
        yield from rows
        return
    for _, group in groupby(rows, lambda row: (row.query, row.place.rpartition(", ")[0])):
        batch: list[Found] = []
        for row in group:
            batch.append(row)
            if len(batch) == ROWS_OF_A_QUERY:
                yield from _apply_threshold(batch, labels)
                batch = []
        yield from _apply_threshold(batch, labels)


def _apply_threshold(rows: list[Found], labels: Labels) -> Iterator[Found]:
    """Yield the rows of one query after comparing their labels with the threshold."""
    is_low = [not row.flaw and row.label < labels.threshold for row in rows]
    is_pair = [not row.flaw and row.label >= labels.threshold for row in rows]
    right = {row.document for row, pair in zip(rows, is_pair, strict=True) if pair}
    low = [row.document for row, below in zip(rows, is_low, strict=True) if below]
    negatives = [text for text in dict.fromkeys(low) if text and text not in right][:MAX_NEGATIVES] if right else []
    used = set(negatives)
    for row, below, pair in zip(rows, is_low, is_pair, strict=True):
        if pair:
            yield row._replace(negatives=(*row.negatives, *negatives)) if negatives else row
        elif below:
            yield row._replace(dropped=USED_AS_NEGATIVES if row.document in used else LOW_LABEL)
        elif not row.flaw and Path(row.place.rpartition(", ")[0]) in labels.files:
            yield row._replace(dropped=UNLABELLED)
        else:
            yield row

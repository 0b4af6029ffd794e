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
from itertools import groupby, islice
from pathlib import Path

from repro.data.columns import Columns
from repro.data.folders import is_beir, match_ending
from repro.data.readers import LOW_LABEL, ForeignRow, UsedColumns, list_pair_paths, read_foreign_rows

USED_AS_NEGATIVES, UNLABELLED = "used_as_negatives", "unlabelled"
MAX_ROWS_PER_QUERY, MAX_NEGATIVES = 4_096, 100
CHUNK_BYTES = 2**20


@dataclass
class Labels:
    """The labels of a source, and the lowest one of a pair.

    Attributes:
        files: The files with a column of labels.
        smallest: The smallest label.
        largest: The largest label.
        is_whole: Whether all labels are whole numbers.
        given: The threshold of the user, or None.
    """

    files: set[Path]
    smallest: float = math.inf
    largest: float = -math.inf
    is_whole: bool = True
    given: float | None = None

    def note(self, label: float) -> None:
        """Count a label, which is not NaN."""
        self.smallest = min(self.smallest, label)
        self.largest = max(self.largest, label)
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
        source = "--threshold" if self.given is not None else "by default, --threshold X sets another"
        line = (
            f"labels from {self.smallest:g} to {self.largest:g}: rows from {self.threshold:g} on are pairs ({source}; "
            "--no-labels uses every row)"
        )
        if self.given is None and self.threshold <= self.smallest < self.largest:
            # for example ratings from 1 to 5, of which 1 does not mean "relevant"
            line += "; warning: no label is below the threshold, so the worst rows are pairs too"
        return line


def read_labels(source: Path, columns: Columns | None = None, *, skip_bad: bool = False) -> Labels | None:
    """Read the labels of a source. None if no file has any. Raises ValueError if a threshold is given for none."""
    columns = columns or Columns()
    if columns.no_labels or is_beir(source):
        return None
    labels = Labels(set(), given=columns.threshold)
    for path in list_pair_paths(source):
        is_jsonl = match_ending(path) == ".jsonl"
        if is_jsonl and not _may_have_labels(path, columns):
            continue
        used_columns: UsedColumns = {}
        for row in read_foreign_rows(path, columns, used_columns, skip_bad=skip_bad):
            if not math.isnan(row.label):
                labels.files.add(path)
                labels.note(row.label)
            # All rows of a table have the same columns, so one row is enough.
            elif not is_jsonl and not any("label <- " in description for description in used_columns):
                break
    if columns.threshold is not None and not labels.files:
        raise ValueError(f"--threshold {columns.threshold:g}: {source} has no labels: name their column with --label")
    return labels if labels.files else None


def _may_have_labels(path: Path, columns: Columns) -> bool:
    """Return whether a file contains the name of a column of labels. So most files are not parsed twice."""
    accepted = columns.accepted("label")
    # JSON may write any letter of a name as an escape, and usually does so for letters that are not ASCII
    if not all(name.isascii() for name in accepted):
        return True
    names = b"|".join(re.escape(name.encode()) for name in accepted)
    pattern = re.compile(rb'"\s*(?:' + names + rb')\s*"\s*:', re.IGNORECASE)
    tail = b""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            if pattern.search(tail + chunk):
                return True
            # a name may cross the border of two chunks
            tail = chunk[-CHUNK_BYTES // 1024 :]
    return False


def split_by_label(rows: Iterable[ForeignRow], labels: Labels | None) -> Iterator[ForeignRow]:
    """Yield all rows. Rows below the threshold are marked as dropped, and are negatives of the pairs of their query."""
    if labels is None:
        yield from rows
        return
    for _, group in groupby(rows, lambda row: (row.query, row.location.rpartition(", ")[0])):
        # bounds the memory if all rows of a file have the same query
        while batch := list(islice(group, MAX_ROWS_PER_QUERY)):
            yield from _apply_threshold(batch, labels)


def _apply_threshold(rows: list[ForeignRow], labels: Labels) -> Iterator[ForeignRow]:
    """Yield the rows of one query after comparing their labels with the threshold."""
    threshold = labels.threshold
    # Both comparisons are false for NaN, which is the label of unlabelled and of malformed rows.
    positives = {row.document for row in rows if row.label >= threshold}
    low = dict.fromkeys(row.document for row in rows if row.label < threshold)
    negatives: list[str] = []
    if positives:
        negatives = [text for text in low if text and text not in positives][:MAX_NEGATIVES]
    used = set(negatives)
    for row in rows:
        if row.label >= threshold:
            yield row._replace(negatives=(*row.negatives, *negatives))
        elif row.label < threshold:
            yield row._replace(dropped=USED_AS_NEGATIVES if row.document in used else LOW_LABEL)
        elif not row.flaw and Path(row.location.rpartition(", ")[0]) in labels.files:
            yield row._replace(dropped=UNLABELLED)
        else:
            yield row

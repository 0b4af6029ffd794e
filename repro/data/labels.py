"""Rows with labels: division into pairs and negatives.

1. The labels of a source are read once to choose which of them are those of pairs.
2. Other rows are not pairs.
3. If they are adjacent to a pair with the same query, as in most labelled files, their documents become its negatives.

Only labels that can mean one thing are read without a threshold: names such as "yes" and "irrelevant", 0 and 1, -1 and 1.
Grades, similarities, votes, distances, ranks, logits and classes need one.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from repro.data.columns import Columns
from repro.data.folders import get_format
from repro.data.readers import ForeignRow, UsedColumns, read_foreign_rows
from repro.text import shorten

POSITIVE = frozenset(
    (
        *("relevant", "positive", "pos", "yes", "true", "match", "duplicate", "similar", "same", "correct"),
        *("entailment", "paraphrase", "answer"),
    )
)
NEGATIVE = frozenset(
    (
        *("irrelevant", "not_relevant", "non_relevant", "nonrelevant", "negative", "neg", "no", "false", "mismatch"),
        *("no_match", "nonmatch", "dissimilar", "different", "not_duplicate", "non_duplicate", "incorrect", "wrong"),
        *("not_entailment", "not_paraphrase", "unrelated", "distractor"),
    )
)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
MAX_ROWS_PER_QUERY, MAX_NEGATIVES = 4_096, 100


@dataclass
class Labels:
    """The labels of a source and the rule that divides them.

    Attributes:
        files: The files with labels.
        columns: The columns of labels.
        numbers: All labels that are numbers.
        names: The counts of all other labels, case-folded.
        threshold: The lowest label of a pair, or the highest if `lower_is_better`, or the names of pairs.
        lower_is_better: Whether labels up to the threshold are those of pairs.
    """

    files: set[Path] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)
    numbers: array[float] = field(default_factory=lambda: array("d"))
    names: Counter[str] = field(default_factory=Counter)
    threshold: float | frozenset[str] = math.nan
    lower_is_better: bool = False

    def accepts(self, label: float | str | None) -> bool:
        """Return whether a label is that of a pair."""
        if isinstance(self.threshold, frozenset):
            return label in self.threshold
        if not isinstance(label, float):
            return False
        return label <= self.threshold if self.lower_is_better else label >= self.threshold

    def refuses(self, label: float | str | None) -> bool:
        """Return whether a label is that of a negative. A name is none under a number, as "unsure" among grades."""
        is_comparable = isinstance(label, str if isinstance(self.threshold, frozenset) else float)
        return is_comparable and not self.accepts(label)

    def count_pairs(self) -> int:
        """Return the number of labels that are those of pairs."""
        return sum(map(self.accepts, self.numbers)) + sum(self.names[name] for name in filter(self.accepts, self.names))

    def describe(self) -> str:
        """Return the line of an audit: the range of labels, the rule and the number of rows that it selects."""
        if isinstance(self.threshold, frozenset):
            rule = shorten(" or ".join(sorted(self.threshold.intersection(self.names))))
        else:
            level = format_level(self.threshold)
            rule = f"up to {level}" if self.lower_is_better else f"from {level} on"
        total = len(self.numbers) + self.names.total()
        return (
            f"labels in {'/'.join(sorted(self.columns))}, {self.format_range()}: rows labelled {rule} are pairs "
            f"({self.count_pairs()} of {total}), others are negatives of their query"
        )

    def format_range(self) -> str:
        """Return the range of numbers and the most frequent names."""
        parts = [f"{min(self.numbers):g} to {max(self.numbers):g}"] if self.numbers else []
        return shorten(", ".join([*parts, *(name for name, _ in self.names.most_common(5))]))


def format_level(level: float) -> str:
    """Return a threshold with all of its digits, so that it selects the same rows when it is typed."""
    return repr(float(level)).removesuffix(".0")


def parse_label(value: Any) -> float | str | None:
    """Return a label as a number or a name. A missing one is None. Raises ValueError for anything else."""
    # Only NaN differs from itself.
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        return None
    # Python's float would also accept "1_0", "１" and "nan".
    if isinstance(value, str) and not NUMBER.fullmatch(value.strip()):
        return value.strip().casefold()
    try:
        label = float(value) if isinstance(value, str | int | float | Decimal) else math.inf
    except OverflowError:
        label = math.inf
    if math.isinf(label):
        raise ValueError(f"the label is {shorten(repr(value))}, expected a number or a name")
    return label


def read_labels(files: Sequence[Path], columns: Columns) -> Labels | None:
    """Read the labels of a source and choose the rule. None if no file has any.

    Raises:
        ValueError: if the labels can mean several things and no threshold is given, or if it fits no label.
    """
    labels = Labels(lower_is_better=columns.lower_is_better)
    for path in () if columns.no_labels else files:
        found = _count_labels(path, columns)
        if found.columns:
            labels.files.add(path)
            labels.columns |= found.columns
            labels.numbers += found.numbers
            labels.names += found.names
    if not labels.files:
        if columns.threshold or columns.lower_is_better:
            raise ValueError(f"--threshold: {files[0]} has no labels: name their column with --label")
        return None
    if columns.threshold:
        labels.threshold = _parse_threshold(columns.threshold, labels)
        return labels
    threshold = _find_threshold(labels)
    if threshold is None or columns.lower_is_better:
        raise ValueError(f"{files[0]}: {_ask(labels)}")
    labels.threshold = threshold
    return labels


def _count_labels(path: Path, columns: Columns) -> Labels:
    """Return the labels of a file. They have no columns if it has none."""
    used: UsedColumns = {}
    labels = Labels()
    for row in read_foreign_rows(path, columns, used):
        # All rows have the same columns, except in jsonl.
        if "label" not in used and get_format(path) != ".jsonl":
            break
        try:
            label = None if row.is_further else parse_label(row.label)
        except ValueError as error:
            raise ValueError(f"{path}, {row.line}: {error}") from error
        if isinstance(label, float):
            labels.numbers.append(label)
        elif label is not None:
            labels.names[label] += 1
    if labels.numbers or labels.names:
        labels.columns.update(used["label"])
    return labels


def _find_threshold(labels: Labels) -> float | frozenset[str] | None:
    """Return the rule for labels that can mean one thing only, otherwise None."""
    if labels.names:
        known = {name: re.sub(r"[^a-z]+", "_", name) for name in labels.names}
        if labels.numbers or not {*known.values()} <= POSITIVE | NEGATIVE:
            return None
        return frozenset(name for name, form in known.items() if form in POSITIVE)
    values = {*labels.numbers}
    return 1.0 if values <= {0.0, 1.0} or values == {-1.0, 1.0} else None


def _parse_threshold(text: str, labels: Labels) -> float | frozenset[str]:
    if NUMBER.fullmatch(text) and labels.numbers:
        return float(text)
    names = frozenset(name.strip().casefold() for name in text.split(","))
    if labels.lower_is_better or not names <= {*labels.names}:
        raise ValueError(f"--threshold {text}: it is no number or name of these labels ({labels.format_range()})")
    return names


def _ask(labels: Labels) -> str:
    """Return the question which labels are those of pairs, with the number of rows of each answer."""
    total = len(labels.numbers) + labels.names.total()
    answers = []
    for name, count in labels.names.most_common(3):
        answers.append(f"--threshold {name!r} ({count} rows)")
    if labels.numbers:
        values = np.asarray(labels.numbers)
        for level in np.unique(np.quantile(values, (0.25, 0.5, 0.75), method="nearest")):
            num_above, num_below = int((values >= level).sum()), int((values <= level).sum())
            answers.append(f"--threshold {format_level(level)} ({num_above} rows; {num_below} with --lower-is-better)")
    return (
        f"labels in {'/'.join(sorted(labels.columns))}, {labels.format_range()}, can mean several things. Which rows are "
        f"pairs? {', '.join(answers)}, or --no-labels (all {total}). --label names another column"
    )


def split_by_label(rows: Iterable[ForeignRow], labels: Labels | None) -> Iterator[ForeignRow]:
    """Yield all rows. Rows that are no pairs are marked as low, and are negatives of the pairs of their query."""
    if labels is None:
        yield from rows
        return
    for _, group in groupby(rows, lambda row: (row.query, row.path)):
        # bounds the memory if all rows of a file have the same query
        while batch := list(islice(group, MAX_ROWS_PER_QUERY)):
            yield from _apply_rule(batch, labels)


def _apply_rule(rows: list[ForeignRow], labels: Labels) -> Iterator[ForeignRow]:
    """Mark the rows of one query of one file that are no pairs. A row without a label is none if the file has labels."""
    if rows[0].path not in labels.files:
        yield from rows
        return
    found = [parse_label(row.label) for row in rows]
    is_pair = [labels.accepts(label) for label in found]
    positives = {row.document for row, accepted in zip(rows, is_pair, strict=True) if accepted}
    low = dict.fromkeys(
        row.document
        for row, label in zip(rows, found, strict=True)
        if labels.refuses(label) and row.document and row.document not in positives
    )
    negatives = [*low][:MAX_NEGATIVES]
    for row, accepted in zip(rows, is_pair, strict=True):
        yield row._replace(negatives=(*row.negatives, *negatives)) if accepted else row._replace(is_low=True)

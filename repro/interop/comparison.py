"""Comparison of systems on one suite: a column per system, and the difference of the first to each other one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.pipeline.token_coverage import HIGH_UNKNOWN_SHARE
from repro.report.query_scores import QueryScores
from repro.report.scores import POINTS, list_notes, list_variants
from repro.report.view import View, format_with_sign
from repro.text import ABSENT, format_number

MEASURE_LABELS = {"ndcg_at_10": "NDCG@10", "recall_at_100": "recall@100", "mrr_at_10": "MRR@10"}
INTERVAL_NOTE = "95 %: paired bootstrap over the queries of each collection, not over seeds, collections or contexts."
NO_INTERVAL_NOTE = "No interval where there are fewer than three queries or no query differs: other queries could reverse a difference."


@dataclass(frozen=True)
class Difference:
    """Lead of one column over another in the mean over collections, in points, with its interval.

    Without an interval, low and high are None.
    """

    first: str
    other: str
    points: float
    low: float | None
    high: float | None
    num_ahead: int
    num_collections: int


@dataclass(frozen=True)
class Column:
    """Scores of one system under one context.

    `base` is the label of the unchanged vectors of the same system if these are whitened.
    """

    scores: QueryScores
    base: str | None = None


def compute_differences(columns: Sequence[Column]) -> list[Difference]:
    """Compare the first column with each other one, paired by query, and a whitened one with its base.

    A whitened column comes first in its pair.
    """
    by_label = {column.scores.label: column.scores for column in columns}
    differences = []
    for column in columns[1:]:
        pair = columns[0].scores, column.scores
        first, other = pair if column.base is None else (column.scores, by_label[column.base])
        low, high = first.interval(other) or (None, None)
        num_ahead = sum(score > other_score for score, other_score in zip(first.points, other.points, strict=True))
        points = first.mean - other.mean
        differences.append(Difference(first.label, other.label, points, low, high, num_ahead, len(first.datasets)))
    return differences


def make_scores_view(title: str, columns: Sequence[QueryScores], notes: Sequence[str]) -> View:
    """Return a table of NDCG@10 in points: a row per collection, and a column per system."""
    cells = [[format_number(value) for value in (*column.points, column.mean)] for column in columns]
    rows = tuple(zip((*columns[0].datasets, "mean"), *cells, strict=True))
    header = ("collection", *(column.label for column in columns))
    return View(title, header, rows, tuple(notes), align="l" + "r" * len(columns))


def make_differences_view(differences: Sequence[Difference]) -> View:
    """Return a table of differences, one per row."""
    rows = []
    for each in differences:
        interval = ABSENT
        if each.low is not None and each.high is not None:
            interval = f"{format_with_sign(each.low)} to {format_with_sign(each.high)}"
        points, num_ahead = format_with_sign(each.points), f"{each.num_ahead} of {each.num_collections}"
        rows.append((f"{each.first} − {each.other}", points, interval, num_ahead))
    header = ("difference", "mean", "95 %", "ahead in")
    has_intervals = all(difference.low is not None for difference in differences)
    note = INTERVAL_NOTE if has_intervals else NO_INTERVAL_NOTE
    return View("Differences, points of NDCG@10", header, tuple(rows), (note,), "lrrr")


def make_measures_view(
    title: str, suite: str, metrics: Mapping[str, float], datasets: Sequence[str], notes: Sequence[str]
) -> View:
    """Return a table of all measures of one system, in points: a row per collection."""
    ((name, _),) = list_variants(metrics, suite)
    rows = []
    for dataset in [*datasets, "mean"]:
        cells = [format_number(POINTS * metrics[f"{name}/{dataset}/{measure}"]) for measure in MEASURE_LABELS]
        rows.append((dataset, *cells))
    return View(title, ("collection", *MEASURE_LABELS.values()), tuple(rows), tuple(notes))


def list_comparison_notes(
    metadata: Mapping[str, Any], cut: Mapping[str, float | None], unknown: Mapping[str, float | None]
) -> list[str]:
    """Return notes on peculiarities of collections, on the drawing of contexts, and on cut or unknown text."""
    notes = list_notes(metadata.get("datasets", []))
    contexts = {(row["num_documents"], row["seed"]) for row in metadata.get("contexts", []) if "num_documents" in row}
    if contexts:
        (smallest, seed), (largest, _) = min(contexts), max(contexts)
        counts = f"{smallest}" if smallest == largest else f"{smallest}–{largest}"
        notes.append(f"context: {counts} documents, drawn with seed {seed}; digests are in scores.json")
    for label, shares in (
        ("documents longer than the model reads", _drop_missing(cut)),
        ("unknown tokens", _drop_missing(unknown)),
    ):
        if shares:
            worst = max(shares, key=shares.__getitem__)
            mean = float(np.mean(list(shares.values())))
            notes.append(f"{label}: {mean:.1%} (most in {worst}: {shares[worst]:.1%})")
    return notes


def _drop_missing(shares: Mapping[str, float | None]) -> dict[str, float]:
    return {name: share for name, share in shares.items() if share is not None}


def list_unknown_token_warnings(unknown: Mapping[str, float | None]) -> list[str]:
    """Return a warning that lists the collections with many unknown tokens, or an empty list."""
    high = {name: share for name, share in _drop_missing(unknown).items() if share > HIGH_UNKNOWN_SHARE}
    if not high:
        return []
    listed = ", ".join(f"{name} {share:.0%}" for name, share in high.items())
    return [f"warning: unknown tokens: {listed}: the model's vocabulary lacks words of these texts"]

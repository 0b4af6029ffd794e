"""What was scored on one suite, beside each other: a column each, and the first's difference to every other.

An interval is the middle 95 % of 2000 paired bootstrap resamples of the queries within each collection. It says what
other queries of the same collections would give; trained weights, drawn contexts and collections stay as they are.

Shapes: Q queries of all collections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.evaluate.comparison import mean_weights, paired_gaps
from repro.evaluate.suites import Evaluation
from repro.pipeline.texts_read import MUCH_UNKNOWN
from repro.report.scores import POINTS, list_contexts, list_notes
from repro.report.view import View, format_signed
from repro.statistics.bootstrap import paired_bootstrap, percentile_interval
from repro.statistics.units import stratified_mean
from repro.text import format_number

SHOWN = {"ndcg_at_10": "NDCG@10", "recall_at_100": "recall@100", "mrr_at_10": "MRR@10"}
BM25 = "bm25"
BY_FAR = 5.0  # points
COVERS = (
    "95 %: paired bootstrap over the queries within each collection. It covers other queries of these collections, "
    "not another training seed, other collections or another draw of context documents."
)


@dataclass(frozen=True)
class Column:
    """One system under one context: its NDCG@10 of every query, (Q,), and to which collection the query belongs."""

    label: str
    values_Q: np.ndarray
    strata_Q: np.ndarray
    datasets: tuple[str, ...]
    weights: tuple[float, ...] = ()  # of each dataset in the mean, on average 1; (): all alike

    @classmethod
    def of(cls, evaluation: Evaluation, path: str, label: str) -> Column:
        """Return the column of what was scored under a metric path."""
        rows = evaluation.provenance["datasets"]
        strata_Q = np.repeat(np.arange(len(rows)), [row["num_queries"] for row in rows])
        names = tuple(row["name"] for row in rows)
        return cls(label, evaluation.per_query[path], strata_Q, names, tuple(mean_weights(rows)))

    @property
    def points(self) -> list[float]:
        """Return its points in each collection."""
        return [POINTS * float(self.values_Q[self.strata_Q == place].mean()) for place in range(len(self.datasets))]

    @property
    def mean(self) -> float:
        """Return its mean over collections, points."""
        return POINTS * stratified_mean(self.weighted(), self.strata_Q)

    def weighted(self) -> np.ndarray:
        """Return the values times the weights of their datasets, (Q,)."""
        return self.values_Q * np.array(self.weights)[self.strata_Q] if self.weights else self.values_Q


@dataclass(frozen=True)
class Difference:
    """How many points the first column is ahead, on the mean over collections, with its interval."""

    first: str
    other: str
    points: float
    low: float
    high: float
    num_ahead: int
    num_collections: int


def differences(columns: Sequence[Column]) -> list[Difference]:
    """Return the first column's difference to each other one, paired by query."""
    found = []
    for other in columns[1:]:
        first = columns[0]
        samples = POINTS * paired_bootstrap(first.weighted(), other.weighted(), first.strata_Q)
        ahead = sum(ours > theirs for ours, theirs in zip(first.points, other.points, strict=True))
        interval = percentile_interval(samples)
        found.append(
            Difference(first.label, other.label, first.mean - other.mean, *interval, ahead, len(first.datasets))
        )
    return found


@dataclass(frozen=True)
class CollectionDifference:
    """How many points one context is ahead of another in one collection, with its interval."""

    collection: str
    first: str
    other: str
    points: float
    low: float
    high: float


def compute_collection_differences(columns: Sequence[Column]) -> list[CollectionDifference]:
    """Return the first column's difference to each other one in every collection, paired by query."""
    found = []
    for other in columns[1:]:
        first = columns[0]
        sizes = np.bincount(first.strata_Q, minlength=len(first.datasets))
        rows = [{"name": n, "family": "", "num_queries": size} for n, size in zip(first.datasets, sizes, strict=True)]
        gaps = paired_gaps(first.values_Q, other.values_Q, rows)
        for name in first.datasets:
            gap = gaps[name]
            points = (POINTS * gap.difference, POINTS * gap.low, POINTS * gap.high)
            found.append(CollectionDifference(name, first.label, other.label, *points))
    return found


def make_collection_view(found: Sequence[CollectionDifference]) -> View:
    """Return the differences by collection, a line each and two columns for each pair of contexts."""
    pairs = list(dict.fromkeys((one.first, one.other) for one in found))
    cells = {(one.collection, one.first, one.other): _with_interval(one) for one in found}
    names = dict.fromkeys(one.collection for one in found)
    rows = tuple((name, *(cell for pair in pairs for cell in cells[name, *pair])) for name in names)
    header = ("collection", *(word for first, other in pairs for word in (f"{first} − {other}", "95 %")))
    return View("Differences by collection, points of NDCG@10", header, rows, align="l" + "r" * 2 * len(pairs))


def _with_interval(one: CollectionDifference | Difference) -> tuple[str, str]:
    return format_signed(one.points), f"{format_signed(one.low)} to {format_signed(one.high)}"


def make_beside_view(title: str, columns: Sequence[Column], notes: Sequence[str] = ()) -> View:
    """Return NDCG@10 in points, a line for each collection and a column for each system."""
    cells = [[format_number(value) for value in (*column.points, column.mean)] for column in columns]
    rows = tuple(zip((*columns[0].datasets, "mean"), *cells, strict=True))
    header = ("collection", *(column.label for column in columns))
    return View(title, header, rows, tuple(notes), align="l" + "r" * len(columns))


def make_differences_view(found: Sequence[Difference]) -> View:
    """Return the differences, a line each."""
    rows = tuple(
        (
            f"{one.first} − {one.other}",
            *_with_interval(one),
            f"{one.num_ahead} of {one.num_collections}",
        )
        for one in found
    )
    return View("Differences, points of NDCG@10", ("difference", "mean", "95 %", "ahead in"), rows, (COVERS,), "lrrr")


def make_measures_view(
    title: str,
    suite: str,
    metrics: Mapping[str, float],
    told: Mapping[str, Any],
    cut: Mapping[str, float | None],
    unknown: Mapping[str, float | None] | None = None,
) -> View:
    """Return every measure of one system, a line for each collection and context, points."""
    lines = []
    has_context = bool(told.get("contexts"))
    kinds = list_contexts(metrics, suite)
    for name, context in kinds:
        for dataset in [*(row["name"] for row in told["datasets"]), "mean"]:
            cells = (metrics[f"{name}/{dataset}/{measure}"] for measure in SHOWN)
            lines.append((dataset, context, *(format_number(POINTS * value) for value in cells)))
    header = ("collection", "context", *SHOWN.values())
    if not has_context and len(kinds) == 1:  # nothing of a context can be said
        header, lines = (header[0], *header[2:]), [(row[0], *row[2:]) for row in lines]
    elif not has_context:
        header = ("collection", "vectors", *SHOWN.values())
        lines = [(row[0], "full" if row[1] == "own" else row[1], *row[2:]) for row in lines]
    return View(title, header, tuple(lines), tuple(notes_below(told, cut, unknown)))


def notes_below(
    told: Mapping[str, Any],
    cut: Mapping[str, float | None] | None = None,
    unknown: Mapping[str, float | None] | None = None,
) -> list[str]:
    """Return what is odd about collections, how contexts were drawn, and how much of the texts is cut or unknown."""
    notes = list_notes(told)
    drawn = {(row["num_documents"], row["seed"]) for row in told.get("contexts", []) if "num_documents" in row}
    if drawn:
        counts = "–".join(map(str, sorted({min(drawn)[0], max(drawn)[0]})))
        notes.append(f"context: {counts} documents, drawn with seed {min(drawn)[1]}; digests are in scores.json")
    if known := _known(cut):
        most = max(known, key=known.__getitem__)
        share = float(np.mean(list(known.values())))
        notes.append(f"longer than the model reads: {share:.0%} of the documents (most in {most}: {known[most]:.0%})")
    if known := _known(unknown):
        most = max(known, key=known.__getitem__)
        share = float(np.mean(list(known.values())))
        notes.append(f"unknown tokens: {share:.1%} (most in {most}: {known[most]:.1%})")
    return notes


def _known(shares: Mapping[str, float | None] | None) -> dict[str, float]:
    return {name: share for name, share in (shares or {}).items() if share is not None}


def unknown_warnings(unknown: Mapping[str, float | None]) -> list[str]:
    """Return a line on the collections of which a model does not know many tokens; none if there are none."""
    many = {name: share for name, share in _known(unknown).items() if share > MUCH_UNKNOWN}
    if not many:
        return []
    named = ", ".join(f"{name} {share:.0%}" for name, share in many.items())
    return [f"look at this: unknown tokens: {named}: the model's vocabulary lacks words of these texts"]


def advice(found: Sequence[Difference], cut: Mapping[str, float | None], max_tokens: int | None) -> list[str]:
    """Return what to do where BM25 is ahead by far, and beyond its interval; nothing where it is not."""
    behind = [one for one in found if one.other == BM25 and one.points <= -BY_FAR and one.high < 0]
    if not behind:
        return []
    shares = [share for share in cut.values() if share is not None]
    long = f" ({np.mean(shares):.0%} of the documents are cut at {max_tokens} tokens)" if shares else ""
    return [
        f"BM25 is {-behind[0].points:.1f} points ahead: search text like this with BM25 until the model has learned "
        "more. What helps:",
        f"  longer texts: a larger max_tokens{long}",
        "  a pretrained start: `repro data plan NAME` for a corpus of your own, `--scale mini` elsewhere",
        "  more steps, if the training loss still falls: a larger num_steps in the file of runs",
    ]

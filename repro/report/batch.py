"""A batch under the microscope as tables for a reader: an overview, its clusters, its pairs, the training around it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from repro.analyses.batch_text import shorten
from repro.report.view import View, format_number
from repro.spec.artefact import ABSENT

if TYPE_CHECKING:
    from repro.analyses.microscope import Explanation, Other, Pair


def make_explanation_views(told: Explanation, *, num_pairs: int = 8) -> list[View]:
    """Return the views of a batch; of its pairs the first `num_pairs`."""
    return [_overview(told), _clusters(told), _pairs(told, num_pairs), _parts(told)]


def _overview(told: Explanation) -> View:
    rule = "none: only documents of the same text"
    if told.filter != "none":
        rule = f"{told.filter}: documents that score at least the own document's score + {told.filter_margin:g}"
    rows = (
        ("run", told.run),
        ("batch", f"{told.batch}, in epoch {told.epoch}; hash {told.batch_hash}, as in the training's log"),
        ("pairs", str(len(told.pairs))),
        ("surrogate", told.surrogate),
        ("filter removes", rule),
        ("removed", f"{100 * told.masked_fraction:.2f} % of all negatives in the run's loss"),
        ("difficulty", f"{told.difficulty:.3f}, the mean score of a query with the other documents"),
    )
    return View(f"Batch {told.batch} of run {told.run}", ("what", "value"), rows, align="ll")


def _clusters(told: Explanation) -> View:
    """Return each cluster (or domain, for a run without clusters) with its pairs in the batch and one of its texts."""
    has_clusters = told.pairs[0].cluster is not None
    names = [(pair.domain, str(pair.cluster) if has_clusters else ABSENT) for pair in told.pairs]
    first = {name: pair.document for name, pair in reversed(list(zip(names, told.pairs, strict=True)))}
    rows = [(*name, str(count), shorten(first[name])) for name, count in Counter(names).most_common()]
    header = ("domain", "cluster", "pairs", "a document of it")
    return View("Where the pairs come from", header, tuple(rows), align="lrrl")


def _pairs(told: Explanation, num_pairs: int) -> View:
    rows = [line for pair in told.pairs[:num_pairs] for line in _format_pair_lines(pair)]
    left = len(told.pairs) - num_pairs
    notes = (f"{left} more pairs; --pairs {len(told.pairs)} prints all",) if left > 0 else ()
    return View(f"Pairs and their hardest negatives, scores of {told.surrogate}", PAIRS, tuple(rows), notes, "rlrrl")


PAIRS = ("pair", "what", "place", "score", "text")


def _format_pair_lines(pair: Pair) -> list[tuple[str, ...]]:
    own = format_number(pair.score, 3)
    lines = [
        (str(pair.place), "query", "", "", shorten(pair.query)),
        ("", "its document", str(pair.place), own, shorten(pair.document)),
        *(_format_other_line(other, "hard negative") for other in pair.hardest),
        *(_format_other_line(other, f"removed: {other.why}") for other in pair.removed),
    ]
    return lines


def _format_other_line(other: Other, what: str) -> tuple[str, ...]:
    return ("", what, str(other.place), format_number(other.score, 3), shorten(other.document))


def _parts(told: Explanation) -> View:
    rows = tuple(
        (
            str(part.first_batch) if part.first_batch == part.last_batch else f"{part.first_batch}–{part.last_batch}",
            format_number(part.difficulty, 3),
            format_number(100 * part.masked_fraction, 2),
            format_number(part.loss, 2),
        )
        for part in told.parts
    )
    header = ("batches", "difficulty", "removed %", "loss")
    return View("Difficulty over the training", header, rows, (f"from {told.parts_are_from}",), "lrrr")

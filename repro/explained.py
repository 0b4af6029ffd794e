"""A batch under the microscope as tables for a reader: an overview, its clusters, its pairs, the training around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from repro.report import ABSENT, View, format_number

if TYPE_CHECKING:
    from repro.microscope import Explanation, Other, Pair

LONGEST_TEXT = 160
MOST_REMOVED = 4
BATCH_EXHIBIT = "batch"
"""The name under which a record may carry a batch (`batch_exhibit`)."""


def batch_exhibit(told: Explanation) -> list[dict[str, str | float]]:
    """Gives a batch as rows of text that a record can carry under the name `BATCH_EXHIBIT`; the report shows them."""
    return [
        {
            "pair": pair.place,
            "cluster": ABSENT if pair.cluster is None else str(pair.cluster),
            "query": shorten(pair.query),
            "document": shorten(pair.document),
            "score": pair.score,
            "hardest": "; ".join(f"{other.place} ({other.score:.3f})" for other in pair.hardest) or ABSENT,
            "removed": _removed(pair.removed) or ABSENT,
        }
        for pair in told.pairs
    ]


def _removed(others: Sequence[Other]) -> str:
    """Says what the filter removed from a query's negatives, by reason: of each the first few."""
    reasons: dict[str, list[str]] = {}
    for other in others:
        reasons.setdefault(other.why, []).append(f"{other.place} ({other.score:.3f})")
    return "; ".join(
        f"{why}: {', '.join(places[:MOST_REMOVED])}"
        + (f" and {len(places) - MOST_REMOVED} more" if len(places) > MOST_REMOVED else "")
        for why, places in reasons.items()
    )


def explanation_views(told: Explanation, *, num_pairs: int = 8) -> list[View]:
    """Gives the views of a batch; of its pairs the first `num_pairs`."""
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
        ("removed", f"{100 * told.masked_fraction:.2f} % of all (query, negative)"),
        ("difficulty", f"{told.difficulty:.3f}, the mean score of a query with the other documents"),
    )
    return View(f"Batch {told.batch} of run {told.run}", ("what", "value"), rows, align="ll")


def _clusters(told: Explanation) -> View:
    """Gives each cluster (or domain, for a run without clusters) with its pairs in the batch and one of its texts."""
    has_clusters = told.pairs[0].cluster is not None
    names = [(pair.domain, str(pair.cluster) if has_clusters else ABSENT) for pair in told.pairs]
    first = {name: pair.document for name, pair in reversed(list(zip(names, told.pairs, strict=True)))}
    rows = [(*name, str(count), shorten(first[name])) for name, count in Counter(names).most_common()]
    header = ("domain", "cluster", "pairs", "a document of it")
    return View("Where the pairs come from", header, tuple(rows), align="lrrl")


def _pairs(told: Explanation, num_pairs: int) -> View:
    rows = [line for pair in told.pairs[:num_pairs] for line in _pair_lines(pair)]
    left = len(told.pairs) - num_pairs
    notes = (f"{left} more pairs; --pairs {len(told.pairs)} prints all",) if left > 0 else ()
    return View(f"Pairs and their hardest negatives, scores of {told.surrogate}", PAIRS, tuple(rows), notes, "rlrrl")


PAIRS = ("pair", "what", "place", "score", "text")


def _pair_lines(pair: Pair) -> list[tuple[str, ...]]:
    own = format_number(pair.score, 3)
    lines = [
        (str(pair.place), "query", "", "", shorten(pair.query)),
        ("", "its document", str(pair.place), own, shorten(pair.document)),
        *(_other_line(other, "hard negative") for other in pair.hardest),
        *(_other_line(other, f"removed: {other.why}") for other in pair.removed),
    ]
    return lines


def _other_line(other: Other, what: str) -> tuple[str, ...]:
    return ("", what, str(other.place), format_number(other.score, 3), shorten(other.document))


def _parts(told: Explanation) -> View:
    rows = tuple(
        (
            f"{part.first_batch}–{part.last_batch}",
            format_number(part.difficulty, 3),
            format_number(100 * part.masked_fraction, 2),
            format_number(part.loss, 2),
        )
        for part in told.parts
    )
    header = ("batches", "difficulty", "removed %", "loss")
    return View("Difficulty over the training", header, rows, (f"from {told.parts_are_from}",), "lrrr")


def shorten(text: str) -> str:
    """Gives a text on one line, cut after a word where it is long."""
    words = " ".join(text.split())
    return words if len(words) <= LONGEST_TEXT else words[:LONGEST_TEXT].rsplit(" ", 1)[0] + " …"

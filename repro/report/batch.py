"""Tables that explain one batch: overview, clusters and pairs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from repro.analyses.batches import shorten
from repro.report.view import View
from repro.text import ABSENT, format_number

if TYPE_CHECKING:
    from repro.analyses.microscope import Explanation, Other, Pair


def make_explanation_views(explanation: Explanation, *, num_pairs: int = 8) -> list[View]:
    """Return the tables of a batch, with its first `num_pairs` pairs."""
    return [
        _make_overview(explanation),
        _make_clusters_view(explanation),
        _make_pairs_view(explanation, num_pairs),
    ]


def _make_overview(explanation: Explanation) -> View:
    rule = "none"
    if explanation.filter != "none":
        rule = f"{explanation.filter}: documents that score at least the own document's score + {explanation.filter_margin:g}"
    always = "documents of the same text"
    if explanation.known_positives == "mask":
        always += ", other documents of the same query, the text of the query"
    rows = (
        ("run", explanation.run),
        (
            "batch",
            f"{explanation.batch}, in epoch {explanation.epoch}; hash {explanation.batch_hash}, as in the training's log",
        ),
        ("pairs", str(len(explanation.pairs))),
        ("surrogate", explanation.surrogate),
        ("filter", rule),
        ("always removed", always),
        ("removed", f"{100 * explanation.masked_fraction:.2f} % of all negatives in the run's loss"),
        ("difficulty", f"{explanation.difficulty:.3f}, the mean score of a query with the other documents"),
    )
    return View(f"Batch {explanation.batch} of run {explanation.run}", ("what", "value"), rows, align="ll")


def _make_clusters_view(explanation: Explanation) -> View:
    """Return a row per cluster (or per domain without clusters): its number of pairs in the batch, and one document."""
    has_clusters = explanation.pairs[0].cluster is not None
    names = [(pair.domain, str(pair.cluster) if has_clusters else ABSENT) for pair in explanation.pairs]
    first = {name: pair.document for name, pair in reversed(list(zip(names, explanation.pairs, strict=True)))}
    rows = [(*name, str(count), shorten(first[name])) for name, count in Counter(names).most_common()]
    header = ("domain", "cluster", "pairs", "a document of it")
    return View("Where the pairs come from", header, tuple(rows), align="lrrl")


def _make_pairs_view(explanation: Explanation, num_pairs: int) -> View:
    rows = [line for pair in explanation.pairs[:num_pairs] for line in _format_pair_lines(pair)]
    num_hidden = len(explanation.pairs) - num_pairs
    notes = (f"{num_hidden} more pairs; --pairs {len(explanation.pairs)} prints all",) if num_hidden > 0 else ()
    title = f"Pairs and their hardest negatives, scores of {explanation.surrogate}"
    return View(title, ("pair", "what", "place", "score", "text"), tuple(rows), notes, "rlrrl")


def _format_pair_lines(pair: Pair) -> list[tuple[str, ...]]:
    return [
        (str(pair.place), "query", "", "", shorten(pair.query)),
        ("", "its document", str(pair.place), format_number(pair.score, 3), shorten(pair.document)),
        *(_format_other_line(other, "hard negative") for other in pair.hardest),
        *(_format_other_line(other, f"removed: {other.why}") for other in pair.removed),
    ]


def _format_other_line(other: Other, role: str) -> tuple[str, ...]:
    return ("", role, str(other.place), format_number(other.score, 3), shorten(other.document))

"""Tables that explain one batch: overview and pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repro.analyses.batches import shorten
from repro.report.view import View
from repro.spec.identity import run_id
from repro.text import format_number

if TYPE_CHECKING:
    from repro.analyses.microscope import Explanation, Pair


def make_explanation_views(explanation: Explanation, *, num_pairs: int = 8) -> list[View]:
    """Return an overview of a batch, and its first `num_pairs` pairs."""
    run, pairs = explanation.run, explanation.pairs
    rule = run.filter
    if rule == "random":
        rule = "random: as many documents as the surrogate would remove"
    elif rule != "none":
        rule = f"{run.filter_model or rule}: documents that score at least the own document's score + {run.filter_margin:g}"
    always = "documents of the same text"
    if run.known_positives == "mask":
        always += ", other documents of the same query, the text of the query"
    overview = (
        ("batch", f"{explanation.batch}, in epoch {explanation.epoch}; hash {explanation.batch_hash}, as in the log"),
        ("pairs", str(len(pairs))),
        ("surrogate", run.surrogate),
        ("filter", rule),
        ("always removed", always),
        ("removed", f"{100 * explanation.masked_fraction:.2f} % of all negatives in the run's loss"),
        ("difficulty", f"{explanation.difficulty:.3f}, the mean score of a query with the other documents"),
    )
    lines = tuple(line for pair in pairs[:num_pairs] for line in _format_pair_lines(pair))
    notes = (f"{len(pairs) - num_pairs} more pairs; --pairs {len(pairs)} prints all",) if len(pairs) > num_pairs else ()
    title = f"Pairs and their hardest negatives, scores of {run.surrogate}"
    return [
        View(f"Batch {explanation.batch} of run {run_id(run)}", ("what", "value"), overview, align="ll"),
        View(title, ("pair", "what", "place", "score", "text"), lines, notes, "rlrrl"),
    ]


def _format_pair_lines(pair: Pair) -> list[tuple[str, ...]]:
    origin = pair.domain if pair.cluster is None else f"{pair.domain}, cluster {pair.cluster}"
    documents = [
        ("its document", pair.place, pair.score, pair.document),
        *(("hard negative", other.place, other.score, other.document) for other in pair.hardest),
        *((f"removed: {other.why}", other.place, other.score, other.document) for other in pair.removed),
    ]
    return [
        (str(pair.place), f"query ({origin})", "", "", shorten(pair.query)),
        *(("", what, str(place), format_number(score, 3), shorten(text)) for what, place, score, text in documents),
    ]

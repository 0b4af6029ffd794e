"""Measure the difficulty of batches under the surrogate (figure 6), and the share of pairs that the filter removes.

Nothing is trained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from repro.analyses import Measured
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.text import ABSENT

if TYPE_CHECKING:
    from repro.analyses.microscope import Explanation, Other

NUM_BATCHED_PAIRS = 2**16
"""Number of pairs in the measured batches, at most one epoch."""

MAX_SHOWN_PAIRS = 64
"""The record stores the first batch as text if it is at most this large."""


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `batches/difficulty`, `batches/masked_fraction` and `batches/same_text`, as means and as values per batch.

    The last is the share of negatives that are views of the same text as the query (ids that differ after "@").
    """
    from repro.analyses.microscope import explain
    from repro.train.batch_view import BatchViewer
    from repro.train.setup import build_sampler

    run, sampler, viewer = inputs.run, build_sampler(inputs), BatchViewer(inputs)
    num_batches = max(1, min(len(sampler), NUM_BATCHED_PAIRS // run.batch_size))
    difficulty, masked, same_text = [], [], []
    for step in range(num_batches):
        view = viewer(sampler.at(step))
        counts = Counter(id.partition("@")[0] for id in inputs.pairs.ids(view.pairs_B)).values()
        same_text.append(sum(n * (n - 1) for n in counts) / (run.batch_size * (run.batch_size - 1)))
        assert view.difficulty is not None, "this analysis requires the surrogate's scores"
        difficulty.append(view.difficulty)
        masked.append(view.masked_fraction)
    values = {"difficulty": difficulty, "masked_fraction": masked, "same_text": same_text}
    arrays = {f"batches/{name}": np.array(per_batch) for name, per_batch in values.items()}
    metrics = {name: float(values.mean()) for name, values in arrays.items()}
    exhibits = {BATCH_EXHIBIT: make_batch_exhibit(explain(run, 1))} if run.batch_size <= MAX_SHOWN_PAIRS else {}
    return Measured(metrics, arrays, {"num_batches": num_batches, "num_batches_an_epoch": len(sampler)}, exhibits)


LONGEST_TEXT = 160
MAX_LISTED = 4
BATCH_EXHIBIT = "batch"
"""The name of a batch in a record (`make_batch_exhibit`)."""


def make_batch_exhibit(explanation: Explanation) -> list[dict[str, str | float]]:
    """Return a batch as rows of text. Records store them as `BATCH_EXHIBIT`, and the report shows them."""
    return [
        {
            "pair": pair.place,
            "cluster": ABSENT if pair.cluster is None else str(pair.cluster),
            "query": shorten(pair.query),
            "document": shorten(pair.document),
            "score": pair.score,
            "hardest": "; ".join(f"{other.place} ({other.score:.3f})" for other in pair.hardest) or ABSENT,
            "removed": _describe_removals(pair.removed) or ABSENT,
        }
        for pair in explanation.pairs
    ]


def _describe_removals(others: Sequence[Other]) -> str:
    """Describe the negatives of a query that the filter removed, the first few per reason."""
    reasons: dict[str, list[str]] = {}
    for other in others:
        reasons.setdefault(other.why, []).append(f"{other.place} ({other.score:.3f})")
    descriptions = []
    for reason, removed in reasons.items():
        num_more = len(removed) - MAX_LISTED
        description = f"{reason}: {', '.join(removed[:MAX_LISTED])}"
        descriptions.append(f"{description} and {num_more} more" if num_more > 0 else description)
    return "; ".join(descriptions)


def shorten(text: str, max_length: int = LONGEST_TEXT) -> str:
    """Return a text on one line, cut after a word if it has more than `max_length` characters."""
    line = " ".join(text.split())
    if len(line) <= max_length:
        return line
    head = line[: max_length - 2]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + " …"

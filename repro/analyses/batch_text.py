"""Format an explained batch as rows of text for a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from repro.text import ABSENT

if TYPE_CHECKING:
    from repro.analyses.microscope import Explanation, Other

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

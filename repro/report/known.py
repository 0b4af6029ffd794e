"""Overview of all claims: the counts of verdicts as a sentence, and the rows of a forest plot."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Any

from repro.spec import Claim, Directed, Equivalence, Identity, Value
from repro.statistics.judge import Judgement

LINE_WIDTH = 56
"""Width in characters at which the sentence of a claim is wrapped in the forest plot."""
PREDICATES = {
    "HOLDS": ("holds", "hold"),
    "DIFFERS": ("differs", "differ"),
    "SMALL": ("has a small effect", "have a small effect"),
    "OPEN": ("is open", "are open"),
    "tentative": ("is tentative", "are tentative"),
    "descriptive": ("is descriptive", "are descriptive"),
    "not run": ("lacks records", "lack records"),
    "other scale": ("needs another scale", "need another scale"),
}
"""Each verdict as a predicate in singular and plural, in the order of the sentence."""


def format_known_sentence(judgements: Sequence[Judgement]) -> str:
    """Return the number of claims per verdict as a sentence, or an empty string without claims.

    Measured claims, claims about printed numbers and our own questions are counted separately.
    """
    groups: dict[str, list[Judgement]] = {"claims that are measured": [], "of printed numbers": [], "of our own": []}
    measured, arithmetic, ours = groups.values()
    for judged in judgements:
        is_arithmetic = isinstance(judged.claim, Identity)
        (arithmetic if is_arithmetic else ours if judged.claim.is_ours else measured).append(judged)
    parts = [f"of {len(those)} {what}, {_count_records(those)}" for what, those in groups.items() if those]
    sentence = "; ".join(parts)
    return f"{sentence[:1].upper()}{sentence[1:]}." if parts else ""


def _count_records(judgements: Sequence[Judgement]) -> str:
    counts = Counter(judged.word for judged in judgements)
    parts = [
        f"{counts[verdict]} {words[counts[verdict] > 1]}" for verdict, words in PREDICATES.items() if counts[verdict]
    ]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def list_forest_rows(judgements: Iterable[Judgement]) -> list[dict[str, Any]]:
    """Return a row per comparison: name, words, unit, effect, low, high, bar_low, bar_high, verdict.

    Numbers are in their printed unit, and missing ones are nan. Claims with the same unit are grouped, and the most
    frequent unit comes first.
    """
    judged = [one for one in judgements if one.effect is not None]
    sizes = Counter(one.unit.name for one in judged)
    judged.sort(key=lambda one: (-sizes[one.unit.name], one.unit.name))
    return [row for one in judged for row in _rows(one)]


def _rows(judged: Judgement) -> list[dict[str, Any]]:
    low, high = get_thresholds(judged.claim)
    rows = []
    for number, one in enumerate(judged.comparisons):
        numbers = {"effect": one.effect, "low": one.low, "high": one.high, "bar_low": low, "bar_high": high}
        scaled = {name: math.nan if value is None else value * judged.unit.factor for name, value in numbers.items()}
        words = "\n".join(textwrap.wrap(judged.claim.says, LINE_WIDTH)) if number == 0 else ""
        name = judged.claim.id if number == 0 else ""
        rows.append({"name": name, "words": words, "unit": judged.unit.name, **scaled, "verdict": judged.word})
    return rows


@singledispatch
def get_thresholds(claim: Claim) -> tuple[float | None, float | None]:
    """Return the lower and upper threshold of the effect for a claim to hold, in the unit of the metric."""
    return 0.0, None


@get_thresholds.register
def _(claim: Directed) -> tuple[float | None, float | None]:
    return (claim.margin, None) if claim.sign > 0 else (None, -claim.margin)


@get_thresholds.register
def _(claim: Equivalence) -> tuple[float | None, float | None]:
    return -claim.delta, claim.delta


@get_thresholds.register
def _(claim: Value) -> tuple[float | None, float | None]:
    return -claim.margin, claim.margin

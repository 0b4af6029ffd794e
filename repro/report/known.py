"""What is known, before all detail: verdicts counted in words, and the rows of a forest plot of all claims."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Any

from repro.spec import Claim, Directed, Equivalence, Identity, Value
from repro.statistics.judge import Judgement

LETTERS = 56
"""Characters of a line, where a claim's words are wrapped over its row of the forest plot."""
SAID = {
    "HOLDS": ("holds", "hold"),
    "DIFFERS": ("differs", "differ"),
    "SMALL": ("has a small effect", "have a small effect"),
    "OPEN": ("is open", "are open"),
    "tentative": ("is tentative", "are tentative"),
    "descriptive": ("is descriptive", "are descriptive"),
    "not run": ("lacks records", "lack records"),
    "other scale": ("needs another scale", "need another scale"),
}
"""Each word as a predicate, for one claim and for several, in the order of the sentence."""


def format_known_sentence(judgements: Sequence[Judgement]) -> str:
    """Return the number of claims of each verdict, in words: of a paper's, of its arithmetic, and of our questions.

    "" for no claims.
    """
    groups: dict[str, list[Judgement]] = {"claims that are measured": [], "of printed numbers": [], "of our own": []}
    measured, arithmetic, ours = groups.values()
    for judged in judgements:
        is_arithmetic = isinstance(judged.claim, Identity)
        (arithmetic if is_arithmetic else ours if judged.claim.is_ours else measured).append(judged)
    told = [f"of {len(those)} {what}, {_count_records(those)}" for what, those in groups.items() if those]
    sentence = "; ".join(told)
    return f"{sentence[:1].upper()}{sentence[1:]}." if told else ""


def _count_records(judgements: Sequence[Judgement]) -> str:
    counts = Counter(judged.word for judged in judgements)
    told = [f"{counts[verdict]} {words[counts[verdict] > 1]}" for verdict, words in SAID.items() if counts[verdict]]
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"


def list_forest_rows(judgements: Iterable[Judgement]) -> list[dict[str, Any]]:
    """Return a row for each comparison: name, words, unit, effect, low, high, bar_low, bar_high, verdict.

    Numbers are in the unit they are printed in; one that is not there is nan. Claims of one unit stand together, the
    unit of most claims first.
    """
    judged = [one for one in judgements if one.effect is not None]
    sizes = Counter(one.unit.name for one in judged)
    judged.sort(key=lambda one: (-sizes[one.unit.name], one.unit.name))
    return [row for one in judged for row in _rows(one)]


def _rows(judged: Judgement) -> list[dict[str, Any]]:
    low, high = thresholds_of(judged.claim)
    rows = []
    for number, one in enumerate(judged.comparisons):
        numbers = {"effect": one.effect, "low": one.low, "high": one.high, "bar_low": low, "bar_high": high}
        scaled = {name: math.nan if value is None else value * judged.unit.factor for name, value in numbers.items()}
        words = "\n".join(textwrap.wrap(judged.claim.says, LETTERS)) if number == 0 else ""
        name = judged.claim.id if number == 0 else ""
        rows.append({"name": name, "words": words, "unit": judged.unit.name, **scaled, "verdict": judged.word})
    return rows


@singledispatch
def thresholds_of(claim: Claim) -> tuple[float | None, float | None]:
    """Return what the effect must be above and below for the claim to hold, in the metric's own unit."""
    return 0.0, None


@thresholds_of.register
def _(claim: Directed) -> tuple[float | None, float | None]:
    return (claim.margin, None) if claim.sign > 0 else (None, -claim.margin)


@thresholds_of.register
def _(claim: Equivalence) -> tuple[float | None, float | None]:
    return -claim.delta, claim.delta


@thresholds_of.register
def _(claim: Value) -> tuple[float | None, float | None]:
    return -claim.margin, claim.margin

"""Overview of all claims: the counts of verdicts as a table, and the rows of a forest plot."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from repro.report.view import View
from repro.spec import Claim, Directed, Equivalence, Value
from repro.statistics.judge import Judgement
from repro.text import ABSENT

LINE_WIDTH = 56
"""Width in characters at which the sentence of a claim is wrapped in the forest plot."""
VERDICT_NAMES = {
    "HOLDS": "holds",
    "DIFFERS": "differs",
    "SMALL": "small",
    "OPEN": "open",
    "tentative": "tentative",
    "descriptive": "descriptive",
    "not run": "no records",
    "other scale": "other scale",
}
"""Each verdict as the name of a column, in the order of the table."""


def make_counts_view(judgements: Sequence[Judgement]) -> View:
    """Return a table of the number of claims per verdict. Verdicts without a claim have no column.

    Claims of the paper and our own questions have a row each.
    """
    groups: dict[str, list[str]] = {"claims of the paper": [], "our own claims": []}
    measured, ours = groups.values()
    for judgement in judgements:
        group = ours if judgement.claim.is_ours else measured
        group.append(judgement.word)
    columns = [verdict for verdict in VERDICT_NAMES if any(verdict in verdicts for verdicts in groups.values())]
    rows = tuple(
        (name, str(len(verdicts)), *(str(verdicts.count(verdict) or ABSENT) for verdict in columns))
        for name, verdicts in groups.items()
        if verdicts
    )
    header = ("", "claims", *(VERDICT_NAMES[verdict] for verdict in columns))
    return View("Overview of claims", header, rows, align="l" + "r" * (len(header) - 1))


def list_forest_rows(judgements: Iterable[Judgement]) -> list[dict[str, Any]]:
    """Return a row per comparison: name, words, unit, effect, low, high, bar_low, bar_high, verdict.

    Numbers are in their printed unit, and missing ones are nan. Claims with the same unit are grouped, and the most
    frequent unit comes first.
    """
    judged = [judgement for judgement in judgements if judgement.effect is not None]
    sizes = Counter(judgement.unit.name for judgement in judged)
    judged.sort(key=lambda judgement: (-sizes[judgement.unit.name], judgement.unit.name))
    return [row for judgement in judged for row in _make_forest_rows(judgement)]


def _make_forest_rows(judged: Judgement) -> list[dict[str, Any]]:
    low, high = get_thresholds(judged.claim)
    rows = []
    for index, comparison in enumerate(judged.comparisons):
        numbers = {
            "effect": comparison.effect,
            "low": comparison.low,
            "high": comparison.high,
            "bar_low": low,
            "bar_high": high,
        }
        scaled = {name: math.nan if value is None else value * judged.unit.factor for name, value in numbers.items()}
        sentence = "\n".join(textwrap.wrap(judged.claim.statement, LINE_WIDTH)) if index == 0 else ""
        name = judged.claim.id if index == 0 else ""
        rows.append({"name": name, "words": sentence, "unit": judged.unit.name, **scaled, "verdict": judged.word})
    return rows


def get_thresholds(claim: Claim) -> tuple[float | None, float | None]:
    """Return the lower and upper threshold of the effect for a claim to hold, in the unit of the metric."""
    if isinstance(claim, Directed):
        return (claim.margin, None) if claim.sign > 0 else (None, -claim.margin)
    if isinstance(claim, Equivalence):
        return -claim.delta, claim.delta
    if isinstance(claim, Value):
        return -claim.margin, claim.margin
    return 0.0, None

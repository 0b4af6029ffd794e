"""The results in short: the main sentences, what the paper prints of each, and the verdict at each of our scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repro.claims.judge import Judgement
from repro.report.tables import in_unit
from repro.report.view import View
from repro.spec.artefact import ABSENT
from repro.spec.registry import declared_notes

UNSAID = ("WRONG SCALE", "NOT RUN")
"""Verdicts that say nothing of a sentence."""


def headlines_view(judged: Mapping[str, Sequence[Judgement]]) -> View:
    """Return a row for each sentence; `judged` has the judgements by scale, a column each.

    ValueError names a claim that no scale has a judgement of: the list and the experiments are at odds.
    """
    by_id = {scale: {one.claim.id: one for one in those} for scale, those in judged.items()}
    rows = []
    for line in declared_notes("HEADLINES"):
        found = [those.get(line.claim) for those in by_id.values()]
        if not any(found):
            raise ValueError(f"experiments/headlines.py names {line.claim}, which is judged at none of {list(judged)}")
        rows.append((line.says, line.claim, line.paper or ABSENT, *map(_verdict, found)))
    header = ("", "claim", "paper", *(f"at `{scale}`" for scale in judged))
    title = "Differences in points of NDCG@10, where no other unit is named, with 95 % intervals"
    return View(title, header, tuple(rows), align="l" * len(header))


def _verdict(judged: Judgement | None) -> str:
    """Return a verdict with effect and interval, or a dash where there is none."""
    if judged is None or judged.verdict in UNSAID:
        return ABSENT
    if judged.effect is None:
        return judged.verdict
    unit = judged.unit
    told = [in_unit(judged.effect, unit)]
    if judged.low is not None and judged.high is not None:
        told.append(f"({in_unit(judged.low, unit)} to {in_unit(judged.high, unit)})")
    if unit.name != "points":
        told.append(unit.name)
    return f"{judged.verdict}: {' '.join(told)}{', post hoc' * judged.is_post_hoc}"

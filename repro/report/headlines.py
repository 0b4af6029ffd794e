"""The results in short: the main sentences, what the paper prints of each, and the verdict at each of our scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repro.report.tables import format_interval, in_unit
from repro.report.view import View
from repro.spec.artefact import ABSENT
from repro.spec.registry import declared_notes
from repro.statistics.judge import Judgement


def make_headlines_view(judged: Mapping[str, Sequence[Judgement]]) -> View:
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
    """Return a word with effects and intervals, or a dash if there is none."""
    if judged is None or not judged.comparisons:
        return ABSENT
    unit = judged.unit
    effects = [f"{in_unit(one.effect, unit)} {format_interval(one, unit)}" for one in judged.comparisons]
    name = "" if unit.name == "points" else f" {unit.name}"
    return f"{judged.verdict}: {', '.join(effects)}{name}"

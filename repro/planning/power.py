"""What would decide an undecided claim: how many seeds, how many hours, and which effect the present seeds could see.

From each claim's own estimate: its effect as it is today, the deviation of one seed's value, and what queries leave
whatever the seeds. Power is that of a t-test at the claim's level (statsmodels), with n - 1 degrees of freedom and
those that the published spread adds. An effect that is measured anew will be another one: the numbers say what to
expect, not what will come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from scipy.optimize import brentq
from statsmodels.stats.power import TTestPower

from repro.claims.estimate import Estimate
from repro.claims.judge import Judgement
from repro.planning.plan import make_plan
from repro.report.view import View, format_seconds, format_signed
from repro.spec import Claim, Directed, Equivalence, Run
from repro.storage.paths import published_records

POWER = 0.8
MOST_SEEDS = 64
HEADER = (
    "claim",
    "effect",
    "holds if",
    "seeds now",
    "seen at 80 %",
    "seeds needed",
    "more time",
    "what the paper says",
)


@dataclass(frozen=True)
class Need:
    """What an undecided claim still needs."""

    judged: Judgement
    detectable: float | None  # how far from its bar an effect must be to be seen with the seeds there are
    num_seeds: int | None  # None: no number up to 64 decides it at today's effect
    seconds: float | None  # of the seeds that are not there yet

    def as_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        found = {"claim": self.judged.claim.id, "effect": self.judged.effect, "detectable": self.detectable}
        return {**found, "num_seeds": self.num_seeds, "seconds": self.seconds, "note": self.judged.note}


def needs_of_claims(judged: Iterable[Judgement], runs: Sequence[Run]) -> list[Need]:
    """Return what each undecided claim needs, from the experiment's runs at the scale of the judgements."""
    return [_need(one, runs) for one in judged if one.verdict == "UNDECIDED" and one.estimate is not None]


def _need(judged: Judgement, runs: Sequence[Run]) -> Need:
    found, level = judged.estimate, judged.level or 0.05
    assert found is not None, "only a measured claim is undecided"
    if not found.is_known or math.isnan(found.deviation):
        return Need(judged, None, None, None)
    gap = gap_of(judged.claim, found)
    num_seeds = seeds_needed(gap, found, level)
    detectable = detectable_gap(found, max(2, found.num_seeds), level)
    return Need(judged, detectable, num_seeds, None if num_seeds is None else _seconds(judged, runs, num_seeds))


def gap_of(claim: Claim, found: Estimate) -> float:
    """Return how far an effect is from what it is tested against: the bar, or the nearer end of ±δ."""
    if isinstance(claim, Equivalence):
        return abs(claim.delta - abs(found.effect))
    if not isinstance(claim, Directed):
        return 0.0
    gap = abs(found.effect - claim.sign * claim.margin)
    return gap if claim.delta is None else max(gap, claim.delta - abs(found.effect))


def seeds_needed(gap: float, found: Estimate, level: float) -> int | None:
    """Return the least number of seeds that sees a gap with a power of 80 %; None when 64 do not."""
    return next((n for n in range(2, MOST_SEEDS + 1) if power_of(gap, found, n, level) >= POWER), None)


def power_of(gap: float, found: Estimate, num_seeds: int, level: float) -> float:
    """Return the probability that a gap is seen with a number of seeds."""
    deviation = math.sqrt(found.deviation**2 + num_seeds * found.shared)
    if not deviation:
        return 1.0
    df = num_seeds - 1 + max(0.0, found.df - (found.num_seeds - 1))
    power = float(TTestPower().power(gap / deviation, num_seeds, level, df=df, alternative="two-sided"))
    return 1.0 if math.isnan(power) else power  # scipy's noncentral t has no value where the power is next to 1


def detectable_gap(found: Estimate, num_seeds: int, level: float) -> float:
    """Return the gap that a number of seeds sees with a power of 80 %."""
    unit = math.sqrt(found.deviation**2 / num_seeds + found.shared)
    if not unit:
        return 0.0
    return float(brentq(lambda gap: power_of(gap, found, num_seeds, level) - POWER, 1e-3 * unit, 60 * unit))


def _seconds(judged: Judgement, runs: Sequence[Run], num_seeds: int) -> float:
    """Return the time of a claim's runs with seeds that have no published record, up to a number of seeds."""
    claim = judged.claim
    of_claim = [run for run in runs if any(term.of.matches(run) for term in claim.terms) and claim.needs(run)]
    drawn = {replace(run, seed=0) for run in of_claim if run.seed != 0}
    fresh = [seed for seed in range(num_seeds + len(claim.seen_seeds)) if seed not in claim.seen_seeds][:num_seeds]
    wanted = [replace(run, seed=seed) for run in drawn for seed in fresh]
    return sum(one.seconds for one in make_plan(wanted, [published_records()]).estimates)


def power_view(needs: Sequence[Need], scale: str) -> View:
    """Return the needs as a table."""
    rows = []
    for need in needs:
        judged, unit = need.judged, need.judged.unit
        seen = "–" if need.detectable is None else f"{need.detectable * unit.factor:.{unit.decimals}f} off"
        text = judged.claim.says + (f" ({judged.note})" if judged.note else "")
        effect = "–" if judged.effect is None else format_signed(judged.effect * unit.factor, unit.decimals)
        seeds = "–" if need.detectable is None else str(need.num_seeds or f"over {MOST_SEEDS}")
        bar, now = f"{judged.claim.bar} {unit.name}", str(judged.num_seeds)
        rows.append((judged.claim.id, effect, bar, now, seen, seeds, format_seconds(need.seconds) or "–", text))
    title = f"What would decide the undecided claims at scale {scale}, with a power of 80 %"
    return View(title, HEADER, tuple(rows), align="lrlrrrrl")

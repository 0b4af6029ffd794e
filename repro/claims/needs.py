"""What would decide an undecided claim: how many seeds or units, and which effect the present ones could see.

From the claim's own estimates: their effects as they are today, the deviation of one seed's value, and what queries
leave whatever the seeds. Power is that of a t-test at the claim's level: a noncentral t (Cohen 1988, chapter 2;
statsmodels' `TTestPower` gives the same) with n - 1 degrees of freedom and those that the published spread adds; beside
the noise of queries with those of the sum (Satterthwaite), against the critical value of `Estimate`. A claim of several
comparisons has the power of all of them, one within ±δ that of both its tests. For a correlation,
whose units are no seeds, Fisher's z (Cohen 1988, chapter 3). An effect that is measured anew will be another one: the
numbers say what to expect, not what will come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from repro.claims.correlation import FEWEST_UNITS
from repro.claims.estimate import Estimate
from repro.claims.variance import satterthwaite
from repro.spec import Claim, Correlation, Directed, Equivalence, Value

POWER = 0.8
MOST_SEEDS = 10_000
MOST_UNITS = 1000


@dataclass(frozen=True)
class Need:
    """What an undecided claim still needs; None: no number up to the most decides it at today's effect, or none can."""

    num_seeds: int | None = None
    num_units: int | None = None  # of a correlation, as one group has them
    detectable: float | None = None  # how far from its bar an effect must be to be seen with the seeds there are


def need_of(claim: Claim, estimates: Sequence[Estimate], weakest: Estimate, level: float, then: float) -> Need:
    """Return what decides a claim, from all its comparisons, the weakest among them.

    `level` is that of today, at which the present seeds see what they see; `then` that of the next look.
    """
    if isinstance(claim, Correlation):
        return Need(num_units=units_needed(weakest.effect, claim.sign * claim.margin, then, weakest.num_groups))
    if any(not one.is_known or math.isnan(one.deviation) for one in estimates):
        return Need()
    number = least(2, MOST_SEEDS, lambda seeds: power_of_claim(claim, estimates, seeds, then) >= POWER)
    return Need(number, None, _detectable(weakest, len(estimates), level))


def need_of_leads(leads: Sequence[Estimate], level: float, then: float) -> Need:
    """Return what shows that all of some leads are above zero, each at a level; the first is the one that is told.

    The levels are those of `need_of`.
    """
    if any(not one.is_known for one in leads):
        return Need()
    number = least(2, MOST_SEEDS, lambda seeds: _power_of_all(leads, 0.0, seeds, then) >= POWER)
    shown, each = leads[0], POWER ** (1 / len(leads))
    return Need(number, None, detectable_gap(shown, max(2, shown.num_seeds), level, each))


def sided(claim: Directed, one: Estimate) -> Estimate:
    """Return an estimate as a claim has it: above the margin is what it says, whichever its sign."""
    return one if claim.sign > 0 else one.mirrored()


def tolerance(claim: Equivalence | Value) -> float:
    """Return how far off zero an effect may be."""
    return claim.delta if isinstance(claim, Equivalence) else claim.margin


def power_of_claim(claim: Claim, estimates: Sequence[Estimate], num_seeds: int, level: float) -> float:
    """Return the probability that a claim of some comparisons is decided as their effects of today would have it.

    All must be seen for HOLDS and for NO EFFECT, one for DIFFERS, which is tested at the level over their number.
    Comparisons are taken for independent: those that share runs are decided together rather more often.
    """
    if isinstance(claim, Equivalence | Value):
        delta = tolerance(claim)
        outside = [abs(one.effect) - delta for one in estimates]
        if max(outside) <= 0:
            return _power_within(estimates, delta, num_seeds, level)
        return _power_of_any(zip(outside, estimates, strict=True), num_seeds, level / len(estimates))
    if not isinstance(claim, Directed):
        return 0.0
    turned = [sided(claim, one) for one in estimates]
    found = _power_of_all(turned, claim.margin, num_seeds, level)
    below = [claim.margin - one.effect for one in turned]
    found = max(found, _power_of_any(zip(below, turned, strict=True), num_seeds, level / len(turned)))
    return found if claim.delta is None else max(found, _power_within(turned, claim.delta, num_seeds, level))


def _power_of_all(estimates: Sequence[Estimate], bar: float, num_seeds: int, level: float) -> float:
    """Return the probability that all effects are seen to be above a bar."""
    if any(one.effect <= bar for one in estimates):
        return 0.0
    return math.prod(power_of(one.effect - bar, one, num_seeds, level) for one in estimates)


def _power_of_any(gaps: Iterable[tuple[float, Estimate]], num_seeds: int, level: float) -> float:
    """Return the probability that the gap which is seen best is seen; that others are as well is not counted."""
    return max((power_of(gap, one, num_seeds, level) for gap, one in gaps if gap > 0), default=0.0)


def _power_within(estimates: Sequence[Estimate], delta: float, num_seeds: int, level: float) -> float:
    """Return the probability that all effects are seen to be within ±δ: what each of two one-sided tests leaves."""
    if any(abs(one.effect) >= delta for one in estimates):
        return 0.0
    both = (
        sum(power_of(delta + side * one.effect, one, num_seeds, level) for side in (-1, 1)) - 1 for one in estimates
    )
    return math.prod(max(0.0, power) for power in both)


def _detectable(weakest: Estimate, num_comparisons: int, level: float) -> float:
    """Return the gap of every comparison to the bar that the present seeds see, whichever side it is on."""
    number = max(2, weakest.num_seeds)
    all_of = detectable_gap(weakest, number, level, POWER ** (1 / num_comparisons))
    return max(all_of, detectable_gap(weakest, number, level / num_comparisons))


def least(first: int, last: int, is_enough: Callable[[int], bool]) -> int | None:
    """Return the least number for which something is true that stays true above it; None when none is."""
    if not is_enough(last):
        return None
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if is_enough(middle) else (middle + 1, last)
    return last


def power_of(gap: float, found: Estimate, num_seeds: int, level: float) -> float:
    """Return the probability that a gap is seen with a number of seeds, on its own side: the other is a false one."""
    from scipy import special

    own = found.deviation**2 / num_seeds
    error = math.sqrt(own + found.shared)
    if not error:
        return 1.0
    own_df = num_seeds - 1 + max(0.0, found.df - (found.num_seeds - 1))
    planned = replace(found, error=error, df=own_df, num_seeds=num_seeds)
    critical = planned.half(level / 2) / error
    df = satterthwaite(part for part in ((own, own_df), (found.shared, found.shared_df)) if part[0])
    if gap / error > 2 * critical + 10:
        return 1.0  # where the noncentral t loses its digits
    return 1 - float(special.nctdtr(df, gap / error, critical))


def detectable_gap(found: Estimate, num_seeds: int, level: float, power: float = POWER) -> float:
    """Return the gap that a number of seeds sees with a given power, to a thousandth of itself."""
    low, high = 0.0, 60 * math.sqrt(found.deviation**2 / num_seeds + found.shared)
    while high and power_of(high, found, num_seeds, level) < power:  # of two seeds under many claims
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power_of(middle, found, num_seeds, level) >= power else (middle, high)
    return high


def units_needed(r: float, bar: float, level: float, num_groups: int = 1) -> int | None:
    """Return the units of each group that see a correlation off its bar with a power of 80 %; None: not a thousand do.

    A mean over independent groups has its variance divided by their number.
    """
    gap = abs(_z(r) - _z(bar))
    quantiles = NormalDist().inv_cdf(1 - level / 2) + NormalDist().inv_cdf(POWER)
    needed = math.inf if not gap else math.ceil((quantiles / gap) ** 2 / num_groups + 3)
    return int(max(needed, FEWEST_UNITS)) if needed <= MOST_UNITS else None


def _z(r: float) -> float:
    return math.atanh(max(-0.999, min(0.999, r)))

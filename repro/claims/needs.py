"""What would decide an undecided claim: how many seeds or units, and which effect the present ones could see.

From the claim's own estimate: its effect as it is today, the deviation of one seed's value, and what queries leave
whatever the seeds. Power is that of a t-test at the claim's level: a noncentral t (Cohen 1988, chapter 2; statsmodels'
`TTestPower` gives the same) with n - 1 degrees of freedom and those that the published spread adds. For a correlation,
whose units are no seeds, Fisher's z (Cohen 1988, chapter 3). An effect that is measured anew will be another one: the
numbers say what to expect, not what will come.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

from repro.claims.correlation import FEWEST_UNITS
from repro.claims.estimate import Estimate
from repro.claims.varies import Interaction
from repro.spec import Claim, Correlation, Directed, Equivalence

POWER = 0.8
MOST_SEEDS = 64
MOST_UNITS = 1000


@dataclass(frozen=True)
class Need:
    """What an undecided claim still needs; None: no number up to the most decides it at today's effect, or none can."""

    num_seeds: int | None = None
    num_units: int | None = None  # of a correlation, as one group has them
    detectable: float | None = None  # how far from its bar an effect must be to be seen with the seeds there are


def need_of(claim: Claim, found: Estimate, level: float) -> Need:
    """Return what decides a claim at a level, from its weakest comparison."""
    if isinstance(claim, Correlation):
        return Need(num_units=units_needed(found.effect, claim.sign * claim.margin, level, found.num_groups))
    if not found.is_known or math.isnan(found.deviation):
        return Need()
    gap = gap_of(claim, found)
    return Need(seeds_needed(gap, found, level), None, detectable_gap(found, max(2, found.num_seeds), level))


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
    return least(2, MOST_SEEDS, lambda number: power_of(gap, found, number, level) >= POWER)


def seeds_for_interaction(tested: Interaction, level: float) -> int | None:
    """Return the least number of seeds that sees an interaction with a power of 80 %; None when 64 do not."""
    return least(2, MOST_SEEDS, lambda number: tested.is_seen_with(number, level, POWER))


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

    error = math.sqrt(found.deviation**2 / num_seeds + found.shared)
    if not error:
        return 1.0
    df = num_seeds - 1 + max(0.0, found.df - (found.num_seeds - 1))
    critical = float(special.stdtrit(df, 1 - level / 2))
    if gap / error > 2 * critical + 10:
        return 1.0  # where the noncentral t loses its digits
    return 1 - float(special.nctdtr(df, gap / error, critical))


def detectable_gap(found: Estimate, num_seeds: int, level: float) -> float:
    """Return the gap that a number of seeds sees with a power of 80 %, to a thousandth of itself."""
    low, high = 0.0, 60 * math.sqrt(found.deviation**2 / num_seeds + found.shared)
    while high and power_of(high, found, num_seeds, level) < POWER:  # of two seeds under many claims
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power_of(middle, found, num_seeds, level) >= POWER else (middle, high)
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

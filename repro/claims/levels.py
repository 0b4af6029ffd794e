"""What a claim of a family is held to: Holm's levels, Bonferroni's intervals, and both said with one voice.

Holm decides more than Bonferroni's interval does. Where it does, the interval that goes with it ends at the bar
(Guilbaud 2008, Biometrical Journal 50, 678-692).
"""

from __future__ import annotations

from collections.abc import Sequence

from repro.claims.estimate import Estimate
from repro.claims.needs import tolerance
from repro.spec import Claim, Directed, Equivalence, Value

ALPHA = 0.05


def share_of_look(number: int) -> float:
    """Return the share of the level at which a claim is judged at its look of this number, from 1.

    The first look has all of it. A further one, which is made because the claim was open, has 1 / (k (k + 1)): a sixth,
    a twelfth, …, which add up to half of the level, however many there are. So a claim that is looked at until it is
    decided errs at most one and a half times as often as at one look (a union bound; `repro.claims.looks` measures it).
    """
    return 1.0 if number == 1 else 1 / (number * (number + 1))


ENDS_AT_BAR = "its interval ends at the bar: Holm decides, Bonferroni alone would not"


def interval_for(
    claim: Claim, verdict: str, one: Estimate, level: float, num_comparisons: int
) -> tuple[float | None, float | None, bool]:
    """Return the ends of the interval of a comparison under a verdict, and whether one of them was cut at the bar."""
    low, high = interval_of(one, level, num_comparisons, is_directed=isinstance(claim, Directed))
    if low is None or high is None or verdict == "UNDECIDED":
        return low, high, False
    ends = up_to_the_bar(claim, verdict, low, high)
    return *ends, ends != (low, high)


def up_to_the_bar(claim: Claim, verdict: str, low: float, high: float) -> tuple[float, float]:
    """Return an interval that ends at the bar where it would go past what the verdict says."""
    if isinstance(claim, Directed):
        if verdict == "NO EFFECT":
            assert claim.delta is not None, "a claim without δ has no such verdict"
            return max(low, -claim.delta), min(high, claim.delta)
        bar = claim.sign * claim.margin + 0.0  # never -0.0
        is_above = (verdict == "HOLDS") == (claim.sign > 0)
        return (max(low, bar), high) if is_above else (low, min(high, bar))
    if isinstance(claim, Equivalence | Value) and verdict == "HOLDS":
        return max(low, -tolerance(claim)), min(high, tolerance(claim))
    return low, high


def interval_of(
    weakest: Estimate, level: float, num_comparisons: int, *, is_directed: bool = True
) -> tuple[float | None, float | None]:
    """Return the interval of the weakest of several comparisons, which a claim of all of them is about.

    Where a claim has one side, it was chosen for being low: its upper end is corrected for their number, as DIFFERS is,
    and its lower end need not be, as HOLDS need not (Berger & Hsu 1996, Statistical Science 11, 283-319). Where a claim
    has two, it was chosen for being far off, and both ends are corrected.
    """
    corrected = weakest.interval(level / num_comparisons)
    plain = weakest.interval(level) if is_directed else corrected
    return (plain[0], corrected[1]) if plain and corrected else (None, None)


def holm_levels(p_values: Sequence[float]) -> list[float]:
    """Return the level each p-value is compared with under Holm's step-down procedure, in the order given.

    A test is significant when its p-value is at or below its level. Once one fails, all larger ones fail too: their
    level becomes that of the first that failed.
    """
    levels, failed = [0.0] * len(p_values), 0.0
    for place, test in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        levels[test] = failed or ALPHA / (len(p_values) - place)
        if p_values[test] > levels[test]:
            failed = levels[test]
    return levels

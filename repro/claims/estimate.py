"""One comparison as a number with its error, and what it says of a bar: t-tests, two one-sided tests, intervals.

An error has up to two parts that are known with degrees of freedom of their own: what seeds leave, and what queries do.
Half an interval is the root of the sum of squares of the halves that each part would have alone (Howe 1974, JASA 69,
789-794), and a p-value the level at which an interval ends at the bar. Satterthwaite's degrees of freedom of the sum,
which are read off the parts' estimates, would give an interval that is narrower just where seeds agree by luck: of
three seeds with no published spread every fifth null effect came out significant at 5 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from repro.spec.term import Unit

SMALLEST_P = 1e-12
"""Below it a p-value of two parts is not told any closer."""


@dataclass(frozen=True)
class Estimate:
    """An effect with its standard error, in the metric's own unit; `df` are those of the part that seeds leave.

    `is_r`: a correlation of df + 2 units; its error is 1 / sqrt(df), of a gap over what r and the bar leave (Samiuddin,
    see `repro.claims.correlation`). An error that is not known is nan.
    """

    effect: float
    error: float
    df: float
    unit: Unit
    num_seeds: int
    deviation: float = math.nan  # of one seed's value, for planning
    shared: float = 0.0  # the part of error² that further seeds do not lower: what queries leave
    shared_df: float = math.inf
    is_r: bool = False
    num_groups: int = 1  # independent correlations that it is the mean of
    note: str = ""

    @property
    def is_known(self) -> bool:
        """Whether there is an error to judge by."""
        return not math.isnan(self.error)

    def noting(self, words: str) -> Estimate:
        """Return it with a note more."""
        return replace(self, note="; ".join(filter(None, (self.note, words))))

    def above(self, bar: float) -> float:
        """Return the one-sided p-value of the effect being above a bar; 1 where the error is not known."""
        if not self.is_known:
            return 1.0
        gap = self.effect - bar
        if self.is_r:
            gap /= math.sqrt(_unexplained(self.effect) * _unexplained(bar))
        if self.error == 0:
            return 0.0 if gap > 0 else 1.0
        return self._tail(gap)

    def below(self, bar: float) -> float:
        """Return the one-sided p-value of the effect being below a bar; 1 where the error is not known."""
        return self.mirrored().above(-bar)

    def outside(self, delta: float) -> float:
        """Return the p-value of the effect being more than delta off zero."""
        return min(1.0, 2 * min(self.above(delta), self.below(-delta)))

    def inside(self, delta: float) -> float:
        """Return the p-value of the effect being within ±delta, by two one-sided tests.

        Doubled, so that a test at a level agrees with the two-sided interval of that level: stricter than the usual
        TOST. Source: Schuirmann (1987), J. Pharmacokinet. Biopharm. 15, 657-680.
        """
        return min(1.0, 2 * max(self.above(-delta), self.below(delta)))

    def mirrored(self) -> Estimate:
        """Return the estimate of minus the effect."""
        return replace(self, effect=-self.effect)

    def interval(self, level: float) -> tuple[float, float] | None:
        """Return the interval that leaves out a share `level`, half on each side; None where no error is known."""
        if not self.is_known:
            return None
        half = self.half(level / 2)
        return _interval_of_r(self.effect, half) if self.is_r else (self.effect - half, self.effect + half)

    def half(self, tail: float) -> float:
        """Return how far an effect must be from a bar for its one-sided p-value to be `tail`, at most a half."""
        own = max(0.0, self.error**2 - self.shared)
        parts = ((own, self.df), (self.shared, self.shared_df))
        return math.sqrt(sum(part * float(_special().stdtrit(df, tail)) ** 2 for part, df in parts if part))

    def _tail(self, gap: float) -> float:
        """Return the one-sided p-value of a gap above a bar: where `half` of it is the gap."""
        if not self.shared:
            return float(_special().stdtr(self.df, -gap / self.error))
        if gap < 0:
            return 1 - self._tail(-gap)
        few, many = sorted((self.df, self.shared_df))  # the p-value lies between those of one part alone
        low, high = (float(_special().stdtr(df, -gap / self.error)) for df in (many, few))
        while high - low > 1e-9 * high and high > SMALLEST_P:
            middle = math.sqrt(low * high) if low > 0 else high / 2
            low, high = (middle, high) if self.half(middle) > gap else (low, middle)
        return high


@cache
def _special() -> Any:
    """Return scipy's functions, loaded by what tests: a third of a second that verdicts judged before do not wait."""
    from scipy import special

    return special


def _unexplained(r: float) -> float:
    """Return the share of variance that a correlation leaves, a little of it where that is none."""
    return max(1e-12, 1 - r * r)


def _interval_of_r(r: float, half: float) -> tuple[float, float]:
    """Return every rho with |r - rho| <= half sqrt((1 - r^2)(1 - rho^2)): between the roots of a square."""
    share = half**2 * _unexplained(r)
    root = math.sqrt(share * (share + _unexplained(r)))
    return (r - root) / (1 + share), (r + root) / (1 + share)


def of_seeds(
    values_S: np.ndarray, unit: Unit, *, moderated: tuple[float, float] | None, shared: float, shared_df: float
) -> Estimate:
    """Return the estimate from one value a seed.

    `moderated` is the variance of one seed's value with its degrees of freedom, None: only these seeds are known.
    `shared` is the variance the units leave whatever the seeds, known with `shared_df`. One seed without a known
    variance has no error.
    """
    num_seeds = len(values_S)
    if moderated is None and num_seeds < 2:
        return Estimate(float(values_S[0]), math.nan, 0, unit, 1, note="one seed, and no published spread to judge by")
    variance, df = moderated or (float(values_S.var(ddof=1)), num_seeds - 1.0)
    error = math.sqrt(variance / num_seeds + shared)
    note = "one seed, judged with the published spread over seeds" if num_seeds == 1 and variance else ""
    effect, deviation = float(values_S.mean()), math.sqrt(variance)
    return Estimate(effect, error, df, unit, num_seeds, deviation, shared, shared_df, note=note)

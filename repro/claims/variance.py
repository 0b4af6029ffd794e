"""How much seeds move a number: the variance of a few seeds, moderated by what all published records of a scale say.

Three seeds tell little of their own variance, but the same metric has been measured on dozens of configurations. Their
variances are taken as draws from one prior, a scaled inverse chi-square with `df` degrees of freedom around `variance`,
fitted by the moments of the log variances; a comparison's own variance is then the mean of the two, each weighed by its
degrees of freedom. Source: Smyth (2004), Linear models and empirical Bayes methods for assessing differential
expression, section 6.2 (`fitFDist` of limma); total degrees of freedom are capped at those of the pool, as limma does.
The prior is held less firmly than there: how much variances differ is taken one standard error high, since a few dozen
configurations cannot show that they do not differ, and a prior too firm gives false verdicts (see the calibration).

The records say that systems of one seed do not vary together (the deviation over seeds is the same with and without the
seed's own mean), so the variance of a contrast is that of one configuration times the sum of its squared weights.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np

from repro.claims.units import value_of
from repro.records.store import Record
from repro.spec import Run, training_of

FEWEST_DF = 3.0
"""A difference of mean squares that is known less well has quantiles of hundreds at the levels of further looks."""
FEWEST_CONFIGURATIONS = 10
"""A pool of fewer says too little about how variances differ: a comparison then has only its own seeds."""

Pattern = tuple[tuple[str, float], ...]
"""What of one record enters a comparison: metrics with their weights, the first of weight 1."""


@dataclass(frozen=True)
class Prior:
    """What a pool says of a variance: its size, how firmly (in degrees of freedom), and the pool's own size."""

    variance: float
    df: float
    pooled_df: float

    def moderate(self, variance: float, df: float) -> tuple[float, float]:
        """Return a variance with `df` of its own, and its degrees of freedom, both moderated by this."""
        mean = (self.df * self.variance + df * variance) / (self.df + df)
        return mean, min(df + self.df, self.pooled_df)


@cache
def system_of(run: Run) -> Run:
    """Return what runs that differ in nothing but the seed have in common."""
    return replace(run, seed=0)


@dataclass
class Pool:
    """The records that priors are estimated from; the prior of each pattern is fitted once."""

    records: Sequence[Record] = ()
    known: dict[tuple[str, Pattern], Prior | None] = field(default_factory=dict)

    def prior(self, suite: str, pattern: Pattern) -> Prior | None:
        """Return the prior of a number of one record, among records scored on a suite; None where there are too few."""
        if (suite, pattern) not in self.known:
            trainings = self._trainings.get(suite, ())
            self.known[suite, pattern] = fit_prior(_of_training(scorings, pattern) for scorings in trainings)
        return self.known[suite, pattern]

    @cached_property
    def by_system(self) -> Mapping[Run, Mapping[int, Record]]:
        """The records of each system, by seed."""
        found: dict[Run, dict[int, Record]] = {}
        for record in self.records:
            found.setdefault(system_of(record.run), {})[record.run.seed] = record
        return found

    @cached_property
    def _trainings(self) -> Mapping[str, Sequence[Collection[Sequence[Record]]]]:
        """The records of each system, by the training that it scores, for each suite."""
        found: dict[str, dict[Run, dict[Run, list[Record]]]] = {}
        for record in self.records:
            system = system_of(record.run)
            systems = found.setdefault(record.run.suite, {}).setdefault(training_of(system), {})
            systems.setdefault(system, []).append(record)
        return {suite: [systems.values() for systems in trainings.values()] for suite, trainings in found.items()}


def _of_training(scorings: Iterable[Sequence[Record]], pattern: Pattern) -> tuple[float, float]:
    """Return the variance over seeds of a number of one training, and its degrees of freedom.

    A training that is scored in several ways, as under three contexts, draws its seeds once: the variances of all ways
    are averaged, and count with the degrees of freedom of the one that has most seeds.
    """
    known = []
    for scored in scorings:
        found = [record for record in scored if all(has_metric(record, metric) for metric, _ in pattern)]
        known.append(variance_of([sum(weight * value_of(one, metric) for metric, weight in pattern) for one in found]))
    total = sum(df for _, df in known)
    return sum(variance * df for variance, df in known) / max(total, 1), max(df for _, df in known)


def has_metric(record: Record, pattern: str) -> bool:
    """Return whether a record has a metric, {suite} being its own."""
    return pattern.replace("{suite}", record.run.suite).removeprefix("log2 ") in record.metrics


def fit_prior(variances: Iterable[tuple[float, float]]) -> Prior | None:
    """Return the prior of variances, each with its degrees of freedom; None for fewer than ten that are above zero."""
    varied = [(variance, df) for variance, df in variances if variance > 1e-18]
    if len(varied) < FEWEST_CONFIGURATIONS:
        return None
    from scipy.special import digamma, polygamma

    variances_G, df_G = (np.array(column) for column in zip(*varied, strict=True))
    # E log s² = log s0² + digamma(d/2) - log(d/2) - digamma(d0/2) + log(d0/2), var = trigamma(d/2) + trigamma(d0/2)
    e_G = np.log(variances_G) - digamma(df_G / 2) + np.log(df_G / 2)
    excess = float(np.var(e_G, ddof=1) - np.mean(polygamma(1, df_G / 2)))
    variance = float(np.average(variances_G, weights=df_G))
    if excess > 0:
        half = inverse_trigamma(excess)
        variance = math.exp(float(np.mean(e_G) + digamma(half) - np.log(half)))
    cautious = max(excess, 0.0) + _error_of_variance(e_G)
    return Prior(variance, 2 * inverse_trigamma(cautious), float(df_G.sum()))


def variance_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the unbiased variance of a few numbers, for which numpy is slow, and its degrees of freedom.

    Fewer than two numbers have neither: both are 0.
    """
    df = len(values) - 1
    if df < 1:
        return 0.0, 0.0
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / df, float(df)


def _error_of_variance(values_G: np.ndarray) -> float:
    """Return the standard error of a sample's variance, from its fourth moment."""
    squares_G = (values_G - values_G.mean()) ** 2
    return float(squares_G.std(ddof=1) / math.sqrt(len(values_G)))


def inverse_trigamma(value: float) -> float:
    """Return x with trigamma(x) = value, by Newton's method on 1/trigamma (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x


def shared_variance(strata: Iterable[np.ndarray]) -> tuple[float, float]:
    """Return the variance that a sum of means of units (S, Q), one a stratum, has from its units alone, and its df.

    It is what is common to all seeds, and no seed averages out. Of every stratum: the variance between units of their
    mean over seeds, less what seeds leave in it, over the number of units. A unit that several metrics of a comparison
    count, as the mean over datasets and that of one family do, has been added up before. Source: expected mean squares
    of a two-way layout, Searle, Casella & McCulloch (1992), Variance components, chapter 4. Degrees of freedom are
    those of the sum of these mean squares (`satterthwaite`): a stratum of few units, or one where seeds leave much, is
    known less well than as many units of one stratum would be. Where seeds leave nearly all of it, hardly anything is
    known of the rest: nothing is taken off then, which is no less, and known by the number of units.
    """
    parts = [found for found in map(_units_of_stratum, strata) if sum(variance for variance, _ in found) > 0]
    known = [(sum(variance for variance, _ in each), satterthwaite(each)) for each in parts]
    if satterthwaite(known) < FEWEST_DF:
        known = [each[0] for each in parts]
    return sum(variance for variance, _ in known), satterthwaite(known)


def _units_of_stratum(values_SQ: np.ndarray) -> list[tuple[float, float]]:
    """Return what the units of one stratum leave in its mean, less what seeds leave in that: variances and their df."""
    num_seeds, count = values_SQ.shape
    if count < 2:
        return [(0.0, 1.0)]
    unit_means_Q = values_SQ.mean(axis=0)
    parts = [(float(unit_means_Q.var(ddof=1)) / count, count - 1.0)]
    if num_seeds > 1:
        rest_SQ = values_SQ - unit_means_Q - values_SQ.mean(axis=1, keepdims=True) + values_SQ.mean()
        df = (num_seeds - 1.0) * (count - 1)
        parts.append((-float((rest_SQ**2).sum()) / df / num_seeds / count, df))
    return parts


def satterthwaite(parts: Iterable[tuple[float, float]]) -> float:
    """Return the degrees of freedom of a sum of independent variances, each with its own; of no variance: without end.

    The square of the sum, over the sum of squares by degrees of freedom; a variance that is taken off has its minus
    sign. Source: Satterthwaite (1946), Biometrics Bulletin 2, 110-114; for two samples it is the df of Welch's test.
    Not fewer than one: a difference near nothing has no such distribution (Gaylor & Hopper 1969, Technometrics 11).
    """
    parts = list(parts)
    squares = sum(variance**2 / df for variance, df in parts)
    return max(1.0, sum(variance for variance, _ in parts) ** 2 / squares) if squares else math.inf

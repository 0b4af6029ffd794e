"""Claims as contrasts: weighted sums of the numbers of configurations, which one test judges whatever the kind.

An order is a mean less a mean, an interaction a difference of differences, a trend the least-squares slope on the log2
of its axis, a printed value a mean less a constant: each is a weighted sum over configurations, computed once a seed.
Its values over seeds are what is tested. What is random: seeds (initial weights, order of batches, contexts drawn in
training), and the queries (or documents, or tasks) of a dataset. What is fixed: the datasets themselves, and the one
draw of contexts that all seeds are scored with; no verdict says anything of others.

Shapes: S seeds, Q units (queries).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from repro.claims.estimate import Estimate, of_seeds
from repro.claims.evidence import Evidence, MissingRunsError
from repro.claims.units import parts_of, stratified_mean, units, value_of
from repro.claims.variance import Pattern, Pool, Prior, has_metric, shared_variance, variance_of
from repro.spec import (
    Claim,
    Equivalence,
    Interaction,
    Order,
    Run,
    Term,
    Trend,
    Value,
    batches_of,
    first_phase_of,
    is_random,
    training_of,
)
from repro.spec.term import LOG2, Unit, unit_of

Weights = dict[tuple[Run, str], float]
"""What each configuration's metric counts in a contrast."""
PER_STEP = "train/"
"""Metrics that begin so are means over steps, which are no sample of anything: their units are not drawn."""
FEWEST_VALUES = 3
"""A trend takes three values of its axis."""
WHAT_IS_RANDOM = "Seeds and queries are random, datasets are fixed: a verdict speaks of these datasets alone."
"""A line for the pages and the report."""
SEEDS_ALONE = "seeds alone, as no values by query are kept"


@dataclass(frozen=True)
class Contrast:
    """One comparison of a claim: weights of configurations, less a constant, and what it is printed in."""

    weights: Weights
    unit: Unit
    constant: float = 0.0


@singledispatch
def contrasts_of(claim: Claim, evidence: Evidence) -> list[Contrast]:
    """Return the contrasts of a claim, each of which must be as the claim says."""
    raise TypeError(f"claim {claim.id} is no contrast: {claim.kind}")


@contrasts_of.register
def _(claim: Order, evidence: Evidence) -> list[Contrast]:
    return [_difference(pair, evidence) for pair in claim.pairs]


@contrasts_of.register
def _(claim: Equivalence, evidence: Evidence) -> list[Contrast]:
    return [_difference(pair, evidence) for pair in claim.pairs]


@contrasts_of.register
def _(claim: Interaction, evidence: Evidence) -> list[Contrast]:
    of, above = (_difference(pair, evidence) for pair in (claim.of, claim.above))
    return [Contrast(_sum([(1.0, of.weights), (-1.0, above.weights)]), of.unit)]


@contrasts_of.register
def _(claim: Value, evidence: Evidence) -> list[Contrast]:
    return [Contrast(_mean(term, evidence), unit_of(term.metric), printed) for term, printed in claim.expected.items()]


@contrasts_of.register
def _(claim: Trend, evidence: Evidence) -> list[Contrast]:
    groups: dict[Any, dict[float, list[Run]]] = {}
    for system in evidence.systems[claim.over]:
        group = groups.setdefault(getattr(system, claim.within) if claim.within else None, {})
        group.setdefault(float(getattr(system, claim.axis)), []).append(system)
    values = {value for group in groups.values() for value in group}
    sloping = [group for group in groups.values() if len(group) > 1]
    if len(values) < FEWEST_VALUES or not sloping:
        raise MissingRunsError(f"{len(values)} values of {claim.axis}; a trend needs three")
    slopes = [_slope(group, claim.over.metric, has_zero=min(values) <= 0) for group in sloping]
    return [Contrast(_sum([(1 / len(slopes), slope) for slope in slopes]), claim.unit)]


def _slope(group: dict[float, list[Run]], metric: str, *, has_zero: bool) -> Weights:
    """Return the weights of the least-squares slope on log2 of the axis, of one more where the axis has a zero."""
    axis = np.log2(np.array(list(group)) + has_zero)
    weights = (axis - axis.mean()) / ((axis - axis.mean()) ** 2).sum()
    return {
        (system, metric): float(weight) / len(systems)
        for weight, systems in zip(weights, group.values(), strict=True)
        for system in systems
    }


def _mean(term: Term, evidence: Evidence) -> Weights:
    systems = evidence.systems[term]
    return {(system, term.metric): 1 / len(systems) for system in systems}


def _difference(pair: tuple[Term, Term], evidence: Evidence) -> Contrast:
    first, second = (_mean(term, evidence) for term in pair)
    return Contrast(_sum([(1.0, first), (-1.0, second)]), unit_of(pair[0].metric))


def _sum(parts: Sequence[tuple[float, Weights]]) -> Weights:
    total: Weights = {}
    for factor, weights in parts:
        for cell, weight in weights.items():
            total[cell] = total.get(cell, 0.0) + factor * weight
    return total


def estimate(contrast: Contrast, evidence: Evidence, pool: Pool) -> Estimate:
    """Return a contrast with its error: over seeds, moderated by the pool, and over the units of its metric.

    One seed has no spread of its own: that of the same contrast over other seeds of the pool takes its place.
    """
    values_S, (shared, shared_df), is_of_seeds_alone = _values(contrast, evidence)
    own = variance_of(values_S.tolist()) if len(values_S) > 1 else _published_variance(contrast, evidence, pool)
    prior = prior_of(contrast, pool)
    moderated = prior.moderate(*own) if prior else own if own[1] and len(values_S) == 1 else None
    if shared and not any(weight and is_random(system) for (system, _), weight in contrast.weights.items()):
        moderated = (0.0, np.inf)  # nothing of it depends on a seed: queries alone are random
    values_S = values_S - contrast.constant
    found = of_seeds(values_S, contrast.unit, moderated=moderated, shared=shared, shared_df=shared_df)
    return found.noting(SEEDS_ALONE) if is_of_seeds_alone else found


def _published_variance(contrast: Contrast, evidence: Evidence, pool: Pool) -> tuple[float, float]:
    """Return the variance of a contrast over the seeds of the pool that do not judge, and its degrees of freedom.

    Both are 0 where fewer than two seeds have all of its records there.
    """
    weights = {cell: weight for cell, weight in contrast.weights.items() if weight and is_random(cell[0])}
    there = [
        {seed for seed, record in pool.by_system.get(system, {}).items() if has_metric(record, metric)}
        for system, metric in weights
    ]
    seeds = sorted(set.intersection(*there) - set(evidence.seeds)) if there else []
    return variance_of(
        [
            sum(weight * value_of(pool.by_system[system][seed], metric) for (system, metric), weight in weights.items())
            for seed in seeds
        ]
    )


def _values(contrast: Contrast, evidence: Evidence) -> tuple[np.ndarray, tuple[float, float], bool]:
    """Return a contrast's value for each seed (S,), and the variance its units leave with its degrees of freedom.

    Last whether a score over queries is among its numbers of which records do not keep the values behind it.
    """
    values_S = np.zeros(len(evidence.seeds))
    drawn: dict[tuple[str, int, int], np.ndarray] = {}  # what a dataset's units add to the contrast (S, Q)
    seeds_draw_units = False  # units of their own, as they draw all else
    lacks_queries = False
    for (system, metric), weight in contrast.weights.items():
        found = [units(record, metric) for record in evidence.of_system(system)]
        values_S += weight * np.array([stratified_mean(values, strata) for values, strata in found])
        if metric.removeprefix(LOG2).startswith(PER_STEP):
            continue
        strata = found[0][1]
        lacks_queries |= metric.startswith("{suite}") and len(strata) == 1
        if not all(other is strata or np.array_equal(other, strata) for _, other in found):
            seeds_draw_units = True
            continue
        by_stratum = parts_of(np.stack([values for values, _ in found]), strata)
        for stratum, values_SQ in by_stratum.items():
            place = (system.suite, stratum, values_SQ.shape[1])
            drawn[place] = drawn.get(place, 0.0) + weight / len(by_stratum) * values_SQ
    shared = (0.0, np.inf) if seeds_draw_units else shared_variance(drawn.values())
    return values_S, shared, lacks_queries


def prior_of(contrast: Contrast, pool: Pool) -> Prior | None:
    """Return what the pool says of the variance of a contrast's value; None where it says too little.

    Numbers of one record count together, as a pattern that has its own prior. Records of one training that are scored
    in several ways vary together in a way no pool knows: such a contrast has only its own seeds. So has one
    of second phases that go on from the same first one, and one of measures of training between models that see the
    same batches: what a seed's first phase, or its batches, do to both cancels in its difference.
    """
    patterns: dict[Run, dict[str, float]] = {}
    for (system, metric), weight in contrast.weights.items():
        if weight and is_random(system):
            patterns.setdefault(system, {})[metric] = weight
    if len({training_of(system) for system in patterns}) < len(patterns) or _vary_together(contrast, patterns):
        return None
    variance, df, pooled_df = 0.0, np.inf, np.inf
    for system, metrics in patterns.items():
        (_, first), *_ = metrics.items()
        pattern: Pattern = tuple((metric, weight / first) for metric, weight in metrics.items())
        prior = pool.prior(system.suite, pattern)
        if prior is None:
            return None
        variance += first**2 * prior.variance
        df, pooled_df = min(df, prior.df), min(pooled_df, prior.pooled_df)
    return Prior(variance, float(df), float(pooled_df)) if patterns else None


def _vary_together(contrast: Contrast, systems: Collection[Run]) -> bool:
    """Return whether several systems have the same chance in common by the way they are made, seed for seed."""
    phases = {first_phase_of(system) for system in systems}
    go_on_from_one = len(phases) == 1 and None not in phases
    is_of_training = all(metric.removeprefix(LOG2).startswith(PER_STEP) for _, metric in contrast.weights)
    on_one_batch = is_of_training and len({batches_of(system) for system in systems}) == 1
    return len(systems) > 1 and (go_on_from_one or on_one_batch)

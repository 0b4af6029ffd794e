"""The correlation of two metrics over configurations or over datasets: what `Claim.correlation` is judged by.

Points. Over runs: one for each configuration that both terms pick, its two metrics averaged over seeds. Over datasets:
one for each dataset and system (a configuration), y less `minus` on that dataset.
Correlation. Pearson's r inside each group of points, and the mean over groups, each group one vote: over runs a group
is one value of the field `within` (all runs are one without it), over datasets it is one system.
Error. sqrt(n - 2) (r - rho) / sqrt((1 - r^2)(1 - rho^2)), for r of n independent units, is a t of n - 2 degrees of
freedom: exact where rho is 0 (Student), near it elsewhere (Samiuddin 1970, Biometrika 57, 461-464). Fisher's z with
normal quantiles finds noise of five to eight units significant in 1.3 % of cases where a corrected level says 1 %.
A unit is a configuration or a dataset, or a whole block (a family of datasets) where the claim says that its members go
together: r is then as uncertain as if each block were one point, which is strict. A mean over groups counts as many
units as would give one r its variance, 1 / (n - 1) of each where there is no correlation. Groups of configurations are
independent and their variances add up; groups over datasets share the datasets, and theirs do not.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from repro.claims.estimate import Estimate
from repro.claims.evidence import Evidence
from repro.claims.units import by_part, family_of, value_of
from repro.spec import Correlation
from repro.spec.term import Unit

FEWEST_UNITS = 5


@dataclass(frozen=True)
class Point:
    """One point: its values, the group whose r it enters, and the unit it counts as."""

    x: float
    y: float
    group: Hashable
    unit: Hashable


def points_of(claim: Correlation, evidence: Evidence) -> list[Point]:
    """Return the points of a correlation claim."""
    return _over_datasets(claim, evidence) if claim.points == "datasets" else _over_runs(claim, evidence)


def _over_runs(claim: Correlation, evidence: Evidence) -> list[Point]:
    return [
        Point(
            float(np.mean([value_of(record, claim.x.metric) for record in evidence.of_system(system)])),
            float(np.mean([value_of(record, claim.y.metric) for record in evidence.of_system(system)])),
            getattr(system, claim.within) if claim.within else None,
            system,
        )
        for system in evidence.systems[claim.y]
        if system in evidence.systems[claim.x]
    ]


def _over_datasets(claim: Correlation, evidence: Evidence) -> list[Point]:
    x = [record for system in evidence.systems[claim.x] for record in evidence.of_system(system)]
    along = by_part(x, claim.x.metric)
    level = dict.fromkeys(along, 0.0)
    if claim.minus is not None:
        taken = [record for system in evidence.systems[claim.minus] for record in evidence.of_system(system)]
        level = by_part(taken, claim.minus.metric)
    families = family_of(x) if claim.blocks else {}
    return [
        Point(along[name], value - level[name], system, families.get(name, name))
        for system in evidence.systems[claim.y]
        for name, value in by_part(evidence.of_system(system), claim.y.metric).items()
        if name in along and name in level
    ]


def correlate(points: Sequence[Point], num_seeds: int) -> Estimate:
    """Return the mean over groups of Pearson's r; without an error when a group has fewer than five units."""
    groups: dict[Hashable, list[Point]] = {}
    for point in points:
        groups.setdefault(point.group, []).append(point)
    sizes = [len({point.unit for point in group}) for group in groups.values()]
    each = [pearson(group) for group in groups.values()]
    effect = float(np.mean(each)) if each else 0.0
    shares_units = len({point.unit for point in points}) < sum(sizes)
    num_groups = 1 if shares_units else max(1, len(groups))
    if not sizes or min(sizes) < FEWEST_UNITS:
        note = f"too few points: {min(sizes, default=0)} where a correlation takes {FEWEST_UNITS}"
        return Estimate(effect, math.nan, 0, Unit("r"), num_seeds, num_groups=num_groups, note=note)
    errors = np.array([1 / math.sqrt(size - 1) for size in sizes])
    variance = float(errors.mean() ** 2 if shares_units else (errors**2).sum() / len(errors) ** 2)
    df = 1 / variance - 1
    return Estimate(effect, 1 / math.sqrt(df), df, Unit("r"), num_seeds, is_r=True, num_groups=num_groups)


def pearson(points: Sequence[Point]) -> float:
    """Return Pearson's r of points; 0 where a side does not vary or there are fewer than two."""
    x, y = (np.array([getattr(point, side) for point in points]) for side in "xy")
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])

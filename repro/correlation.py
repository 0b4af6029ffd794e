"""The correlation of two metrics over runs or over datasets, with its bootstrap: what `Claim.correlation` is judged by.

Points. Over runs: one for each run that both terms pick, (x, y) its two metrics; runs that differ in nothing but the
seed are one unit. Over datasets: one for each dataset and system (the runs of `y` that differ in nothing but the seed,
averaged), y less `minus` on that dataset; the dataset is the unit, whichever systems it is scored with.
Correlation. Pearson's r inside each group of points, and the mean of these over groups, each group one vote: a batch
size says as much as another, however far its values are spread. Over runs a group is one value of the field `within`
(all runs are one without it), over datasets it is one system.
Bootstrap. Units are drawn with replacement, all points of a unit together: over runs inside each group, over datasets
once for all groups, since every system is scored on the same ones. Scores themselves are taken as measured: seeds and
queries are not drawn again. A resample in which x or y does not vary says nothing: its r is 0, for neither side.
Shapes: P points, U units, R resamples.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from repro.seeds import generator_for
from repro.spec import Claim, Run
from repro.store import Record

FEWEST_POINTS = 3


@dataclass(frozen=True)
class Point:
    """One point: its values, the group whose r it enters, and the unit it is drawn with."""

    x: float
    y: float
    group: Hashable
    unit: Hashable


def points_of(claim: Claim, x: Sequence[Record], y: Sequence[Record], minus: Sequence[Record]) -> list[Point]:
    """Gives the points of a correlation claim from the records of its terms."""
    assert claim.x is not None and claim.y is not None, f"claim {claim.id} correlates nothing"
    if claim.points == "datasets":
        return _over_datasets(claim, x, y, minus)
    other = {record.run: record for record in x}
    return [
        Point(
            value_of(other[record.run], claim.x.metric),
            value_of(record, claim.y.metric),
            getattr(record.run, claim.within) if claim.within else None,
            system_of(record.run),
        )
        for record in y
        if record.run in other
    ]


def _over_datasets(claim: Claim, x: Sequence[Record], y: Sequence[Record], minus: Sequence[Record]) -> list[Point]:
    assert claim.x is not None and claim.y is not None, f"claim {claim.id} correlates nothing"
    along = by_dataset(x, claim.x.metric)
    level = by_dataset(minus, claim.minus.metric) if claim.minus is not None else dict.fromkeys(along, 0.0)
    systems: dict[Run, list[Record]] = {}
    for record in y:
        systems.setdefault(system_of(record.run), []).append(record)
    return [
        Point(along[name], value - level[name], system, name)
        for system, records in systems.items()
        for name, value in by_dataset(records, claim.y.metric).items()
        if name in along and name in level
    ]


def system_of(run: Run) -> Run:
    """Gives what runs that differ in nothing but the seed have in common."""
    return replace(run, seed=0)


def by_dataset(records: Sequence[Record], metric: str) -> dict[str, float]:
    """Gives a metric with `*` for the dataset, averaged over records, for each dataset that the records list."""
    names = dict.fromkeys(row["name"] for record in records for row in record.provenance["suite"]["datasets"])
    return {name: float(np.mean([value_of(record, metric.replace("*", name)) for record in records])) for name in names}


def value_of(record: Record, pattern: str) -> float:
    """Gives one metric of a record; ValueError names the metric that is not there."""
    path = pattern.replace("{suite}", record.run.suite)
    if path not in record.metrics:
        raise ValueError(f"record {record.id} has no metric {path!r}; it has {sorted(record.metrics)[:8]} …")
    return float(record.metrics[path])


def correlate(points: Sequence[Point], *, num_samples: int, seed: int = 0) -> tuple[float, np.ndarray]:
    """Gives the mean over groups of Pearson's r, and its resamples, float64 (R,).

    ValueError when a group has fewer than three points.
    """
    groups: dict[Any, list[int]] = {}
    for place, point in enumerate(points):
        groups.setdefault(point.group, []).append(place)
    few = {group: len(places) for group, places in groups.items() if len(places) < FEWEST_POINTS}
    if few or not groups:
        raise ValueError(f"a correlation takes {FEWEST_POINTS} points in each group; there are {few or 'none'}")
    weights_RP = np.vstack([np.ones(len(points)), draw_units(points, num_samples, seed)])
    x, y = (np.array([getattr(point, side) for point in points]) for side in "xy")
    each = [weighted_pearson(x[places], y[places], weights_RP[:, places]) for places in groups.values()]
    found = np.mean(each, axis=0)
    return float(found[0]), found[1:]


def draw_units(points: Sequence[Point], num_samples: int, seed: int) -> np.ndarray:
    """Gives how often each point is drawn in each resample, float64 (R, P)."""
    strata: dict[Any, dict[Hashable, list[int]]] = {}
    pools = _pools(points)
    for place, point in enumerate(points):
        strata.setdefault(pools[point.unit], {}).setdefault(point.unit, []).append(place)
    generator = generator_for(seed, "bootstrap of a correlation")
    counts_RP = np.zeros((num_samples, len(points)))
    for units in strata.values():
        drawn_RU = generator.multinomial(len(units), np.full(len(units), 1 / len(units)), num_samples)
        for drawn_R, places in zip(drawn_RU.T, units.values(), strict=True):
            counts_RP[:, places] = drawn_R[:, None]
    return counts_RP


def _pools(points: Sequence[Point]) -> Mapping[Hashable, Hashable]:
    """Gives what each unit is drawn among: the units of its group; all of them where a unit is in several groups."""
    groups: dict[Hashable, set[Hashable]] = {}
    for point in points:
        groups.setdefault(point.unit, set()).add(point.group)
    is_shared = any(len(inside) > 1 for inside in groups.values())
    return {unit: None if is_shared else next(iter(inside)) for unit, inside in groups.items()}


def weighted_pearson(x_P: np.ndarray, y_P: np.ndarray, weights_RP: np.ndarray) -> np.ndarray:
    """Gives Pearson's r under each row of weights, float64 (R,); 0 where x or y does not vary."""
    x_P, y_P = x_P - x_P.mean(), y_P - y_P.mean()  # centred once, so that what follows loses no digits
    total_R = np.maximum(weights_RP.sum(axis=1), 1.0)
    mean_x_R, mean_y_R = weights_RP @ x_P / total_R, weights_RP @ y_P / total_R
    covariance_R = weights_RP @ (x_P * y_P) / total_R - mean_x_R * mean_y_R
    spread_x_R = weights_RP @ x_P**2 / total_R - mean_x_R**2
    spread_y_R = weights_RP @ y_P**2 / total_R - mean_y_R**2
    varies_R = (spread_x_R > 1e-12 * (x_P**2).mean()) & (spread_y_R > 1e-12 * (y_P**2).mean())
    spread_R = np.sqrt(np.where(varies_R, spread_x_R * spread_y_R, 1.0))
    return np.where(varies_R, covariance_R / spread_R, 0.0)

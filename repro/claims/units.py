"""What a number of a record is the mean of, and the number itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from repro.records.store import Record
from repro.spec.term import LOG2
from repro.spec.values import suggestion


class AbsentDatasetError(Exception):
    """The claim is about a dataset that the suite of its scale does not have."""


def units(record: Record, pattern: str) -> tuple[np.ndarray, np.ndarray]:
    """Return what a metric is the mean of: values (float64 Q) and the stratum of each (int Q), e.g. query and dataset.

    A metric `{suite}/NAME/ndcg_at_10` is a mean over datasets of means over queries; NAME is "mean", a family or a
    dataset. Any other metric is kept as an array under its own path, or is one number, as other measures of a suite
    are, whose queries are not kept one by one. "log2 NAME" is the logarithm of one number: a difference of two is a
    ratio; where the values behind that number are kept, they are those of its logarithm to first order. ValueError
    names the metric that is not there or of which there is no logarithm, AbsentDatasetError the dataset.
    """
    path = pattern.replace("{suite}", record.run.suite)
    if path.startswith(LOG2) and path.removeprefix(LOG2) in record.metrics:
        return _log2_units(record, path.removeprefix(LOG2))
    if path in record.arrays:
        values = record.arrays[path].astype(np.float64)
        return values, np.zeros(len(values), np.int64)
    suite, _, name = path.removesuffix("/ndcg_at_10").partition("/")
    if path in record.metrics and (suite not in record.arrays or not path.endswith("/ndcg_at_10")):
        return np.array([record.metrics[path]], np.float64), np.zeros(1, np.int64)
    if suite not in record.arrays:
        raise ValueError(f"record {record.id} keeps no values behind {path!r}; it has {sorted(record.arrays)}")
    datasets = record.provenance["suite"]["datasets"]
    inside, strata = _strata(tuple((d["name"], d["family"], d["num_queries"]) for d in datasets), name)
    if not len(strata):
        if not path.endswith("/ndcg_at_10"):
            near = suggestion(path, record.metrics)
            raise ValueError(
                f"record {record.id} has no metric {path!r}{near or f'; it has {len(record.metrics)} others'}"
            )
        raise AbsentDatasetError(f"the suite {suite} has no dataset {name}")
    return record.arrays[suite][inside].astype(np.float64), strata


def _log2_units(record: Record, path: str) -> tuple[np.ndarray, np.ndarray]:
    """Return units whose mean is the log2 of a number: what each moves it by, to first order (the delta method)."""
    mean = record.metrics[path]
    level = _log2(record, path)
    if path not in record.arrays:
        return np.array([level]), np.zeros(1, np.int64)
    values = record.arrays[path].astype(np.float64)
    return level + (values - values.mean()) / (mean * np.log(2)), np.zeros(len(values), np.int64)


def _log2(record: Record, path: str) -> float:
    """Return the log2 of a metric; ValueError where it has none."""
    value = record.metrics[path]
    if not value > 0:
        raise ValueError(f"record {record.id} has {path!r} = {value}, of which there is no ratio; it must be above 0")
    return math.log2(value)


@lru_cache(maxsize=256)  # thousands of records share a suite
def _strata(datasets: tuple[tuple[str, str, int], ...], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return which units (bool, of all) are of a dataset, a family or "mean", and the dataset of each of these."""
    strata = np.repeat(np.arange(len(datasets)), [num_queries for _, _, num_queries in datasets])
    chosen = [place for place, (own, family, _) in enumerate(datasets) if name in ("mean", family, own)]
    inside = np.isin(strata, chosen)
    found = strata[inside]
    found.flags.writeable = False
    return inside, found


def stratified_mean(values_Q: np.ndarray, strata_Q: np.ndarray) -> float:
    """Return the mean over strata of the mean over their units."""
    parts = parts_of(values_Q, strata_Q).values()
    return float(np.mean([np.add.reduce(part) / len(part) for part in parts]))  # .mean() spends most on its checks


def parts_of(values: np.ndarray, strata_Q: np.ndarray) -> dict[int, np.ndarray]:
    """Return the values (…, Q) of each stratum, by its number, in the order of the strata."""
    steps = np.diff(strata_Q)
    if (steps < 0).any():
        return {int(stratum): values[..., strata_Q == stratum] for stratum in np.unique(strata_Q)}
    ends = [0, *(np.flatnonzero(steps) + 1).tolist(), len(strata_Q)]
    return {int(strata_Q[start]): values[..., start:end] for start, end in pairwise(ends)}


def value_of(record: Record, pattern: str) -> float:
    """Return one metric of a record; ValueError names the metric that is not there."""
    path = pattern.replace("{suite}", record.run.suite)
    name = path.removeprefix(LOG2)
    if name not in record.metrics:
        raise ValueError(f"record {record.id} has no metric {path!r}; it has {sorted(record.metrics)[:8]} …")
    return _log2(record, name) if path.startswith(LOG2) else float(record.metrics[name])


def by_part(records: Sequence[Record], pattern: str, part: str = "name") -> dict[str, float]:
    """Return a metric with `*` for the dataset, averaged over records, for each dataset that the records list.

    With part "family", for each family of datasets.
    """
    names = dict.fromkeys(row[part] for record in records for row in record.provenance["suite"]["datasets"])
    return {
        name: float(np.mean([value_of(record, pattern.replace("*", name)) for record in records])) for name in names
    }


def family_of(records: Sequence[Record]) -> dict[str, str]:
    """Return the family of each dataset that the records list."""
    return {row["name"]: row["family"] for record in records for row in record.provenance["suite"]["datasets"]}

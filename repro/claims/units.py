"""What a number of a record is the mean of, and the number itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.records.store import Record
from repro.spec.term import LOG2


class AbsentDatasetError(Exception):
    """The claim is about a dataset that the suite of its scale does not have."""


def units(record: Record, pattern: str) -> tuple[np.ndarray, np.ndarray]:
    """Return what a metric is the mean of: values (float64 Q) and the stratum of each (int Q), e.g. query and dataset.

    A metric `{suite}/NAME/ndcg_at_10` is a mean over datasets of means over queries; NAME is "mean", a family or a
    dataset. Any other metric is kept as an array under its own path, or is one number. "log2 NAME" is the logarithm of
    one number: a difference of two is a ratio. ValueError names the metric that is not there, AbsentDatasetError the
    dataset.
    """
    path = pattern.replace("{suite}", record.run.suite)
    if path.startswith(LOG2) and path.removeprefix(LOG2) in record.metrics:
        return np.log2([record.metrics[path.removeprefix(LOG2)]]), np.zeros(1, np.int64)
    if path in record.arrays:
        values = record.arrays[path].astype(np.float64)
        return values, np.zeros(len(values), np.int64)
    suite, _, name = path.removesuffix("/ndcg_at_10").partition("/")
    if suite not in record.arrays and path in record.metrics:
        return np.array([record.metrics[path]], np.float64), np.zeros(1, np.int64)
    if suite not in record.arrays:
        raise ValueError(f"record {record.id} keeps no values behind {path!r}; it has {sorted(record.arrays)}")
    datasets = record.provenance["suite"]["datasets"]
    strata = np.repeat(np.arange(len(datasets)), [dataset["num_queries"] for dataset in datasets])
    chosen = [i for i, d in enumerate(datasets) if name in ("mean", d["family"], d["name"])]
    if not chosen:
        raise AbsentDatasetError(f"the suite {suite} has no dataset {name}")
    if len(chosen) == len(datasets):
        return record.arrays[suite].astype(np.float64), strata
    inside = np.isin(strata, chosen)
    return record.arrays[suite][inside].astype(np.float64), strata[inside]


def stratified_mean(values_Q: np.ndarray, strata_Q: np.ndarray) -> float:
    """Return the mean over strata of the mean over their units."""
    return float(np.mean([values_Q[strata_Q == stratum].mean() for stratum in np.unique(strata_Q)]))


def value_of(record: Record, pattern: str) -> float:
    """Return one metric of a record; ValueError names the metric that is not there."""
    path = pattern.replace("{suite}", record.run.suite)
    name = path.removeprefix(LOG2)
    if name not in record.metrics:
        raise ValueError(f"record {record.id} has no metric {path!r}; it has {sorted(record.metrics)[:8]} …")
    value = float(record.metrics[name])
    return float(np.log2(value)) if path.startswith(LOG2) else value


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

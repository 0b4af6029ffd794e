"""Read one number of a record, and the values (queries, documents) that it is the mean of.

Shapes: Q units (queries or documents).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from repro.data.beir import MEAN, compute_mean_weights
from repro.records.store import Record
from repro.spec.selectors import LOG2
from repro.text import format_suggestion


class AbsentDatasetError(Exception):
    """The claim is about a dataset that the suite of its scale does not have."""


def read_metric(record: Record, pattern: str) -> float:
    """Return one metric of a record. `{suite}` is the record's own suite, `log2 NAME` the logarithm of a metric.

    Raises AbsentDatasetError if the suite lacks the dataset, ValueError if the record lacks any other metric, or if a
    metric without a logarithm is not above 0.
    """
    path = pattern.replace("{suite}", record.run.suite)
    name = path.removeprefix(LOG2)
    if name not in record.metrics:
        _raise_for_missing_records(record, name)
    value = float(record.metrics[name])
    if name == path:
        return value
    if value <= 0:
        raise ValueError(f"record {record.id} has {name!r} = {value}, which has no logarithm; it must be above 0")
    return math.log2(value)


def _raise_for_missing_records(record: Record, path: str) -> None:
    """Raise AbsentDatasetError for the score of a dataset, ValueError for any other metric."""
    suite, _, name = path.removesuffix("/ndcg_at_10").partition("/")
    if suite == record.run.suite and path.endswith("/ndcg_at_10"):
        raise AbsentDatasetError(f"the suite {suite} has no dataset {name}")
    hint = format_suggestion(path, record.metrics) or f"; it has {len(record.metrics)} others"
    raise ValueError(f"record {record.id} has no metric {path!r}{hint}")


def load_units(record: Record, pattern: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a metric (float64, Q) and the number of each value's dataset (int, Q).

    The metric is the mean over datasets of the mean over their values. A metric without stored values is one value.
    """
    path = pattern.replace("{suite}", record.run.suite)
    suite, _, name = path.removesuffix("/ndcg_at_10").partition("/")
    if path in record.arrays:
        values = record.arrays[path].astype(np.float64)
        return values, np.zeros(len(values), np.int64)
    if suite not in record.arrays or not path.endswith("/ndcg_at_10"):
        return np.array([read_metric(record, pattern)]), np.zeros(1, np.int64)
    # a tuple can be cached
    sizes = tuple((row["name"], row["family"], row["num_queries"]) for row in record.datasets)
    is_selected, strata = _select_units(sizes, name)
    if not len(strata):
        raise AbsentDatasetError(f"the suite {suite} has no dataset {name}")
    values = record.arrays[suite][is_selected].astype(np.float64)
    weights = compute_mean_weights(record.datasets) if name == MEAN else []
    if weights:
        # Parts of one dataset count once together, as in the mean of the record.
        values = values * np.array(weights)[strata]
    return values, strata


# thousands of records share a suite
@lru_cache(maxsize=256)
def _select_units(datasets: tuple[tuple[str, str, int], ...], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a mask (bool) of the units of a dataset, a family or "mean", and the dataset number of each of these."""
    strata = np.repeat(np.arange(len(datasets)), [num_queries for _, _, num_queries in datasets])
    matches = [index for index, (dataset, family, _) in enumerate(datasets) if name in ("mean", family, dataset)]
    is_selected = np.isin(strata, matches)
    selected_strata = strata[is_selected]
    # the cached array is shared between records
    selected_strata.flags.writeable = False
    return is_selected, selected_strata


def stratified_mean(values_Q: np.ndarray, strata_Q: np.ndarray) -> float:
    """Return the mean over strata of the mean over their units."""
    parts = split_by_stratum(values_Q, strata_Q).values()
    # .mean() spends most on its checks
    return float(np.mean([np.add.reduce(part) / len(part) for part in parts]))


def split_by_stratum(values: np.ndarray, strata_Q: np.ndarray) -> dict[int, np.ndarray]:
    """Return the values (…, Q) of each stratum, by its number. The units are sorted by stratum."""
    # units of one dataset are adjacent in the records, so slices replace a search per stratum
    borders = (np.flatnonzero(np.diff(strata_Q)) + 1).tolist()
    return dict(zip(strata_Q[[0, *borders]].tolist(), np.split(values, borders, axis=-1), strict=True))


def average_by_part(records: Sequence[Record], pattern: str) -> dict[str, float]:
    """Return a metric for each dataset, averaged over records. `*` in the metric stands for the name of the dataset.

    With `*-summary`, only for the datasets whose names end so.
    """
    ending = pattern.partition("*")[2].partition("/")[0]
    names = dict.fromkeys(row["name"] for record in records for row in record.datasets)
    return {
        name: float(np.mean([read_metric(record, pattern.replace(f"*{ending}", name)) for record in records]))
        for name in names
        if name.endswith(ending)
    }

"""Malformed and unusual files that hypothesis or reviewers found. Each was once accepted or refused without a name."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from repro.data.beir import load_suite, write_beir_folder
from repro.data.readers import read_foreign
from repro.records.lookup import read_runs
from repro.spec import base
from repro.spec.identity import get_training_id, run_id
from slurm.profiles import Profile
from tests.data.files import write_rows
from tests.fuzz.collections import small


def test_domain_may_be_numbered_0(tmp_path: Path) -> None:
    rows = [{"query": "a", "document": "b", "domain": domain} for domain in (0, 1, "", None)]
    assert [row.domain for row in read_foreign(write_rows(tmp_path / "x.jsonl", rows))] == ["0", "1", "", ""]


def test_missing_domains_are_empty(tmp_path: Path) -> None:
    """In a column of numbers, pandas writes a missing value as NaN."""
    columns = {"query": ["a", "b"], "document": ["c", "d"], "domain": [2.5, np.nan]}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert [row.domain for row in read_foreign(tmp_path / "x.parquet")] == ["2.5", ""]


def test_parquet_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    bad = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"query": bad, "document": ["a"]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"x.parquet"):
        list(read_foreign(tmp_path / "x.parquet"))


@pytest.mark.parametrize("rows", [[("a", "mean")], [("mean", "f")], [("a", "b"), ("b", "f")]])
def test_ambiguous_suite_is_refused_first(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    for name, _ in rows:
        write_beir_folder(tmp_path / name, small(name))
    listed = [{"name": name, "family": family} for name, family in rows]
    (tmp_path / "suite.json").write_text(json.dumps({"name": "zoo", "datasets": listed}))
    with pytest.raises(ValueError, match=r"suite.json.*mean"):
        load_suite(tmp_path)


@pytest.mark.parametrize("value", [1, 1.0, True])
def test_whole_floats_are_integers(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"scale": "smoke", "first_stage_rate": value, "filter_margin": -0.0}]))
    if value is True:
        with pytest.raises(ValueError, match="first_stage_rate"):
            read_runs(path)
        return
    same = base("smoke", first_stage_rate=1.0, filter_margin=0.0)
    assert [run_id(run) for run in read_runs(path)] == [run_id(same)]
    odd = replace(base("smoke", learning_rate=1), filter_margin=np.float64(-0.0))
    assert get_training_id(odd) == get_training_id(base("smoke", learning_rate=1.0, filter_margin=0.0))


@pytest.mark.parametrize(
    "values",
    [{"memory_gb": -1}, {"memory_gb": float("nan")}, {"memory_gb": float("inf")}, {"gpus_per_run": -1},
     {"max_requeues": -1}, {"stage_gpus": -2}, {"stage_cpus": 0}, {"stage_memory_gb": 0}, {"stage_time_minutes": 0},
     {"warning_seconds": -5}, {"time_minutes": 10**12}],
)  # fmt: skip
def test_impossible_amounts_are_refused(values: dict[str, Any]) -> None:
    [name] = values
    with pytest.raises(ValueError, match=f"profile mine: {name}="):
        Profile(name="mine", **values)

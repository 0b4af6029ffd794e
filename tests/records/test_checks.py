"""Changed records are refused by their digest, and changed arrays by theirs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.execute import execute
from repro.records import store
from repro.spec import base
from repro.storage.paths import get_local_records, get_published_records
from tests.commands import ignore

RUN = base("smoke", architecture="bm25")
MEAN = "planted/mean/ndcg_at_10"
Content = dict[str, Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write a record with a score per query, and return its path."""
    scores_Q = np.array([0.25, 0.5, 1.0], np.float32)
    provenance = {"suite": {"datasets": [{"name": "a", "family": "f", "num_queries": 3}]}}
    metrics = {MEAN: float(scores_Q.mean())}
    return store.write_record(tmp_path, RUN, metrics=metrics, arrays={"planted": scores_Q}, provenance=provenance).path


def change_record(path: Path, edit: Callable[[Content], Any]) -> None:
    """Edit the content of a record. The digest stays as it was."""
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


CHANGES: dict[str, Callable[[Content], Any]] = {
    "another mean": lambda c: c["metrics"].__setitem__(MEAN, 0.99),
    "a metric less": lambda c: c["metrics"].pop(MEAN),
    "another dataset": lambda c: c["provenance"]["suite"]["datasets"][0].pop("family"),
    "another learning rate": lambda c: c["run"].__setitem__("learning_rate", 9.9),
    "another digest of the arrays": lambda c: c["provenance"].__setitem__("arrays_sha256", "0" * 64),
    "no digest": lambda c: c.pop("sha256"),
}


@pytest.mark.parametrize("edit", CHANGES)
def test_changed_record_is_refused(path: Path, edit: str) -> None:
    """The digest covers the content, but not its layout."""
    before = store.read_record(path)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=3))
    assert store.read_record(path) == before
    change_record(path, CHANGES[edit])
    with pytest.raises(ValueError, match=path.stem):
        store.read_record(path)


def test_means_match_numpy() -> None:
    datasets = (("a", "x", 2), ("b", "x", 1), ("c", "y", 3))
    rows = [{"name": name, "family": family, "num_queries": number} for name, family, number in datasets]
    values = np.array([0.0, 1.0, 0.25, 1.0, 1.0, 0.5], np.float32)
    arrays = {"s": values, "train/loss": np.array([1.0, 3.0])}
    a, b, c = values[:2].mean(), values[2:3].mean(), values[3:].mean()
    expected = {"a": a, "b": b, "c": c, "x": (a + b) / 2, "y": c, "mean": (a + b + c) / 3}
    named = {f"s/{name}/ndcg_at_10": value for name, value in expected.items()}
    assert store.recompute_means({"train/loss": 2.0}, arrays, rows) == pytest.approx(named | {"train/loss": 2.0})
    with pytest.raises(ValueError, match="5 values"):
        store.recompute_means({}, {"s": values[:5]}, rows)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", '"a"', "NaN", '{"id": 1e400}', "\x00", "\ud800"])
def test_unreadable_record_counts_as_missing(path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert store.split_recorded([RUN], [path.parent]) == ([], [RUN])
    assert store.list_records(path.parent, [RUN]) == [] and store.try_read_record(path) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line and "counted as missing" in line


def test_each_committed_record_has_a_digest() -> None:
    paths = list(get_published_records().glob("*.json"))
    contents = {path: json.loads(path.read_bytes()) for path in paths}
    wrong = [path.name for path, each in contents.items() if each["sha256"] != store.compute_content_digest(each)]
    assert len(paths) > 1000 and wrong == []


def test_damaged_record_is_not_overwritten(path: Path) -> None:
    get_local_records().mkdir(parents=True)
    damaged = get_local_records() / path.name
    damaged.write_text("{")
    with pytest.raises(ValueError, match="remove it or restore it"):
        execute(RUN, progress=ignore)
    assert damaged.read_text() == "{"

"""Changed records are refused: by their digest, by the committed list of digests, and by the means of their arrays."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.execute import execute
from repro.records import readable_records, store
from repro.records.readable_records import ReadableRecords
from repro.spec import Run, base
from repro.spec.identity import run_id
from repro.storage.paths import get_local_records, get_published_records
from slurm.status import get_statuses
from tests.commands import ignore

RUN = base("smoke", architecture="bm25")
MEAN = "planted/mean/ndcg_at_10"
Content = dict[str, Any]


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Execute a run, and return the path of its record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_HOME", str(tmp_path_factory.mktemp("genuine")))
        return execute(RUN, progress=ignore).path


@pytest.fixture
def path(genuine: Path, tmp_path: Path) -> Path:
    """Return a copy of the record and its arrays."""
    for file in (genuine, genuine.with_suffix(".npz")):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path / genuine.name


def change_record(path: Path, edit: Callable[[Content], Any], *, digest: bool = True) -> None:
    """Edit the content of a record. The digest stays as it was, or is removed as in older records."""
    content = json.loads(path.read_text())
    edit(content)
    if not digest:
        del content["sha256"]
    path.write_text(json.dumps(content))


CHANGES: dict[str, Callable[[Content], Any]] = {
    "another mean": lambda c: c["metrics"].__setitem__(MEAN, 0.99),
    "above one": lambda c: c["metrics"].__setitem__(MEAN, 42),
    "a metric less": lambda c: c["metrics"].pop(MEAN),
    "no digest of the arrays": lambda c: c["provenance"].pop("arrays_sha256"),
    "a dataset without a family": lambda c: c["provenance"]["suite"]["datasets"][0].pop("family"),
    "another learning rate": lambda c: c["run"].__setitem__("learning_rate", 9.9),
}


@pytest.mark.parametrize("edit", CHANGES)
@pytest.mark.parametrize("digest", [True, False], ids=["digest", "no digest"])
def test_changed_record_is_refused(path: Path, edit: str, digest: bool) -> None:
    """tests/fuzz has values of other types, of records without datasets."""
    change_record(path, CHANGES[edit], digest=digest)
    if edit == "a metric less" and not digest:  # the metrics that are left are correct
        assert MEAN not in store.read_record(path).metrics
        return
    with pytest.raises(ValueError, match=path.stem):
        store.read_record(path)


def test_digest_covers_content_not_layout(path: Path) -> None:
    before = store.read_record(path)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=3))
    assert store.read_record(path).metrics == before.metrics
    change_record(path, lambda c: c["provenance"].__setitem__("commit", "0" * 40))
    with pytest.raises(ValueError, match="was changed since it was written"):
        store.read_record(path)


def test_older_records_need_their_arrays(path: Path) -> None:
    change_record(path, lambda c: None, digest=False)
    assert store.read_record(path).run == RUN
    path.with_suffix(".npz").unlink()
    path.write_text(path.read_text() + "\n")  # another time, so the cached result is not used
    with pytest.raises(ValueError, match="are missing"):
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


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", '"a"', "NaN", '{"id": 1e400}', "\x00", "\ud800"])
def test_unreadable_record_counts_as_missing(path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert store.split_recorded([RUN], [path.parent]) == ([], [RUN])
    assert store.list_records(path.parent, [RUN]) == [] and store.try_read_record(path) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line and "counted as missing" in line


def test_many_unreadable_records_are_summarised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"{number:012x}.json" for number in range(300)]
    for path in paths:
        path.write_text("{")
    assert [store.try_read_record(path) for path in paths] == [None] * 300
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11 and str(paths[0]) in lines[0] and "`repro doctor --deep`" in lines[-1]
    assert not store.are_all_readable(tmp_path)


def test_digest_list_covers_older_records(path: Path) -> None:
    change_record(path, lambda c: None, digest=False)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (path.parent / store.DIGESTS_FILE).write_text(f"{digest}  {path.name}\n")
    store.read_record(path)
    path.write_text(path.read_text().replace('"metrics": {', '"metrics": {"planted/mean/other": 0.5, '))
    with pytest.raises(ValueError, match=f"is not the file that {store.DIGESTS_FILE} lists"):
        store.read_record(path)


def test_each_committed_record_has_a_digest() -> None:
    folder = get_published_records()
    contents = {path.name: json.loads(path.read_bytes()) for path in folder.glob("*.json")}
    without = {name for name, content in contents.items() if "sha256" not in content}
    assert set(store.compute_listed_digests(folder)) == without


def test_damaged_record_is_not_overwritten(genuine: Path) -> None:
    get_local_records().mkdir(parents=True)
    damaged = get_local_records() / genuine.name
    damaged.write_text("{")
    with pytest.raises(ValueError, match="remove it or restore it"):
        execute(RUN, progress=ignore)
    assert damaged.read_text() == "{"


RUNS = tuple(base("desk", seed=seed) for seed in range(3))


@pytest.fixture
def read(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Write the records of three runs, and return a list of the runs whose records are read."""
    for run in RUNS:
        store.write_record(get_local_records(), run, metrics={"a": 1.0}, arrays={}, provenance={})
    read: list[Run] = []

    def record_read(folder: Path, run: Run) -> str:
        read.append(run)
        return store.explain_unreadable(folder, run)

    monkeypatch.setattr(readable_records, "explain_unreadable", record_read)
    return read


def list_states() -> list[str]:
    return [status.state for status in get_statuses(RUNS)]


def test_only_unreadable_records_are_read_again(read: list[Run]) -> None:
    assert list_states() == ["recorded"] * 3 and read == [*RUNS]
    path = get_local_records() / f"{run_id(RUNS[0])}.json"
    whole = path.read_text()
    path.write_text(whole[:100])
    read.clear()
    assert list_states() == list_states() == ["unreadable", "recorded", "recorded"] and read == [RUNS[0]] * 2
    path.write_text(whole)
    assert list_states() == list_states() == ["recorded"] * 3 and read == [RUNS[0]] * 3
    path.unlink()
    assert list_states() == ["missing", "recorded", "recorded"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda note: note.write_text("{"),
        lambda note: note.write_text('{"key": [], "whole": {}}'),
        lambda note: note.write_text(note.read_text().replace("1", "2")),
        lambda note: (get_local_records() / "DIGESTS").write_text(""),
    ],
)
def test_damaged_cache_is_ignored(read: list[Run], spoil: Callable[[Path], object]) -> None:
    assert list_states() == ["recorded"] * 3
    spoil(ReadableRecords(get_local_records()).memo.path)
    read.clear()
    assert list_states() == ["recorded"] * 3 and read == [*RUNS]

"""No changed record is believed: by its digest, by the committed list, and by the means of its arrays."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.execute import execute
from repro.records import looked
from repro.records.digests import write_digests
from repro.records.looked import Looked
from repro.records.store import (
    DIGESTS_FILE,
    all_are_readable,
    compute_listed_digests,
    explain_unreadable,
    read_record,
    readable_record,
    recompute_means,
    records_in,
    split_recorded,
    write_record,
)
from repro.spec import Run, base
from repro.storage.paths import get_local_records, get_published_records
from slurm.status import statuses
from tests.commands import ignore

RUN = base("smoke", architecture="bm25")
MEAN = "planted/mean/ndcg_at_10"
Content = dict[str, Any]


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record as it is written, its arrays beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_HOME", str(tmp_path_factory.mktemp("genuine")))
        return execute(RUN, progress=ignore).path


@pytest.fixture
def path(genuine: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    for file in (genuine, genuine.with_suffix(".npz")):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path / genuine.name


def change(path: Path, edit: Callable[[Content], Any], *, digest: bool = True) -> None:
    content = json.loads(path.read_text())
    edit(content)
    if not digest:
        del content["sha256"]
    path.write_text(json.dumps(content))


CHANGES: dict[str, Callable[[Content], Any]] = {
    "another mean": lambda c: c["metrics"].__setitem__(MEAN, 0.99),
    "above one": lambda c: c["metrics"].__setitem__(MEAN, 42),
    "not a number": lambda c: c["metrics"].__setitem__(MEAN, float("nan")),
    "true": lambda c: c["metrics"].__setitem__(MEAN, True),
    "a text": lambda c: c["metrics"].__setitem__(MEAN, "0.5"),
    "null": lambda c: c["metrics"].__setitem__(MEAN, None),
    "a metric less": lambda c: c["metrics"].pop(MEAN),
    "no metrics": lambda c: c.pop("metrics"),
    "metrics that are a list": lambda c: c.__setitem__("metrics", []),
    "no provenance": lambda c: c.pop("provenance"),
    "another provenance": lambda c: c.__setitem__("provenance", {"training": 3, "arrays_sha256": "x"}),
    "no digest of the arrays": lambda c: c["provenance"].pop("arrays_sha256"),
    "datasets that are a number": lambda c: c["provenance"]["suite"].__setitem__("datasets", 5),
    "a dataset that is a text": lambda c: c["provenance"]["suite"].__setitem__("datasets", ["x"]),
    "a dataset without a family": lambda c: c["provenance"]["suite"]["datasets"][0].pop("family"),
    "rows of text that are a number": lambda c: c.__setitem__("exhibits", {"pairs": 3}),
    "a run that is a list": lambda c: c.__setitem__("run", []),
    "a run without a scale": lambda c: c["run"].pop("scale"),
    "a run of an unknown scale": lambda c: c["run"].__setitem__("scale", ["smoke"]),
    "another batch size": lambda c: c["run"].__setitem__("batch_size", "16"),
}


@pytest.mark.parametrize("edit", CHANGES)
@pytest.mark.parametrize("digest", [True, False], ids=["digest", "no digest"])
def test_changed_record_is_refused(path: Path, edit: str, digest: bool) -> None:
    change(path, CHANGES[edit], digest=digest)
    if edit == "a metric less" and not digest:  # nothing false is left in it; whoever asks for the metric is told
        assert MEAN not in read_record(path).metrics
        return
    with pytest.raises(ValueError, match=path.stem):
        read_record(path)


def test_digest_covers_content_not_layout(path: Path) -> None:
    before = read_record(path)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=3))
    assert read_record(path).metrics == before.metrics
    change(path, lambda c: c["provenance"].__setitem__("commit", "0" * 40))
    with pytest.raises(ValueError, match="was changed since it was written"):
        read_record(path)


def test_older_records_need_matching_means(path: Path) -> None:
    change(path, lambda c: None, digest=False)
    assert read_record(path).run == RUN
    path.with_suffix(".npz").unlink()
    path.write_text(path.read_text() + "\n")  # looked at again
    with pytest.raises(ValueError, match="are missing"):
        read_record(path)


def test_means_match_numpy() -> None:
    rows = [
        {"name": "a", "family": "x", "num_queries": 2},
        {"name": "b", "family": "x", "num_queries": 1},
        {"name": "c", "family": "y", "num_queries": 3},
    ]
    values = np.array([0.0, 1.0, 0.25, 1.0, 1.0, 0.5], np.float32)
    found = recompute_means({"train/loss": 2.0}, {"s": values, "train/loss": np.array([1.0, 3.0])}, rows)
    per_dataset = [values[:2].mean(), values[2:3].mean(), values[3:].mean()]
    assert found == pytest.approx(
        {
            "train/loss": 2.0,
            "s/a/ndcg_at_10": per_dataset[0],
            "s/b/ndcg_at_10": per_dataset[1],
            "s/c/ndcg_at_10": per_dataset[2],
            "s/x/ndcg_at_10": np.mean(per_dataset[:2]),
            "s/y/ndcg_at_10": per_dataset[2],
            "s/mean/ndcg_at_10": np.mean(per_dataset),
        }
    )


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", '"a"', "NaN", '{"id": 1e400}', "\x00", "\ud800"])
def test_unreadable_record_counts_as_missing(path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert split_recorded([RUN], [path.parent]) == ([], [RUN])
    assert records_in(path.parent, [RUN]) == [] and readable_record(path) is None
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and str(path) in said[0] and "counted as missing" in said[0]


def test_many_unreadable_records_are_summarised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"{number:012x}.json" for number in range(300)]
    for path in paths:
        path.write_text("{")
    assert [readable_record(path) for path in paths] == [None] * 300
    said = capsys.readouterr().err.splitlines()
    assert str(paths[0]) in said[0] and len(said) == 11 and "`repro doctor --deep` names each" in said[-1]
    assert not all_are_readable(tmp_path)


def test_digest_list_covers_older_records(path: Path) -> None:
    change(path, lambda c: None, digest=False)
    assert write_digests(path.parent) == 1
    assert set(compute_listed_digests(path.parent)) == {path.name, f"{path.stem}.npz"}
    change(path, lambda c: c["metrics"].__setitem__("planted/mean/recall_at_100", 0.5) or c.__setitem__("sha256", 0),
           digest=False)  # fmt: skip
    with pytest.raises(ValueError, match=f"is not the file that {DIGESTS_FILE} lists"):
        read_record(path)
    with pytest.raises(ValueError, match=f"is not the file that {DIGESTS_FILE} lists"):
        write_digests(path.parent)


def test_committed_records_are_listed() -> None:
    names = {path.name for path in get_published_records().glob("*.json")}
    listed = set(compute_listed_digests(get_published_records()))
    assert listed >= names, "records were added: `python -m repro.records.digests` renews the list"
    assert not {name for name in listed if name.endswith(".json")} - names


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
    """The runs whose records were read, of three that have one each."""
    for run in RUNS:
        write_record(get_local_records(), run, metrics={"a": 1.0}, arrays={}, provenance={})
    found: list[Run] = []
    monkeypatch.setattr(
        looked, "explain_unreadable", lambda folder, run: found.append(run) or explain_unreadable(folder, run)
    )
    return found


def states() -> list[str]:
    return [one.state for one in statuses(RUNS)]


def test_whole_record_is_read_once(read: list[Run]) -> None:
    assert states() == ["recorded"] * 3 and read == [*RUNS]
    read.clear()
    assert states() == ["recorded"] * 3 and read == []


def test_unreadable_record_is_read_again(read: list[Run]) -> None:
    assert states() == ["recorded"] * 3
    path = next(get_local_records().glob(f"{statuses(RUNS[:1])[0].id}.json"))
    whole = path.read_text()
    path.write_text(whole[:100])
    read.clear()
    assert states() == states() == ["unreadable", "recorded", "recorded"] and read == [RUNS[0]] * 2
    path.write_text(whole)
    assert states() == states() == ["recorded"] * 3 and read == [RUNS[0]] * 3
    path.unlink()
    assert states() == ["missing", "recorded", "recorded"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda note: note.write_text("{"),
        lambda note: note.write_text('{"key": [], "whole": {}}'),
        lambda note: note.write_text(note.read_text().replace("1", "2")),
        lambda note: (get_local_records() / "DIGESTS").write_text(""),
    ],
)
def test_damaged_note_is_ignored(read: list[Run], spoil: Callable[[Path], object]) -> None:
    assert states() == ["recorded"] * 3
    spoil(Looked(get_local_records()).memo.path)
    read.clear()
    assert states() == ["recorded"] * 3 and read == [*RUNS]

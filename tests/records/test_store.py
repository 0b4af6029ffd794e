"""Records on disk: complete or absent, and never read in place of another run's."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.records import store
from repro.records.store import get_score, read_record, read_records, split_recorded, write_record
from repro.spec import Run, base
from repro.spec.identity import get_training_id, run_id

RUN = base("desk")


def write_example(folder: Path, run: Run = RUN, **metrics: float) -> store.Record:
    arrays = {"desk": np.arange(5, dtype=np.float32)}
    return write_record(folder, run, metrics=metrics or {"a": 1.0}, arrays=arrays, provenance={"seconds": 1.0})


def test_written_record_is_read_back(tmp_path: Path) -> None:
    written = write_example(tmp_path)
    read = read_record(written.path)
    assert (read.id, read.run, dict(read.metrics)) == (run_id(RUN), RUN, {"a": 1.0})
    assert np.array_equal(read.arrays["desk"], np.arange(5))
    assert [record.id for record in read_records(tmp_path)] == [run_id(RUN)]


def test_partial_record_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_disk(path: Path, text: str, **_: str) -> int:
        path.write_bytes(text.encode()[: len(text) // 2])
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
        patch.setattr(Path, "write_text", fill_disk)
        write_example(tmp_path)
    assert read_records(tmp_path) == []
    assert split_recorded([RUN], [tmp_path]) == ([], [RUN])
    assert not list(tmp_path.glob(".*.part"))


def test_renamed_record_is_refused(tmp_path: Path) -> None:
    written = write_example(tmp_path)
    moved = written.path.rename(tmp_path / "000000000000.json")
    with pytest.raises(ValueError, match="expected format 1 and id 000000000000"):
        read_record(moved)


def test_swapped_or_missing_scores_are_refused(tmp_path: Path) -> None:
    written = write_example(tmp_path)
    np.savez(written.path.with_suffix(".npz"), desk=np.zeros(5, np.float32))
    with pytest.raises(ValueError, match="is not the file the record names"):
        _ = read_record(written.path).arrays
    written.path.with_suffix(".npz").unlink()
    with pytest.raises(ValueError, match="are missing"):
        _ = read_record(written.path).arrays


def test_other_first_phase_is_refused(tmp_path: Path) -> None:
    run = base("desk", learning_rate=1e-4, pretraining_corpus="desk", num_pretraining_steps=50)
    training = {"seconds": 1.0, "first_phase": get_training_id(base("desk", num_steps=50))}
    path = write_record(tmp_path, run, metrics={}, arrays={}, provenance={"training": training}).path
    assert read_record(path).run == run
    training["first_phase"] = "0123456789ab"
    with pytest.raises(ValueError, match="has the first phase 0123456789ab, expected"):
        write_record(tmp_path, run, metrics={}, arrays={}, provenance={"training": training})


def test_score_is_that_of_in_corpus_context() -> None:
    """Its path sorts behind that of null context. Only a context-blind model is scored by the latter."""
    run = base("smoke", architecture="contextual")
    null = {f"{run.suite}+null/mean/ndcg_at_10": 0.25}
    assert get_score(run, null | {f"{run.suite}/mean/ndcg_at_10": 0.5}) == 0.5
    assert get_score(run, null) is None
    assert get_score(replace(run, sequence_dropout=1.0, test_contexts="null"), null) == 0.25


def test_runs_are_counted_once(tmp_path: Path) -> None:
    other = base("desk", seed=1)
    write_example(tmp_path)
    assert split_recorded([RUN, other, RUN, other], [tmp_path]) == ([RUN], [other])


@pytest.mark.parametrize(
    "content",
    [
        {"metrics": {"desk/mean/ndcg_at_10": 1.32}, "arrays": {}},
        {"metrics": {"desk/mean/ndcg_at_10": -0.2}, "arrays": {}},
        {"metrics": {"a": 1.0}, "arrays": {"a": np.array([0.5, 0.6])}},
        {"metrics": {"a": 1.0, "loss": float("nan")}, "arrays": {}},
    ],
)
def test_writer_refuses_what_reader_refuses(tmp_path: Path, content: dict[str, Any]) -> None:
    """Writing a record that could not be read raises an error and leaves no file."""
    with pytest.raises(ValueError, match="nothing was recorded"):
        write_record(tmp_path, base("smoke"), provenance={}, **content)
    assert list(tmp_path.iterdir()) == []

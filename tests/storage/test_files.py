"""Files and arrays: outputs never replace what is no file, and are synced before they are renamed."""

import os
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from repro.model.encoding import write_tensors
from repro.records.store import write_record
from repro.spec import base
from repro.storage import arrays, files
from repro.storage.arrays import group_rows_by_code, take_rows
from repro.storage.files import atomic_folder
from repro.train.checkpoint import MetricsLog


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that records every sync and rename, in order."""
    events: list[str] = []
    sync, replace, rename = os.fsync, Path.replace, Path.rename

    def record_sync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink()
        events.append(f"sync {'folder' if name.is_dir() else 'file'}")
        sync(descriptor)

    monkeypatch.setattr(files.os, "fsync", record_sync)
    monkeypatch.setattr(Path, "replace", lambda self, target: events.append("rename") or replace(self, target))
    monkeypatch.setattr(Path, "rename", lambda self, target: events.append("rename") or rename(self, target))
    return events


def test_files_are_synced_before_rename(tmp_path: Path, events: list[str]) -> None:
    write_record(tmp_path, base("smoke"), metrics={}, arrays={}, provenance={})
    assert events == ["sync file", "rename", "sync folder"] * 2, "arrays, then the record"
    events.clear()
    with atomic_folder(tmp_path / "made") as part:
        (part / "a").write_text("a")
    assert events == ["sync file", "sync folder", "rename", "sync folder"]
    events.clear()
    write_tensors({"a": torch.ones(1)}, tmp_path / "checkpoint.safetensors")
    assert events == ["sync file", "rename", "sync folder"]
    with closing(MetricsLog(tmp_path, 0)) as log:
        events.clear()
        log.sync()
    assert events == ["sync file"]


@pytest.mark.parametrize("must_be_first", [False, True])
def test_first_folder_stays(tmp_path: Path, must_be_first: bool) -> None:
    expectation = pytest.raises(ValueError, match="another process") if must_be_first else nullcontext()
    with expectation, atomic_folder(tmp_path / "made", must_be_first=must_be_first) as part:
        (part / "own").touch()
        (tmp_path / "made").mkdir()
        (tmp_path / "made" / "other").touch()
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["made", "made/other"]


@pytest.mark.parametrize("rows_per_take", [1, 3, 4096])
@pytest.mark.parametrize("shape", [(50,), (50, 4)])
def test_rows_are_taken_in_parts(
    shape: tuple[int, ...], rows_per_take: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "ROWS_PER_TAKE", rows_per_take)
    rng = np.random.default_rng(0)
    in_memory = rng.normal(size=shape).astype(np.float16)
    np.save(tmp_path / "a.npy", in_memory)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    for rows in (rng.integers(0, 50, 31), np.empty(0, np.int64)):
        for array in (in_memory, mapped):
            np.testing.assert_array_equal(take_rows(array, rows), in_memory[rows], strict=True)


@pytest.mark.parametrize("codes", [[3, 1, 3, 3, 0, 1], [7], []])
def test_rows_by_code_match_search(codes: list[int]) -> None:
    codes_N = np.array(codes, np.int32)
    distinct_codes, rows_by_code = group_rows_by_code(codes_N)
    assert distinct_codes.tolist() == sorted(set(codes))
    for code, rows in zip(distinct_codes, rows_by_code, strict=True):
        np.testing.assert_array_equal(rows, np.flatnonzero(codes_N == code), strict=True)

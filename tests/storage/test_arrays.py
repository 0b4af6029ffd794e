"""Arrays that lie in files, read by rows."""

from pathlib import Path

import numpy as np
import pytest

from repro.storage import arrays
from repro.storage.arrays import rows_by_code, taken


@pytest.mark.parametrize("rows_per_take", [1, 3, 4096])
@pytest.mark.parametrize("shape", [(50,), (50, 4)])
def test_rows_taken_a_few_at_a_time_are_those_taken_at_once(
    shape: tuple[int, ...], rows_per_take: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "ROWS_PER_TAKE", rows_per_take)
    rng = np.random.default_rng(0)
    whole = rng.normal(size=shape).astype(np.float16)
    np.save(tmp_path / "a.npy", whole)
    for rows in (rng.integers(0, 50, 31), np.empty(0, np.int64)):
        for array in (whole, np.load(tmp_path / "a.npy", mmap_mode="r")):
            found = taken(array, rows)
            assert found.dtype == np.float16 and np.array_equal(found, whole[rows])


def test_what_was_looked_at_is_given_back(tmp_path: Path) -> None:
    """Each row brings a piece of the file with it: a process must not end up holding the whole of it."""
    np.save(tmp_path / "a.npy", np.ones((2**16, 512), np.float32))  # 128 MiB
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")

    def held() -> int:
        lines = Path("/proc/self/smaps").read_text().split("a.npy")[1].splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))

    mapped[::16].sum()
    assert held() > 50 * 1024
    taken(mapped, np.arange(0, 2**16, 16))
    assert held() < 1024


@pytest.mark.parametrize("codes", [[3, 1, 3, 3, 0, 1], [7], []])
def test_rows_of_each_code_are_those_a_look_for_each_would_find(codes: list[int]) -> None:
    codes_N = np.array(codes, np.int32)
    found, rows = rows_by_code(codes_N)
    assert found.tolist() == sorted(set(codes))
    assert [of.tolist() for of in rows] == [np.flatnonzero(codes_N == code).tolist() for code in sorted(set(codes))]
    assert all(of.dtype == np.int64 for of in rows)

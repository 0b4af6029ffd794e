"""A run that is killed while it is measured goes on behind what it had found, to the record of one that was not."""

from typing import Any

import numpy as np
import pytest
import torch

import repro.evaluate.collections
from repro.evaluate.suites import ModelSystem
from repro.execute import execute
from repro.records.store import Record
from repro.spec import Run, base
from repro.spec.identity import run_id
from repro.storage.paths import get_local_records, run_folder

SHORT = {"num_steps": 2, "num_warmup_steps": 1}
CASES: dict[str, tuple[Run, Any, int]] = {
    "widths": (base("smoke", measure="widths", **SHORT), ModelSystem, 4),
    "widths by SVD": (base("smoke", measure="widths", **SHORT), ModelSystem, 6),
    "cross": (base("smoke", measure="cross", architecture="contextual", **SHORT), repro.evaluate.collections, 3),
    "headroom": (base("smoke", measure="headroom", architecture="none"), repro.evaluate.collections, 12),
    "headroom of a model": (base("smoke", measure="headroom", **SHORT), repro.evaluate.collections, 6),
}
"""A run, what has the `search` that each number comes from, and after how many searches it is killed."""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Numbers are compared to the last bit, so sums must come in one order."""
    torch.set_num_threads(1)


class Searches:
    """Counts the searches of a run, and is killed in the one that it is told."""

    def __init__(self, holder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.dies_in = 0, 0
        real = holder.search

        def search(*given: Any) -> Any:
            self.count += 1
            if self.count == self.dies_in:
                raise KeyboardInterrupt
            return real(*given)

        monkeypatch.setattr(holder, "search", search)

    def of(self, run: Run, *, dies_in: int = 0) -> tuple[Record, dict[str, np.ndarray], int]:
        """Carry a run out; its record is removed, so that it can be measured again."""
        self.count, self.dies_in = 0, dies_in
        record = execute(run, progress=lambda line: None)
        arrays = dict(record.arrays)
        for path in get_local_records().glob(f"{record.id}*"):
            path.unlink()
        return record, arrays, self.count


@pytest.mark.parametrize("name", CASES)
def test_a_measure_that_was_killed_goes_on_behind_its_last_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, holder, num_kept = CASES[name]
    searches = Searches(holder, monkeypatch)
    whole, values, num_searches = searches.of(run)
    assert not (run_folder(run_id(run)) / "kept").exists(), "nothing is kept of a run that has a record"
    with pytest.raises(KeyboardInterrupt):
        searches.of(run, dies_in=num_kept + 1)
    again, values_again, num_left = searches.of(run)
    assert num_left == num_searches - num_kept > 0, "what was found before is not searched again, and nothing left out"
    assert again.metrics == whole.metrics and again.provenance["suite"] == whole.provenance["suite"]
    assert values_again.keys() == values.keys()
    for path, expected in values.items():
        np.testing.assert_array_equal(values_again[path], expected)
        assert values_again[path].dtype == expected.dtype

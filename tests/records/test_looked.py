"""A look at records reads none twice that was whole, and still tells each one that cannot be read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from repro.records import looked
from repro.records.looked import Looked
from repro.records.store import explain_unreadable, write_record
from repro.spec import Run, base
from repro.storage.paths import get_local_records
from slurm.status import statuses

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


def test_what_was_whole_is_not_read_by_the_next_look(read: list[Run]) -> None:
    assert states() == ["recorded"] * 3 and read == [*RUNS]
    read.clear()
    assert states() == ["recorded"] * 3 and read == []


def test_a_record_that_cannot_be_read_is_read_and_told_each_time_and_one_that_comes_back_once(read: list[Run]) -> None:
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
def test_a_note_that_is_damaged_or_of_other_source_or_list_is_none(
    read: list[Run], spoil: Callable[[Path], object]
) -> None:
    assert states() == ["recorded"] * 3
    spoil(Looked(get_local_records()).memo.path)
    read.clear()
    assert states() == ["recorded"] * 3 and read == [*RUNS]

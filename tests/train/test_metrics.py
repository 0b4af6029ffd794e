"""A log that was cut, repeated or edited is an error: it never gives another train loss."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.execute import execute
from repro.records.store import has_record
from repro.spec import base
from repro.spec.identity import run_id
from repro.storage.paths import local_records, run_folder
from repro.train.loop import Interrupted
from repro.train.metrics import METRICS_FILE, read_metrics

RUN = base("smoke", num_steps=4)
Lines = list[str]


def quiet(line: str) -> None:
    """Says nothing."""


def with_field(lines: Lines, number: int, **changes: object) -> Lines:
    return [*lines[:number], json.dumps(json.loads(lines[number]) | changes, sort_keys=True), *lines[number + 1 :]]


DAMAGE: dict[str, Callable[[Lines], Lines]] = {
    "cut": lambda lines: lines[:-1],
    "empty": lambda lines: [],
    "repeated": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
    "a line less": lambda lines: [lines[0], *lines[2:]],
    "a smaller loss": lambda lines: with_field(lines, 3, loss=0.01),
    "a loss that is a text": lambda lines: with_field(lines, 3, loss="0.01"),
    "a loss that is true": lambda lines: with_field(lines, 3, loss=True),
    "an accuracy of 42": lambda lines: with_field(lines, 3, accuracy=42.0),
    "a step that is no number": lambda lines: with_field(lines, 0, step=None),
    "no JSON": lambda lines: [*lines[:3], "{"],
    "deep": lambda lines: [*lines[:3], "[" * 100_000],
    "a list": lambda lines: [*lines[:3], "[4]"],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which RUN was trained, its record taken away."""
    home = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_HOME", str(home))
        execute(RUN, progress=quiet)
    return home


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_log_of_a_finished_training_makes_no_record(
    damage: str, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRO_HOME", str(finished))
    (local_records() / f"{run_id(RUN)}.json").unlink(missing_ok=True)
    log = run_folder(run_id(RUN)) / METRICS_FILE
    whole = log.read_text()
    try:
        log.write_text("".join(f"{line}\n" for line in DAMAGE[damage](whole.splitlines())))
        with pytest.raises(ValueError, match=r"metrics\.jsonl.*restore it, or remove the folder"):
            execute(RUN, progress=quiet)
        assert not has_record(local_records(), RUN)
    finally:
        log.write_text(whole)


def test_a_torn_line_after_the_checkpoint_is_cut_and_done_again() -> None:
    stops = iter([False, True])
    with pytest.raises(Interrupted):
        execute(RUN, should_stop=lambda: next(stops), progress=quiet)
    log = run_folder(run_id(RUN)) / METRICS_FILE
    log.write_text(log.read_text() + '{"step": 3, "loss": 0.0}\nrubbish\n{"st')
    execute(RUN, progress=quiet)
    assert [line["step"] for line in read_metrics(run_folder(run_id(RUN)))] == [1, 2, 3, 4]

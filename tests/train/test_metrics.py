"""A log that was cut, repeated or edited is an error: it never gives another train loss."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from repro.execute import execute
from repro.pipeline.inputs import Inputs
from repro.records.store import has_record
from repro.spec import base
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import get_local_records, run_folder
from repro.train.checkpoint import METRICS_FILE, MetricsLog, read_metrics
from repro.train.loop import Interrupted
from repro.train.trainer import train_run

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
    (get_local_records() / f"{run_id(RUN)}.json").unlink(missing_ok=True)
    log = run_folder(run_id(RUN)) / METRICS_FILE
    whole = log.read_text()
    try:
        log.write_text("".join(f"{line}\n" for line in DAMAGE[damage](whole.splitlines())))
        with pytest.raises(ValueError, match=r"metrics\.jsonl.*restore it, or remove the folder"):
            execute(RUN, progress=quiet)
        assert not has_record(get_local_records(), RUN)
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


def test_a_log_that_needs_no_cut_is_left_as_it_is(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_HOME", str(finished))
    folder = run_folder(get_training_id(RUN))
    before = (folder / METRICS_FILE).stat().st_ino
    with MetricsLog(folder, 4):
        assert (folder / METRICS_FILE).stat().st_ino == before, "whole: what a checkpoint counts on was synced with it"
    text = (folder / METRICS_FILE).read_text()
    (folder / METRICS_FILE).write_text(text + '{"step": 5')
    with MetricsLog(folder, 4):
        assert (folder / METRICS_FILE).read_text() == text


def test_only_the_first_process_reads_the_log_at_the_end(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a network disk the others, on other nodes, may not see its last lines yet."""
    monkeypatch.setenv("REPRO_HOME", str(finished))
    for place in ("trainer.rank", "loop.rank"):
        monkeypatch.setattr(f"repro.train.{place}", lambda: 1)
    monkeypatch.setattr("repro.train.trainer._acquire_for_all", lambda folder: nullcontext())
    inputs, log = Inputs(RUN), run_folder(get_training_id(RUN)) / METRICS_FILE
    inputs.build(quiet)
    log.rename(finished / "elsewhere")
    try:
        _, summary = train_run(inputs, progress=quiet)
    finally:
        (finished / "elsewhere").rename(log)
    assert summary.metrics == {}

"""A cached verdict equals a new one. A change of records, claims, runs or code judges again."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.data.beir import compute_mean_weights
from repro.records.store import read_record
from repro.report import artefacts as views
from repro.report.verdicts import DECIDING_FOLDERS, hash_python_files
from repro.spec import Claim, Experiment, Run, base, grid
from repro.spec.identity import run_id
from repro.spec.registry import experiments
from repro.statistics.judge import Judgement, pearson
from repro.storage.paths import get_verdicts_folder
from tests.hand_made import above, publish, write_scores

RUNS = grid(base("desk"), batch_size=(64, 128, 256), seed=(0, 1, 2))
CLAIMS = (above("X.a", 128), above("X.b", 256, delta=0.001), above("X.missing", 512))
EXPERIMENT = Experiment(number=99, title="by hand", runs=lambda scale: RUNS, artefacts=(), claims=CLAIMS)


def write(folder: Path, run: Run, gain: float = 0.0) -> None:
    spread = np.random.default_rng([run.seed, run.batch_size]).uniform(0.2, 0.6, 50).astype(np.float32)
    write_scores(folder, run, spread + np.float32(run.batch_size / 1000 + gain))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hand-made records in place of the published ones."""
    return publish(monkeypatch, tmp_path, RUNS, write)


@pytest.fixture
def count_judged(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that counts how often claims were judged since its last call."""
    calls: list[int] = []
    judge_for_real = views.judge_all

    def judge_all(*arguments: Any, **options: Any) -> list[Judgement]:
        calls.append(1)
        return judge_for_real(*arguments, **options)

    def count() -> int:
        num_calls = len(calls)
        calls.clear()
        return num_calls

    monkeypatch.setattr(views, "judge_all", judge_all)
    return count


def format_verdicts(experiment: Experiment = EXPERIMENT) -> str:
    """Return every field of the verdicts as text, in which NaN equals NaN."""
    return repr([replace(judgement, claim=CLAIMS[0]) for judgement in views.judgements(experiment, "desk")])


def test_cached_verdicts_are_equal(folder: Path, count_judged: Callable[[], int]) -> None:
    first = format_verdicts()
    assert count_judged() == 1
    assert format_verdicts() == first and count_judged() == 0
    assert [judgement.claim for judgement in views.judgements(EXPERIMENT, "desk")] == list(CLAIMS)


@pytest.mark.parametrize("number", [1, 4, 14, 18])
def test_published_verdicts_are_cached(number: int, count_judged: Callable[[], int]) -> None:
    (experiment,) = (experiment for experiment in experiments() if experiment.number == number)
    first = repr(views.judgements(experiment, "desk"))
    assert count_judged() == 1
    assert repr(views.judgements(experiment, "desk")) == first and count_judged() == 0


def change_record(folder: Path) -> Experiment:
    write(folder, RUNS[0], gain=-0.05)
    return EXPERIMENT


def remove_record(folder: Path) -> Experiment:
    (folder / f"{run_id(RUNS[0])}.json").unlink()
    return EXPERIMENT


def add_seed(folder: Path) -> Experiment:
    runs = (*RUNS, *(replace(run, seed=3) for run in RUNS[::3]))
    return replace(EXPERIMENT, runs=lambda scale: runs)


def change_claims(*claims: Claim) -> Callable[[Path], Experiment]:
    return lambda folder: replace(EXPERIMENT, claims=claims)


@pytest.mark.parametrize(
    "change",
    [
        change_record,
        remove_record,
        add_seed,
        change_claims(above("X.a", 256), *CLAIMS[1:]),
        change_claims(CLAIMS[0], above("X.b", 256, delta=0.5), CLAIMS[2]),
        change_claims(replace(CLAIMS[0], seeds=(0, 1)), *CLAIMS[1:]),
        change_claims(*CLAIMS[:2]),
    ],
)
def test_any_change_is_judged_again(
    folder: Path, count_judged: Callable[[], int], change: Callable[[Path], Experiment]
) -> None:
    format_verdicts()
    count_judged()
    changed = change(folder)
    verdicts = format_verdicts(changed)
    assert count_judged() == 1
    for path in get_verdicts_folder().iterdir():
        path.unlink()
    assert verdicts == format_verdicts(changed)


def test_changed_code_judges_again(
    folder: Path, count_judged: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = (compute_mean_weights, read_record, pearson)
    assert {Path(inspect.getfile(function)).parent for function in functions} < {*DECIDING_FOLDERS}
    source = folder.parent / "source"
    source.mkdir()
    (source / "judge.py").write_text("ALPHA = 0.05\n")
    monkeypatch.setattr("repro.report.verdicts.DECIDING_FOLDERS", (source,))
    format_verdicts()
    format_verdicts()
    assert count_judged() == 1
    (source / "judge.py").write_text("ALPHA = 0.01\n")
    hash_python_files.cache_clear()  # a new process starts without it
    format_verdicts()
    assert count_judged() == 1


def test_your_records_add_your_number(folder: Path, count_judged: Callable[[], int]) -> None:
    """Local records add a number to a claim and do not change its verdict."""
    before = views.judgements(EXPERIMENT, "desk")
    for run in RUNS:
        write(folder.parent / "yours", run, gain=run.seed / 100)
    after = views.judgements(EXPERIMENT, "desk")
    assert count_judged() == 2
    assert [judgement.word for judgement in after] == [judgement.word for judgement in before]
    assert [len(judgement.yours) for judgement in before] == [0, 0, 0]
    assert [len(judgement.yours) for judgement in after] == [1, 1, 0]


def test_unreadable_record_is_named_each_time(
    folder: Path, count_judged: Callable[[], int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / f"{run_id(RUNS[0])}.json"
    path.write_text("no record")
    for _ in range(2):
        monkeypatch.setattr("repro.records.store._NAMED", set())  # a new process starts without names
        format_verdicts()
        assert path.name in capsys.readouterr().err
    assert count_judged() == 2

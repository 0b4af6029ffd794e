"""A run in two processes is the run in one: the same batches, and numbers that differ by rounding only."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from repro.execute import execute
from repro.identity import run_id
from repro.places import local_records, run_folder
from repro.spec import base
from repro.store import read_record
from repro.train.metrics import read_metrics
from slurm.job import Job, Stop, Stopped
from slurm.notes import Note, run_work

RUN = base("smoke", num_steps=6)
HERE = Note(state="running")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes share the cores of one."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_two_processes_give_the_numbers_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = execute(RUN, report=lambda line: None)
    lines = read_metrics(run_folder(run_id(RUN)))
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "two"))
    assert Job(run=asdict(RUN), num_processes=2)(Stop(), where=HERE) == "done"
    together = read_record(local_records() / f"{run_id(RUN)}.json")
    found = read_metrics(run_folder(run_id(RUN)))
    assert [line["batch"] for line in found] == [line["batch"] for line in lines]
    assert [line["loss"] for line in found] == pytest.approx([line["loss"] for line in lines], rel=1e-4)
    name = f"{RUN.suite}/mean/ndcg_at_10"
    assert together.metrics[name] == pytest.approx(alone.metrics[name], abs=0.02)


@pytest.mark.slow
def test_the_wish_to_stop_reaches_every_process_and_the_run_goes_on_later() -> None:
    run = replace(RUN, num_steps=8)
    job = Job(run=asdict(run), num_processes=2)
    with pytest.raises(Stopped):
        job(Stop(reason="asked before it began"), where=HERE)
    work = run_work(run)
    job_folder = run_folder(run_id(run))
    note = work.read()
    assert note is None or note.state == "interrupted"
    assert job(Stop(), where=HERE) == "done"
    assert [line["step"] for line in read_metrics(job_folder)] == list(range(1, 9))
    assert not (job_folder / "stop").exists()


@pytest.mark.slow
def test_a_failing_process_fails_the_job_with_its_log(own_home: Path) -> None:
    run = replace(RUN, batch_size=15)  # which two processes cannot share
    with pytest.raises(RuntimeError, match="one of 2 processes failed"):
        Job(run=asdict(run), num_processes=2)(Stop(), where=HERE)
    note = run_work(run).read()
    assert note is not None
    assert note.state == "failed"
    assert json.loads((run_folder(run_id(run)) / "ranks.json").read_text())["num_processes"] == 2
    assert "RANK" not in os.environ

"""One run in this very process, under its lease, so that it is not done twice; Ctrl-C leaves a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from repro.spec import Run
from repro.spec.identity import get_training_id, run_id
from repro.stopping import Stopped
from repro.storage.lease import look
from repro.storage.paths import run_folder
from repro.train.steps_done import CHECKPOINT_FILE
from slurm.job import Job
from slurm.signals import Stop, handle_stop_signals
from slurm.states import JobState, item_of_run

LOOK_AGAIN_SECONDS = 2.0
AS_OFTEN_AS_YOU_LIKE = 10**9


def run_here(run: Run, *, progress: Callable[[str], None]) -> None:
    """Do a run, or wait while another process does it.

    Stopped: it was told to stop; a training has written its checkpoint, anything else was broken off at once.
    """
    stop = Stop()
    with handle_stop_signals(stop):
        try:
            _run_or_wait(run, stop, progress)
        except Stopped as stopped:
            raise stopped.and_says(describe_resume(run)) from stopped


def _run_or_wait(run: Run, stop: Stop, progress: Callable[[str], None]) -> None:
    job, said = Job(run=asdict(run), max_requeues=AS_OFTEN_AS_YOU_LIKE), False
    item_of_run(run).forget()
    while job(stop, where=JobState(state="running")) != "done":
        if not said:
            progress(f"waiting for {look(item_of_run(run).lease_folder)}, which is doing this run")
            said = True
        time.sleep(LOOK_AGAIN_SECONDS)


def describe_resume(run: Run) -> str:
    """Return what a stopped run leaves, in words, and how it goes on."""
    if (run_folder(get_training_id(run)) / CHECKPOINT_FILE).exists():
        return f"run {run_id(run)} has a checkpoint: run the same command again to go on from it"
    return f"run {run_id(run)} has no checkpoint yet; what was built for it is kept: run the same command again"

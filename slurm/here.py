"""One run in this very process, under its lease, so that it is not done twice; Ctrl-C leaves a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from repro.inputs import stages_of
from repro.lease import look
from repro.spec import Run
from slurm.job import Job, Stop, Stopped, listening
from slurm.notes import Note, run_work

LOOK_AGAIN_SECONDS = 2.0
AS_OFTEN_AS_YOU_LIKE = 10**9


def run_here(run: Run, *, report: Callable[[str], None]) -> None:
    """Does a run, or waits while another process does it. KeyboardInterrupt after the checkpoint is written."""
    for stage in stages_of(run):
        stage.build(report)  # before listening: a stage has no checkpoint, and ends at once
    job, stop, said = Job(run=asdict(run), max_requeues=AS_OFTEN_AS_YOU_LIKE), Stop(), False
    run_work(run).forget()
    while True:
        with listening(stop):
            try:
                if job(stop, where=Note(state="running")) == "done":
                    return
            except Stopped as stopped:
                raise KeyboardInterrupt(str(stopped)) from stopped
        if not said:
            report(f"waiting for {look(run_work(run).lease_folder)}, which is doing this run")
            said = True
        time.sleep(LOOK_AGAIN_SECONDS)

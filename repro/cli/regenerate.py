"""Regenerate generated files for `check --write`: parts of pages, pictures and missing golden metrics."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from repro.records.golden import SCALE, get_golden_path, list_golden_runs, list_without_golden, write_golden
from repro.records.store import read_record
from repro.spec import Experiment
from repro.spec.identity import run_id
from repro.statistics.judge import Judgement
from repro.storage.files import atomic_file
from repro.storage.paths import CHECKOUT
from repro.text import count_noun


def regenerate(judged: Sequence[Judgement], *, dry_run: bool) -> bool:
    """Write every generated file that is out of date, and return whether any was. `judged` are the claims at desk.

    An experiment without golden metrics gets them from its runs at smoke. Existing golden metrics never change.
    Raises ValueError if a page lacks a marker or a smoke run fails.
    """
    from repro.cli.figures import make_gallery_pictures
    from repro.report.markdown_pages import regenerate_pages

    texts = {**regenerate_pages(judged), **make_gallery_pictures()}
    changed = {path: text for path, text in texts.items() if not path.is_file() or path.read_text("utf-8") != text}
    for path, text in changed.items():
        print(f"{path.name} {'would change' if dry_run else 'was updated'}", file=sys.stderr)
        if not dry_run:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as part:
                part.write_text(text, encoding="utf-8")
    missing = list_without_golden()
    for experiment in missing:
        name = get_golden_path(experiment.artefact_names[0]).name
        source = f"{count_noun(len(list_golden_runs(experiment)), 'run')} at {SCALE}"
        print(f"{name} {'would be' if dry_run else 'is being'} made by {source}", file=sys.stderr, flush=True)
        if not dry_run:
            make_golden(experiment)
    return bool(changed or missing)


def make_golden(experiment: Experiment) -> Path:
    """Run an experiment at smoke in a temporary folder, and write its golden metrics.

    It runs in a separate process with one thread, as in the test that compares the metrics. Its stderr is shown only if
    a run fails. Raises ValueError in this case.
    """
    name = experiment.artefact_names[0]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "REPRO_HOME": home, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "repro", "run", name, "--scale", SCALE]
        completed = subprocess.run(command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if completed.returncode:
            print(completed.stderr, file=sys.stderr, end="")
            raise ValueError(
                f"`repro run {name} --scale {SCALE}` failed, see above: fix it, then run `repro check --write` again"
            )
        folder = Path(home) / "records"
        return write_golden(name, [read_record(folder / f"{run_id(run)}.json") for run in list_golden_runs(experiment)])

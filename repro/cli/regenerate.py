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
from repro.spec import Experiment, Table
from repro.spec.identity import run_id
from repro.spec.registry import artefacts
from repro.statistics.judge import Judgement
from repro.storage.files import atomic_file
from repro.storage.paths import CHECKOUT
from repro.text import count_noun, format_spans

FRONT_TABLE, FRONT_SCALE = "table1_unfiltered", "mini"
FRONT_PICTURE = CHECKOUT / "experiments" / "pictures" / f"{FRONT_TABLE}.svg"
"""The table and scale of the picture on the front page and at the top of the report."""
GAINS_COLUMN = "NDCG@10"


def regenerate(judged: Sequence[Judgement], *, dry_run: bool) -> bool:
    """Write every generated file that is out of date, and return whether any was. `judged` are the claims at desk.

    An experiment without golden metrics gets them from its runs at smoke. Existing golden metrics never change.
    Raises ValueError if a page lacks a marker or a smoke run fails.
    """
    from repro.cli.figures import make_gallery_pictures
    from repro.report.markdown_pages import regenerate_pages

    texts = {**regenerate_pages(judged), **make_gallery_pictures()}
    if front_picture := draw_front_gains():
        texts[FRONT_PICTURE] = front_picture
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


def draw_front_gains() -> str:
    """Return the picture of the gain of each row of the front page's table, as SVG text.

    The result is empty while records are missing. The first claim about the rows at this scale names the seeds.
    """
    from repro.report.artefacts import load_records
    from repro.report.gallery import list_gain_rows

    experiment, table = artefacts()[FRONT_TABLE]
    assert isinstance(table, Table), f"{FRONT_TABLE} is a table"
    runs = experiment.runs(FRONT_SCALE)
    claims = (claim for claim in experiment.claims if FRONT_SCALE in (*claim.headlines, *claim.scales))
    claim = next(claims, None)
    seeds = claim.declared_seeds(FRONT_SCALE) if claim else ()
    baseline, rows = list_gain_rows(table, GAINS_COLUMN, runs, load_records(runs, "published"), seeds)
    if not rows:
        return ""
    from repro.cli.figures import use_headless_backend

    use_headless_backend()
    from figures.gains import gains_svg

    title = f"Table 1 without the filter at scale {FRONT_SCALE}: what each row gains"
    x_label = f"points of {GAINS_COLUMN} gained over “{baseline}”, seeds {format_spans(seeds)}"
    return gains_svg(rows, title=title, x_label=x_label)


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

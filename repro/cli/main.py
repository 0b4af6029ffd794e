"""The command line of `repro`.

Heavy imports are inside the verbs, so that light verbs start without torch or matplotlib.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from repro.cli.common import (
    EXIT_NOT_RUN,
    AllSeeds,
    AsJson,
    Named,
    Scale,
    Seeds,
    What,
    print_json,
    print_line,
    print_progress,
    track_progress,
)
from repro.cli.data import data
from repro.cli.errors import DEBUG, end_without_traceback, run_with_error_handling
from repro.cli.fields import VERBS as FIELD_VERBS
from repro.cli.inspect import VERBS as INSPECT_VERBS
from repro.cli.jobs import VERBS as JOB_VERBS
from repro.cli.models import VERBS as MODEL_VERBS
from repro.records.lookup import describe_missing_scale, describe_seeds, resolve_experiments, resolve_runs, split_words
from repro.report.names import format_title
from repro.spec import Experiment, Figure, Run
from repro.spec.axes import is_axis
from repro.spec.identity import format_overrides, run_id
from repro.spec.registry import artefacts, experiments, find_experiment
from repro.spec.scales import ORDER, get_scale
from repro.storage.files import json_object
from repro.storage.paths import check_home, get_corpora_folder, get_local_records
from repro.text import count_noun

if TYPE_CHECKING:
    from repro.planning.doctor import Finding
    from repro.report.view import View

GC_THRESHOLDS = (50_000, 20, 20)
"""Thresholds of Python's garbage collector. With the defaults it scans thousands of loaded records again and again, which
takes a fifth of the time.
"""
SPIN_COUNT = "1000"
"""Spin count of a waiting thread in GNU OpenMP, which torch uses on Linux. The default is 300,000."""
# click suggests verbs itself
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, suggest_commands=False)


@app.callback()
def settings(
    debug: Annotated[bool, typer.Option(DEBUG, help="show the traceback of an error")] = False,
) -> None:
    """Replicate Contextual Document Embeddings: every table and figure of the paper with one model and trainer."""


def prepare_process() -> None:
    """Configure this process and its children, before any library with threads is loaded.

    OpenMP threads spin while they wait for each other, then sleep. The default spin time is long, so on a busy machine
    spinning threads take cores from working ones. `SPIN_COUNT` costs a few per cent on idle cores.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A locale such as ISO-8859-1 has no "–" or "−". stderr escapes such letters, too.
        sys.stdout.reconfigure(errors="backslashreplace")
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)


def main(artefact: str = "") -> None:
    """Run the command line, or one artefact, and exit. User errors print one line and exit with 2, bugs with 70."""
    prepare_process()
    run_command_line = partial(app, prog_name="repro", standalone_mode=False)
    status = run_artefact_module(artefact) if artefact else run_with_error_handling(run_command_line)
    end_without_traceback()
    sys.exit(status)


def run_artefact_module(name: str) -> int:
    """Run one artefact for `python -m repro.NAME`, with the options of `repro run`, and return the exit code."""

    def run_artefact() -> Any:
        # report an unknown name before parsing the options
        find_experiment(name)
        return app(["run", name, *sys.argv[1:]], prog_name=f"python -m repro.{name}", standalone_mode=False)

    return run_with_error_handling(run_artefact)


@app.command("list")
def list_artefacts(as_json: AsJson = False) -> None:
    """List the artefacts with their titles and numbers of claims."""
    rows: list[dict[str, Any]] = [
        {
            "artefact": name,
            "experiment": experiment.number,
            "title": format_title(experiment, exhibit),
            "claims": [claim.id for claim in experiment.claims],
        }
        for name, (experiment, exhibit) in artefacts().items()
    ]
    if as_json:
        return print_json(rows)
    from repro.report.formats import render
    from repro.report.view import View

    cells = tuple((row["artefact"], row["title"], str(len(row["claims"]))) for row in rows)
    notes = ("`repro plan ARTEFACT --scale S` shows its runs, `repro check ARTEFACT` judges its claims.",)
    render(View("Artefacts", ("artefact", "what it shows", "claims"), cells, notes, align="llr"))


@app.command()
def plan(
    what: What = None,
    scale: Scale = "desk",
    seed: Seeds = None,
    all_seeds: AllSeeds = False,
    profile: Annotated[str, typer.Option(help="machine and resources (see slurm/README.md)")] = "here",
    as_json: AsJson = False,
) -> None:
    """Show which runs are requested, shared, recorded and missing, and the cost of the missing ones. Starts nothing."""
    from repro.planning.plan import make_plan
    from slurm.local import count_gpus_per_run, list_visible_gpus
    from slurm.profiles import load_profile

    job_profile = load_profile(profile)
    gpus = list_visible_gpus() if job_profile.on == "local" else []
    runs = resolve_runs(what, scale, seeds=seed, all_seeds=all_seeds)
    made_plan = make_plan(
        runs,
        [get_local_records()],
        num_gpus=count_gpus_per_run(job_profile, gpus) * job_profile.num_nodes,
        num_at_once=job_profile.num_at_once or 1,
    )
    if as_json:
        return print_json(made_plan.as_dict())
    seeds = [] if seed or all_seeds else describe_seeds(what, scale)
    for line in (*seeds, *made_plan.lines()):
        print(line)


@app.command()
def run(what: Named, scale: Scale = "desk", seed: Seeds = None) -> None:
    """Run missing runs in this process, then show the artefacts. Exit code 2: a run could not start."""
    from repro.records.store import explain_unreadable, split_recorded

    runs = resolve_runs(what, scale, seeds=seed)
    recorded, missing = split_recorded(runs, [get_local_records()])
    scales = ", ".join(name for name in ORDER if any(run.scale == name for run in runs))
    requested = count_noun(len(set(runs)), "run")
    print_line(f"{requested} requested, {len(recorded)} recorded, {len(missing)} to run at scale {scales}")
    if missing:
        from repro.pipeline.corpora import check_available
        from repro.planning.requirements import check_encoders
        from slurm.job import run_here

        check_home()
        if unreadable := list(filter(None, (explain_unreadable(get_local_records(), each) for each in missing))):
            raise ValueError("\n".join(unreadable))
        check_available(missing)
        check_encoders(missing)
        for index, missing_run in enumerate(missing, 1):
            print_line(f"run {index} of {len(missing)}: {run_id(missing_run)} ({format_overrides(missing_run)})")
            run_here(missing_run)
    if _are_runs(what):
        _show_scores(runs)
    else:
        for experiment in resolve_experiments(what):
            _show_experiment(experiment, what, scale)
    _summarise_own_corpora(runs)


def _summarise_own_corpora(runs: Sequence[Run]) -> None:
    """Compare models trained on an imported corpus with BM25 and an untrained encoder, and print the result."""
    names = dict.fromkeys(run.corpus for run in runs if run.suite == run.corpus.partition("@")[0])
    if not any((get_corpora_folder() / name.partition("@")[0]).is_dir() for name in names):
        return  # before numpy is loaded
    from repro.pipeline.corpora import make_corpus_stage
    from repro.report.own_corpus import format_own_corpus_lines
    from repro.storage.paths import is_imported

    for name in filter(is_imported, names):
        sizes: Mapping[str, Mapping[str, int]] = {}
        # Without the corpus, or after another import of its name, records still have scores.
        with suppress(ValueError):
            sizes = json_object(make_corpus_stage(name).path / "report.json")["suite"]
        corpus_runs = [run for run in runs if run.corpus == name and run.suite == name.partition("@")[0]]
        for line in format_own_corpus_lines(corpus_runs, sizes):
            print_line(line)


@app.command()
def show(
    what: What = None,
    scale: Scale = "desk",
    format: Annotated[str, typer.Option(help="text, md, latex or csv")] = "text",
    seed: Seeds = None,
    all_seeds: AllSeeds = False,
    as_json: AsJson = False,
) -> None:
    """Show artefacts from records: the values of the paper, published values and yours.

    Text ends with a count of the verdicts on claims, which `repro check` lists. --json has each of them.

    For runs, files of runs and grids (`table1 seed=1..5`) it shows the scores, with a column for each field that varies.
    --seed and --all-seeds choose the runs of a grid. An artefact is shown with all seeds.
    """
    get_scale(scale)
    names = what or []
    if _are_runs(names):
        return _show_scores(resolve_runs(names, scale, seeds=seed, all_seeds=all_seeds), format, as_json)
    if seed or all_seeds:
        raise ValueError("--seed and --all-seeds choose the runs of a grid; an artefact is shown with all seeds")
    if format == "csv" and not as_json and (len(names) != 1 or names == ["all"]):
        raise ValueError("a csv holds one table: name one artefact, or runs")
    selected = resolve_experiments(names)
    if names and not any(experiment.runs(scale) for experiment in selected):
        raise ValueError(describe_missing_scale(names, selected, scale))
    if as_json:
        values = [_collect_experiment(experiment, names, scale) for experiment in selected]
        return print_json(values[0] if len(values) == 1 else values)
    for experiment in selected:
        _show_experiment(experiment, names, scale, format)


def _are_runs(words: Sequence[str]) -> bool:
    """Return whether words name runs: ids, files of runs or a grid. Otherwise they are artefacts."""
    return bool(split_words(words)[0]) or any(map(is_axis, words))


def _show_scores(runs: list[Run], format: str = "text", as_json: bool = False) -> None:
    from repro.report.formats import render
    from repro.report.scores import make_scores_view, tabulate_scores

    if as_json:
        return print_json(tabulate_scores(runs))
    render(make_scores_view(runs, is_for_programs=format == "csv"), format)


def _show_experiment(experiment: Experiment, names: Sequence[str], scale: str, format: str = "text") -> None:
    """Print the selected artefacts of an experiment: pictures, then the tables, then a line on claims.

    A csv has one table, so it holds only the artefact of this name.
    """
    from repro.cli.figures import draw_and_report
    from repro.report.artefacts import judgements
    from repro.report.formats import render, render_line
    from repro.report.tables import format_summary_line

    views = _make_views(experiment, names, scale)
    figures = [exhibit for exhibit in experiment.artefacts if isinstance(exhibit, Figure) and exhibit.name in views]
    for line in draw_and_report(figures, scale):
        print_progress(line)
    # the named artefacts come last, where they stay on the screen
    for name in sorted(views, key=lambda name: name in names):
        if format != "csv" or name in names:
            render(views[name], format)
    if experiment.claims and format == "text":
        artefact = next((name for name in names if name in views), experiment.artefact_names[0])
        summary = format_summary_line(judgements(experiment, scale))
        render_line(f"{artefact} has {summary}, by the published records. `repro check {artefact}` lists them.")


def _make_views(experiment: Experiment, names: Sequence[str], scale: str) -> dict[str, View]:
    """Return the views that the command line selects. For example, table3 also selects table3_shares."""
    from repro.report.artefacts import make_artefact_views

    views = make_artefact_views(experiment, scale)
    if not names or "all" in names:
        return views
    return {name: views[name] for name in views if any(f"{name}_".startswith(f"{word}_") for word in names)}


def _collect_experiment(experiment: Experiment, names: Sequence[str], scale: str) -> dict[str, Any]:
    """Return the claims and the selected artefacts of an experiment as plain values."""
    from repro.report.artefacts import judgements

    claims = [judgement.as_dict() for judgement in judgements(experiment, scale)]
    views = _make_views(experiment, names, scale)
    return {"claims": claims, "shown": {name: asdict(view) for name, view in views.items()}}


@app.command()
def report(
    scale: Annotated[list[str] | None, typer.Option(help="repeatable (default: those with published records)")] = None,
    out: Annotated[Path, typer.Option(help="path of the page")] = Path("report.html"),
) -> None:
    """Write an HTML page that works offline: the main results, then the claims and every artefact of each scale."""
    from repro.cli.figures import draw_front_picture, draw_svg
    from repro.report.html import write_report
    from repro.report.markdown_pages import HEADLINE_SCALES
    from repro.report.sections import make_scale_report

    scales = (
        make_scale_report(name, track_progress(experiments(), name), draw_svg)
        for name in [get_scale(name).name for name in scale or HEADLINE_SCALES]
    )
    print_line(f"written: {write_report(out, scales, draw_front_picture())}")


@app.command()
def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="also verify all records and stages")] = False,
) -> None:
    """Check this machine and list missing requirements per scale. With --deep, exit code 2: a check failed."""
    from repro.planning.doctor import check_deeply, run_checks

    _print_findings(run_checks())
    if deep and not _print_findings(check_deeply()):
        raise typer.Exit(EXIT_NOT_RUN)


def _print_findings(findings: Iterable[Finding]) -> bool:
    """Print each finding immediately, because some take seconds. Return whether all are good."""
    is_good = True
    for finding in findings:
        print_line(f"{'ok  ' if finding.good else 'MISS'} {finding.what}: {finding.message}")
        is_good = is_good and finding.good
    return is_good


for verb in (*INSPECT_VERBS, *FIELD_VERBS, *JOB_VERBS, *MODEL_VERBS):
    app.command()(verb)
app.add_typer(data, name="data")

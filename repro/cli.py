"""The verbs of `repro`: the one module that sees all four folders; heavy imports live in the verbs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from repro.asked import runs_asked
from repro.data.verbs import data
from repro.identity import difference_in_words, run_id
from repro.interop.verbs import VERBS as VERBS_IN_AND_OUT
from repro.places import CHECKOUT, local_records
from repro.reading import VERBS_THAT_READ
from repro.registry import artefacts, experiment_of, experiments
from repro.scales import ORDER, scale_named
from repro.spec import Experiment, Figure
from slurm.verbs import VERBS

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

What = Annotated[list[str] | None, typer.Argument(help="artefacts (table1, figure3, …), all, or a .json file of runs")]
Scale = Annotated[str, typer.Option(help=f"one of {', '.join(ORDER)}")]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="these seeds (default: the artefact's own)")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
EXIT_NOT_RUN = 2


def main() -> None:
    """Runs the command line; the reader's mistakes end in one line and exit code 2."""
    sys.exit(_guarded(lambda: app(prog_name="repro", standalone_mode=False)))


def open_door(name: str) -> int:
    """Runs one artefact, `python -m repro.NAME`, with the options of `repro run`; gives the exit code."""
    if name not in artefacts():
        print(f"error: unknown artefact {name!r}; choose of {list(artefacts())}", file=sys.stderr)
        return EXIT_NOT_RUN
    words = ["run", name, *sys.argv[1:]]
    return _guarded(lambda: app(words, prog_name=f"python -m repro.{name}", standalone_mode=False))


def _guarded(action: Callable[[], int | None]) -> int:
    import click

    try:
        return action() or 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        error.show()
        return EXIT_NOT_RUN
    except (KeyboardInterrupt, click.exceptions.Abort):
        print("stopped; run the same command again to go on from the last checkpoint", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_NOT_RUN


def _chosen(what: Sequence[str] | None) -> list[Experiment]:
    if not what or list(what) == ["all"]:
        return list(experiments())
    names = [word for word in what if not word.endswith(".json")]  # a file of runs shows nothing
    return list({experiment_of(name).number: experiment_of(name) for name in names}.values())


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, sort_keys=True))


@app.command("list")
def list_artefacts(as_json: AsJson = False) -> None:
    """Lists the artefacts: what each shows, and how many runs it needs at each scale."""
    rows: list[dict[str, Any]] = [
        {
            "artefact": name,
            "experiment": experiment.number,
            "title": experiment.title,
            "claims": [claim.id for claim in experiment.claims],
            "num_runs": {scale: len(set(experiment.runs(scale))) for scale in ORDER},
        }
        for name, (experiment, _) in artefacts().items()
    ]
    if as_json:
        return _print_json(rows)
    table = RichTable("artefact", "what it shows", "claims", *ORDER, box=None)
    for row in rows:
        runs = [str(row["num_runs"][scale]) for scale in ORDER]
        table.add_row(row["artefact"], row["title"], ", ".join(row["claims"]), *runs)
    Console().print(table)
    print("columns after the claims: runs at each scale. `repro plan ARTEFACT --scale S` shows them.")


@app.command()
def plan(
    what: What = None,
    scale: Scale = "desk",
    seed: Seeds = None,
    all_seeds: bool = False,
    profile: Annotated[str, typer.Option(help="the shape of job to reckon with; see slurm/README.md")] = "here",
    as_json: AsJson = False,
) -> None:
    """Shows which runs are asked for, shared, recorded and missing, and what the missing would cost; starts nothing."""
    from repro.planning import make_plan
    from slurm.profiles import profile_named

    shape = profile_named(profile)
    wanted = runs_asked(what, scale, seeds=seed, all_seeds=all_seeds)
    made = make_plan(wanted, [local_records()], num_gpus=shape.gpus_per_run, num_at_once=shape.num_at_once or 1)
    if as_json:
        return _print_json(made.as_dict())
    for line in made.lines():
        print(line)


@app.command()
def run(
    what: What = None,
    scale: Scale = "desk",
    seed: Seeds = None,
    dry_run: Annotated[bool, typer.Option(help="show what would run")] = False,
) -> None:
    """Runs what is missing, here and now, and shows the artefacts. Exit code 2 when something could not run."""
    from repro.store import split_recorded

    wanted = runs_asked(what, scale, seeds=seed)
    recorded, missing = split_recorded(wanted, [local_records()])
    scales = ", ".join(name for name in ORDER if any(run.scale == name for run in wanted))
    _say(f"{len(set(wanted))} runs asked for, {len(recorded)} recorded, {len(missing)} to run at scale {scales}")
    if dry_run:
        return plan(what, scale, seed)
    if missing:
        from repro.inputs import check_available
        from slurm.here import run_here

        check_available(missing)
        for number, one in enumerate(missing, 1):
            _say(f"run {number} of {len(missing)}: {run_id(one)} ({difference_in_words(one)})")
            run_here(one, report=_say)
    show(what, scale)


def _say(line: str) -> None:
    print(line, flush=True)


@app.command()
def show(
    what: What = None,
    scale: Scale = "desk",
    format: Annotated[str, typer.Option(help="text, md, latex or csv")] = "text",
    as_json: AsJson = False,
) -> None:
    """Shows artefacts from records: paper, published and yours beside each other, and the verdict on each claim."""
    from repro.report import claims_view, render
    from repro.scores import scores_view
    from repro.views import RECORD_WORDS, RECORDS, artefact_views, judgements, records_of

    files = [word for word in what or () if word.endswith(".json")]
    if files and not as_json:
        render(scores_view(runs_asked(files, scale)), format)
    as_values = []
    for experiment in _chosen(what):
        judged = {whose: judgements(experiment, scale_named(scale).name, whose) for whose in RECORDS}
        shown = {name: view for name, view in artefact_views(experiment, scale).items() if _is_asked(name, what)}
        if as_json:
            plain = {whose: [one.as_dict() for one in those] for whose, those in judged.items()}
            as_values.append({**plain, "shown": {name: asdict(view) for name, view in shown.items()}})
            continue
        there = [whose for whose in judged if whose == "published" or records_of(experiment.runs(scale), whose)]
        ledgers = [claims_view(judged[whose], f"Claims at scale {scale}, {RECORD_WORDS[whose]}") for whose in there]
        for view in [*shown.values(), *(ledgers if experiment.claims else [])]:
            render(view, format)
        drawable = [one for one in experiment.shows if isinstance(one, Figure) and one.name in shown]
        for path in filter(None, (paint(one, scale, whose) for one in drawable for whose in RECORDS)):
            print(f"drawn: {path}, its data beside it as .csv", file=sys.stderr)
    if as_json:
        _print_json(as_values[0] if len(as_values) == 1 else as_values)


def _is_asked(name: str, what: Sequence[str] | None) -> bool:
    """Says whether the words of a command line mean this artefact; table3 means table3_shares too."""
    return not what or list(what) == ["all"] or any(f"{name}_".startswith(f"{word}_") for word in what)


def paint(figure: Figure, scale: str, whose: str) -> Path | None:
    """Draws a figure from the published records or yours; gives the vector file, None when there is nothing to draw."""
    from figures.draw import Picture, draw
    from repro.plotted import column_label, figure_rows, number_of
    from repro.views import RECORD_WORDS, records_of

    runs = experiment_of(figure.name).runs(scale)
    rows = figure_rows(figure, runs, records_of(runs, whose))
    needs_no_record = figure.draw is not None and not figure.series and whose == "published"
    if not rows and not needs_no_record:
        return None
    copied = ("kind", "x", "y", "x_label", "y_label", "hue", "cell", "mark_within", "x_is_log")
    picture = Picture(
        **{name: getattr(figure, name) for name in copied},
        title=f"{figure.name}, scale {scale}" + ("" if needs_no_record else f", {RECORD_WORDS[whose]}"),
        cell_label=column_label(figure, number_of(figure)) if figure.cell else "",
        own=figure.draw,
    )
    return draw(rows, CHECKOUT / "figures" / "out" / f"{figure.name}-{scale}-{whose}", picture)


@app.command()
def report(
    scale: Scale = "desk",
    out: Annotated[Path, typer.Option(help="where to write the page")] = Path("report.html"),
) -> None:
    """Writes one page that opens in any browser, offline: the ledger of claims, then every artefact."""
    from repro.html_page import write_report

    _say(f"written: {write_report(scale_named(scale).name, out, paint)}")


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Says what this machine has: versions, device, disk, text wheels, Slurm, and what each scale still lacks here."""
    from repro.doctor import examine

    findings = examine()
    if as_json:
        return _print_json([asdict(finding) for finding in findings])
    for finding in findings:
        print(f"{'ok  ' if finding.good else 'MISS'} {finding.what}: {finding.says}")


for verb in (*VERBS_THAT_READ, *VERBS, *VERBS_IN_AND_OUT):
    app.command()(verb)
app.add_typer(data, name="data")

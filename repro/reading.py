"""Verbs that only read: check judges every claim, explain-batch looks into one batch."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from repro.identity import run_id
from repro.places import local_records, published_records
from repro.registry import experiment_of, experiments
from repro.scales import ORDER, scale_named
from repro.spec import FIELDS, TRAINED, Run

Scale = Annotated[str, typer.Option(help=f"one of {', '.join(ORDER)}")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
EXIT_DIFFERS, EXIT_NOT_RUN = 1, 2


def check(
    scale: Scale = "desk",
    strict: Annotated[bool, typer.Option(help="exit 1 when a claim differs, else 2 when one was not run")] = False,
    write: Annotated[bool, typer.Option(help="renew the claims in REPRODUCING.md and the table in README.md")] = False,
    dry_run: Annotated[bool, typer.Option(help="with --write: only say what would change; exit 1 if anything")] = False,
    as_json: AsJson = False,
) -> None:
    """Judges every claim of the paper from the records: what does not hold first, what was not run last."""
    from repro.report import claims_view, render, sort_judgements, summary_line
    from repro.views import judgements

    scale_named(scale)
    judged = sort_judgements(judgement for experiment in experiments() for judgement in judgements(experiment, scale))
    if as_json:
        _print_json([judgement.as_dict() for judgement in judged])
    else:
        render(claims_view(judged, f"Claims at scale {scale}"), "text")
        print(summary_line(judged))
    if write:
        _renew_pages(judged, scale, dry_run)
    verdicts = {judgement.verdict for judgement in judged}
    if strict and verdicts & {"DIFFERS", "NOT RUN"}:
        raise typer.Exit(EXIT_DIFFERS if "DIFFERS" in verdicts else EXIT_NOT_RUN)


def _renew_pages(judged: list[Any], scale: str, dry_run: bool) -> None:
    from repro.pages import renewed_pages
    from repro.writing import whole_file

    changed = {path: text for path, text in renewed_pages(judged, scale).items() if path.read_text() != text}
    for path, text in changed.items():
        print(f"{path.name} {'would change' if dry_run else 'is renewed'}", file=sys.stderr)
        if not dry_run:
            with whole_file(path) as part:
                part.write_text(text)
    if dry_run and changed:
        raise typer.Exit(EXIT_DIFFERS)


def explain_batch(
    what: Annotated[str | None, typer.Argument(help="an artefact, when no --run is given")] = None,
    run: Annotated[str | None, typer.Option(help="the beginning of a run's id")] = None,
    where: Annotated[list[str] | None, typer.Option(help="of the artefact's runs: field=value, repeatable")] = None,
    batch: Annotated[int, typer.Option(min=1, help="which batch of the training, counted from 1 as its log does")] = 1,
    scale: Scale = "desk",
    pairs: Annotated[int, typer.Option(min=1, help="how many pairs of the batch to print")] = 8,
    negatives: Annotated[int, typer.Option(min=0, help="how many of the hardest negatives of each query")] = 3,
    as_json: AsJson = False,
) -> None:
    """Looks into one batch: its texts and clusters, the hardest negatives, what the filter removed and why."""
    from repro.explained import explanation_views
    from repro.microscope import explain
    from repro.report import render

    found = _find_run(run, what, where or [], scale)
    told = explain(found, batch, num_negatives=negatives, report=lambda line: print(line, file=sys.stderr))
    if as_json:
        return _print_json(told.as_dict())
    for view in explanation_views(told, num_pairs=pairs):
        render(view)


def _find_run(identifier: str | None, artefact: str | None, where: list[str], scale: str) -> Run:
    """Gives the run with this beginning of an id, or the first of an artefact whose fields have the asked values."""
    if identifier:
        return _run_by_id(identifier)
    if artefact is None:
        raise ValueError("which run? give --run ID, or an artefact and --where field=value")
    wanted = dict(_condition(text) for text in where)
    for run in experiment_of(artefact).runs(scale):
        fits = all(str(getattr(run, name)) == value for name, value in wanted.items())
        if fits and (run.architecture in TRAINED or run.measure == "batches"):
            return run
    raise ValueError(f"no run of {artefact} at scale {scale!r} with {wanted} has batches; see `repro plan {artefact}`")


def _condition(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or name not in FIELDS:
        raise ValueError(f"--where {text!r}: expected field=value with a field of {list(FIELDS)}")
    return name, value


def _run_by_id(identifier: str) -> Run:
    from repro.store import read_record

    paths = [path for folder in (local_records(), published_records()) for path in folder.glob(f"{identifier}*.json")]
    found = {path.stem: read_record(path).run for path in paths}
    declared = (run for experiment in experiments() for scale in ORDER for run in experiment.runs(scale))
    found |= {run_id(run): run for run in declared if run_id(run).startswith(identifier)}
    if len(found) != 1:
        why = f"it begins the ids of {sorted(found)[:5]}" if found else "no record and no declared run has it"
        raise ValueError(f"run {identifier!r}: {why}; `repro plan ARTEFACT` prints ids")
    return next(iter(found.values()))


VERBS_THAT_READ = (check, explain_batch)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, sort_keys=True))

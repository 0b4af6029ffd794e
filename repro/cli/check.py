"""Verbs that only read: check judges every claim, explain-batch looks into one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from repro.cli.options import EXIT_DIFFERS, EXIT_NOT_RUN, AsJson, Scale, What, print_json
from repro.cli.patience import in_turn, tell
from repro.records.lookup import resolve_experiments, run_of_id
from repro.spec import FIELDS, TRAINED, Experiment, Identity, Run
from repro.spec.artefact import PAPERS
from repro.spec.identity import run_id
from repro.spec.registry import check_every_experiment, find_experiment, find_paper
from repro.spec.scales import get_scale
from repro.spec.values import suggestion
from repro.storage.json_files import short

if TYPE_CHECKING:
    from repro.statistics.judge import Judgement


def check(
    what: What = None,
    scale: Scale = "desk",
    strict: Annotated[
        bool, typer.Option("--strict", help="exit 1 when a claim differs, else 2 when one was not run")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="renew all that is generated; see CONTRIBUTING.md")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="with --write: only say what would change; exit 1 if anything")
    ] = False,
    format: Annotated[str, typer.Option(help="text, md, latex or csv")] = "text",
    as_json: AsJson = False,
) -> None:
    """Judge the claims of the paper from the records, all or those of some artefacts or ids; what fails comes first."""
    from repro.report.formats import console_here, render, render_line
    from repro.report.tables import by_paper, format_summary_line, make_claims_view

    get_scale(scale)
    if dry_run and not write:
        raise ValueError("--dry-run says what --write would change; say both")
    if write and what:
        raise ValueError(f"check {' '.join(what)} --write: pages have all claims; leave the artefacts out")
    judged = judged_claims(what, scale)
    if as_json:
        print_json([{"paper": find_paper(one.claim.id), **one.as_dict()} for one in judged])
    elif format == "csv":  # one table
        render(make_claims_view(judged, f"claims at scale {scale}"), format)
    for paper, those in {} if as_json or format == "csv" else by_paper(judged).items():
        if those or len(judged) == 0:
            if not write:  # then the ledger is in the page
                width = console_here().width if format == "text" else None
                render(make_claims_view(those, f"{PAPERS[paper]}: claims at scale {scale}", width=width), format)
            render_line(f"{PAPERS[paper]}: {format_summary_line(those)}" if write else format_summary_line(those))
    if write:
        from repro.cli.renew import renew

        if renew(judged, scale, dry_run=dry_run) and dry_run:
            raise typer.Exit(EXIT_DIFFERS)
    words = {one.word for one in judged if not isinstance(one.claim, Identity)}  # arithmetic needs no record
    if strict and words & {"DIFFERS", "not run"}:
        raise typer.Exit(EXIT_DIFFERS if "DIFFERS" in words else EXIT_NOT_RUN)


def judged_claims(what: Sequence[str] | None, scale: str) -> list[Judgement]:
    """Return the claims that are asked for, judged; what does not hold first."""
    from repro.report.artefacts import judgements
    from repro.report.tables import sort_judgements

    chosen = in_turn(select_claims(what), lambda one: f"judging {one[0].artefacts[0]}")
    return sort_judgements(
        one for experiment, ids in chosen for one in judgements(experiment, scale) if one.claim.id in ids
    )


def select_claims(what: Sequence[str] | None) -> list[tuple[Experiment, set[str]]]:
    """Return experiments, each with the ids of its claims to judge: all of an artefact, or those named by their id."""
    from repro.planning.claim_text import CLAIM_ID, find_claim

    check_every_experiment()
    named = [find_claim(word) for word in what or () if CLAIM_ID.fullmatch(word)]
    others = [word for word in what or () if not CLAIM_ID.fullmatch(word)]
    whole = resolve_experiments(others) if others or not what else []
    found = {one.number: (one, {claim.id for claim in one.claims}) for one in whole}
    for experiment, claim in named:
        found.setdefault(experiment.number, (experiment, set()))[1].add(claim.id)
    return list(found.values())


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
    """Look into one batch: its texts and clusters, the hardest negatives, what the filter removed and why."""
    found = _find_run(run, what, where or [], scale)
    tell(f"looking into batch {batch} of run {run_id(found)}")
    from repro.analyses.microscope import explain
    from repro.report.batch import make_explanation_views
    from repro.report.formats import render

    told = explain(found, batch, num_negatives=negatives, progress=tell)
    if as_json:
        return print_json(told.as_dict())
    for view in make_explanation_views(told, num_pairs=pairs):
        render(view)


def _find_run(identifier: str | None, artefact: str | None, where: list[str], scale: str) -> Run:
    """Return the run with this beginning of an id, or the first of an artefact whose fields have the asked values."""
    if identifier and (artefact or where):
        raise ValueError(f"--run {identifier} is one run; leave out the artefact and --where")
    if identifier:
        return run_of_id(identifier)
    if artefact is None:
        raise ValueError("which run? give --run ID, or an artefact and --where field=value")
    wanted = dict(_condition(text) for text in where)
    every = find_experiment(artefact).runs(get_scale(scale).name)
    runs = [run for run in every if run.architecture in TRAINED or run.measure == "batches"]
    for run in runs:
        if all(str(getattr(run, name)) == value for name, value in wanted.items()):
            return run
    for name, value in wanted.items():
        there = list(dict.fromkeys(str(getattr(run, name)) for run in runs))
        if there and value not in there:
            raise ValueError(
                f"--where {name}={short(value)}: {artefact} at scale {scale!r} has {name} {', '.join(there)}"
            )
    raise ValueError(f"no run of {artefact} at scale {scale!r} with {wanted} has batches; see `repro plan {artefact}`")


def _condition(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign and name in FIELDS:
        raise ValueError(f"--where {text}: {text}=… needs a value; write --where {text}=VALUE")
    if not sign or name not in FIELDS:
        near = suggestion(name, FIELDS) or ":"
        raise ValueError(f"--where {text!r}{near} expected field=value with a field of {list(FIELDS)}")
    return name, value


VERBS_THAT_READ = (check, explain_batch)

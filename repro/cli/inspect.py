"""Verbs that inspect results: `check` judges claims, `explain-batch` shows one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from repro.cli.common import EXIT_DIFFERS, EXIT_NOT_RUN, AsJson, Scale, print_json, print_progress, track_progress
from repro.records.lookup import ID_PREFIX, find_run_by_id, resolve_experiments
from repro.spec import TRAINED, Experiment, Run
from repro.spec.artefact import MAIN, PAPERS
from repro.spec.identity import run_id
from repro.spec.registry import find_experiment, find_paper
from repro.spec.scales import get_scale

if TYPE_CHECKING:
    from repro.statistics.judge import Judgement


def check(
    what: Annotated[list[str] | None, typer.Argument(help="artefacts or claims such as T1.b (default: all)")] = None,
    scale: Scale = "desk",
    strict: Annotated[bool, typer.Option("--strict", help="exit code 1: a claim differs, 2: one was not run")] = False,
    write: Annotated[bool, typer.Option("--write", help="regenerate all generated files")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="with --write: only list the changes")] = False,
    as_json: AsJson = False,
) -> None:
    """Judge the claims of the paper from the records, all or those of some artefacts or ids. Failures come first."""
    from repro.report.formats import render, render_line
    from repro.report.tables import format_summary_line, group_by_paper, make_claims_view

    get_scale(scale)
    if dry_run and not write:
        raise ValueError("--dry-run lists the changes that --write would make: give both")
    if write and (what or scale != "desk"):
        raise ValueError("check --write regenerates pages with all claims: leave out artefacts and --scale")
    judged = judge_claims(what, scale)
    if as_json:
        print_json([{"paper": find_paper(judgement.claim.id), **judgement.as_dict()} for judgement in judged])
    else:
        for paper, members in group_by_paper(judged).items():
            summary = format_summary_line(members)
            # Companion papers would fill a third screen, so each is one line unless it is named. Pages have the ledger.
            if write or (paper != MAIN and not what):
                hint = "" if write else "; `repro check all` lists them"
                render_line(f"{PAPERS[paper]}: {summary}{hint}")
            elif members or not judged:
                title = f"{PAPERS[paper]}: claims at scale {scale}"
                view = make_claims_view(members, title, is_brief=True)
                render(replace(view, notes=(*view.notes, summary)))
    if write:
        from repro.cli.regenerate import regenerate

        if regenerate(judged, dry_run=dry_run) and dry_run:
            raise typer.Exit(EXIT_DIFFERS)
    verdicts = {judgement.word for judgement in judged}
    named = {word.casefold() for word in what or ()}
    if any(judgement.word == "other scale" and judgement.claim.id.casefold() in named for judgement in judged):
        verdicts.add("not run")
    if strict and verdicts & {"DIFFERS", "not run"}:
        raise typer.Exit(EXIT_DIFFERS if "DIFFERS" in verdicts else EXIT_NOT_RUN)


def judge_claims(what: Sequence[str] | None, scale: str) -> list[Judgement]:
    """Judge the selected claims and return them, failures first."""
    from repro.report.artefacts import judgements
    from repro.report.tables import sort_judgements

    selected = track_progress(select_claims(what), "judging")
    return sort_judgements(
        judgement
        for experiment, ids in selected
        for judgement in judgements(experiment, scale)
        if judgement.claim.id in ids
    )


def select_claims(what: Sequence[str] | None) -> list[tuple[Experiment, set[str]]]:
    """Return experiments with the ids of the claims to judge.

    An artefact selects all claims of its experiment, and the id of a claim selects that claim.
    """
    from repro.report.claim_text import CLAIM_ID, find_claim

    named_claims = [find_claim(word) for word in what or () if CLAIM_ID.fullmatch(word)]
    artefact_names = [word for word in what or () if not CLAIM_ID.fullmatch(word)]
    whole_experiments = resolve_experiments(artefact_names) if artefact_names or not what else []
    selected = {
        experiment.number: (experiment, {claim.id for claim in experiment.claims}) for experiment in whole_experiments
    }
    for experiment, claim in named_claims:
        selected.setdefault(experiment.number, (experiment, set()))[1].add(claim.id)
    return list(selected.values())


def explain_batch(
    what: Annotated[str, typer.Argument(help="the beginning of a run's id, or an artefact for its first run")],
    batch: Annotated[int, typer.Option(min=1, help="number of the batch, from 1 as in the log")] = 1,
    scale: Scale = "desk",
    pairs: Annotated[int, typer.Option(min=1, help="number of pairs to print")] = 8,
) -> None:
    """Show one batch: its texts and clusters, the hardest negatives, and the documents removed by the filter."""
    selected_run = _find_run(what, scale)
    print_progress(f"reading batch {batch} of run {run_id(selected_run)}")
    from repro.analyses.microscope import explain
    from repro.report.batch import make_explanation_views
    from repro.report.formats import render

    for view in make_explanation_views(explain(selected_run, batch, print_progress), num_pairs=pairs):
        render(view)


def _find_run(what: str, scale: str) -> Run:
    """Return the run whose id starts with `what`, or the first run with batches of this artefact.

    Raises ValueError if there is none.
    """
    if ID_PREFIX.fullmatch(what):
        return find_run_by_id(what)
    for run in find_experiment(what).runs(get_scale(scale).name):
        if run.architecture in TRAINED or run.measure == "batches":
            return run
    raise ValueError(f"no run of {what} at scale {scale!r} has batches; see `repro plan {what} --scale {scale}`")


VERBS = (check, explain_batch)

"""Verbs that run sweeps: launch, status, why, cancel, prune, fetch and verify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from repro.cli.common import (
    EXIT_NOT_RUN,
    AllSeeds,
    AsJson,
    DryRun,
    Named,
    Scale,
    Seeds,
    What,
    print_json,
    print_line,
    print_progress,
)
from repro.records.lookup import ID_PREFIX, find_run_by_id, get_sweep_name, resolve_runs
from repro.spec.scales import get_scale
from repro.storage.paths import check_home
from repro.text import count_noun, format_bytes

WhatToFetch = Annotated[list[str] | None, typer.Argument(help="artefacts, all, a file of runs, or data sets")]


def launch(
    what: Named,
    scale: Scale = "desk",
    seed: Seeds = None,
    all_seeds: AllSeeds = False,
    profile: Annotated[str, typer.Option(help="machine and resources (see slurm/README.md)")] = "here",
    retry: Annotated[bool, typer.Option("--retry", help="also start failed and cancelled runs")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the sbatch scripts, submit nothing")] = False,
) -> None:
    """Start missing runs on this machine or on Slurm, and no run twice. Exit code 2: a run failed or was skipped."""
    from slurm import start as launches
    from slurm.profiles import load_profile

    job_profile = load_profile(profile)
    sweep = get_sweep_name(what, scale)
    runs = resolve_runs(what, scale, seeds=seed, all_seeds=all_seeds)
    if dry_run:
        return _print_scripts(list(launches.scripts(runs, job_profile, sweep=sweep, retry=retry)))
    check_home()
    outcomes = launches.start(runs, job_profile, sweep=sweep, retry=retry, progress=print_line)
    if job_profile.on == "slurm" and set(outcomes.values()) - {launches.LEFT_OUT}:
        print_line("you may leave now; `repro status` with the same arguments shows the progress")
    if launches.LEFT_OUT in outcomes.values() or (job_profile.on == "local" and set(outcomes.values()) - {"done"}):
        raise typer.Exit(EXIT_NOT_RUN)


def _print_scripts(scripts: Sequence[tuple[str, str]]) -> None:
    """Print sbatch scripts under their names."""
    for name, script in scripts:
        print(f"# ---- {name}\n{script}")
    if not scripts:
        print_progress("nothing to submit: no run has to be started")


def status(
    what: What = None,
    scale: Scale = "desk",
    seed: Seeds = None,
    all_seeds: AllSeeds = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of every run and its reason.

    A run is recorded, running, queued, failed, unreadable or missing.
    """
    from slurm.status import get_statuses, show_status

    runs = resolve_runs(what, scale, seeds=seed, all_seeds=all_seeds)
    if as_json:
        return print_json([asdict(status) for status in get_statuses(runs)])
    show_status(runs)


def why(
    run: Annotated[str, typer.Argument(metavar="RUN_OR_CLAIM", help="beginning of a run's id, or a claim as T1.b")],
    scale: Annotated[str, typer.Option(help="scale of the claim")] = "desk",
) -> None:
    """Explain one run (state, reason, log, script, owners and scheduler state) or one claim."""
    if not ID_PREFIX.fullmatch(run):
        # so that a misspelt claim is not reported as an unknown run
        return _explain_claim(run, scale)
    from slurm.status import explain_run

    for name, value in explain_run(find_run_by_id(run)).items():
        if value in ("", None, [], 0):
            continue
        if isinstance(value, list):
            print_line("\n  ".join([f"{name}: ", *map(str, value)]))
        else:
            print_line(f"{name}: {value}")


def _explain_claim(id: str, scale: str) -> None:
    """Print the explanation of a claim. Raises ValueError if no claim has this id."""
    from repro.report.claim_text import explain_claim
    from repro.report.formats import render_line

    chosen = get_scale(scale).name
    try:
        lines = explain_claim(id, chosen)
    except ValueError as error:
        raise ValueError(f"{error}; no run has this id either, `repro plan` and `repro status` show ids") from error
    for line in lines:
        render_line(line, hanging=len("  to decide   "))


def cancel(what: Named, scale: Scale = "desk", seed: Seeds = None, all_seeds: AllSeeds = False) -> None:
    """Stop running and queued runs. A training run writes a checkpoint first, and `launch --retry` resumes it."""
    from slurm.start import cancel as stop

    stopped = stop(resolve_runs(what, scale, seeds=seed, all_seeds=all_seeds))
    for status in stopped:
        print_line(f"{status.id}: was {status.state}, is stopping")
    print_line(count_noun(len(stopped), "run") if stopped else "nothing to cancel: no run is running or queued")


def prune(
    what: Named,
    scale: Scale = "desk",
    seed: Seeds = None,
    all_seeds: AllSeeds = False,
    weights: Annotated[bool, typer.Option("--weights", help="also remove trained weights, after confirmation")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="with --weights: skip the confirmation")] = False,
    dry_run: DryRun = False,
) -> None:
    """Remove incomplete files and files that recorded runs no longer need, with --weights also their trained weights."""
    from slurm.prune import is_trained, list_leftovers, remove

    removable = list(list_leftovers(resolve_runs(what, scale, seeds=seed, all_seeds=all_seeds)))
    trained = [(path, size) for path, size in removable if is_trained(path)]
    to_remove = removable if weights else [entry for entry in removable if not is_trained(entry[0])]
    if weights and trained and not dry_run and not yes:
        question = f"the {_describe_weights(trained)} are the only copies, and must be trained again"
        typer.confirm(f"{question}. Remove them?", abort=True)
    if not dry_run:
        for path, _ in to_remove:
            remove(path)
    verb, num_bytes = "would remove" if dry_run else "removed", sum(size for _, size in to_remove)
    print_line(
        f"{verb} {count_noun(len(to_remove), 'file or folder', 'files and folders')} ({format_bytes(num_bytes)})"
    )
    if trained and not weights:
        print_line(f"kept the {_describe_weights(trained)}, the only copies: --weights removes them")


def _describe_weights(trained: Sequence[tuple[Path, int]]) -> str:
    num_trainings = len({path.parent for path, _ in trained})
    size = format_bytes(sum(size for _, size in trained))
    return f"trained weights of {count_noun(num_trainings, 'training run')} ({size})"


def fetch(
    what: WhatToFetch = None,
    scale: Scale = "desk",
    seed: Seeds = None,
    all_seeds: AllSeeds = False,
    hub_id: Annotated[str | None, typer.Option("--from", help="hub id to fetch one data set from")] = None,
) -> None:
    """Download the requirements of runs, or declared data sets by name. Needs a network. If interrupted, it resumes."""
    needs = _list_needs(what, scale=scale, seeds=seed, all_seeds=all_seeds)
    if hub_id is not None:
        from repro.data.paper.hub import SOURCES
        from repro.data.paper.local_copies import fetch as fetch_source

        if len(what or ()) != 1 or not {*(what or ())} <= SOURCES.keys():
            raise ValueError(f"--from {hub_id}: name one data set of {', '.join(SOURCES)}")
        fetch_source(*(what or ()), hub_id=hub_id, progress=print_line)
        return
    for need in needs:
        if need.is_here():
            print_line(f"here     {need.name}")
        else:
            print_line(f"fetching {need.name}: {need.how}")
            need.download(print_line)


def verify(what: WhatToFetch = None, scale: Scale = "desk", seed: Seeds = None, all_seeds: AllSeeds = False) -> None:
    """Check that all requirements are here and unchanged, so that runs need no network. Exit code 2: one is missing.

    A corpus that a run builds without a network is not missing.
    """
    is_complete = True
    for need in _list_needs(what, scale=scale, seeds=seed, all_seeds=all_seeds):
        problems = need.problems()
        is_good = need.is_made_here or not problems
        print_line(f"{'ok  ' if is_good else 'MISS'} {': '.join([need.name, *problems])}")
        is_complete = is_complete and is_good
    if not is_complete:
        raise typer.Exit(EXIT_NOT_RUN)


def _list_needs(what: list[str] | None, **selection: Any) -> list[Any]:
    """Return the selected data sets, and the requirements of the runs that `selection` selects (see `resolve_runs`)."""
    from repro.data.paper.local_copies import list_source_names
    from repro.planning.requirements import list_requirements, list_source_requirements

    sources = [name for name in what or () if name in list_source_names()]
    run_selectors = [name for name in what or () if name not in sources]
    needs = [need for name in sources for need in list_source_requirements(name)]
    # Only data sets were named, so no run is selected.
    if sources and not run_selectors:
        return needs
    return needs + list_requirements(resolve_runs(run_selectors, **selection))


VERBS = (launch, status, why, cancel, prune, fetch, verify)

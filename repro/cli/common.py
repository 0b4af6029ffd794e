"""Options, exit codes and terminal output that all verbs share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar

import typer

from repro.spec.scales import ORDER
from repro.text import make_printable

SELECTION = "artefacts (table1, figure3, …), all, run ids or a file of runs, then axes (seed=1..5 batch_size=64,128)"
Item = TypeVar("Item")


What = Annotated[list[str] | None, typer.Argument(help=f"{SELECTION} (default: all)")]
Named = Annotated[list[str], typer.Argument(metavar="WHAT...", help=SELECTION)]
"""Required selection, for verbs that start, stop or remove runs. They act on everything only if `all` is given."""
Scale = Annotated[str, typer.Option(help=f"one of {', '.join(ORDER)}")]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="use these seeds (default: those of the artefact)")]
AllSeeds = Annotated[bool, typer.Option("--all-seeds", help="use every seed of the published results")]
ContextSeed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="seed for drawing the context documents")]
Revision = Annotated[str | None, typer.Option(help="revision of the hub id")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="show what would be done, change nothing")]

EXIT_DIFFERS = 1
"""`check --strict`: a claim differs."""
EXIT_NOT_RUN = 2
"""Something failed, did not run, or the command line names something that does not exist."""
EXIT_STOPPED = 130
"""Stopped from the keyboard."""


def print_line(line: str) -> None:
    """Print a line on stdout and flush it."""
    print(make_printable(line), flush=True)


def print_progress(line: str) -> None:
    """Print a progress line on stderr, so that stdout holds results alone."""
    print(make_printable(line), file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print plain values as JSON."""
    print(json.dumps(value, indent=1, sort_keys=True))


def track_progress(items: Sequence[Item], description: str) -> Iterable[Item]:
    """Yield the items one by one. A terminal shows a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import track

    return track(items, description, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())

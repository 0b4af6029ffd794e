"""What the verbs share: options with one name and meaning everywhere, exit codes, lines and JSON on the terminal."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from repro.spec.axes import is_axis
from repro.spec.registry import normalise_artefact_name
from repro.spec.scales import ORDER
from repro.storage.json_files import visible

ASKED = "artefacts (table1, figure3, …), all, run ids, or a file of runs; then axes (seed=1..5 batch_size=64,128)"


def _fold_artefact_names(words: list[str] | None) -> list[str] | None:
    """Return the words with "Table 1" as table1."""
    return words and [word if is_axis(word) else normalise_artefact_name(word) for word in words]


What = Annotated[list[str] | None, typer.Argument(help=f"{ASKED} (default: all)", callback=_fold_artefact_names)]
Named = Annotated[list[str], typer.Argument(metavar="WHAT...", help=ASKED, callback=_fold_artefact_names)]
"""Of verbs that start, stop or remove: they do nothing to everything unless `all` is said."""
Scale = Annotated[str, typer.Option(help=f"one of {', '.join(ORDER)}")]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="these seeds (default: the artefact's own)")]
AllSeeds = Annotated[bool, typer.Option("--all-seeds", help="every seed of the published results")]
Unpublished = Annotated[
    bool, typer.Option("--unpublished", help="every seed of the published results whose record lacks there")
]
ALL_PUBLISHED = "nothing is missing: every record is published"
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="show what would be done")]

EXIT_DIFFERS = 1
"""`check --strict`: a claim differs."""
EXIT_NOT_RUN = 2
"""Something could not run, was not run, or the reader asked for what there is not."""
EXIT_STOPPED = 130
"""Stopped from the keyboard."""


def say(line: str) -> None:
    """Print a line at once."""
    print(visible(line), flush=True)


def print_json(value: Any) -> None:
    """Print plain values as JSON."""
    print(json.dumps(value, indent=1, sort_keys=True))

"""The verbs in and out: evaluate a model from anywhere, export one to other libraries; thin, as all verbs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Model = Annotated[str, typer.Option(help="a run's id, a folder (ours, the authors', an export), or a hub id")]
SuiteName = Annotated[str, typer.Option(help="a suite's or an imported corpus' name, or a BEIR folder, or some in one")]
KINDS = ("own", "wrong", "null")


def evaluate(
    model: Model,
    suite: SuiteName,
    context: Annotated[list[str] | None, typer.Option(help=f"{', '.join(KINDS)}; may be given again")] = None,
    context_seed: Annotated[int, typer.Option(help="draws the context documents")] = 0,
    num_contexts: Annotated[int | None, typer.Option(help="context documents (default: the model's own)")] = None,
    revision: Annotated[str | None, typer.Option(help="of a hub id")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, … (default: a GPU when there is one)")] = None,
    out: Annotated[
        Path | None, typer.Option(help="where scores.json and the TREC runs go (default: below out/)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Scores a model on a suite: a line for each context, oddities of collections below, TREC runs beside."""
    from repro.interop.evaluating import Asked, evaluate_anything
    from repro.report import render

    unknown = sorted(set(context or ()) - set(KINDS))
    if unknown:
        raise ValueError(f"unknown context {unknown}; choose of {list(KINDS)}")
    asked = Asked(model, suite, tuple(context or ("own",)), context_seed, num_contexts, revision, device)
    scores = evaluate_anything(asked, out, report=(lambda line: None) if as_json else say)
    if as_json:
        return print(json.dumps(scores.as_dict(), indent=1, sort_keys=True))
    render(scores.view())
    say(f"scores.json and TREC runs are in {scores.folder}")


def export(
    model: Annotated[str, typer.Argument(help="a run's id, a folder, or a hub id")],
    folder: Annotated[Path, typer.Argument(help="a folder that is not there yet, or empty")],
    to: Annotated[str, typer.Option(help="sentence-transformers, transformers, or official (the authors' format)")],
    push_to: Annotated[str | None, typer.Option(help="upload the folder to this hub id, too")] = None,
    private: Annotated[bool, typer.Option(help="make the uploaded repository private")] = False,
) -> None:
    """Writes a model as a folder that another library opens, with a model card told from its record."""
    from repro.interop.exporting import export_model, push_to_hub

    for line in export_model(model, folder, to, report=say):
        say(line)
    if push_to is not None:
        say(f"uploaded to {push_to_hub(folder, push_to, private=private)}")


def score(
    run: Annotated[Path, typer.Argument(help="a TREC run file, gzipped or not")],
    judgements: Annotated[Path, typer.Argument(help="TREC qrels, or a .tsv of a BEIR folder")],
    as_json: AsJson = False,
) -> None:
    """Scores somebody's TREC run against judgements, by trec_eval's definitions."""
    from repro.evaluate.trec import score_files

    means = score_files(run, judgements)
    if as_json:
        return print(json.dumps(means, indent=1, sort_keys=True))
    for measure, value in means.items():
        say(f"{measure} {value:.4f}")


VERBS = (evaluate, export, score)


def say(line: str) -> None:
    """Prints a line at once."""
    print(line, flush=True)

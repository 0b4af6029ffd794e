"""The verb that shows one query of a contextual model under its own, a wrong and the null context."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from repro.cli.options import AsJson, print_json
from repro.cli.patience import tell
from repro.interop.named_runs import check_run_is_contextual
from repro.interop.typed import check_suite
from repro.records.lookup import run_of_id
from repro.spec.identity import run_id


def explain_context(
    run: Annotated[str | None, typer.Argument(help="the beginning of a run's id, when no --model is given")] = None,
    query: Annotated[str, typer.Option(help="the text of a query, or the id of one of the suite's")] = "",
    suite: Annotated[
        str | None,
        typer.Option(help="as for evaluate: a suite, an imported corpus, a BEIR folder (default: the run's)"),
    ] = None,
    model: Annotated[str | None, typer.Option(help="instead of a run: a folder (ours, an export), or a hub id")] = None,
    dataset: Annotated[str | None, typer.Option(help="which collection of the suite is searched")] = None,
    words: Annotated[int, typer.Option(min=1, help="how many words of each text to print")] = 6,
    top: Annotated[int, typer.Option(min=1, help="how many of the first documents under each context")] = 5,
    context_seed: Annotated[int, typer.Option(help="draws the context documents")] = 0,
    num_contexts: Annotated[int | None, typer.Option(help="context documents (default: the model's own)")] = None,
    revision: Annotated[str | None, typer.Option(help="of a hub id")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, … (default: a GPU when there is one)")] = None,
    as_json: AsJson = False,
) -> None:
    """Look at one query under its own, a wrong and the null context: words that gain or lose weight, and the ranks."""
    if (run is None) == (model is None):
        raise ValueError("which model? give the beginning of a run's id, or --model FOLDER")
    if not query.strip():
        raise ValueError('which query? give --query "…", the text of a query or the id of one of the suite\'s')
    source = run_id(run_of_id(run)) if run else str(model)
    check_run_is_contextual(source)
    if suite is not None:
        check_suite(suite)
    tell(f"opening {source}")  # before the imports: they load torch
    asked: dict[str, Any] = {
        "model": source,
        "query": query,
        "suite": suite,
        "dataset": dataset,
        "top": top,
        "device": device,
    }
    asked |= {"context_seed": context_seed, "num_contexts": num_contexts, "revision": revision}
    _explain(words, as_json, **asked)


def _explain(num_words: int, as_json: bool, **asked: Any) -> None:
    """Print the explanation that was asked for."""
    from repro.interop.explaining import AskedQuery, explain_anything
    from repro.report.context import make_context_views
    from repro.report.formats import render

    told = explain_anything(AskedQuery(**asked), progress=tell)
    if as_json:
        return print_json(told.as_dict())
    for view in make_context_views(told, num_words=num_words):
        render(view)


VERBS = (explain_context,)

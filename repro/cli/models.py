"""Verbs that open models from any source: to evaluate, export, adapt and search with them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from repro.cli.common import AsJson, ContextSeed, Revision, print_json, print_line, print_progress
from repro.text import shorten

MAX_EXCERPT_CHARACTERS = 100

Model = Annotated[
    str | None,
    typer.Option(help="a run's id, a folder (ours, an export or the authors' format), a hub id, minilm, or bm25"),
]
ModelToOpen = Annotated[str, typer.Argument(help="a run's id, a folder (ours or another's), a hub id, or minilm")]
OurModel = Annotated[str, typer.Argument(help="a run's id, or a folder or hub id of one of our models")]
CorpusName = Annotated[
    str, typer.Option(help="an imported corpus, a suite of one collection, a BEIR folder or a file of documents")
]
SuiteName = Annotated[str, typer.Option(help="a suite, an imported corpus, a BEIR folder, or a folder of BEIR folders")]
Two = Annotated[tuple[str, str] | None, typer.Option(metavar="A B", help="evaluate two models and their difference")]


def evaluate(
    suite: SuiteName,
    model: Model = None,
    compare: Two = None,
    split: Annotated[str, typer.Option(help="split of a BEIR folder to score (default: test, or dev)")] = "",
    context: Annotated[list[str] | None, typer.Option(help="own, wrong or null, repeatable (default: own)")] = None,
    context_seed: ContextSeed = 0,
    bm25: Annotated[
        bool | None, typer.Option("--bm25/--no-bm25", help="compare with BM25 (default: up to 200 000 documents)")
    ] = None,
    language: Annotated[str, typer.Option(help="language that BM25 stems, or none (default: stored or detected)")] = "",
    whiten: Annotated[list[str] | None, typer.Option(help="also whiten by own or wrong text, repeatable")] = None,
    revision: Revision = None,
    leave_out_seen: Annotated[bool, typer.Option("--leave-out-seen", help="score only queries not trained on")] = False,
    out: Annotated[Path | None, typer.Option(help="folder for scores.json and TREC runs (default: below out/)")] = None,
    as_json: AsJson = False,
) -> None:
    """Score a model on a suite under each context, compared with BM25. If interrupted, it resumes at the next collection."""
    if (model is None) == (compare is None):
        raise ValueError("name one model with --model M, or two with --compare A B")
    first, second = (str(model), None) if compare is None else compare
    print_progress(f"opening {suite} and {' and '.join(compare or (first,))}")
    from repro.interop.evaluating import EvaluationRequest, run_evaluation
    from repro.report.formats import render

    request = EvaluationRequest(
        model=first,
        suite=suite,
        split=split,
        contexts=tuple(dict.fromkeys(context or ("own",))),
        context_seed=context_seed,
        revision=revision,
        bm25=bm25,
        language=language,
        compare_with=second,
        whiten=tuple(dict.fromkeys(whiten or ())),
        leave_out_seen=leave_out_seen,
    )
    scores = run_evaluation(request, out, progress=print_progress if as_json else print_line)
    if as_json:
        return print_json(scores.as_dict())
    for view in scores.views():
        render(view)
    for line in scores.warnings:
        print_line(line)
    print_line(f"scores.json and TREC runs are in {scores.folder}")


def export(
    model: OurModel,
    folder: Annotated[Path, typer.Argument(help="a folder that does not exist yet, or is empty")],
) -> None:
    """Write a model as a folder that sentence-transformers opens, with a model card from its record."""
    # before torch is loaded, because that takes seconds
    print_progress(f"opening {model}")
    from repro.interop.exporting import export_model

    for line in export_model(model, folder, progress=print_line):
        print_line(line)


def adapt(
    model: ModelToOpen,
    corpus: CorpusName,
    to: Annotated[Path, typer.Option(help="a folder that does not exist yet, or is empty")],
) -> None:
    """Whiten an encoder by a corpus, without training, and write a folder that sentence-transformers opens."""
    print_progress(f"opening {model}")
    from repro.interop.adapting import adapt_model

    for line in adapt_model(model, corpus, to, progress=print_line):
        print_line(line)


def search(
    model: ModelToOpen,
    query: Annotated[list[str] | None, typer.Argument(help="texts (default: one query per line of stdin)")] = None,
    *,
    corpus: CorpusName,
    top: Annotated[int, typer.Option(min=1, help="number of documents per query")] = 10,
    as_json: AsJson = False,
) -> None:
    """Search a corpus with a model, and print the best documents with their scores."""
    if not query and sys.stdin.isatty():
        raise ValueError('no query: give one in quotes, repro search MODEL "query", or several on stdin, one per line')
    queries = [text.strip() for text in query or sys.stdin.read().splitlines() if text.strip()]
    if not queries:
        raise ValueError("no query: every line was empty")
    from repro.interop.search import search as find

    results_by_query = find(model, corpus, queries, top=top, progress=print_progress)
    if as_json:
        rows = zip(queries, results_by_query, strict=True)
        return print_json(
            [{"query": text, "results": [asdict(result) for result in results]} for text, results in rows]
        )
    for text, results in zip(queries, results_by_query, strict=True):
        if len(queries) > 1:
            print_line(f"\n{shorten(text)}")
        for result in results:
            excerpt = shorten(" ".join(result.text.split()), MAX_EXCERPT_CHARACTERS)
            print_line(f"{result.rank:>3}  {result.score:.3f}  {result.id}  {excerpt}")


VERBS = (evaluate, export, adapt, search)

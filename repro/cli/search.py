"""Verb that searches a corpus with a model."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from repro.cli.common import AsJson, print_json, print_line, print_progress
from repro.text import shorten

MAX_EXCERPT_CHARACTERS = 100


def search(
    model: Annotated[
        str, typer.Argument(help="a run's id, a folder (ours, an export or another's), a hub id, or minilm")
    ],
    query: Annotated[
        list[str] | None, typer.Argument(help="text to search for (default: one query per line of stdin)")
    ] = None,
    *,
    corpus: Annotated[
        str, typer.Option(help="an imported corpus, a suite of one collection, a BEIR folder or a file of documents")
    ],
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


VERBS = (search,)

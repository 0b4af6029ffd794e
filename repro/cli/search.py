"""Verb that searches a corpus with a model."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from repro.cli.common import AsJson, print_json, say, tell
from repro.text import short

SHOWN_LETTERS = 100


def search(
    model: Annotated[
        str,
        typer.Argument(
            help="a run's id, a folder (ours, an export or sentence-transformers), a hub id, minilm, or an imported "
            "corpus, which is searched with the best recorded model"
        ),
    ],
    query: Annotated[
        list[str] | None, typer.Argument(help="text to search for (default: one query per line of stdin)")
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(help="imported corpus, suite, BEIR folder or jsonl file (default: the corpus of the run)"),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(help="context of a contextual model: own, null, or a corpus to draw it from (default: own)"),
    ] = None,
    context_seed: Annotated[int, typer.Option(min=0, help="seed for drawing the context documents")] = 0,
    top: Annotated[int, typer.Option(min=1, help="number of documents per query")] = 10,
    as_json: AsJson = False,
) -> None:
    """Search a corpus with a model, and print the best documents with their scores. The index is cached."""
    from repro.interop.search.index import SearchRequest
    from repro.interop.search.query import search as find

    if not query and sys.stdin.isatty():
        raise ValueError('no query: give one in quotes, repro search MODEL "query", or several on stdin, one per line')
    queries = [one.strip() for one in query or sys.stdin.read().splitlines() if one.strip()]
    if not queries:
        raise ValueError("no query: every line was empty")
    found = find(SearchRequest(model, corpus, context, context_seed), queries, top, tell)
    if as_json:
        rows = zip(queries, found, strict=True)
        return print_json([{"query": text, "results": [asdict(one) for one in those]} for text, those in rows])
    for text, those in zip(queries, found, strict=True):
        if len(queries) > 1:
            say(f"\n{short(text)}")
        for one in those:
            say(f"{one.rank:>3}  {one.score:.3f}  {one.id}  {short(' '.join(one.text.split()), SHOWN_LETTERS)}")


VERBS = (search,)

"""Verbs about data: show a corpus, and import your own."""

from __future__ import annotations

import re
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any

import typer

from repro.cli.common import print_line, print_progress
from repro.text import shorten

MAX_SAMPLE_CHARACTERS = 300


data = typer.Typer(help="Show a corpus (`repro data show desk`), and import your own.", no_args_is_help=True)


@data.command()
def show(
    corpus: Annotated[str, typer.Argument(help="name of the corpus")] = "desk",
    samples: Annotated[int, typer.Option(min=0, help="number of sample rows per source")] = 2,
) -> None:
    """Build a corpus if it is missing, and print its counts and samples."""
    from repro.data.own.imported import find_imported
    from repro.pipeline.corpora import describe_corpus
    from repro.storage.paths import is_imported

    name = find_imported(corpus).corpus if is_imported(corpus) else corpus
    _show_corpora(describe_corpus(name, samples, progress=print_progress))


def _show_corpora(described: dict[str, Any]) -> None:
    """Print the sources of a corpus as a table, then samples from each source."""
    from repro.report.formats import render
    from repro.report.view import View
    from repro.text import format_number

    rows = [(source["source"], source["num_pairs"], source["num_domains"]) for source in described["sources"]]
    rows.append(("all", described["num_pairs"], described["num_domains"]))
    cells = tuple((name, format_number(pairs, 0), format_number(domains, 0)) for name, pairs, domains in rows)
    render(View(f"{described['corpus']}: training pairs", ("source", "pairs", "domains"), cells, align="lrr"))
    for sample in described["samples"]:
        print_line(f"\n{sample['source']}")
        for side in ("query", "document"):
            print_line(f"  {side:<10}{shorten(' '.join(sample[side].split()), MAX_SAMPLE_CHARACTERS)}")


@data.command("import")
def import_(
    path: Annotated[Path, typer.Argument(help="a jsonl, csv, tsv or parquet file, or a folder")],
    name: Annotated[str | None, typer.Option(help="name of the corpus in runs (default: that of the file)")] = None,
    query: Annotated[str | None, typer.Option(help="column of queries (default: query, anchor or question)")] = None,
    document: Annotated[str | None, typer.Option(help="column of documents (default: document, positive, …)")] = None,
    negatives: Annotated[str | None, typer.Option(help="column of negatives (default: negatives or negative)")] = None,
    domain: Annotated[str | None, typer.Option(help="column of domains (default: domain, dataset or source)")] = None,
    label: Annotated[str | None, typer.Option(help="column of labels (default: label, relevance, score, …)")] = None,
    threshold: Annotated[str, typer.Option(help="labels of pairs: the lowest one, or names as relevant,partly")] = "",
    lower_is_better: Annotated[bool, typer.Option("--lower-is-better", help="pairs have the lower labels")] = False,
    no_labels: Annotated[bool, typer.Option("--no-labels", help="import every row as a pair")] = False,
    language: Annotated[str, typer.Option(help="language that BM25 stems, or none (default: detected)")] = "",
    allow_unknown: Annotated[bool, typer.Option("--allow-unknown", help="import mostly unknown tokens, too")] = False,
    hold_out: Annotated[list[str] | None, typer.Option(help="evaluate on these domains (default: on a tenth)")] = None,
    evaluate_on: Annotated[Path | None, typer.Option(help="evaluate on this BEIR folder, hold out nothing")] = None,
    split: Annotated[str, typer.Option(help="split of a BEIR folder to evaluate on (default: test, or dev)")] = "",
    scale: Annotated[str, typer.Option(help="scale of the runs. mini2 starts from MiniLM, desk from words")] = "mini2",
) -> None:
    """Import a corpus of pairs: audit it, hold out a part for evaluation, and write a file of runs."""
    from repro.data.columns import Columns
    from repro.data.own.imported import import_source
    from repro.evaluate.terms import check_language
    from repro.pipeline.corpora import list_project_names
    from repro.planning.imported import format_evaluation_set, plan_imported
    from repro.spec.scales import get_scale
    from repro.storage.paths import check_home

    check_home()
    scale = get_scale(scale).name
    if language:
        check_language(language)
    names = {"query": query, "document": document, "negatives": negatives, "domain": domain, "label": label}
    given = {part: column for part, column in names.items() if column is not None}
    corpus = import_source(
        path,
        name=name if name is not None else _make_name(path),
        columns=Columns(given, threshold, lower_is_better, no_labels),
        reserved=list_project_names(),
        hold_out=hold_out or (),
        evaluate_on=evaluate_on,
        split=split,
        language=language,
        progress=print_progress,
    )
    try:
        if corpus.only_evaluates:
            lines = format_evaluation_set(corpus.name, print_progress)
        else:
            lines = plan_imported(corpus.name, scale, print_progress, allow_unknown=allow_unknown).lines()
    except BaseException:
        # the name is free again
        rmtree(corpus.folder)
        raise
    for line in lines:
        print_line(line)


def _make_name(path: Path) -> str:
    """Return the name of a corpus for a file or folder."""
    stem = path.resolve().name.partition(".")[0].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-._")[:40] or "mine"

"""Verbs about data: show a corpus, import your own, and plan runs on it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from repro.cli.common import AsJson, print_json, print_line, print_progress
from repro.stopping import Stopped
from repro.text import shorten

if TYPE_CHECKING:
    from repro.data.own.imported import ImportedCorpus
    from repro.planning.imported import Planned

MAX_SAMPLE_CHARACTERS = 300
Name = Annotated[
    str | None, typer.Option(help="name of the corpus in runs: a-z, 0-9, '.', '_', '-' (default: that of the file)")
]
PretrainedScale = Annotated[
    str | None, typer.Option(help="scale of the runs (default: mini, which starts from MiniLM; desk with --from-words)")
]
FromWords = Annotated[
    bool, typer.Option("--from-words", help="train a small model from word vectors, instead of MiniLM")
]


class _ShowsByDefault(TyperGroup):
    """Command group with `show` as the default: `repro data desk` means `repro data show desk`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `show` if the first word is not a command."""
        if args and (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


data = typer.Typer(
    cls=_ShowsByDefault,
    help="Show a corpus (`repro data desk`), import your own, and plan runs on it.",
    no_args_is_help=True,
)


@data.command()
def show(
    corpus: Annotated[str, typer.Argument(help="name of the corpus")] = "desk",
    samples: Annotated[int, typer.Option(min=0, help="number of sample rows per source")] = 2,
    write_manifests: Annotated[
        bool, typer.Option("--write-manifests", help="rewrite the committed manifests from the installed packages")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build a corpus if it is missing, and print its counts and samples."""
    from repro.data.own.imported import find_imported
    from repro.pipeline.corpora import describe_corpus
    from repro.storage.paths import is_imported

    if write_manifests:
        return _rewrite_manifests(corpus)
    name = find_imported(corpus).corpus if is_imported(corpus) else corpus
    described = describe_corpus(name, samples, progress=print_progress)
    if as_json:
        return print_json(described)
    _show_corpora(described)


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


def _rewrite_manifests(corpus: str) -> None:
    """Mine a corpus again and rewrite its manifests. Raises ValueError if the corpus is not mined."""
    from repro.data.mined.manifests import FUNCTIONS_FOLDER, WIDE_FOLDER, write_manifests
    from repro.data.mined.many import choose_packages
    from repro.data.mined.mining import mine_added_sources, mine_all, mine_functions

    mine: dict[str, Callable[[], None]] = {
        "desk": lambda: write_manifests(mine_all()),
        "functions": lambda: write_manifests([mine_functions()], FUNCTIONS_FOLDER),
        "wide": lambda: write_manifests(mine_added_sources(), WIDE_FOLDER),
        "packages-many": choose_packages,
    }
    if corpus not in mine:
        raise ValueError(
            f"corpus {corpus!r} has no manifests of its own to write: --write-manifests goes with {[*mine]}"
        )
    mine[corpus]()


@data.command("import")
def import_(
    path: Annotated[
        Path,
        typer.Argument(help="a jsonl, csv, tsv, parquet or arrow file, a folder of them, a BEIR folder, zip or tar"),
    ],
    name: Name = None,
    query: Annotated[str | None, typer.Option(help="column of queries (default: query, anchor or question)")] = None,
    document: Annotated[
        str | None, typer.Option(help="column of documents (default: document, positive, pos, answer, passage or text)")
    ] = None,
    negatives: Annotated[
        str | None,
        typer.Option(
            help="column of negatives, trained on if half of the pairs have some (default: negatives, negative or neg)"
        ),
    ] = None,
    domain: Annotated[str | None, typer.Option(help="column of domains (default: domain, dataset or source)")] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="column of labels, rows below --threshold are no pairs (default: label, relevance, score, …)"
        ),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="lowest label of a pair (default: chosen and printed)")
    ] = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="ignore labels and import every row as a pair")
    ] = False,
    allow_unknown: Annotated[
        bool,
        typer.Option("--allow-unknown", help="import texts even if most of their tokens are unknown to the tokenizer"),
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="skip malformed rows and count them")] = False,
    hold_out: Annotated[list[str] | None, typer.Option(help="evaluate on these domains (default: on a tenth)")] = None,
    evaluate_on: Annotated[
        Path | None, typer.Option(help="evaluate on this BEIR folder instead of held-out pairs")
    ] = None,
    scale: PretrainedScale = None,
    from_words: FromWords = False,
    as_json: AsJson = False,
) -> None:
    """Import a corpus of pairs: audit it, hold out a part for evaluation, and write a file of runs."""
    from repro.data.columns import Columns
    from repro.data.own.imported import import_source
    from repro.data.paper.local_copies import list_source_names
    from repro.pipeline.corpora import CORPORA
    from repro.spec import MTEB_SUITES
    from repro.storage.paths import check_home

    chosen_scale = _choose_scale(scale, from_words=from_words)
    name = name if name is not None else _make_name(path)
    check_home()
    column_names = {"query": query, "document": document, "negatives": negatives, "domain": domain, "label": label}
    given = {part: column for part, column in column_names.items() if column is not None}
    columns = Columns(given, threshold, no_labels)
    reserved = {
        *CORPORA,
        *list_source_names(),
        *MTEB_SUITES,
        *(suite for builtin in CORPORA.values() for suite in builtin.suites),
    }
    corpus = import_source(
        path,
        name=name,
        columns=columns,
        reserved=reserved,
        hold_out=hold_out or (),
        evaluate_on=evaluate_on,
        skip_bad=skip_bad,
    )
    training_options = {"--scale": scale, "--from-words": from_words, "--allow-unknown": allow_unknown}
    unused = [option for option, value in training_options.items() if value]
    planned = _plan_or_undo(corpus, chosen_scale, as_json, allow_unknown=allow_unknown, training_options=unused)
    _print_plan(planned, as_json)


def _choose_scale(scale: str | None, *, from_words: bool) -> str:
    """Return the scale of the runs on an imported corpus. Raises ValueError if the options contradict each other."""
    from repro.spec.scales import SCALES, get_scale

    scales = [name for name, candidate in SCALES.items() if candidate.fields["start"] == "words"]
    if from_words and scale not in (None, *scales):
        raise ValueError(
            f"--from-words with --scale {scale}: scales {scales} start from word vectors; give one of both"
        )
    return get_scale(scale or ("desk" if from_words else "mini")).name


def _make_name(path: Path) -> str:
    """Return the name of a corpus for a file or folder."""
    stem = path.resolve().name.partition(".")[0].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-._")[:40] or "mine"


def _plan_or_undo(
    corpus: ImportedCorpus, scale: str, as_json: bool, *, allow_unknown: bool, training_options: list[str]
) -> Planned | list[str]:
    """Plan runs on an imported corpus, or return the lines about an evaluation set.

    If planning fails, the imported folder is removed, so that its name is free again. So it is if options about training
    are given for an evaluation set.
    """
    from repro.planning.imported import format_evaluation_lines, plan_imported

    progress = (lambda line: None) if as_json else print_line
    try:
        if not corpus.only_evaluates:
            return plan_imported(corpus.name, scale, progress=progress, allow_unknown=allow_unknown)
        if training_options:
            raise ValueError(f"{', '.join(training_options)}: {corpus.name} only evaluates models, so leave it out")
        lines = format_evaluation_lines(corpus.name, progress)
        return [json.dumps({"corpus": corpus.corpus, "only_evaluates": True}, indent=1)] if as_json else lines
    except BrokenPipeError:
        # the reader of stdout is gone, but the import is complete
        raise
    except Stopped as stopped:
        command = f"repro data plan {corpus.name} --scale {scale}"
        if corpus.only_evaluates:
            command = f"repro evaluate --model bm25 --suite {corpus.name}"
        raise stopped.add_advice(f"the import is complete, continue with `{command}`") from stopped
    except BaseException:
        rmtree(corpus.folder)
        raise


@data.command()
def plan(
    name: Annotated[str, typer.Argument(help="name of an imported corpus")],
    scale: PretrainedScale = None,
    from_words: FromWords = False,
    as_json: AsJson = False,
) -> None:
    """Show the audit of an imported corpus, and write a file of runs: two models, BM25 and off-the-shelf MiniLM."""
    from repro.planning.imported import plan_imported

    scale = _choose_scale(scale, from_words=from_words)
    _print_plan(plan_imported(name, scale, progress=(lambda line: None) if as_json else print_line), as_json)


def _print_plan(plan_or_lines: Planned | list[str], as_json: bool) -> None:
    """Print a plan as JSON or as lines of text."""
    if isinstance(plan_or_lines, list):
        lines = plan_or_lines
    elif as_json:
        return print_json(plan_or_lines.as_dict())
    else:
        lines = plan_or_lines.lines()
    for line in lines:
        print_line(line)

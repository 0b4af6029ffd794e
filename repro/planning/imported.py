"""Plan runs on an imported corpus: its audit as text, a file of runs at a scale, and the next commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.data.beir import load_suite
from repro.data.filters import EVALUATED_NEGATIVES
from repro.data.own.holdout import ANSWERS, MAX_DOMAINS, MAX_LOST_SHARE, MIN_DOMAIN_PAIRS, SHARE
from repro.data.own.imported import (
    GIVEN_FOLDER,
    SET_APART_FILE,
    TRAIN_FILE,
    ImportedCorpus,
    check_trainable,
    find_imported,
    write_runs,
)
from repro.data.own.importing import plan_runs
from repro.data.pairs import Pairs, read_pairs
from repro.data.suites import SuiteRules
from repro.pipeline.corpora import make_corpus_stage
from repro.pipeline.needs import uses_given_negatives
from repro.pipeline.token_coverage import AT_IMPORT, TextsRead, check_vocabulary, count_tokens
from repro.planning.plan import make_plan
from repro.records.lookup import read_runs
from repro.report.own_corpus import format_searched
from repro.report.scores import get_model_name
from repro.spec import TRAINED, Run, base, draws_within_domains
from repro.spec.identity import run_id
from repro.spec.scales import get_scale
from repro.spec.start import FROM_WORDS
from repro.storage.files import read_json
from repro.storage.paths import get_local_records
from repro.text import count_noun, format_seconds

# hashing gives about a tenth. Below this share of it, another limit applied
MIN_SHARE_OF_TENTH = 0.8
MIN_QUERIES = 50
"""Number of queries for an interval of ±10 points, if differences per query have a standard deviation of 35."""
CANDIDATE_LENGTHS = (40, 64, 128)
MAX_TRUNCATED_SHARE = 0.1
REFERENCE_BATCH_SIZE = 128
NUM_PASSES = 3
MAX_TOKENS_PER_SIDE = 480 * REFERENCE_BATCH_SIZE * 40
"""Length of training from a pretrained encoder: passes over the pairs, and most tokens per side, about half an hour."""
COUNT_DESCRIPTIONS = {
    "empty": "pairs with an empty side, left out",
    "malformed": "rows without a query or document, or with one that is not text, left out",
    "low_label": "rows whose label is below the threshold, left out",
    "used_as_negatives": "rows whose label is below the threshold: negatives of the pairs of their query",
    "unlabelled": "rows without a label in files that have labels, left out",
    "repeated_pair": "pairs that were there already, left out with their negatives",
    "evaluated": "pairs with a judged text of the given evaluation set, left out",
    "negatives_taken_out": "negatives that were empty or a document of their own row, taken out",
    "near_copies": "pairs that differ from another pair only in case or punctuation, kept",
    "query_is_document": "pairs whose query is the document",
    "with_negatives": "pairs with negatives",
    "evaluated_negatives": "negatives with a judged text of the given evaluation set, taken out",
    "further_pairs": "further pairs of rows with several documents or queries: one pair for each",
}
HELD_OUT_DESCRIPTIONS = {
    ANSWERS: "further pairs whose document is relevant to a held-out query: held out, too",
    EVALUATED_NEGATIVES: "negatives that are held out or relevant to a held-out query, taken out",
}

SORT_BY_QUERY = "If a file is sorted by query, those whose query has a pair become its negatives"
SHARED_TEXTS = (
    "since they share a query or a document with the pairs that are drawn. --evaluate-on FOLDER holds out none"
)
TRAINED_ANSWERS = (
    f"with a document that is relevant to a held-out query: kept, since they are more than {MAX_LOST_SHARE:.0%} of all. "
    "Scores may be too high. --evaluate-on FOLDER gives other queries"
)
NEAR_DUPLICATES = ". A model that ranks the near-duplicate first is scored as wrong"


@dataclass(frozen=True)
class Planned:
    """An imported corpus with its runs."""

    corpus: ImportedCorpus
    report: dict[str, Any]  # report of the stage: trained, dropped and evaluated pairs
    runs: tuple[Run, ...]
    path: Path
    texts: TextsRead | None = None
    was_edited: bool = False  # an edited file of runs existed, and was not overwritten
    seconds: tuple[float | None, ...] = ()  # estimate per run, None if it is unknown
    domain_sizes: tuple[int, ...] = ()  # number of training pairs of each domain

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        runs = {run_id(run): {"architecture": run.architecture, "batch_size": run.batch_size} for run in self.runs}
        metadata = {"corpus": self.corpus.corpus, "file": str(self.path), "file_was_edited": self.was_edited}
        return {**metadata, "runs": runs, "texts": self.texts and asdict(self.texts), **self.report}

    def lines(self) -> list[str]:
        """Return it as lines for a reader."""
        return [
            *self._describe_audit(),
            *self._describe_evaluation(),
            self._format_sum(),
            *self._list_unused(),
            *self._describe_runs(),
        ]

    def _describe_audit(self) -> list[str]:
        audit = self.corpus.found
        read = f"{count_noun(audit.num_read, 'pair')} read, {audit.num_kept} kept"
        lines = [f"{self.corpus.corpus}: {read}, {count_noun(audit.num_domains, 'domain')}"]
        lines += [f"  columns: {column_note}" for column_note in audit.columns]
        lines += [f"  {audit.labels}"] if audit.labels else []
        for name, count in audit.counts.items():
            if count:
                note = ""
                if name == "near_copies" and audit.near_copy:
                    note = f"; for example {' and '.join(audit.near_copy)}"
                elif name == "low_label" and audit.labels:
                    note = f". {SORT_BY_QUERY}"
                elif name == "with_negatives":
                    note = f": {format_negatives_note(self.runs)}"
                lines.append(f"  {count} {COUNT_DESCRIPTIONS.get(name, name)}{note}")
        lines += self.texts.lines() if self.texts else []
        return lines + [f"  warning: {warning}" for warning in audit.warnings]

    def _describe_evaluation(self) -> list[str]:
        """Return the evaluated collections, the share of held-out documents, and warnings about the scores."""
        suite = self.report["suite"]
        num_queries = sum(sizes["num_queries"] for sizes in suite.values())
        is_given = (self.corpus.folder / GIVEN_FOLDER).is_dir()
        queries = count_noun(num_queries, "query", "queries")
        searched = format_searched(suite, "given" if is_given else "held out")
        lines = [f"evaluated on {queries} searched {searched}: {', '.join(suite)}"]
        lines += list_peculiarities(self.corpus, suite)
        if num_queries < MIN_QUERIES:
            domain = "hold out a domain (--hold-out), " if self.corpus.found.num_domains > 1 else ""
            advice = "judge more queries" if is_given else f"{domain}--evaluate-on, or more pairs"
            lines.append(f"  warning: {queries} give wide intervals; improve with: {advice}")
        if not is_given:
            lines += self._describe_held_out()
            for key, description in HELD_OUT_DESCRIPTIONS.items():
                lines += [f"  {count} {description}" for count in [self.report["left_out"].get(key)] if count]
        if num_answers := self.report.get("trained_answers"):
            lines.append(f"  warning: {count_noun(num_answers, 'training pair')} {TRAINED_ANSWERS}")
        if duplicates := self.report.get("near_duplicates", {}):
            subject = count_noun(sum(duplicates.values()), "query has", "queries have")
            details = ", ".join(f"{name} {count}" for name, count in duplicates.items())
            lines.append(f"  warning: {subject} a near-duplicate of the right document ({details}){NEAR_DUPLICATES}")
        return lines

    def _describe_held_out(self) -> list[str]:
        """Return the number of held-out texts, with the rule if it gave less than a tenth. Warn of much more."""
        audit, num_pairs, rules = self.corpus.found, self._count_held_out(), SuiteRules()
        share = f"{num_pairs} of {audit.num_kept} pairs ({num_pairs / audit.num_kept:.1%})"
        if self.corpus.held_out_domains:
            domains = ", ".join(self.corpus.held_out_domains)
            return [
                f"  held out: {share}, all of {domains}. Queries come from at most {rules.max_documents} documents of each"
            ]
        sizes = self.report["suite"].values()
        if self.corpus.drawn_side == "query":
            max_texts, names = rules.max_queries, ("query", "queries")
            num_texts = sum(size["num_queries"] for size in sizes)
        else:
            max_texts, names = rules.max_documents, ("document", "documents")
            # older reports lack the number, but their queries searched the held-out documents alone
            num_searched = sum(size["num_documents"] for size in sizes)
            num_texts = self.report.get("held_out_documents", num_searched)
        line = f"  held out: {count_noun(num_texts, *names)} with {share}"
        # With one domain that is not full, hashing alone decided the number.
        is_limited = num_texts >= max_texts or audit.num_domains > 1
        if is_limited and num_pairs * SHARE <= audit.num_kept * MIN_SHARE_OF_TENTH:
            line += (
                f", less than a tenth. Each domain of at least {MIN_DOMAIN_PAIRS} pairs gives a tenth of its "
                f"{names[1]}, {max_texts} at most, and only the {MAX_DOMAINS} largest domains do"
            )
            line += ". --hold-out DOMAIN chooses others" if audit.num_domains > 1 else ""
        if num_pairs <= MAX_LOST_SHARE * audit.num_kept:
            return [line]
        num_percent = f"{num_pairs / audit.num_kept:.0%}"
        return [line, f"  warning: {num_percent} of the pairs are held out instead of a tenth, {SHARED_TEXTS}"]

    def _count_held_out(self) -> int:
        """Return the number of kept pairs that are neither trained on nor set apart."""
        num_set_apart = sum(self.report["left_out"].get(key, 0) for key in ("set_apart", "with_a_query_set_apart"))
        return self.corpus.found.num_kept - self.report["num_pairs"] - num_set_apart

    def _format_sum(self) -> str:
        """Return the line in which the given rows are trained on, set apart, held out or dropped."""
        audit = self.corpus.found
        num_for_query = self.report["left_out"].get("with_a_query_set_apart", 0)
        num_set_apart = self.report["left_out"].get("set_apart", 0) + num_for_query
        details = f" ({num_for_query} for their query)" if num_for_query else ""
        parts = [
            f"{self.report['num_pairs']} to train on",
            f"{self._count_held_out()} held out for evaluation",
            f"{num_set_apart} set apart to end training early{details}",
            f"{audit.num_read - audit.num_kept} dropped",
        ]
        return f"{count_noun(audit.num_read, 'pair')} given = {' + '.join(parts)}"

    def _list_unused(self) -> list[str]:
        """Return a warning if domains are smaller than a batch, so that their pairs are never trained on."""
        run = self.runs[0]
        if run.architecture not in TRAINED or run.domain_column != "domain" or not draws_within_domains(run):
            return []
        small = [size for size in self.domain_sizes if 0 < size < run.batch_size]
        if not small:
            return []
        return [
            f"  warning: {count_noun(sum(small), 'pair')} in {count_noun(len(small), 'domain')} smaller than a batch of "
            f'{run.batch_size} are never trained on. "domain_column": "source" in the file of runs mixes domains'
        ]

    def _describe_runs(self) -> list[str]:
        """Return the runs with their expected time, and the next commands."""
        lines = []
        for run, seconds in zip(self.runs, self.seconds, strict=True):
            name = get_model_name(run)
            name += f" from {run.start}" if run.architecture in TRAINED and run.start not in FROM_WORDS else ""
            time = f", about {format_seconds(seconds)}" if seconds else ""
            lines.append(f"  {run_id(run)}  {name}{_format_length(run)}{time}")
        if any(self.seconds):
            lines.append(f"all runs: about {format_seconds(sum(filter(None, self.seconds)))} on two cores")
        model_name = next((run_id(run) for run in reversed(self.runs) if run.architecture in TRAINED), "bm25")
        edited_note = ", which differs from what would be planned, so it is kept: remove it to plan again"
        return [
            *lines,
            f"the runs are in {self.path}{edited_note if self.was_edited else ''}. Go on with",
            f"  repro run {shlex.quote(str(self.path))}",
            f"  repro evaluate --model {model_name} --suite {self.corpus.name}",
            f"  repro export {model_name} FOLDER --to sentence-transformers",
        ]


def _estimate_seconds(runs: Sequence[Run]) -> tuple[float | None, ...]:
    """Return the estimated seconds of each run, or None if they are unknown."""
    plan = make_plan(runs, [get_local_records()])
    seconds = {run: cost.seconds for run, cost in zip(plan.missing, plan.estimates, strict=True)}
    return tuple(seconds.get(run) for run in runs)


def _format_length(run: Run) -> str:
    if run.architecture not in TRAINED:
        return ""
    if run.num_steps is not None:
        length = count_noun(run.num_steps, "step")
    else:
        assert run.num_epochs is not None, "training has a number of steps or epochs"
        length = f"{count_noun(run.num_epochs, 'epoch')} in batches"
    return f", {length} of {run.batch_size}" + (f", {run.batches_a_step} a step" if run.batches_a_step > 1 else "")


def list_peculiarities(corpus: ImportedCorpus, sizes: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return notes on given collections that affect their scores, and the numbers of skipped queries."""
    lines = [f"  {line}" for line in corpus.skipped]
    given_folder = corpus.folder / GIVEN_FOLDER
    datasets = load_suite(given_folder).datasets if given_folder.is_dir() else ()
    for dataset in datasets:
        if dataset.quirks:
            note = dataset.quirks.describe_quirks(sizes[dataset.name]["num_queries"])
            lines += [f"  {dataset.name}: {note}"] if note else []
    return lines


def format_negatives_note(runs: Sequence[Run]) -> str:
    """Return whether the runs train on the given negatives, or how they would."""
    numbers = {run.num_hard_negatives for run in runs if uses_given_negatives(run)}
    if numbers:
        return "the first of each is trained on" if max(numbers) == 1 else f"{max(numbers)} of each are trained on"
    return 'not trained on, unless the file of runs sets "num_hard_negatives" and "mined_negatives": "given"'


def plan_imported(
    name: str, scale: str, progress: Callable[[str], None] = print, *, allow_unknown: bool = True
) -> Planned:
    """Build an imported corpus and write its file of runs at a scale. An edited file is read and not changed.

    Raises ValueError if the corpus is too small for training, or if most tokens are unknown and not allowed.
    """
    corpus = find_imported(name)
    check_trainable(name)
    # fail now if there are too few pairs, before any are held out
    plan_runs(corpus.found)
    folder = make_corpus_stage(corpus.corpus).build(progress)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    pairs = read_pairs(folder / TRAIN_FILE)
    sizes = np.bincount(pairs.domain_codes, minlength=1).tolist()
    defaults = get_scale(scale).fields
    changes = plan_runs(corpus.found, domain_sizes=sizes, largest_batch=defaults["batch_size"])
    shared: dict[str, Any] = {"corpus": corpus.corpus, "suite": corpus.name}
    is_pretrained = defaults["start"] not in FROM_WORDS
    if is_pretrained:
        shared["max_tokens"] = _choose_length(pairs, scale, corpus.corpus)
    rows = []
    for change in changes:
        row = {"scale": scale, **change, **shared}
        if is_pretrained:
            row |= _choose_steps(scale, len(pairs), change["batch_size"], shared["max_tokens"])
            # An encoder that is no stronger than the model at its start masks the negatives that training should correct
            # (artefact `filter_by_surrogate`).
            row["filter"] = "none"
        if (folder / SET_APART_FILE).is_file():
            row["kept_weights"] = "best"
        if is_pretrained and change["architecture"] == "contextual":
            row["test_contexts"] = "own+null"
        rows.append(row)
    untrained = {"scale": scale, **shared, "num_pairs": None}
    rows += [{**untrained, "architecture": "bm25"}, {**untrained, "architecture": "surrogate", "surrogate": "minilm"}]
    path = corpus.folder / f"{corpus.name}-{scale}.json"
    # After a round trip through JSON, because tuples and lists would differ.
    was_edited = path.is_file() and read_json(path) != json.loads(json.dumps(rows))
    if not was_edited:
        write_runs(path, rows)
    # Read back from the file, so that an edited file is planned as it is.
    runs = tuple(read_runs(path))
    texts = count_tokens(pairs, runs[0], AT_IMPORT)
    if not allow_unknown:
        check_vocabulary(texts, corpus.corpus)
    return Planned(corpus, report, runs, path, texts, was_edited, _estimate_seconds(runs), tuple(sizes))


def _choose_length(pairs: Pairs, scale: str, corpus: str) -> int:
    """Return the shortest of `CANDIDATE_LENGTHS` that reads nine documents of ten whole, or the longest of them."""
    for max_tokens in CANDIDATE_LENGTHS:
        texts = count_tokens(pairs, base(scale, max_tokens=max_tokens, corpus=corpus))
        if texts.num_cut <= MAX_TRUNCATED_SHARE * texts.num_looked_at:
            break
    return max_tokens


def _choose_steps(scale: str, num_pairs: int, batch_size: int, max_tokens: int) -> dict[str, Any]:
    """Return the steps of training from a pretrained encoder: `NUM_PASSES` over the pairs, but at most `MAX_TOKENS_PER_SIDE`.

    The learning rate of the scale is for batches of `REFERENCE_BATCH_SIZE` pairs. Smaller batches have noisier gradients.
    """
    num_steps = max(1, min(NUM_PASSES * num_pairs, MAX_TOKENS_PER_SIDE // max_tokens) // batch_size)
    # The square-root rule: the standard deviation of a gradient falls with the root of the batch size.
    defaults = get_scale(scale).fields
    rate = defaults["learning_rate"] * (batch_size / REFERENCE_BATCH_SIZE) ** 0.5
    steps = {"num_steps": num_steps, "num_warmup_steps": num_steps // 10, "learning_rate": float(f"{rate:.2g}")}
    # Steps replace the epochs of a scale that counts epochs.
    return steps if defaults["num_epochs"] is None else steps | {"num_epochs": None}


def format_evaluation_lines(name: str, progress: Callable[[str], None] = print) -> list[str]:
    """Build an imported evaluation set, and return its collections and the commands that use it."""
    corpus = find_imported(name)
    folder = make_corpus_stage(corpus.corpus).build(progress)
    sizes = json.loads((folder / "report.json").read_text(encoding="utf-8"))["suite"]
    rows = [
        f"  {dataset}: {count_noun(size['num_queries'], 'query', 'queries')}, {count_noun(size['num_documents'], 'document')}"
        for dataset, size in sizes.items()
    ]
    collections = count_noun(len(sizes), "collection")
    return [
        f"{name} is an evaluation set of {collections}: nothing in it is to train on (no qrels/train.tsv)",
        *rows,
        *list_peculiarities(corpus, sizes),
        "Go on with",
        f"  repro evaluate --model bm25 --suite {name}",
        f"  repro evaluate --model M --suite {name}",
    ]

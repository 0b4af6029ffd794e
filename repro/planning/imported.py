"""Plan runs on an imported corpus: its audit as text, a file of runs at a scale, and the next command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.data.own.holdout import MAX_LOST_SHARE
from repro.data.own.imported import SET_APART_FILE, TRAIN_FILE, ImportedCorpus, check_trainable, find_imported
from repro.data.own.importing import Audit
from repro.data.own.languages import ENGLISH
from repro.data.pairs import Pairs, read_pairs
from repro.pipeline.corpora import make_corpus_stage
from repro.pipeline.token_coverage import AT_IMPORT, TextsRead, check_vocabulary, count_tokens
from repro.planning.plan import make_plan
from repro.records.lookup import read_runs
from repro.report.own_corpus import format_searched
from repro.report.scores import get_model_name
from repro.spec import TRAINED, Run, base, draws_within_domains
from repro.spec.identity import run_id
from repro.spec.scales import get_scale
from repro.spec.start import FROM_WORDS
from repro.storage.files import atomic_file, json_object
from repro.storage.paths import get_local_records
from repro.text import count_noun, format_seconds

BATCH_SIZES = (512, 256, 128, 64, 32, 16, 8)
BATCHES_PER_EPOCH = 16
MIN_TRAINABLE_SHARE = 0.9
MIN_QUERIES = 50
"""Number of queries for an interval of ±10 points, if differences per query have a standard deviation of 35."""
CANDIDATE_LENGTHS = (40, 64, 128)
MAX_TRUNCATED_SHARE = 0.1
REFERENCE_BATCH_SIZE = 128
NUM_PASSES = 3
MAX_TOKENS_PER_SIDE = 480 * REFERENCE_BATCH_SIZE * 40
"""Length of training from a pretrained encoder: passes over the pairs, and most tokens per side, about half an hour."""


@dataclass(frozen=True)
class Planned:
    """An imported corpus with its runs.

    Attributes:
        corpus: The corpus.
        report: Numbers of trained, held-out and evaluated texts, from the stage of the corpus.
        runs: The runs of the file: two models, BM25 and MiniLM.
        path: The file of runs.
        texts: Counts of unknown tokens and truncated documents.
        num_unused: Number of pairs in domains that are smaller than a batch.
    """

    corpus: ImportedCorpus
    report: dict[str, Any]
    runs: tuple[Run, ...]
    path: Path
    texts: TextsRead
    num_unused: int = 0

    def lines(self) -> list[str]:
        """Return the audit, the runs with their expected time, and the next command."""
        audit, split = self.corpus.found, self.report["split"]
        notes = [f"{self.corpus.corpus}: {audit.describe_rows()}, {count_noun(audit.num_domains, 'domain')}"]
        notes += [*audit.notes, self._format_language(audit.language)]
        notes += format_evaluation(self.corpus, self.report["suite"])
        # the file of runs decides whether negatives are trained on
        used = "" if self.runs[0].mined_negatives == "given" else "not "
        negatives = f"; {audit.num_with_negatives} have negatives, which are {used}trained on"
        notes.append(
            f"{split['to train on']} pairs to train on, {split['held out']} held out, {split['set apart']} set apart to end "
            f"training early ({split['sharing a text']} more share a text with them){negatives if audit.num_with_negatives else ''}"
        )
        notes += [line.strip() for line in self.texts.lines()] + self._list_warnings()
        return [notes[0], *(f"  {note}" for note in notes[1:]), *self._describe_runs()]

    def _format_language(self, language: str) -> str:
        advice = '; warning: MiniLM is English: set "start": "FOLDER", an encoder of this language, in the file of runs'
        return f"language of BM25: {language} (--language sets another){'' if language == ENGLISH else advice}"

    def _list_warnings(self) -> list[str]:
        split, num_kept = self.report["split"], self.corpus.found.num_kept
        warnings = []
        if split["trained answers"]:
            warnings.append(
                f"warning: {split['trained answers']} training pairs (more than {MAX_LOST_SHARE:.0%}) have a document that is "
                "relevant to a held-out query, so scores may be too high. --evaluate-on FOLDER gives other queries"
            )
        if split["held out"] > MAX_LOST_SHARE * num_kept and not self.corpus.held_out_domains:
            share = split["held out"] / num_kept
            warnings.append(
                f"warning: {share:.0%} of the pairs are held out, as texts recur. --evaluate-on FOLDER holds out none"
            )
        if self.num_unused:
            pairs = count_noun(self.num_unused, "pair")
            warnings.append(
                f'warning: {pairs} in small domains are not trained on. "domain_column": "source" mixes domains'
            )
        return warnings

    def _describe_runs(self) -> list[str]:
        plan = make_plan(self.runs, [get_local_records()])
        # Only of training: recorded evaluations are of other suites, whose number of documents may differ.
        seconds = {run: cost.training_seconds for run, cost in zip(plan.missing, plan.estimates, strict=True)}
        lines = []
        for run in self.runs:
            length = f", {run.num_steps} steps" if run.num_steps else f", {run.num_epochs} epochs"
            is_trained = run.architecture in TRAINED and run.num_steps != 0
            details = f" from {run.start}{length} of {run.batch_size}" if is_trained else ""
            time = f", about {format_seconds(seconds[run])} of training" if seconds.get(run) else ""
            lines.append(f"  {run_id(run)}  {get_model_name(run)}{details}{time}")
        return [*lines, "Go on with", f"  repro run {shlex.quote(str(self.path))}"]


def format_evaluation(corpus: ImportedCorpus, suite: dict[str, dict[str, int]]) -> list[str]:
    """Return lines about the collections of a corpus: their sizes, notes, and a warning if there are few queries."""
    num_queries = sum(sizes["num_queries"] for sizes in suite.values())
    queries = count_noun(num_queries, "query", "queries")
    lines = [f"evaluated on {queries} searched {format_searched(suite)}: {', '.join(suite)}", *corpus.notes]
    if num_queries < MIN_QUERIES:
        lines.append(f"warning: {queries} give wide intervals: hold out a domain, judge more queries, or add pairs")
    return lines


def plan_imported(
    name: str, scale: str, progress: Callable[[str], None] = print, *, allow_unknown: bool = True
) -> Planned:
    """Build an imported corpus and write its file of runs at a scale.

    Raises ValueError if the corpus is too small for training, or if most tokens are unknown and not allowed.
    """
    corpus = find_imported(name)
    check_trainable(name)
    folder = make_corpus_stage(corpus.corpus).build(progress)
    report = json_object(folder / "report.json")
    pairs = read_pairs(folder / TRAIN_FILE)
    sizes = np.bincount(pairs.domain_codes, minlength=1).tolist()
    rows = _make_rows(
        corpus, pairs, sizes, scale, kept_weights="best" if (folder / SET_APART_FILE).is_file() else "last"
    )
    path = corpus.folder / f"{corpus.name}-{scale}.json"
    with atomic_file(path) as part:
        part.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    runs = tuple(read_runs(path))
    texts = count_tokens(pairs, runs[0], AT_IMPORT)
    if not allow_unknown:
        check_vocabulary(texts, corpus.corpus)
    mixes_domains = runs[0].domain_column != "domain" or not draws_within_domains(runs[0])
    num_unused = 0 if mixes_domains else sum(size for size in sizes if size < runs[0].batch_size)
    return Planned(corpus, report, runs, path, texts, num_unused)


def _make_rows(
    corpus: ImportedCorpus, pairs: Pairs, sizes: Sequence[int], scale: str, *, kept_weights: str
) -> list[dict[str, Any]]:
    """Return the rows of a file of runs: a biencoder, a contextual model, BM25 and off-the-shelf MiniLM.

    From a pretrained start, the last row is the contextual model before training. For the biencoder, that is MiniLM.
    """
    defaults = get_scale(scale).fields
    change = plan_training(corpus.found, corpus.name, sizes, largest_batch=defaults["batch_size"])
    shared: dict[str, Any] = {"corpus": corpus.corpus, "suite": corpus.name}
    trained = {"scale": scale, **change, **shared, "kept_weights": kept_weights}
    contextual = {"architecture": "contextual"}
    if defaults["start"] not in FROM_WORDS:
        shared["max_tokens"] = _choose_length(pairs, scale, corpus.corpus)
        trained |= shared | _choose_steps(scale, len(pairs), change["batch_size"], shared["max_tokens"])
        # An encoder that is no stronger than the model at its start masks the negatives that training should correct
        # (artefact `filter_by_surrogate`).
        trained["filter"] = "none"
        contextual["test_contexts"] = "own+null"
    untrained = {"scale": scale, **shared, "num_pairs": None}
    # also scores the vectors whitened, which needs a full search
    whitened = {"measure": "whitening"} if defaults["protocol"] == "full" else {}
    rows = [
        {**trained, "architecture": "biencoder"},
        {**trained, **contextual},
        {**untrained, "architecture": "bm25"},
        {**untrained, "architecture": "surrogate", "surrogate": "minilm", **whitened},
    ]
    if defaults["start"] not in FROM_WORDS:
        rows.append({**untrained, **contextual, "num_steps": 0, "num_epochs": None})
    return rows


def plan_training(audit: Audit, name: str, domain_sizes: Sequence[int], *, largest_batch: int) -> dict[str, Any]:
    """Return the fields of training with clustered batches.

    The batch is the largest one that gives 16 batches per epoch, uses half of the pairs in each, and leaves out at most a
    tenth of them for good, if batches do not mix domains. If none does, domains are ignored. Clusters are as large as
    batches, as in the paper's best setting. If half of the pairs have negatives, training uses the first one of each.

    Args:
        audit: The audit of the corpus.
        name: The name of the corpus, for errors.
        domain_sizes: Number of training pairs per domain.
        largest_batch: Limit of the batch size.

    Raises:
        ValueError: if there are too few pairs for training.
    """
    column = "domain"
    batch_size = _find_batch_size(domain_sizes, largest_batch)
    if batch_size is None:
        # Small domains cannot fill batches, so batches may mix them.
        column = "source"
        batch_size = _find_batch_size([sum(domain_sizes)], largest_batch)
    if batch_size is None:
        raise ValueError(
            f"{name} has {sum(domain_sizes)} pairs left to train on ({audit.describe_rows()}), and training needs "
            f"{BATCH_SIZES[-1] * BATCHES_PER_EPOCH}: less --hold-out, or --evaluate-on FOLDER. A BEIR folder can evaluate only"
        )
    fields = {
        "num_pairs": None,
        "sampler": "cluster",
        "batch_size": batch_size,
        "cluster_size": batch_size,
        "filter": "surrogate",
        "known_positives": "mask",
        "domain_column": column,
    }
    if audit.trains_on_negatives:
        # one, as in the paper's best model (§6)
        fields |= {"num_hard_negatives": 1, "mined_negatives": "given"}
    return fields


def _find_batch_size(domain_sizes: Sequence[int], largest: int) -> int | None:
    for batch_size in BATCH_SIZES:
        num_batches = sum(size // batch_size for size in domain_sizes)
        # A domain smaller than a batch is never trained on. Other domains only leave out another rest in each epoch.
        num_trainable = sum(size for size in domain_sizes if size >= batch_size)
        is_complete = num_trainable >= MIN_TRAINABLE_SHARE * sum(domain_sizes)
        uses_half = 2 * batch_size * num_batches >= sum(domain_sizes)
        if batch_size <= largest and num_batches >= BATCHES_PER_EPOCH and uses_half and is_complete:
            return batch_size
    return None


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


def format_evaluation_set(name: str, progress: Callable[[str], None] = print) -> list[str]:
    """Build an imported evaluation set, and return its collections and the next command."""
    corpus = find_imported(name)
    suite = json_object(make_corpus_stage(corpus.corpus).build(progress) / "report.json")["suite"]
    notes = [f"{name} is an evaluation set: nothing in it is to train on (no qrels/train.tsv)"]
    notes += [*format_evaluation(corpus, suite), f"language of BM25: {corpus.language} (--language sets another)"]
    return [
        notes[0],
        *(f"  {note}" for note in notes[1:]),
        "Go on with",
        f"  repro evaluate --model bm25 --suite {name}",
    ]

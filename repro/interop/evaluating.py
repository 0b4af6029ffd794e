"""Scores any model on any suite, and keeps scores, their origin and TREC runs in a folder.

1. The collections are read once. 2. Each system – the model, one to compare it with, BM25 – is scored collection by
collection; each result is kept as it ends, and an evaluation that was stopped goes on behind the last one.
3. What was scored stands beside each other, with an interval for each difference.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from repro.data.beir import Retrieval
from repro.evaluate.adaptation import WHITENED
from repro.evaluate.collections import Collection, read_collections
from repro.evaluate.first_stage import tokenizer_of_run
from repro.evaluate.result_cache import Kept
from repro.evaluate.retrieval import UNICODE, bm25_parameters
from repro.evaluate.suites import Ended, Evaluation, Keeping, Setting, evaluate_bm25, evaluate_setting
from repro.interop.beside import (
    BM25,
    CollectionDifference,
    Column,
    Difference,
    advice,
    compute_collection_differences,
    differences,
    make_beside_view,
    make_collection_view,
    make_differences_view,
    make_measures_view,
    notes_below,
    unknown_warnings,
)
from repro.interop.named_runs import run_named
from repro.interop.opening import Opened, bm25_run, open_model, open_suite
from repro.interop.places import (
    check_contexts_of_run,
    check_device,
    check_drawing,
    check_folder,
    check_num_contexts,
    check_revision,
    check_without_context,
    get_default_folder,
    get_folder_name,
    to_device,
)
from repro.interop.read_share import count_read
from repro.interop.stock_encoder import StockEncoder
from repro.interop.trained_on import review_seen
from repro.interop.trained_widths import asked_widths, told_of_widths, warnings
from repro.interop.typed import CONTEXTUAL
from repro.interop.whitened import AS_IT_IS, check_whitening, format_whitening_lines, sample_training_text
from repro.interop.wrong_corpus import check_wrong_from, wrong_source
from repro.records.provenance import get_code_identity, machine, versions
from repro.report.scores import POINTS, list_contexts
from repro.report.view import View
from repro.spec.identity import run_id
from repro.storage.files import whole_file
from repro.text import count_noun, format_number, format_seconds, short

BM25_UP_TO = 200_000
"""Documents of a suite up to which BM25 is scored beside a model unasked: about a minute."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What is to be scored, and how."""

    model: str
    suite: str
    contexts: tuple[str, ...] = ("own",)
    context_seed: int = 0
    num_contexts: int | None = None
    revision: str | None = None
    device: str | None = None
    bm25: bool | None = None  # None: where the suite is small
    compare_with: str | None = None  # another model
    widths: str | None = None  # prefixes of the vectors to score beside the whole: "16,32,full"
    wrong_from: str | None = None  # the suite or folder that lends the wrong corpus
    whiten: tuple[str, ...] = ()  # whose documents the vectors are also whitened by: own, wrong, random
    shrinkage: float | None = None  # of the whitening
    leave_out_seen: bool = False  # score only queries that no model was trained on


@dataclass(frozen=True)
class Scores:
    """Metrics of the model by path and how they came about, and what stands beside them."""

    suite: str
    metrics: Mapping[str, float]
    provenance: Mapping[str, Any]
    folder: Path
    columns: tuple[Column, ...] = ()
    differences: tuple[Difference, ...] = ()
    by_collection: tuple[CollectionDifference, ...] = ()  # between contexts
    others: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # metrics of what was scored beside it
    warnings: tuple[str, ...] = ()  # on queries that were trained on

    def as_dict(self) -> dict[str, Any]:
        """Return them as plain values."""
        return {
            "suite": self.suite,
            "metrics": dict(self.metrics),
            "beside": {name: dict(metrics) for name, metrics in self.others.items()},
            "differences": [asdict(one) for one in self.differences],
            "by_collection": [asdict(one) for one in self.by_collection],
            "provenance": dict(self.provenance),
        }

    def views(self) -> list[View]:
        """Return the tables: measures of one system, or NDCG@10 of several beside each other and their differences."""
        told, called = self.provenance["suite"], self.provenance["model"]["called"]
        title = f"{called} on {self.suite}, points"
        if len(self.columns) == 1:
            return [make_measures_view(title, self.suite, self.metrics, told, *self._shares)]
        notes = notes_below(told, *self._shares)
        beside = make_beside_view(f"{title} of NDCG@10", self.columns, notes)
        by_collection = [make_collection_view(self.by_collection)] if self.by_collection else []
        return [beside, *by_collection, make_differences_view(self.differences)]

    @property
    def _shares(self) -> tuple[Mapping[str, float | None], Mapping[str, float | None]]:
        return self.provenance["cut"], self.provenance["unknown_tokens"]

    @property
    def advice(self) -> list[str]:
        """Lines for whoever should not use this model, or a prefix, yet; none where it holds its own against BM25."""
        told = self.provenance["model"]
        found = advice(self.differences, self.provenance["cut"], told.get("max_tokens"))
        unknown = unknown_warnings(self.provenance["unknown_tokens"])
        gains = [] if self.provenance["asked"]["compare_with"] else format_whitening_lines(self.differences)
        return [*self.warnings, *unknown, *warnings(told, self.suite, self.metrics), *found, *gains]


def evaluate_anything(asked: Asked, folder: Path | None = None, *, progress: Progress = print) -> Scores:
    """Return the scores, and write them as scores.json beside one TREC run for each collection and context.

    ValueError when model or suite is nothing we know, or for a context that the model or the suite cannot have.
    """
    began = get_code_identity() | {"versions": versions(), "machine": machine(), "asked": asdict(asked)}
    check_drawing(asked.context_seed, asked.num_contexts)
    check_device(asked.device)
    check_wrong_from(asked.wrong_from, (*asked.contexts, *asked.whiten))
    check_whitening(asked.whiten, asked.shrinkage)
    check_folder(folder)
    check_revision(asked.revision, asked.model, asked.compare_with)
    suite = open_suite(asked.suite, progress)
    target = folder or get_default_folder(asdict(asked), suite.name)
    models = [one for one in (asked.model, asked.compare_with) if one is not None]
    review = review_seen(models, suite, read_collections(suite), progress, leave_out=asked.leave_out_seen)
    suite = review.suite
    bench = _Bench(asked, suite, review.collections, target, progress)
    bench.check_compared()
    scored = [bench.score_model(one) for one in models]
    if BM25 not in {one.told["architecture"] for one in scored} and bench.wants_bm25:
        scored.append(bench.score_bm25(BM25))
    first = scored[0]
    columns = list_columns(suite.name, scored)
    provenance = began | {
        "model": first.told,
        "beside": [one.told for one in scored[1:]],
        "cut": first.cut,
        "unknown_tokens": first.unknown,
        "suite": first.evaluation.provenance,
        "trained_on": review.counts,
    }
    others = {one.told["called"]: one.evaluation.metrics for one in scored[1:]}
    contexts = columns[: len(list_contexts(first.evaluation.metrics, suite.name))]
    found = (tuple(differences(columns)), tuple(compute_collection_differences(contexts)))
    shown = (tuple(columns), *found, others, review.lines)
    scores = Scores(suite.name, first.evaluation.metrics, provenance, target, *shown)
    with whole_file(target / "scores.json") as part:
        part.write_text(json.dumps(scores.as_dict(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return scores


@dataclass(frozen=True)
class Scored:
    """One system: what is told of it, its evaluation, and how many documents of each collection it cuts."""

    told: dict[str, Any]
    evaluation: Evaluation
    cut: dict[str, float | None] = field(default_factory=dict)
    unknown: dict[str, float | None] = field(default_factory=dict)  # the share of its tokens


def get_column_name(told: Mapping[str, Any]) -> str:
    """Return the head of a system's column: of a run its architecture, of anything else what it was called."""
    return str(told["called"] if told.get("run") is None else told["architecture"])


def list_columns(suite: str, scored: Sequence[Scored]) -> list[Column]:
    """Return a column for each system and context; a context is named where there is more than one."""
    names = [get_column_name(one.told) for one in scored]
    if len(scored) > 1 and names[0] == names[1]:  # two folders of one name, or two runs of one kind
        ids = [str(one.told.get("run") or "") for one in scored[:2]]
        names[:2] = (
            [f"{name} {str(one)[:6]}" for name, one in zip(names[:2], ids, strict=True)]
            if all(ids) and ids[0] != ids[1]
            else [f"A {names[0]}", f"B {names[1]}"]
        )
    num_models = sum(name != BM25 for name in names)
    columns = []
    for name, one in zip(names, scored, strict=True):
        kinds = list_contexts(one.evaluation.metrics, suite)
        for path, kind in kinds:
            alone = len(kinds) == 1 and (kind == "own" or num_models > 1)
            if kind == "own" and not one.told.get("num_contexts"):
                kind = AS_IT_IS if any(other.startswith(WHITENED) for _, other in kinds) else "full"
            label = name if alone else kind if num_models == 1 and len(kinds) > 1 else f"{name} {kind}"
            columns.append(Column.of(one.evaluation, path, label))
    return columns


@dataclass(frozen=True)
class _Bench:
    """One suite, read, and everything that is scored on it."""

    asked: Asked
    suite: Any
    collections: Mapping[str, Collection]
    folder: Path
    progress: Progress
    _opened: dict[str, Opened] = field(default_factory=dict)  # before it is its turn

    @property
    def wants_bm25(self) -> bool:
        """Whether BM25 is scored, too."""
        num_documents = sum(len(one.retrieval.documents) for one in self.collections.values())
        return num_documents <= BM25_UP_TO if self.asked.bm25 is None else self.asked.bm25

    def check_compared(self) -> None:
        """ValueError where a context is asked for of two models, and neither has one."""
        asked = self.asked
        if asked.compare_with is None or (asked.contexts == ("own",) and not asked.num_contexts):
            return
        two = (asked.model, asked.compare_with)
        if not any(self._has_context(one) for one in two):
            check_without_context(two[0], asked.contexts, asked.num_contexts, two[1])

    def _has_context(self, source: str) -> bool:
        run = run_named(source)
        if run is not None or source == BM25:
            return run is not None and run.architecture == CONTEXTUAL
        return bool(self._open(source).num_contexts)

    def _open(self, source: str) -> Opened:
        """Return a model as it was opened before, if it was."""
        if source not in self._opened:
            self._opened[source] = open_model(source, revision=self.asked.revision, progress=self.progress)
        return self._opened[source]

    def score_model(self, source: str) -> Scored:
        """Return how a model does, or BM25 where its word or one of its runs is named."""
        run = bm25_run(source)
        if run is not None or source == BM25:
            return self.score_bm25(source, None if run is None else run_id(run))
        asked = self.asked
        if asked.compare_with is None:
            check_contexts_of_run(source, asked.contexts, asked.num_contexts)
        opened = self._open(source)
        del self._opened[source]  # held while it is scored, not while another is
        to_device(opened.model, asked.device)
        contextual = bool(opened.num_contexts)
        if contextual:
            check_num_contexts(asked.num_contexts, opened.called, opened.num_contexts)
        elif asked.compare_with is None:
            check_without_context(opened.called, asked.contexts, asked.num_contexts)
        count = asked.num_contexts if contextual and asked.num_contexts is not None else opened.num_contexts
        contexts = asked.contexts if contextual else ("own",)
        widths = asked_widths(asked.widths, opened.model)
        told = describe_model(opened) | told_of_widths(opened, widths)
        needs_wrong = "wrong" in (*contexts, *asked.whiten)
        lent = wrong_source(asked.wrong_from, self.suite, self.progress) if needs_wrong else None
        drawing: dict[str, Any] = {"num_contexts": count, "seed": asked.context_seed, "wrong_from": lent}
        keeps_lengths = bool(getattr(opened.model, "keeps_lengths", False))
        whitened: dict[str, Any] = {"whitened": asked.whiten, "shrinkage": asked.shrinkage}
        if "random" in asked.whiten:
            whitened["pool"] = self._training_text(opened)
        setting = Setting(contexts=contexts, widths=widths, keeps_lengths=keeps_lengths, **drawing, **whitened)
        device = str(getattr(opened.model, "device", asked.device))
        decides = {"model": told["weights"], "num_contexts": count, "seed": asked.context_seed, "device": device}
        decides |= {"shrinkage": asked.shrinkage} if asked.whiten else {}
        keeping = self._keeping(source, opened.called, decides, len(contexts))
        found = evaluate_setting(opened.model, self.suite, setting, keeping, self.collections)
        read = {name: count_read(opened.model, one) for name, one in self.collections.items()}
        cut = {name: one.cut for name, one in read.items()}
        return Scored(told, found, cut, {name: one.unknown for name, one in read.items()})

    def _training_text(self, opened: Opened) -> Retrieval:
        """Return training documents: of the model's own corpus, or of desk if no run trained it."""
        most = max(len(one.retrieval.documents) for one in self.collections.values())
        corpus = "desk" if opened.run is None else opened.run.corpus
        return sample_training_text(corpus, most, self.asked.context_seed, self.progress)

    def score_bm25(self, source: str, run: str | None = None) -> Scored:
        """Return how BM25 does; ValueError when nothing is asked of that has prefixes to cut to a width."""
        asked = self.asked
        if source == asked.model and asked.compare_with is None:
            check_without_context(BM25, asked.contexts, asked.num_contexts)
            if asked.whiten:
                raise ValueError(f"--whiten {' '.join(asked.whiten)}: bm25 has no vectors; leave it out")
            if asked.widths is not None:
                raise ValueError(f"--width {short(asked.widths)}: bm25 has no vectors; leave it out")
        named = bm25_run(source)
        tokenizer = UNICODE if named is None else tokenizer_of_run(named)
        keeping = self._keeping(source, BM25, {BM25: bm25_parameters(tokenizer)}, 1)
        found = evaluate_bm25(self.suite, keeping=keeping, collections=self.collections, tokenizer=tokenizer)
        return Scored({"called": source, "run": run, "architecture": BM25}, found)

    def _keeping(self, source: str, called: str, decides: Mapping[str, Any], num_contexts: int) -> Keeping:
        runs = self.folder if source == self.asked.model else self.folder / "beside" / get_folder_name(source)
        sizes = {
            name: (len(one.retrieval.documents) + len(one.retrieval.queries)) * num_contexts
            for name, one in self.collections.items()
        }
        kept = Kept(self.folder / "kept", decides)
        documents = {name: len(one.retrieval.documents) for name, one in self.collections.items()}
        return Keeping(runs=runs / "trec", kept=kept, tell=Teller(called, sizes, self.progress, documents))


class Teller:
    """Says of each collection that has ended how it went, and how long the others will take."""

    def __init__(
        self, name: str, sizes: Mapping[str, int], progress: Progress, documents: Mapping[str, int] | None = None
    ) -> None:
        self._documents = documents or {}
        self._name, self._left, self._progress = name, dict(sizes), progress
        self._num_all, self._last = len(sizes), time.monotonic()
        self._texts_done, self._seconds = 0, 0.0

    def __call__(self, ended: Ended) -> None:
        """Print one line."""
        now = time.monotonic()
        size = self._left.pop(ended.dataset)
        if not ended.was_kept:
            self._texts_done, self._seconds = self._texts_done + size, self._seconds + now - self._last
        self._last = now
        scores = ", ".join(
            f"{kind + ' ' if len(ended.scores) > 1 else ''}{format_number(POINTS * value)}"
            for kind, value in ended.scores.items()
        )
        number = self._num_all - len(self._left)
        among = self._documents.get(ended.dataset)
        scores += "" if among is None else f" among {count_noun(among, 'document')}"
        when = " (kept from before)" if ended.was_kept else ""
        if self._left and self._texts_done:
            left = self._seconds * sum(self._left.values()) / self._texts_done
            when += f"; about {format_seconds(left)} left"
        self._progress(f"{self._name}: {number} of {self._num_all}, {ended.dataset}: NDCG@10 {scores}{when}")
        for kind, note in ended.ties.items():
            self._progress(f"  {ended.dataset}{f' ({kind})' if len(ended.scores) > 1 else ''}: {note}")


def describe_model(opened: Opened) -> dict[str, Any]:
    """Return what a score keeps of a model: its name, run, digest of its weights, prompts and length."""
    from repro.evaluate.digests import compute_model_digest, compute_weights_digest

    told: dict[str, Any] = {"called": opened.called, "run": None if opened.run is None else run_id(opened.run)}
    told |= {} if opened.revision is None else {"revision": opened.revision}
    told |= {"architecture": getattr(opened.model, "architecture", "sentence-transformers")}
    model = opened.model
    if isinstance(model, StockEncoder):
        weights = compute_weights_digest({**model.settings, **model.decides}, model.theirs.state_dict())
        return told | {"weights": weights, **model.settings}
    ours, config = opened.ours, opened.ours.config
    told |= {"weights": compute_model_digest(ours), "prompts": config.prompts, "max_tokens": config.max_tokens}
    return told | {"num_contexts": opened.num_contexts}

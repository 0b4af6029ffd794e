"""Score any model on any suite, and write scores, provenance and TREC runs to a folder.

1. The collections are read once.
2. Each system is scored collection by collection: the model, optionally another model, and BM25. Each result is cached,
   so an interrupted evaluation resumes with the next collection.
3. The systems are compared in one table, with an interval for each difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from repro.data.beir import Retrieval, Suite
from repro.data.own.evaluation_folders import describe_split
from repro.data.own.languages import detect_language
from repro.evaluate.adaptation import WHITENED
from repro.evaluate.collections import Collection, read_collections
from repro.evaluate.contexts import wrong_corpora
from repro.evaluate.digests import compute_model_digest
from repro.evaluate.first_stage import get_run_tokenizer, get_suite_language
from repro.evaluate.result_cache import ResultCache
from repro.evaluate.retrieval import ENGLISH, UNICODE, bm25_parameters
from repro.evaluate.suites import CollectionEnd, Evaluation, EvaluationOutputs, Setting, evaluate_bm25, evaluate_setting
from repro.evaluate.terms import check_language
from repro.interop.arguments import BM25, MINILM, check_contexts, is_blind, reads_documents, to_device
from repro.interop.comparison import (
    Column,
    Difference,
    compute_differences,
    list_comparison_notes,
    list_unknown_token_warnings,
    make_differences_view,
    make_measures_view,
    make_scores_view,
)
from repro.interop.corpus import Progress, find_wrong_source, open_suite
from repro.interop.opening import Opened, check_revision, find_bm25_run, find_named_run, is_hub_id, open_model
from repro.interop.read_share import estimate_unread_shares
from repro.interop.stock_encoder import StockEncoder
from repro.interop.trained_on import find_training_run, review_seen_queries
from repro.model.progress import make_encoding_reporter
from repro.records.provenance import describe_machine, get_code_identity, list_versions
from repro.report.query_scores import QueryScores
from repro.report.scores import POINTS, list_variants
from repro.report.view import View
from repro.spec.identity import run_id
from repro.spec.start import list_model_files
from repro.storage.digests import hash_file, hash_json
from repro.storage.files import write_json
from repro.storage.paths import get_home
from repro.text import format_number

BM25_UP_TO = 200_000
"""Largest suite, in documents, on which BM25 is scored by default. This takes about a minute."""
WHITENING_SOURCES = ("own", "wrong")


@dataclass(frozen=True)
class EvaluationRequest:
    """A request for an evaluation.

    Attributes:
        model: A run's id, a folder, a hub id, or "bm25".
        suite: A suite by name, or a folder.
        split: The split of a BEIR folder to score. Default: that of a known collection, test or dev.
        contexts: Contexts to score the model under. A model trained without documents has "null" by default.
        context_seed: Seed for drawing context documents.
        revision: Revision of a hub id.
        bm25: Whether BM25 is scored too. Default: if the suite has at most `BM25_UP_TO` documents.
        language: Language that BM25 stems. Default: that of an imported corpus, or detected in a folder, or English.
        compare_with: Another model.
        whiten: Corpora that the vectors are also whitened by: "own", "wrong".
        leave_out_seen: Score only queries that no model was trained on.
    """

    model: str
    suite: str
    split: str = ""
    contexts: tuple[str, ...] = ("own",)
    context_seed: int = 0
    revision: str | None = None
    bm25: bool | None = None
    language: str = ""
    compare_with: str | None = None
    whiten: tuple[str, ...] = ()
    leave_out_seen: bool = False


@dataclass(frozen=True)
class Scores:
    """The result of an evaluation.

    Attributes:
        suite: Name of the suite.
        metrics: Metrics of the model by path.
        provenance: How the metrics were computed, as plain values.
        folder: Folder with scores and TREC runs.
        columns: The columns of the table of scores.
        differences: Differences in the mean over collections.
        others: Metrics of the other systems by name.
        warnings: Warnings about queries that the model was trained on, and about unknown tokens.
    """

    suite: str
    metrics: Mapping[str, float]
    provenance: Mapping[str, Any]
    folder: Path
    columns: tuple[Column, ...] = ()
    differences: tuple[Difference, ...] = ()
    others: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the content of scores.json."""
        return {
            "suite": self.suite,
            "metrics": dict(self.metrics),
            "beside": {name: dict(metrics) for name, metrics in self.others.items()},
            "differences": [asdict(difference) for difference in self.differences],
            "provenance": dict(self.provenance),
        }

    def views(self) -> list[View]:
        """Return the tables: all measures of one system, or NDCG@10 of several systems and their differences."""
        notes = list_comparison_notes(
            self.provenance["suite"], self.provenance["cut"], self.provenance["unknown_tokens"]
        )
        first = self.columns[0].scores
        title = f"{first.label} on {self.suite}, points"
        if len(self.columns) == 1:
            return [make_measures_view(title, self.suite, self.metrics, first.datasets, notes)]
        scores = make_scores_view(f"{title} of NDCG@10", [column.scores for column in self.columns], notes)
        return [scores, make_differences_view(self.differences)]


def run_evaluation(request: EvaluationRequest, folder: Path | None = None, *, progress: Progress = print) -> Scores:
    """Score a model. Write scores.json, and one TREC run per collection and context.

    Raises:
        ValueError: if the model or suite is unknown, or if the model cannot be scored under a context.
    """
    # The code is identified before hours of scoring, during which the checkout may change.
    provenance = get_code_identity() | {"versions": list_versions(), "asked": asdict(request)}
    # What can be refused without opening a model is refused first.
    check_language(request.language or ENGLISH)
    sources = [request.model] if request.compare_with is None else [request.model, request.compare_with]
    check_revision(request.revision, sources)
    _check_stemmed_language(request.language, sources)
    models = [source for source in sources if source != BM25 and find_bm25_run(source) is None]
    runs = {source: run for source in models if (run := find_named_run(source)) is not None}

    def open_source(source: str) -> Opened:
        revision = request.revision if is_hub_id(source) else None
        return open_model(source, revision=revision, progress=progress)

    # A run is checked by its fields and opened last, because that may train it.
    opened = {source: open_source(source) for source in models if source not in runs}
    check_options(request, {source: runs.get(source) or opened[source].config for source in models}, sources)
    whole = open_suite(request.suite, progress, request.split)
    collections = read_collections(whole)
    for line in chain.from_iterable(describe_split(each, each.split) for each in whole.datasets if each.split):
        progress(line)
    folders = {source: each.folder for source, each in opened.items()}
    review = review_seen_queries(sources, whole, collections, progress, folders, leave_out=request.leave_out_seen)
    suite = review.suite
    target = folder or get_default_folder(request, whole.name)
    target.mkdir(parents=True, exist_ok=True)
    opened |= {source: open_source(source) for source in runs}
    evaluator = _Evaluator(request, suite, review.collections, whole, collections, target, progress)
    systems = [
        evaluator.score_model(source, opened[source]) if source in opened else evaluator.score_bm25(source)
        for source in sources
    ]
    if evaluator.includes_bm25 and BM25 not in {system.metadata["architecture"] for system in systems}:
        systems.append(evaluator.score_bm25(BM25))
    first, *others = systems
    columns = list_columns(suite.name, systems)
    scores = Scores(
        suite=suite.name,
        metrics=first.evaluation.metrics,
        provenance=provenance
        | {
            "machine": first.machine or describe_machine(device_type="cpu"),
            "model": first.metadata,
            "beside": [system.metadata | system.list_sources() for system in others],
            "cut": first.cut,
            "unknown_tokens": first.unknown,
            "suite": first.evaluation.provenance,
            "trained_on": review.counts,
        },
        folder=target,
        columns=tuple(columns),
        differences=tuple(compute_differences(columns)),
        others={system.metadata["called"]: system.evaluation.metrics for system in others},
        warnings=(*review.lines, *list_unknown_token_warnings(first.unknown)),
    )
    write_json(target / "scores.json", scores.as_dict())
    return scores


@dataclass(frozen=True)
class Scored:
    """One scored system: its metadata, its evaluation, and its shares of cut documents and of unknown tokens."""

    metadata: dict[str, Any]
    evaluation: Evaluation
    cut: dict[str, float | None] = field(default_factory=dict)
    unknown: dict[str, float | None] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)  # that encoded the texts, empty for BM25

    def list_sources(self) -> dict[str, Any]:
        """Return the provenance of its contexts and its whitening, if it has any."""
        provenance = self.evaluation.provenance
        return {name: provenance[name] for name in ("contexts", "whitened") if provenance.get(name)}


def list_columns(suite: str, systems: Sequence[Scored]) -> list[Column]:
    """Return a column for each system and view: a context, or whitened vectors.

    The label names the view if a contextual system has several, or one that is not its own corpus.
    """
    names = [str(system.metadata["called" if system.metadata["run"] is None else "architecture"]) for system in systems]
    if len(systems) > 1 and names[0] == names[1]:
        names[:2] = [f"A {names[0]}", f"B {names[1]}"]
    columns: list[Column] = []
    for name, system in zip(names, systems, strict=True):
        views = list_variants(system.evaluation.metrics, suite)
        names_own = len(views) > 1 and bool(system.metadata.get("num_contexts"))
        labels = {view: name if view == "own" and not names_own else f"{name} {view}" for _, view in views}
        for path, view in views:
            values_Q, datasets = system.evaluation.per_query[path], system.evaluation.provenance["datasets"]
            # the view decides, since a label may be the name of a folder
            base = labels["own"] if view.startswith(WHITENED) else None
            columns.append(Column(QueryScores.of(labels[view], values_Q, datasets), base))
    return columns


def check_options(request: EvaluationRequest, sizes: Mapping[str, Any], sources: Sequence[str]) -> None:
    """Check contexts and whitening against all models, before one is trained or scored.

    Args:
        request: The request.
        sizes: The run or the configuration of each model. None for a model of another library.
        sources: The names of all systems. Those without sizes are BM25.

    Raises:
        ValueError: if a model does not support an option that it is scored with, or if no model supports it.
    """
    contexts = () if request.contexts == ("own",) else request.contexts
    check_contexts({source: sizes.get(source) for source in sources}, contexts)
    if not request.whiten:
        return
    if unknown := sorted(set(request.whiten) - set(WHITENING_SOURCES)):
        raise ValueError(f"--whiten {' '.join(unknown)} is unknown; choose one of {list(WHITENING_SOURCES)}")
    # also true for BM25 alone
    if all(map(is_blind, sizes.values())):
        raise ValueError(f"--whiten: {' and '.join(sources)} have no vectors that it can change: leave it out")
    reading = [source for source in sizes if reads_documents(sizes[source])]
    if reading and "own" not in request.contexts:
        raise ValueError(f"--whiten: vectors of {reading[0]} are whitened under the own context: add --context own")


def _check_stemmed_language(language: str, sources: Sequence[str]) -> None:
    """Raise ValueError for another language than English if a run of BM25 has the English tokenizer."""
    runs = {source: find_bm25_run(source) for source in sources if source != BM25}
    english = [source for source, run in runs.items() if run is not None and get_run_tokenizer(run) == ENGLISH]
    if english and language not in ("", ENGLISH):
        raise ValueError(f"--language {language}: run {english[0]} stems English; choose {BM25} for another language")


@dataclass(frozen=True)
class _Evaluator:
    """Scores the systems of one evaluation.

    `whole_suite` and `whole_collections` also have the queries and collections that are not scored.
    """

    request: EvaluationRequest
    suite: Suite
    collections: Mapping[str, Collection]
    whole_suite: Suite
    whole_collections: Mapping[str, Collection]
    folder: Path
    progress: Progress

    @property
    def includes_bm25(self) -> bool:
        """Whether BM25 is scored too."""
        if self.request.bm25 is not None:
            return self.request.bm25
        num_documents = sum(len(collection.retrieval.documents) for collection in self.collections.values())
        return num_documents <= BM25_UP_TO

    def _find_wrong_corpora(self) -> dict[str, Retrieval]:
        """Return the wrong corpus of each collection, chosen from the whole suite."""
        corpus = find_wrong_source(self.whole_suite, self.progress)
        if corpus is not None:
            return dict.fromkeys(self.collections, corpus)
        others = wrong_corpora(self.whole_suite.datasets)
        return {name: self.whole_collections[others[name]].retrieval for name in self.collections}

    def score_model(self, source: str, opened: Opened) -> Scored:
        """Score a model."""
        request, model = self.request, opened.model
        to_device(model)
        model.report = make_encoding_reporter(self.progress)
        has_prompts = not isinstance(model, StockEncoder) or any(model.role_prompts.values())
        if not has_prompts and source != MINILM and find_training_run(source, opened.folder) is None:
            self.progress(f"{opened.called} stores no prompts: texts are embedded without any")
        # a model without contexts is scored once, also next to a contextual one
        contexts: tuple[str, ...] = ("own",)
        whitened = request.whiten
        if reads_documents(opened.config):
            contexts = request.contexts
        elif is_blind(opened.config):
            # its only context, also next to a model with several
            contexts, whitened = ("null",), ()
            self.progress(f"{opened.called}: trained without documents, so it is scored under the null context")
        metadata = describe_model(opened)
        setting = Setting(
            contexts=contexts,
            num_contexts=opened.num_contexts,
            seed=request.context_seed,
            wrong_from=self._find_wrong_corpora() if "wrong" in (*contexts, *whitened) else {},
            whitened=whitened,
        )
        machine = describe_machine(narrow=getattr(model, "is_narrow", False), device_type=model.device.type)
        if isinstance(model, StockEncoder):
            machine["dtype"] = model.dtype
        # the key of cached results: everything except texts that decides the scores
        key = {
            "model": metadata["weights"],
            "num_contexts": opened.num_contexts,
            "seed": request.context_seed,
            # rounding on a GPU differs and may change the order of close documents
            "device": str(model.device),
            "dtype": machine["dtype"],
            "versions": list_versions(),
        }
        outputs = self._make_outputs(source, opened.called, key)
        evaluation = evaluate_setting(model, self.suite, setting, outputs, self.collections)
        scored = Scored(metadata, evaluation, machine=machine)
        for name, collection in self.collections.items():
            scored.cut[name], scored.unknown[name] = estimate_unread_shares(model, collection)
        return scored

    def score_bm25(self, source: str) -> Scored:
        """Score BM25, or a run of it."""
        run = find_bm25_run(source)
        tokenizer = UNICODE if run is None else get_run_tokenizer(run)
        language = self._find_language() if tokenizer == UNICODE else ENGLISH
        options: dict[str, Any] = {"tokenizer": tokenizer, "language": language}
        hint = " (--language sets another)" if tokenizer == UNICODE else ""
        self.progress(f"{BM25}: language {language}{hint}")
        outputs = self._make_outputs(source, BM25, {BM25: bm25_parameters(**options)})
        evaluation = evaluate_bm25(self.suite, outputs=outputs, collections=self.collections, **options)
        metadata = {"called": source, "run": None if run is None else run_id(run), "architecture": BM25}
        return Scored(metadata, evaluation)

    def _find_language(self) -> str:
        """Return the language that BM25 stems."""
        if self.request.language:
            return self.request.language
        # a folder may have the name of an imported corpus
        if Path(self.request.suite).is_dir():
            documents = [collection.retrieval.documents for collection in self.whole_collections.values()]
            return detect_language([*chain.from_iterable(documents)])
        return get_suite_language(self.request.suite)

    def _make_outputs(self, source: str, called: str, key: Mapping[str, Any]) -> EvaluationOutputs:
        # A second model has its own folder, because runs are named by collection only.
        folder = self.folder if source == self.request.model else self.folder / "beside" / get_folder_name(source)

        def print_scores(event: CollectionEnd) -> None:
            scores = ", ".join(f"{view} {format_number(POINTS * value)}" for view, value in event.scores.items())
            cached = " (cached)" if event.was_cached else ""
            self.progress(f"{called} on {event.dataset}: NDCG@10 {scores}{cached}")
            for view, note in event.ties.items():
                self.progress(f"  {event.dataset}, {view}: {note}")

        return EvaluationOutputs(
            runs=folder / "trec", cache=ResultCache(self.folder / "kept", key), callback=print_scores
        )


def describe_model(opened: Opened) -> dict[str, Any]:
    """Return the provenance of a model: its name, run, digest of weights, prompts and maximal length."""
    model = opened.model
    metadata: dict[str, Any] = {"called": opened.called, "run": None if opened.run is None else run_id(opened.run)}
    if opened.revision is not None:
        metadata["revision"] = opened.revision
    metadata["architecture"] = getattr(model, "architecture", "sentence-transformers")
    if isinstance(model, StockEncoder):
        assert opened.folder is not None, "a model of another library is opened from a folder"
        # all files, because settings and tokenizers decide vectors too
        digests = [
            (path.relative_to(opened.folder).as_posix(), hash_file(path)) for path in list_model_files(opened.folder)
        ]
        return metadata | {"weights": hash_json(digests)[:12], **model.settings}
    config = opened.ours.config
    return metadata | {
        "weights": compute_model_digest(opened.ours),
        "prompts": config.prompts,
        "max_tokens": config.max_tokens,
        "num_contexts": opened.num_contexts,
    }


def get_default_folder(request: EvaluationRequest, suite: str) -> Path:
    """Return the default output folder, named by model, suite and a digest of all options.

    Repeating a command finds its cached results. Any other model, context or seed has another folder.
    """
    # "model" in two working directories is two models
    options = {name: _resolve_path(value) for name, value in asdict(request).items()}
    return get_home() / "evaluations" / f"{get_folder_name(request.model, suite)}-{hash_json(options)[:8]}"


def _resolve_path(value: Any) -> Any:
    """Return the absolute path of a file or folder, and any other value as it is."""
    return str(Path(value).resolve()) if isinstance(value, str) and value and Path(value).exists() else value


def get_folder_name(source: str, *suffixes: str) -> str:
    """Return a valid folder name for a model. If the model is a folder, only the last part of its path is used."""
    name = Path(source).resolve().name if Path(source).is_dir() else source
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join([name, *suffixes]))

"""Carries out one run: stages, training, evaluation, record; the same on a laptop, in a test and on a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.evaluate.suites import Evaluation, evaluate_bm25, evaluate_suite
from repro.identity import run_id
from repro.inputs import check_available, stages_of, suite_of
from repro.places import local_records, run_folder
from repro.provenance import code_identity, machine, versions
from repro.spec import TRAINED, Run
from repro.store import Record, has_record, read_record, write_record

Report = Callable[[str], None]
CONTEXTS = {"biencoder": ("own",), "contextual": ("own", "wrong", "null")}


@dataclass(frozen=True)
class Trained:
    """What training leaves for evaluation and for the record; nothing of it where nothing is trained."""

    model: Any = None
    metrics: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)


def never() -> bool:
    """Never asks a run to stop."""
    return False


def execute(run: Run, *, should_stop: Callable[[], bool] = never, report: Report = print) -> Record:
    """Gives the record of a run, carrying it out when there is none.

    A run that was stopped goes on from its last checkpoint, to the same numbers. ValueError, before anything is spent,
    when its data is not here; `Interrupted` when `should_stop` said so, after a checkpoint was written.
    """
    if has_record(local_records(), run):
        return read_record(local_records() / f"{run_id(run)}.json")
    check_available([run])
    for stage in stages_of(run):
        stage.build(report)
    folder = run_folder(run_id(run))
    trained = _train(run, folder, should_stop, report) if run.architecture in TRAINED else Trained()
    if int(os.environ.get("RANK", "0")) > 0:
        return _await_record(run)
    started = time.monotonic()
    evaluation = _evaluate(run, trained.model, folder)
    seconds = time.monotonic() - started
    headline = evaluation.metrics[f"{run.suite}/mean/ndcg_at_10"]
    report(f"evaluated on {run.suite} in {seconds:.0f} s: NDCG@10 {100 * headline:.1f}")
    return write_record(
        local_records(),
        run,
        metrics={**trained.metrics, **evaluation.metrics},
        arrays={**trained.arrays, **evaluation.per_query},
        provenance={
            **code_identity(),
            "versions": versions(),
            "machine": machine(),
            "stages": {stage.name: {"id": stage.path.name, **stage.key} for stage in stages_of(run)},
            "training": trained.provenance,
            "suite": evaluation.provenance,
            "evaluation_seconds": round(seconds, 1),
        },
    )


def _await_record(run: Run) -> Record:
    """Gives the record once rank 0 has written it; the other ranks only train."""
    while not has_record(local_records(), run):
        time.sleep(0.5)
    return read_record(local_records() / f"{run_id(run)}.json")


def _train(run: Run, folder: Path, should_stop: Callable[[], bool], report: Report) -> Trained:
    from repro.training import train_run

    model, summary = train_run(run, folder, should_stop=should_stop, report=report)
    return Trained(model, summary.metrics, summary.arrays, summary.provenance)


def _evaluate(run: Run, model: Any, folder: Path) -> Evaluation:
    suite, runs = suite_of(run), folder / "trec"
    if run.architecture == "bm25":
        return evaluate_bm25(suite, folder=runs)
    if run.architecture == "surrogate":
        from repro.batches.surrogate import load_surrogate

        return evaluate_suite(SurrogateEncoder(load_surrogate(run.surrogate), run.max_tokens), suite, folder=runs)
    contextual = run.architecture == "contextual"
    num_contexts = run.num_contexts if contextual else 0
    contexts = CONTEXTS[run.architecture]
    return evaluate_suite(
        model, suite, contexts=contexts, num_contexts=num_contexts, seed=run.context_seed, folder=runs
    )


@dataclass(frozen=True)
class SurrogateEncoder:
    """The untrained surrogate as something to be scored."""

    surrogate: Any
    max_tokens: int

    def set_context(self, texts: Any, seed: int = 0) -> None:
        """Takes and ignores a context."""

    def encode(self, texts: Any, prompt: str = "document") -> Any:
        """Gives the surrogate's unit vectors, float32 (N, D)."""
        return self.surrogate.embed(list(texts), self.max_tokens)

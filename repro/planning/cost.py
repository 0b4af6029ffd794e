"""Estimate time and memory of a run: seconds of the most similar records, scaled by the work on their tokens.

A token of a text of n tokens takes 24 h² + 4 n h floating-point operations in a layer of width h, and three times as many
with the backward pass. The count includes both texts of a pair, the first stage for each context document of a batch, and
the context vectors as further tokens of every text. Several processes share the work equally.

Memory is the estimate that also chooses the chunk sizes of training (`repro.train.performance`), plus weights and libraries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from typing import Any

from repro.planning.pairs import count_pairs
from repro.records.provenance import get_machine_kind, get_phase_seconds, get_training_machine
from repro.records.store import Record
from repro.spec import TRAINED, Run, is_blind, list_phases
from repro.spec.identity import get_training_id
from repro.storage.lease import has_succeeded
from repro.storage.paths import run_folder
from repro.train.checkpoint import CHECKPOINT_FILE, read_checkpoint_step
from repro.train.performance import batches_are_sharded, choose_chunks, estimate_graph_bytes, uses_autocast

# mean text length as a share of max_tokens
TEXT_SHARE = 0.6
VOCABULARY = 30_528
BYTES_PER_WEIGHT = 16  # float32 weight, gradient and AdamW's two moments
BASE_MEMORY_BYTES = 700 * 2**20  # Python, torch and libraries, before the first weight
GPU_BYTES = 80 * 2**30  # assumed memory, which determines the number of texts per chunk
SIMILAR_FIELDS = ("architecture", "hidden_size", "scale", "num_layers", "batch_size")
"""Fields by which records are similar to a run, the most important first."""


@dataclass(frozen=True)
class Work:
    """Amount of work of a training run, independent of the machine."""

    num_pairs: int = 0  # seen in training, repeats counted
    flops: float = 0.0
    is_known: bool = True  # False: the length of an epoch is unknown, and counts as zero


@dataclass(frozen=True)
class Estimate:
    """Time and memory of a run on one machine."""

    seconds: float | None  # None without a similar record, or if the length of training is unknown
    memory_bytes: int
    num_pairs: int
    training_seconds: float | None = None  # of `seconds`


def count_operations(run: Run) -> Work:
    """Count the operations of training. The result is zero for an untrained reference system."""
    if run.architecture not in TRAINED:
        return Work()
    pairs_per_epoch = count_pairs(run) if run.num_steps is None else None
    batches_in_epochs = -(-(pairs_per_epoch or 0) * (run.num_epochs or 0) // run.batch_size)
    num_batches = (run.num_steps or batches_in_epochs // run.batches_a_step) * run.batches_a_step
    num_pairs = num_batches * run.batch_size
    text_length = TEXT_SHARE * run.max_tokens
    num_texts = 2 + run.num_hard_negatives  # per pair
    # The first stage runs once per batch and the second once per text.
    length = text_length + _count_context_tokens(run)
    flops_per_pair = num_texts * _count_forward_flops(length, run.hidden_size, run.num_layers)
    flops_per_document = _count_forward_flops(text_length, run.hidden_size, run.num_first_stage_layers)
    # A backward pass costs as much as two forward passes.
    flops = 3 * (num_pairs * flops_per_pair + num_batches * _count_context_documents(run) * flops_per_document)
    return Work(num_pairs, flops, is_known=run.num_steps is not None or pairs_per_epoch is not None)


def _count_context_tokens(run: Run) -> int:
    """Return the number of context vectors and soft prompts that the second stage reads before each text."""
    if run.architecture != "contextual":
        return 0
    return run.num_contexts * run.tokens_per_document + run.num_soft_prompts


def _count_context_documents(run: Run) -> int:
    """Return the number of documents that the first stage encodes per batch."""
    return run.num_contexts if run.architecture == "contextual" and not is_blind(run) else 0


def _count_forward_flops(num_tokens: float, width: int, num_layers: int) -> float:
    """Return the operations of a forward pass over one text."""
    return num_tokens * num_layers * (24 * width * width + 4 * num_tokens * width)


class RecordedCosts:
    """Times from the records of one kind of machine. Results are cached, because a sweep has many similar runs."""

    def __init__(self, records: Iterable[Record], kind: str) -> None:
        """Select the records of this kind of machine."""
        self.kind = kind
        self._records = [
            record for record in records if get_machine_kind(get_training_machine(record)["device"]) == kind
        ]
        # (run, seconds per operation) of each recorded training run
        self._trained = [
            (record.run, get_phase_seconds(record) / work.flops)
            for record in self._records
            if record.provenance["training"].get("seconds") and (work := _read_work(record)).is_known
        ]
        self._find_rate, self._find_evaluation = cache(self._compute_rate), cache(self._compute_evaluation)

    def get_seconds_per_operation(self, run: Run) -> float | None:
        """Return the median rate of the most similar training runs, or None without one.

        Without one of the scale, a CPU takes records of models that are at least as wide. A GPU takes none, because small
        models do not occupy it.
        """
        return self._find_rate(*(getattr(run, name) for name in SIMILAR_FIELDS))

    def _compute_rate(self, *wanted: Any) -> float | None:
        fields = dict(zip(SIMILAR_FIELDS, wanted, strict=True))
        rates: dict[tuple[bool, ...], list[float]] = {}
        for run, rate in self._trained:
            if run.scale == fields["scale"] or (self.kind == "cpu" and run.hidden_size >= fields["hidden_size"]):
                likeness = tuple(getattr(run, name) == value for name, value in fields.items())
                rates.setdefault(likeness, []).append(rate)
        # a tuple of booleans is larger if its first fields are equal
        return median(rates[max(rates)]) if rates else None

    def get_evaluation_seconds(self, run: Run) -> float | None:
        """Return the evaluation time of a run, or None if no evaluation of this kind is recorded."""
        seconds = self._find_evaluation(run.architecture, run.measure, run.scale, run.suite, run.hidden_size)
        return None if seconds is None else seconds * _count_contexts(run)

    def _compute_evaluation(self, architecture: str, measure: str, scale: str, suite: str, width: int) -> float | None:
        """Return the median time per context of the most similar records. Other suites count at the same scale only."""
        seconds: dict[tuple[bool, bool], list[float]] = {}
        for record in self._records:
            run = record.run
            is_comparable = run.suite == suite or run.scale == scale
            if is_comparable and (run.architecture, run.measure) == (architecture, measure):
                per_context = get_phase_seconds(record, "evaluation_") / _count_contexts(run)
                seconds.setdefault((run.suite == suite, run.hidden_size == width), []).append(per_context)
        return median(seconds[max(seconds)]) if seconds else None


def _read_work(record: Record) -> Work:
    """Return the operations of a recorded training run, which may have ended before its last step."""
    num_steps = record.provenance["training"].get("num_steps", record.run.num_steps)
    if num_steps != record.run.num_steps:
        return count_operations(replace(record.run, num_steps=num_steps, num_epochs=None))
    return count_operations(record.run)


def _count_contexts(run: Run) -> int:
    return len(run.test_contexts.split("+")) if run.architecture == "contextual" else 1


def estimate(run: Run, costs: RecordedCosts, *, num_devices: int = 1, trained: Collection[str] = ()) -> Estimate:
    """Return the cost of a run without the training runs in `trained`. Several devices share the work equally."""
    phases = [phase for phase in list_phases(run) if get_training_id(phase) not in trained]
    work = [count_operations(phase) for phase in phases]
    num_pairs, flops = sum(each.num_pairs for each in work), sum(each.flops for each in work)
    lengths_are_known = all(each.is_known for each in work)
    rate = costs.get_seconds_per_operation(run) if flops else 0.0
    evaluation_seconds = costs.get_evaluation_seconds(run)
    training_seconds = flops / num_devices * rate if lengths_are_known and rate is not None else None
    seconds = None
    if training_seconds is not None and evaluation_seconds is not None:
        seconds = training_seconds + evaluation_seconds
    # A run whose training has ended only evaluates, which needs no graph.
    needs_graph = num_pairs > 0 or not lengths_are_known
    memory_bytes = _estimate_memory(run, costs.kind, num_devices, needs_graph=needs_graph)
    return Estimate(seconds, memory_bytes, num_pairs, training_seconds)


def _estimate_memory(run: Run, kind: str, num_devices: int, *, needs_graph: bool) -> int:
    """Return the memory of one process in bytes. On a CPU texts are packed at their mean length."""
    if not needs_graph:
        return BASE_MEMORY_BYTES
    weight_bytes = BYTES_PER_WEIGHT * count_weights(run)
    autocast = uses_autocast()
    num_texts = run.batch_size * (2 + run.num_hard_negatives)
    sizes = choose_chunks(run, autocast=autocast, num_texts=num_texts, gpu_bytes=GPU_BYTES if kind == "gpu" else None)
    if kind != "gpu":
        run = replace(run, max_tokens=round(TEXT_SHARE * run.max_tokens))
        autocast = False
    num_shards = num_devices if batches_are_sharded(run.batches_a_step, num_devices) else 1
    # -(-a // b) rounds up.
    num_texts = -(-num_texts // num_shards)
    num_contexts = -(-_count_context_documents(run) // num_shards)
    graphs = estimate_graph_bytes(run, sizes, autocast=autocast, num_texts=num_texts, num_contexts=num_contexts)
    return round(BASE_MEMORY_BYTES + weight_bytes + graphs)


def count_weights(run: Run) -> int:
    """Return the approximate number of weights. Each stage has an embedding matrix of its own."""
    is_contextual = run.architecture == "contextual"
    num_layers = run.num_layers + (run.num_first_stage_layers if is_contextual else 0)
    return 12 * run.hidden_size**2 * num_layers + VOCABULARY * run.hidden_size * (2 if is_contextual else 1)


def list_trainings(run: Run) -> tuple[str, ...]:
    """Return the ids of a run's training runs: its own, then its first phase. An untrained system has none."""
    return tuple(get_training_id(phase) for phase in list_phases(run) if phase.architecture in TRAINED)


def has_ended(training: str) -> bool:
    """Return whether a training run has ended on this machine, and its weights still exist.

    Only its owner knows whether all steps are done, because the length of epochs depends on the corpus.
    """
    folder = run_folder(training)
    return has_succeeded(folder / "training") and (folder / CHECKPOINT_FILE).is_file()


def list_missing_trainings(run: Run) -> tuple[str, ...]:
    """Return the ids of the training runs that a run still executes on this machine: its own, then its first phase.

    A training run with a checkpoint needs no first phase, except for measure="steps", which trains again from the start.
    """
    missing: list[str] = []
    for training in list_trainings(run):
        is_ended = has_ended(training)
        if not is_ended:
            missing.append(training)
        if run.measure != "steps" and (is_ended or read_checkpoint_step(run_folder(training))):
            break
    return tuple(missing)

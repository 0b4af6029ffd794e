"""Estimate time and memory of a run: seconds of the most similar records, scaled by the work on their tokens.

A token of a text of n tokens takes 24 h² + 4 n h floating-point operations in a layer of width h, and three times as many
with the backward pass. The count includes both texts of a pair, the first stage for each context document of a batch, and
the context vectors as further tokens of every text. Several processes share the work equally.

Memory is the estimate that also chooses the chunk sizes of training (`repro.train.performance`), plus weights and libraries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from repro.planning.pairs import count_pairs
from repro.records.provenance import get_machine_kind, get_phase_seconds, get_phase_times, get_training_machine
from repro.records.store import Record
from repro.spec import TRAINED, Run, get_first_phase, is_blind
from repro.spec.identity import get_training_id
from repro.storage.lease import has_succeeded
from repro.storage.paths import run_folder
from repro.train.checkpoint import CHECKPOINT_FILE, read_checkpoint_step
from repro.train.performance import batches_are_sharded, choose_chunks, estimate_graph_bytes, read_switches

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
    num_tokens: int = 0
    flops: float = 0.0
    is_known: bool = True  # False: the length of an epoch is unknown, and counts as zero

    def __add__(self, other: Work) -> Work:
        """Return the sum of both."""
        return Work(
            self.num_pairs + other.num_pairs,
            self.num_tokens + other.num_tokens,
            self.flops + other.flops,
            self.is_known and other.is_known,
        )


@dataclass(frozen=True)
class Estimate:
    """Time and memory of a run on one machine."""

    seconds: float | None  # None without a similar record, or if the length of training is unknown
    memory_bytes: int
    work: Work
    # False: no similar evaluation is recorded, so the seconds exclude it
    counts_evaluation: bool = True


def count_operations(run: Run) -> Work:
    """Count the operations of training. The result is zero for an untrained reference system."""
    if run.architecture not in TRAINED:
        return Work()
    pairs_per_epoch = None if run.num_steps else count_pairs(run)
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
    is_known = bool(run.num_steps) or pairs_per_epoch is not None
    return Work(num_pairs, round(num_pairs * num_texts * text_length), flops, is_known)


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
        self._trained = [
            record
            for record in self._records
            if record.provenance["training"].get("seconds") and _read_work(record).is_known
        ]
        self._rates: dict[tuple[object, ...], float | None] = {}
        self._evaluations: dict[tuple[object, ...], float | None] = {}

    def get_seconds_per_operation(self, run: Run) -> float | None:
        """Return the median rate of the most similar training runs, or None without one.

        Without one of the scale, a CPU takes records of models that are at least as wide. A GPU takes none, because small
        models do not occupy it.
        """
        key = tuple(getattr(run, name) for name in SIMILAR_FIELDS)
        if key not in self._rates:
            candidates = [record for record in self._trained if self._is_comparable(record.run, run)]
            # a list of booleans is larger if its first fields are equal
            likeness = [
                [getattr(record.run, name) == getattr(run, name) for name in SIMILAR_FIELDS] for record in candidates
            ]
            best = max(likeness, default=[])
            similar = [record for record, equal in zip(candidates, likeness, strict=True) if equal == best]
            rates = [get_phase_seconds(record) / _read_work(record).flops for record in _prefer_processor_time(similar)]
            self._rates[key] = median(rates) if rates else None
        return self._rates[key]

    def _is_comparable(self, recorded: Run, run: Run) -> bool:
        return recorded.scale == run.scale or (self.kind == "cpu" and recorded.hidden_size >= run.hidden_size)

    def get_evaluation_seconds(self, run: Run) -> float | None:
        """Return the evaluation time of a run in seconds, or None if no record has the same evaluation."""
        evaluation = (run.architecture, run.suite, run.measure)
        key = (*evaluation, run.hidden_size)
        if key not in self._evaluations:
            same = [
                record
                for record in self._records
                if (record.run.architecture, record.run.suite, record.run.measure) == evaluation
            ]
            similar = [record for record in same if record.run.hidden_size == run.hidden_size] or same
            seconds = [
                get_phase_seconds(record, "evaluation_") / _count_contexts(record.run)
                for record in _prefer_processor_time(similar, "evaluation_")
            ]
            self._evaluations[key] = median(seconds) if seconds else None
        per_context = self._evaluations[key]
        return None if per_context is None else per_context * _count_contexts(run)


def _read_work(record: Record) -> Work:
    """Return the operations of a recorded training run, which may have ended before its last step."""
    num_steps = record.provenance["training"].get("num_steps", record.run.num_steps)
    if num_steps != record.run.num_steps:
        return count_operations(replace(record.run, num_steps=num_steps, num_epochs=None))
    return count_operations(record.run)


def _prefer_processor_time(records: Sequence[Record], phase: str = "") -> Sequence[Record]:
    """Return the records that count processor time, or all records if none does.

    Seconds of a clock are too long if other programs ran on the machine at the same time.
    """
    with_cpu_time = [record for record in records if get_phase_times(record, phase).get(f"{phase}cpu_seconds")]
    return with_cpu_time or records


def _count_contexts(run: Run) -> int:
    return len(run.test_contexts.split("+")) if run.architecture == "contextual" else 1


def estimate(run: Run, costs: RecordedCosts, *, num_devices: int = 1, trained: Collection[str] = ()) -> Estimate:
    """Return the cost of a run without the training runs in `trained`. Several devices share the work equally."""
    phases = [phase for phase in list_training_phases(run) if get_training_id(phase) not in trained]
    work = sum(map(count_operations, phases), Work())
    evaluation_seconds = costs.get_evaluation_seconds(run)
    rate = costs.get_seconds_per_operation(run) if work.flops else 0.0
    is_known = work.is_known and rate is not None and (work.flops > 0 or evaluation_seconds is not None)
    seconds = work.flops / num_devices * (rate or 0.0) + (evaluation_seconds or 0.0)
    # A run whose training has ended only evaluates, which needs no graph.
    needs_graph = work.num_pairs > 0 or not work.is_known
    memory_bytes = _estimate_memory(run, costs.kind, num_devices, needs_graph=needs_graph)
    return Estimate(seconds if is_known else None, memory_bytes, work, evaluation_seconds is not None)


def _estimate_memory(run: Run, kind: str, num_devices: int, *, needs_graph: bool) -> int:
    """Return the memory of one process in bytes. On a CPU texts are packed at their mean length."""
    if not needs_graph:
        return BASE_MEMORY_BYTES
    weight_bytes = BYTES_PER_WEIGHT * count_weights(run)
    switches = read_switches()
    num_texts = run.batch_size * (2 + run.num_hard_negatives)
    sizes = choose_chunks(run, switches, num_texts=num_texts, gpu_bytes=GPU_BYTES if kind == "gpu" else None)
    if kind != "gpu":
        run = replace(run, max_tokens=round(TEXT_SHARE * run.max_tokens))
        switches = replace(switches, autocast=False)
    num_shards = num_devices if batches_are_sharded(run.batches_a_step, num_devices) else 1
    # -(-a // b) rounds up.
    num_texts = -(-num_texts // num_shards)
    num_contexts = -(-_count_context_documents(run) // num_shards)
    graphs = estimate_graph_bytes(run, sizes, switches, num_texts=num_texts, num_contexts=num_contexts)
    return round(BASE_MEMORY_BYTES + weight_bytes + graphs)


def count_weights(run: Run) -> int:
    """Return the approximate number of weights. Each stage has an embedding matrix of its own."""
    is_contextual = run.architecture == "contextual"
    num_layers = run.num_layers + (run.num_first_stage_layers if is_contextual else 0)
    return 12 * run.hidden_size**2 * num_layers + VOCABULARY * run.hidden_size * (2 if is_contextual else 1)


def list_training_phases(run: Run) -> Iterator[Run]:
    """Yield the run, then the earlier training phases from which it starts."""
    phase: Run | None = run
    while phase is not None:
        yield phase
        phase = get_first_phase(phase)


def list_trainings(run: Run) -> tuple[str, ...]:
    """Return the ids of a run's training runs: its own, then its first phase. An untrained system has none."""
    return tuple(get_training_id(phase) for phase in list_training_phases(run) if phase.architecture in TRAINED)


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

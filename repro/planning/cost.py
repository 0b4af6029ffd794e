"""Estimate the cost of a run in time, memory and disk, from operation counts and recorded speeds.

A token of a text of n tokens takes 24 h² + 4 n h floating-point operations in a layer of width h. With the backward pass
this counts three times, or four times if the texts of a step do not fit in memory together. The count includes both
texts of a pair, the first stage for each context document of a batch, and the context vectors as further tokens of
every text. Several processes share the work equally, and their waiting for each other is not counted.

The speed of a machine is the median over the records from such machines, from the same architecture if available. The
error of an estimate is the median distance of these records from it. The time of an evaluation comes from records of the
same evaluation, scaled by the number of contexts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from repro.planning.pairs import count_pairs
from repro.records.provenance import get_machine_kind, get_phase_seconds, get_phase_times, get_training_machine
from repro.records.store import Record
from repro.spec import TRAINED, Run, get_first_phase, is_blind
from repro.spec.identity import get_training_id
from repro.storage.lease import list_owners
from repro.storage.paths import run_folder
from repro.train.checkpoint import CHECKPOINT_FILE, read_checkpoint_step
from repro.train.chunks import ChunkSizes, choose_chunks, estimate_graph_bytes
from repro.train.sharing import batches_are_sharded
from repro.train.switches import read_switches

# mean text length as a share of max_tokens. The measured speed absorbs the error
TEXT_SHARE = 0.6
VOCABULARY = 30_528
BYTES_PER_WEIGHT = 16  # float32 weight, gradient and AdamW's two moments
BASE_MEMORY_BYTES = 700 * 2**20  # Python, torch and libraries, before the first weight
GPU_BYTES = 80 * 2**30  # assumed memory, which determines the number of texts per chunk

ASSUMED_FLOPS_PER_SECOND = {"cpu": 4.0e10, "gpu": 1.0e14}
"""Speed of one core, and of an 80 GB GPU at a tenth of its bfloat16 peak. Used until records are available."""
HALF_EFFICIENT_WIDTH = 500
"""Width at which a core reaches half its speed.

Measured on one core at widths 128 (published records) and 384 (MiniLM in both stages, 96 to 105 GFLOPS).
"""
ASSUMED_FLOAT32_FLOPS_PER_SECOND = 1.0e13
"""Speed of a GPU in float32 without tensor cores, as in FAISS: half the peak of an A100 (19.5e12)."""


@dataclass(frozen=True)
class Arithmetic:
    """Amount of work of a training run, independent of the machine."""

    num_pairs: int  # seen in training, repeats counted
    num_tokens: int
    flops: float
    num_weights: int
    is_known: bool = True  # False: the length of an epoch is unknown, and counts as zero

    def __add__(self, other: Arithmetic) -> Arithmetic:
        """Return the sum of both, with the larger number of weights."""
        return Arithmetic(
            num_pairs=self.num_pairs + other.num_pairs,
            num_tokens=self.num_tokens + other.num_tokens,
            flops=self.flops + other.flops,
            num_weights=max(self.num_weights, other.num_weights),
            is_known=self.is_known and other.is_known,
        )


@dataclass(frozen=True)
class Speed:
    """Training speed of a kind of machine in operations per second, and the error of estimates."""

    flops_per_second: float
    num_records: int  # 0: assumed
    # median of |measured / estimated - 1| over these records
    relative_error: float | None


@dataclass(frozen=True)
class Estimate:
    """Cost of a run on one machine. If `arithmetic.is_known` is false, it excludes training."""

    seconds: float
    memory_bytes: int
    disk_bytes: int
    arithmetic: Arithmetic
    speed: Speed
    # False: no similar evaluation is recorded, so the seconds exclude it
    counts_evaluation: bool = True

    @property
    def is_known(self) -> bool:
        """Whether the seconds are meaningful, so the length of training is known and something was estimated."""
        return self.arithmetic.is_known and (self.counts_evaluation or self.arithmetic.flops > 0)


NO_WORK = Arithmetic(0, 0, 0.0, 0)
CPU_CHUNK_SIZES = ChunkSizes()


def count_operations(run: Run, sizes: ChunkSizes = CPU_CHUNK_SIZES, num_devices: int = 1) -> Arithmetic:
    """Count the operations of training with these chunk sizes. The result is zero for an untrained reference system."""
    if run.architecture not in TRAINED:
        return NO_WORK
    pairs_per_epoch = None if run.num_steps else count_pairs(run)
    batches_in_epochs = -(-(pairs_per_epoch or 0) * (run.num_epochs or 0) // run.batch_size)
    num_batches = (run.num_steps or batches_in_epochs // run.batches_a_step) * run.batches_a_step
    num_pairs = num_batches * run.batch_size
    width = run.hidden_size
    text_length = TEXT_SHARE * run.max_tokens
    is_contextual = run.architecture == "contextual"
    num_texts = 2 + run.num_hard_negatives  # per pair
    # The first stage runs once per batch and the second once per text.
    flops_per_pair = num_texts * count_forward_flops(text_length + _count_context_tokens(run), width, run.num_layers)
    flops_per_batch = _count_context_documents(run) * count_forward_flops(
        text_length, width, run.num_first_stage_layers
    )
    num_layers = run.num_layers + (run.num_first_stage_layers if is_contextual else 0)
    # Each stage has an embedding matrix of its own.
    num_weights = 12 * width * width * num_layers + VOCABULARY * width * (2 if is_contextual else 1)
    # A backward pass costs as much as two forward passes.
    num_passes = 3 if sizes.hold(*_count_texts_per_process(run, num_devices)) else 4
    flops = num_passes * (num_pairs * flops_per_pair + num_batches * flops_per_batch)
    is_known = bool(run.num_steps) or pairs_per_epoch is not None
    return Arithmetic(num_pairs, round(num_pairs * num_texts * text_length), flops, num_weights, is_known)


def _count_context_tokens(run: Run) -> int:
    """Return the number of context vectors and soft prompts that the second stage reads before each text."""
    if run.architecture != "contextual":
        return 0
    return run.num_contexts * run.tokens_per_document + run.num_soft_prompts


def _count_context_documents(run: Run) -> int:
    """Return the number of documents that the first stage encodes per batch."""
    return run.num_contexts if run.architecture == "contextual" and not is_blind(run) else 0


def _count_texts_per_process(run: Run, num_devices: int) -> tuple[int, int]:
    """Return the number of texts and of context documents per batch that one process computes."""
    num_shards = num_devices if batches_are_sharded(run.batches_a_step, num_devices) else 1
    num_texts = run.batch_size * (2 + run.num_hard_negatives)
    # -(-a // b) rounds up.
    return -(-num_texts // num_shards), -(-_count_context_documents(run) // num_shards)


def _get_chunk_sizes(run: Run, kind: str) -> ChunkSizes:
    return choose_chunks(run, GPU_BYTES if kind == "gpu" else None, read_switches())


def _read_training_record(record: Record) -> Arithmetic:
    """Return the operations of a recorded training run, from its chunk sizes and number of processes."""
    training = record.provenance["training"]
    # A chunked step runs every text forward twice, so the record's own sizes count.
    sizes = ChunkSizes(*map(int, training["chunks"].split(","))) if "chunks" in training else CPU_CHUNK_SIZES
    sessions = training.get("sittings") or [{}]
    run, num_steps = record.run, training.get("num_steps", record.run.num_steps)
    # training may have ended before the last step
    if num_steps != run.num_steps:
        run = replace(run, num_steps=num_steps, num_epochs=None)
    return count_operations(run, sizes, sessions[-1].get("num_processes", 1))


def count_forward_flops(num_tokens: float, width: int, num_layers: int) -> float:
    """Return the operations of a forward pass over one text."""
    return num_tokens * num_layers * (24 * width * width + 4 * num_tokens * width)


class RecordedCosts:
    """Speeds and evaluation times from the records of one kind of machine. Results are cached."""

    def __init__(self, records: Iterable[Record], kind: str) -> None:
        """Select the records of this kind of machine."""
        self.kind = kind
        self._records = [
            record for record in records if get_machine_kind(get_training_machine(record)["device"]) == kind
        ]
        self._speeds: dict[tuple[str, str, int], Speed] = {}
        self._evaluations: dict[tuple[Any, ...], float | None] = {}

    def get_speed(self, like: Run) -> Speed:
        """Return the speed for runs like this one, from the most similar records.

        In order of preference: same scale, architecture and width, same scale and architecture, same architecture, any
        training run. Speeds of another width are scaled by `get_efficiency`. On a GPU the scale must be the same,
        because small models do not occupy it.
        """
        key = like.scale, like.architecture, like.hidden_size
        if key not in self._speeds:
            trained = [
                record
                for record in self._records
                if record.provenance["training"].get("seconds") and count_operations(record.run).is_known
            ]
            same_architecture = [record for record in trained if record.run.architecture == like.architecture]
            same_scale = [record for record in same_architecture if record.run.scale == like.scale]
            same_width = [record for record in same_scale if record.run.hidden_size == like.hidden_size]
            closest = same_width or same_scale
            if self.kind == "cpu":
                closest = closest or same_architecture or trained
            speed = Speed(ASSUMED_FLOPS_PER_SECOND[self.kind], 0, None)
            if closest:
                speed = _estimate_speed(_prefer_processor_time(closest), like.hidden_size)
            self._speeds[key] = speed
        return self._speeds[key]

    def get_evaluation_seconds(self, run: Run) -> float | None:
        """Return the evaluation time of a run in seconds, or None if no record has the same evaluation."""
        evaluation = identify_evaluation(run)
        key = (*evaluation, _estimate_encoding_cost(run))
        if key not in self._evaluations:
            similar = [record for record in self._records if identify_evaluation(record.run) == evaluation]
            seconds_per_context = []
            for record in _prefer_processor_time(similar, "evaluation_"):
                seconds = get_phase_seconds(record, "evaluation_") / _count_contexts(record.run)
                seconds_per_context.append(seconds * _compute_encoding_ratio(run, record.run))
            self._evaluations[key] = median(seconds_per_context) if seconds_per_context else None
        per_context = self._evaluations[key]
        return None if per_context is None else per_context * _count_contexts(run)


def _prefer_processor_time(records: Sequence[Record], phase: str = "") -> Sequence[Record]:
    """Return the records that count processor time, or all records if none does.

    Seconds of a clock are too long if other programs ran on the machine at the same time.
    """
    with_cpu_time = [record for record in records if get_phase_times(record, phase).get(f"{phase}cpu_seconds")]
    return with_cpu_time or records


def _estimate_encoding_cost(run: Run) -> float:
    """Return the cost of encoding a text in operations at full speed, or 0 for an untrained system."""
    if run.architecture not in TRAINED:
        return 0.0
    length = TEXT_SHARE * run.max_tokens + _count_context_tokens(run)
    return count_forward_flops(length, run.hidden_size, run.num_layers) / get_efficiency(run.hidden_size)


def _compute_encoding_ratio(run: Run, recorded: Run) -> float:
    """Return the encoding cost relative to a recorded run, or 1 for equal widths."""
    if run.architecture not in TRAINED or run.hidden_size == recorded.hidden_size:
        return 1.0
    return _estimate_encoding_cost(run) / _estimate_encoding_cost(recorded)


def get_efficiency(width: int) -> float:
    """Return the share of peak speed at a layer width. Small matrix products are limited by memory access."""
    return width / (width + HALF_EFFICIENT_WIDTH)


def _estimate_speed(records: Sequence[Record], width: int) -> Speed:
    rates = []
    for record in records:
        rate = _read_training_record(record).flops / get_phase_seconds(record)
        # A wider layer uses more of the peak speed, so rates of other widths are converted to this width.
        rates.append(rate * (get_efficiency(width) / get_efficiency(record.run.hidden_size)))
    if len(rates) == 1:
        return Speed(rates[0], 1, None)
    typical = median(rates)
    return Speed(typical, len(records), median(abs(rate / typical - 1) for rate in rates))


def estimate(run: Run, costs: RecordedCosts, *, num_devices: int = 1, trained: Collection[str] = ()) -> Estimate:
    """Return the cost of a run without the training runs in `trained`. Several devices share the work equally."""
    kind = costs.kind
    phases = [phase for phase in list_training_phases(run) if get_training_id(phase) not in trained]
    work = sum((count_operations(phase, _get_chunk_sizes(phase, kind), num_devices) for phase in phases), NO_WORK)
    speed = costs.get_speed(run)
    evaluation_seconds = costs.get_evaluation_seconds(run)
    seconds = work.flops / num_devices / speed.flops_per_second + (evaluation_seconds or 0.0)
    memory = BASE_MEMORY_BYTES + BYTES_PER_WEIGHT * work.num_weights
    # A run whose training has ended only evaluates, which needs no graph.
    if work.num_pairs or not work.is_known:
        memory += _estimate_graph_bytes(run, kind, num_devices)
    return Estimate(seconds, memory, 12 * work.num_weights + 10 * 2**20, work, speed, evaluation_seconds is not None)


def _estimate_graph_bytes(run: Run, kind: str, num_devices: int) -> int:
    """Return the memory of one process for the graph of a step. On a CPU texts are packed at their mean length."""
    sizes, switches = _get_chunk_sizes(run, kind), read_switches()
    if kind != "gpu":
        run = replace(run, max_tokens=round(TEXT_SHARE * run.max_tokens))
        switches = replace(switches, autocast=False)
    num_texts, num_contexts = _count_texts_per_process(run, num_devices)
    return round(estimate_graph_bytes(run, sizes, switches, num_texts=num_texts, num_contexts=num_contexts))


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
    has_finished = any(owner.outcome == "" for owner in list_owners(folder / "training"))
    return has_finished and (folder / CHECKPOINT_FILE).is_file()


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


def identify_evaluation(run: Run) -> tuple[str, str, str]:
    """Return architecture, suite and measure, which records of the same evaluation share."""
    return run.architecture, run.suite, run.measure


def _count_contexts(run: Run) -> int:
    return len(run.test_contexts.split("+")) if run.architecture == "contextual" else 1

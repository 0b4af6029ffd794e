"""What a run will cost, in time, memory and disk: arithmetic of the model, times speeds taken from records.

A run's arithmetic is counted in floating-point operations: 24 h² + 4 n h for a token of a text of n tokens in a layer
of width h, three times over for the backward pass, and once more where a step's texts do not fit at once; both texts of
a pair; the first stage once for each context document of a batch; and the context vectors as further tokens of every
text. Several processes share all of it equally; their waiting for each other is not counted. How many of these a
machine does in a second is measured: the median over the records made on such a machine, of the same architecture where
there are any. The error of an estimate is how far the same rule is off on those records, leaving each one out. What a
run does beside training is taken from the records that measured the same thing, a context at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from repro.planning.pairs import count_pairs
from repro.records.store import Record
from repro.spec import TRAINED, Run, get_first_phase, is_blind
from repro.spec.identity import get_training_id
from repro.train.chunks import ChunkSizes, chunks_for, estimate_graph_bytes
from repro.train.sharing import batches_are_sharded
from repro.train.switches import switches_here

TEXT_SHARE = 0.6  # of max_tokens, in the mean over queries and documents; what this misses, the measured speed absorbs
VOCABULARY = 30_528
BYTES_A_WEIGHT = 16  # float32 weight, gradient and AdamW's two moments
BASE_MEMORY_BYTES = 700 * 2**20  # Python, torch and libraries, before the first weight
GPU_BYTES = 80 * 2**30  # assumed of a GPU, from which follows how many texts keep their graph at once

ASSUMED_FLOPS_PER_SECOND = {"cpu": 4.0e10, "gpu": 1.0e14}
"""One core, and an 80 GB GPU at a tenth of its bfloat16 peak: used, and said to be assumed, until there are records."""
HALF_EFFICIENT_WIDTH = 500
"""From one core at widths 128 (published records) and 384 (MiniLM in both stages, 96 to 105 GFLOPS)."""
ASSUMED_FLOAT32_FLOPS_PER_SECOND = 1.0e13
"""Of a GPU in float32, without its tensor cores, as FAISS computes distances: half the peak of an A100, 19.5e12."""


@dataclass(frozen=True)
class Arithmetic:
    """What a run does, whatever the machine."""

    num_pairs: int  # seen in training, repeats counted
    num_tokens: int
    flops: float
    num_weights: int
    is_known: bool = True  # False: by epochs of nobody knows how many pairs, which count as none here

    def __add__(self, other: Arithmetic) -> Arithmetic:
        """Return what both do, one after the other, with the larger one's weights."""
        num_weights = max(self.num_weights, other.num_weights)
        num_pairs, num_tokens = self.num_pairs + other.num_pairs, self.num_tokens + other.num_tokens
        is_known = self.is_known and other.is_known
        return Arithmetic(num_pairs, num_tokens, self.flops + other.flops, num_weights, is_known)


@dataclass(frozen=True)
class Speed:
    """What a kind of machine does: operations a second in training, and the error."""

    flops_per_second: float
    num_records: int  # 0: assumed
    relative_error: float | None  # median of |estimated / measured - 1|, each record estimated from the others


@dataclass(frozen=True)
class Estimate:
    """What a run will cost on one machine; without the training where `arithmetic.is_known` says that nobody knows."""

    seconds: float
    memory_bytes: int
    disk_bytes: int
    arithmetic: Arithmetic
    speed: Speed
    counts_evaluation: bool = True  # False: nothing like it was measured, so it is no part of the seconds

    @property
    def is_known(self) -> bool:
        """Whether the seconds say anything: not of unknown epochs, nor of an evaluation alone that nobody measured."""
        return self.arithmetic.is_known and (self.counts_evaluation or self.arithmetic.flops > 0)


NOTHING = Arithmetic(0, 0, 0.0, 0)
ON_A_CPU = ChunkSizes()


def count_operations(run: Run, sizes: ChunkSizes = ON_A_CPU, num_devices: int = 1) -> Arithmetic:
    """Count what a run does in training, by chunks of these sizes; nothing for a reference system, never trained."""
    if run.architecture not in TRAINED:
        return NOTHING
    an_epoch = None if run.num_steps else count_pairs(run)
    of_epochs = -(-(an_epoch or 0) * (run.num_epochs or 0) // run.batch_size)  # batches
    num_batches = (run.num_steps or of_epochs // run.batches_a_step) * run.batches_a_step
    num_pairs = num_batches * run.batch_size
    width, text = run.hidden_size, TEXT_SHARE * run.max_tokens
    contextual = run.architecture == "contextual"
    length = text + (run.num_contexts * run.tokens_per_document + run.num_soft_prompts if contextual else 0)
    num_texts = 2 + run.num_hard_negatives  # of a pair
    a_pair = num_texts * forward_flops(length, width, run.num_layers)
    a_batch = _documents_of_a_batch(run) * forward_flops(text, width, run.num_first_stage_layers)
    num_layers = run.num_layers + (run.num_first_stage_layers if contextual else 0)
    num_weights = 12 * width * width * num_layers + VOCABULARY * width * (1 + contextual)
    num_passes = 3 if sizes.hold(*_texts_of_a_process(run, num_devices)) else 4  # backward takes as long as two
    flops = num_passes * (num_pairs * a_pair + num_batches * a_batch)
    is_known = bool(run.num_steps) or an_epoch is not None
    return Arithmetic(num_pairs, round(num_pairs * num_texts * text), flops, num_weights, is_known)


def _documents_of_a_batch(run: Run) -> int:
    """Return how many documents the first stage reads for a batch."""
    return run.num_contexts if run.architecture == "contextual" and not is_blind(run) else 0


def _texts_of_a_process(run: Run, num_devices: int) -> tuple[int, int]:
    """Return how many texts of a batch, and how many context documents, one of several processes computes."""
    of_a_batch = num_devices if batches_are_sharded(run.batches_a_step, num_devices) else 1
    num_contexts = _documents_of_a_batch(run)
    return -(-run.batch_size * (2 + run.num_hard_negatives) // of_a_batch), -(-num_contexts // of_a_batch)


def _sizes_on(run: Run, kind: str) -> ChunkSizes:
    return chunks_for(run, GPU_BYTES if kind == "gpu" else None, switches_here())


def _read_recorded_training(record: Record) -> Arithmetic:
    """Return what a record's training did, by the chunks and processes that it had."""
    told = record.provenance["training"]
    sizes = ChunkSizes(*map(int, told["chunks"].split(","))) if "chunks" in told else ON_A_CPU
    sittings = told.get("sittings") or [{}]
    return count_operations(record.run, sizes, sittings[-1].get("num_processes", 1))


def forward_flops(num_tokens: float, width: int, num_layers: int) -> float:
    """Return the operations of a forward pass over one text of so many tokens."""
    return num_tokens * num_layers * (24 * width * width + 4 * num_tokens * width)


def get_machine_kind(device: str) -> str:
    """Return "gpu" or "cpu" for a device's name as records have it."""
    return "gpu" if any(word in device for word in ("NVIDIA", "AMD Instinct", "Tesla")) else "cpu"


class Known:
    """What the records of one kind of machine tell of costs; each question is answered once, however many runs ask."""

    def __init__(self, records: Iterable[Record], kind: str) -> None:
        """Keep the records of that kind of machine."""
        self.kind, self._records = kind, [record for record in records if _get_cost_kind(record) == kind]
        self._speeds: dict[tuple[str, str, int], Speed] = {}
        self._evaluations: dict[tuple[Any, ...], float | None] = {}

    def speed(self, like: Run) -> Speed:
        """Return the speed for runs like this one, from the nearest records there are.

        Nearest: of the same scale, architecture and width, else of the same scale and architecture, else of the same
        architecture, else any that was trained there. Speeds of another width are scaled by `efficiency`.
        """
        asked = like.scale, like.architecture, like.hidden_size
        if asked not in self._speeds:
            trained = [record for record in self._records if record.provenance["training"].get("seconds")]
            trained = [record for record in trained if count_operations(record.run).is_known]
            same = [record for record in trained if record.run.architecture == like.architecture]
            of_scale = [record for record in same if record.run.scale == like.scale]
            as_wide = [record for record in of_scale if record.run.hidden_size == like.hidden_size]
            groups = (as_wide, of_scale, same, trained)
            assumed = Speed(ASSUMED_FLOPS_PER_SECOND[self.kind], 0, None)
            self._speeds[asked] = next((_estimate_speed(group, like.hidden_size) for group in groups if group), assumed)
        return self._speeds[asked]

    def evaluation_seconds(self, run: Run) -> float | None:
        """Return what a run does beside training; None where no record did the same."""
        like = run.architecture, run.suite, run.measure
        asked = (*like, _estimate_encoding_cost(run))
        if asked not in self._evaluations:
            ran = ((record.run, record.provenance["evaluation_seconds"]) for record in self._records)
            each = [
                seconds / _count_contexts(one) * _encoding_ratio(run, one)
                for one, seconds in ran
                if (one.architecture, one.suite, one.measure) == like
            ]
            self._evaluations[asked] = median(each) if each else None
        a_context = self._evaluations[asked]
        return None if a_context is None else a_context * _count_contexts(run)


def _estimate_encoding_cost(run: Run) -> float:
    """Return what encoding a text costs, in operations at full speed; 0 for a system that is not trained."""
    if run.architecture not in TRAINED:
        return 0.0
    ahead = run.num_contexts * run.tokens_per_document + run.num_soft_prompts if run.architecture == "contextual" else 0
    length = TEXT_SHARE * run.max_tokens + ahead
    return forward_flops(length, run.hidden_size, run.num_layers) / efficiency(run.hidden_size)


def _encoding_ratio(run: Run, recorded: Run) -> float:
    """Return by how much an evaluation's encoding costs more than a recorded one's; 1 for equal sizes."""
    if run.architecture not in TRAINED or run.hidden_size == recorded.hidden_size:
        return 1.0
    return _estimate_encoding_cost(run) / _estimate_encoding_cost(recorded)


def efficiency(width: int) -> float:
    """Return the share of a machine's speed that layers of this width reach: small products wait for memory."""
    return width / (width + HALF_EFFICIENT_WIDTH)


def _estimate_speed(records: Sequence[Record], width: int) -> Speed:
    rates = sorted(
        _read_recorded_training(record).flops
        / record.provenance["training"]["seconds"]
        * (efficiency(width) / efficiency(record.run.hidden_size))
        for record in records
    )
    several = len(rates) > 1
    errors = [abs(rate / _median_without(rates, place) - 1) for place, rate in enumerate(rates) if several]
    return Speed(median(rates), len(records), median(errors) if errors else None)


def _median_without(rising: Sequence[float], place: int) -> float:
    """Return the median of rising numbers, the one at a place left out."""
    num_left = len(rising) - 1
    low, high = (one + (one >= place) for one in ((num_left - 1) // 2, num_left // 2))
    return median((rising[low], rising[high]))


def estimate(
    run: Run,
    records: Iterable[Record] | Known,
    *,
    kind: str = "cpu",
    num_devices: int = 1,
    trained: Collection[str] = (),
) -> Estimate:
    """Return what a run will cost, less the trainings that are there; several devices share a training equally."""
    known = records if isinstance(records, Known) else Known(records, kind)
    assert known.kind == kind, f"what is known is of a {known.kind}, asked is a {kind}"
    phases = [phase for phase in list_training_phases(run) if get_training_id(phase) not in trained]
    does = sum((count_operations(phase, _sizes_on(phase, kind), num_devices) for phase in phases), NOTHING)
    speed, other = known.speed(run), known.evaluation_seconds(run)
    seconds = does.flops / num_devices / speed.flops_per_second + (other or 0.0)
    memory = BASE_MEMORY_BYTES + BYTES_A_WEIGHT * does.num_weights
    memory += _estimate_graph_bytes(run, kind, num_devices) if does.num_pairs or not does.is_known else 0
    return Estimate(seconds, memory, 12 * does.num_weights + 10 * 2**20, does, speed, other is not None)


def _estimate_graph_bytes(run: Run, kind: str, num_devices: int) -> int:
    """Return what one process keeps of a step; on a CPU texts are packed, and as long as they are in the mean."""
    sizes, switches = _sizes_on(run, kind), switches_here()
    if kind != "gpu":
        run = replace(run, max_tokens=round(TEXT_SHARE * run.max_tokens))
        switches = replace(switches, autocast=False)
    num_texts, num_contexts = _texts_of_a_process(run, num_devices)
    return round(estimate_graph_bytes(run, sizes, switches, num_texts=num_texts, num_contexts=num_contexts))


def list_training_phases(run: Run) -> Iterator[Run]:
    """Return the run, then the training that its own goes on from, where there is one."""
    phase: Run | None = run
    while phase is not None:
        yield phase
        phase = get_first_phase(phase)


def _count_contexts(run: Run) -> int:
    return len(run.test_contexts.split("+")) if run.architecture == "contextual" else 1


def _get_cost_kind(record: Record) -> str:
    sittings = record.provenance.get("training", {}).get("sittings") or [{}]
    machine = sittings[-1].get("machine") or record.provenance["machine"]  # which trained may not be which measured
    return get_machine_kind(machine["device"])

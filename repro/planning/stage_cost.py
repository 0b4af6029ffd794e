"""Estimate disk, memory and hours of each stage at the paper's size, with the source of each figure.

Disk follows from the number of pairs. Hours on a core are measured per pair or token, in `benchmarks/paper_scale.json` and
`benchmarks/tokenizing.json`. Hours of an encoder or of K-means are operations divided by the assumed speed in `cost.py`.
Memory is the measured peak of a streaming stage plus a number of bytes per pair. For clusters, the points of the largest
fit are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from repro.batches.cluster import NUM_ATTEMPTS, NUM_ITERATIONS, count_clusters, count_fitted_pairs
from repro.batches.fixed_encoder import FixedEncoder, filter_of, get_surrogate
from repro.batches.negatives import ROWS_PER_CHUNK
from repro.data.own.imported import IMPORT_FOLDER, find_imported
from repro.data.own.importing import PAIRS_FILE
from repro.data.paper.hub import SOURCES
from repro.pipeline.needs import needs_surrogate
from repro.planning.cost import (
    ASSUMED_FLOAT32_FLOPS_PER_SECOND,
    ASSUMED_FLOPS_PER_SECOND,
    TEXT_SHARE,
    count_forward_flops,
    list_training_phases,
)
from repro.planning.pairs import count_domain_sizes, count_pairs, list_sources
from repro.spec import MEASURES, TRAINED, Run
from repro.text import format_bytes, format_seconds

GIB = 2**30
MIN_PAIRS = 1_000_000
"""Smallest corpus with a table of costs. Stages of smaller corpora take minutes."""
MICROSECONDS_PER_PAIR = {
    "corpus": 38.0,
    "selection": 0.06,
    "embeddings": 42.0,
    "keys": 3.4,
    "positives": 3.4,
    "start": 0.6,
}
"""Time per pair on one core. A test compares it with the benchmark record."""
GENERATED_BYTES = 346
"""Bytes of text per pair in the measurement. A test compares it with the generated pairs."""
MICROSECONDS_PER_TOKEN = 0.85
"""Time per token on one core and mined text. A test compares it with the benchmark record."""
PEAK_GIB = {
    "corpus": 0.5,
    "selection": 0.1,
    "tokens": 0.5,
    "embeddings": 0.5,
    "keys": 0.3,
    "positives": 0.3,
    "clusters": 1.0,
    "start": 1.6,
}
"""Peak memory of a stage on a million pairs, and of libraries and model at the start of training."""
BYTES_PER_PAIR = {
    "corpus": 36,
    "selection": 8,
    "positives": 50,
    "tokens": 8,
    "embeddings": 12,
    "longest first": 28,
    "clusters": 20,
    "start": 24,
}
"""Bytes of memory per pair: keys of earlier pairs, rows, domain codes and positions in an order.

"longest first" applies to an encoder that sorts texts by length. The value of an import includes the cut, and that of word
vectors includes pages of mapped files.
"""
NUM_ENCODER_LAYERS = 12
"""Layers of the paper's surrogate and filter: the encoder of GTR-base, and nomic-embed."""
WORDS = "minilm-words"


@dataclass(frozen=True)
class StageCost:
    """Cost of one stage on a selection of pairs. Hours are per core or per GPU, depending on `on`."""

    pairs: str  # name and number of the pairs
    name: str
    disk_bytes: float
    memory_bytes: float
    hours: float
    on: str  # core, GPU
    how: str  # source of the figures
    note: str = ""  # details of this stage

    @property
    def kind(self) -> str:
        """Kind of stage. Costs of one kind are estimated in the same way."""
        return self.name.partition(" ")[0]

    def format_line(self) -> str:
        """Return the cost as a line of text."""
        disk, memory = format_bytes(self.disk_bytes), format_bytes(self.memory_bytes)
        hours = f"{format_seconds(3600 * self.hours)} of a {self.on}"
        line = f"  {self.name:<34} disk {disk:>11}  memory {memory:>10}  {hours:>18}  {self.note}"
        return line.rstrip()


@dataclass(frozen=True)
class Selection:
    """The pairs that a run selects from a declared or imported corpus."""

    run: Run

    @cached_property
    def sizes(self) -> Sequence[int]:
        """Pairs per domain as printed in the paper, scaled to the selection, or one domain without printed sizes."""
        return count_domain_sizes(self.run.corpus, self.num_pairs, list_sources(self.run))

    @cached_property
    def num_pairs(self) -> int:
        """Number of declared or imported pairs, or 0 if unknown."""
        return count_pairs(self.run) or 0

    @property
    def title(self) -> str:
        """Name of the selection for readers."""
        of = f", {len(named)} of its sources" if (named := list_sources(self.run)) else ""
        return f"{self.run.corpus}{of}, {self.num_pairs:,} pairs"


def estimate_stage_costs(runs: Iterable[Run]) -> tuple[StageCost, ...]:
    """Return the stage costs of runs and their earlier training phases on corpora of a million pairs or more.

    Each stage occurs once, and stages of the same pairs are grouped.
    """
    found: dict[tuple[str, str], StageCost] = {}
    for run in runs:
        for phase in list_training_phases(run):
            chosen = Selection(phase)
            if chosen.num_pairs >= MIN_PAIRS:
                for cost in _estimate_costs(chosen):
                    found.setdefault((cost.pairs, cost.name), cost)
    order = {title: number for number, title in enumerate(dict.fromkeys(cost.pairs for cost in found.values()))}
    return tuple(sorted(found.values(), key=lambda cost: order[cost.pairs]))


def list_unknown_corpora(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the paper's corpora in these runs whose number of pairs is unknown."""
    phases = (phase for run in runs for phase in list_training_phases(run))
    return tuple(dict.fromkeys(one.corpus for one in phases if one.corpus in SOURCES and count_pairs(one) is None))


def format_stage_costs(costs: Sequence[StageCost]) -> Iterator[str]:
    """Yield the costs as lines of text: a row per stage, then the source of the figures per kind."""
    disk = sum(one.disk_bytes for one in costs) / GIB
    yield f"stages, each once for all runs: {disk:,.0f} GiB of disk; memory is that of one process"
    yield from _format_extra_disk(costs)
    title = ""
    for cost in costs:
        if cost.pairs != title:
            yield (title := cost.pairs)
        yield cost.format_line()
    yield "how these figures are obtained (a table of measured ones: REPRODUCING.md, The paper's own scale)"
    yield from dict.fromkeys(f"  {cost.kind}: {cost.how}" for cost in costs)


def _format_extra_disk(costs: Sequence[StageCost]) -> Iterator[str]:
    """Yield a line on further disk space: downloads, and temporary space while shards are joined."""
    download = sum(one.disk_bytes for one in costs if one.kind == "corpus" and one.pairs.partition(",")[0] in SOURCES)
    largest = max((one.disk_bytes for one in costs), default=0)
    also = [f"the download ({format_bytes(download)})"] if download else []
    also.append(f"the largest stage twice while its shards are joined ({format_bytes(largest)} more)")
    yield f"in addition: {', and '.join(also)}"


def _estimate_costs(chosen: Selection) -> Iterator[StageCost]:
    run, trains, embeds = chosen.run, chosen.run.architecture in TRAINED, needs_surrogate(chosen.run)
    if not (trains or embeds or MEASURES[run.measure].reads_pairs):
        return
    yield _estimate_corpus(chosen)
    yield _estimate_streamed_stage(chosen, "selection", 8, "disk: 8 bytes per pair")
    if trains:
        yield _estimate_tokens(chosen)
    if trains or embeds:
        yield _estimate_streamed_stage(chosen, "keys", 8, "disk: 8 bytes per pair")
        if run.known_positives == "mask":
            yield _estimate_streamed_stage(chosen, "positives", 8, "disk: 8 bytes per pair")
    if embeds:
        # A dictionary as an ordered set: filter and surrogate are often the same encoder, which embeds once.
        for encoder in {get_surrogate(run): 0} | ({filter_of(run): 0} if run.filter == "surrogate" else {}):
            yield _estimate_embeddings(chosen, encoder)
    if embeds and run.sampler == "cluster":
        yield _estimate_clusters(chosen)
    if trains and run.num_hard_negatives:
        yield _estimate_negatives(chosen)
    if trains:
        yield _estimate_streamed_stage(
            chosen, "start", 8, "disk: rows and epoch, 8 bytes per pair while it trains", " of a training"
        )


def _estimate_corpus(chosen: Selection) -> StageCost:
    whole = Selection(replace(chosen.run, num_pairs=None, sources=None))
    source = SOURCES.get(chosen.run.corpus)
    size = (source.size_gb * 1e9 if source else _estimate_import_bytes(chosen.run.corpus)) / whole.num_pairs
    how = (
        f"disk: the estimate of the download, or what is imported; time: that of generated pairs of {GENERATED_BYTES} "
        "bytes imported and cut, by the bytes where pairs have more"
    )
    found, times = _estimate_streamed_stage(whole, "corpus", size, how), max(1.0, size / GENERATED_BYTES)
    return replace(found, hours=found.hours * times, note=f"{size:,.0f} bytes per pair")


def _estimate_import_bytes(corpus: str) -> int:
    return (find_imported(corpus).folder / IMPORT_FOLDER / PAIRS_FILE).stat().st_size


def _estimate_streamed_stage(chosen: Selection, kind: str, disk_per_pair: float, how: str, more: str = "") -> StageCost:
    """Return the cost of a stage that streams blocks of pairs, from the rates of its kind."""
    per_pair, held = MICROSECONDS_PER_PAIR.get(kind, 0.0), BYTES_PER_PAIR.get(kind, 0)
    told = f"{how}; memory: {PEAK_GIB[kind]} GiB" + (f" and {held} bytes per pair" if held else ", measured")
    told += f"; time: {per_pair:g} µs per pair, measured on one core" if per_pair else ""
    memory = PEAK_GIB[kind] * GIB + held * chosen.num_pairs
    hours = per_pair * chosen.num_pairs / 3.6e9
    return StageCost(chosen.title, kind + more, disk_per_pair * chosen.num_pairs, memory, hours, "core", told)


def _estimate_tokens(chosen: Selection) -> StageCost:
    ids = 2 * TEXT_SHARE * chosen.run.max_tokens
    how = (
        f"disk: 16 bytes per pair, and 4 per token (assumed: texts have {TEXT_SHARE} of the longest); "
        f"memory: {PEAK_GIB['tokens']} GiB and {BYTES_PER_PAIR['tokens']} bytes per pair; "
        f"time: {MICROSECONDS_PER_TOKEN:g} µs per token, measured on one core, on mined text"
    )
    hours = MICROSECONDS_PER_TOKEN * ids * chosen.num_pairs / 3.6e9
    memory = PEAK_GIB["tokens"] * GIB + BYTES_PER_PAIR["tokens"] * chosen.num_pairs
    disk, name = (4 * ids + 16) * chosen.num_pairs, f"tokens of {chosen.run.max_tokens}"
    return StageCost(chosen.title, name, disk, memory, hours, "core", how, f"{ids:.0f} tokens per pair")


def _estimate_embeddings(chosen: Selection, encoder: FixedEncoder) -> StageCost:
    width, disk, how = encoder.width, 2 * 2 * encoder.width, "disk: 2 sides in float16"
    if encoder.name == WORDS:
        return _estimate_streamed_stage(chosen, "embeddings", disk, how, f" by {encoder.name}")
    flops = 2 * chosen.num_pairs * count_forward_flops(TEXT_SHARE * chosen.run.max_tokens, width, NUM_ENCODER_LAYERS)
    held = BYTES_PER_PAIR["longest first"]
    how += (
        f"; memory: {PEAK_GIB['embeddings']} GiB and {held} bytes per pair, to sort texts by their length; "
        f"time: operations of {NUM_ENCODER_LAYERS} layers at {_get_gpu_speed():.0e} per second in bfloat16, assumed for one GPU"
    )
    memory = PEAK_GIB["embeddings"] * GIB + held * chosen.num_pairs
    told = f"{width} wide, {flops:.1e} operations"
    name = f"embeddings by {encoder.name.rpartition('/')[2]}"
    return StageCost(
        chosen.title, name, disk * chosen.num_pairs, memory, flops / _get_gpu_speed() / 3600, "GPU", how, told
    )


def _estimate_clusters(chosen: Selection) -> StageCost:
    size, width = chosen.run.cluster_size, 2 * get_surrogate(chosen.run).width
    assert size is not None, "only runs with clusters have this stage"
    counts = [count_clusters(domain, size) for domain in chosen.sizes]
    fitted = [count_fitted_pairs(domain, size) for domain in chosen.sizes]
    rate = ASSUMED_FLOAT32_FLOPS_PER_SECOND
    rounds, each = NUM_ATTEMPTS * NUM_ITERATIONS, list(zip(chosen.sizes, counts, fitted, strict=True))
    # K-means compares 2n points with all centroids in every iteration. Assignment compares each pair once more.
    flops = sum(2.0 * width * count * (rounds * 2 * fit + domain) for domain, count, fit in each)
    disk = 4 * chosen.num_pairs + 4 * width * sum(counts)
    held = BYTES_PER_PAIR["clusters"]
    # Large domains are clustered one after another, so the largest one decides.
    memory = 4.0 * width * 2 * max(fitted) + PEAK_GIB["clusters"] * GIB + held * chosen.num_pairs
    how = (
        "disk: 4 bytes per pair, and the centroids; "
        f"memory: the points of the largest fit, {PEAK_GIB['clusters']} GiB and {held} bytes per pair; "
        f"time: at most, all {NUM_ITERATIONS} iterations at {rate:.0e} operations per second in float32, "
        "assumed for one GPU"
    )
    sampled = sum(fit < domain for domain, _, fit in each)
    told = f"{sum(counts):,} clusters, {sampled} of {len(counts)} domains by a sample, {flops:.1e} operations"
    return StageCost(chosen.title, f"clusters of {size}", disk, memory, flops / rate / 3600, "GPU", how, told)


def _estimate_negatives(chosen: Selection) -> StageCost:
    width, count = get_surrogate(chosen.run).width, chosen.run.num_hard_negatives
    # Every query is scored against every document of its domain.
    flops = 2.0 * width * sum(size * size for size in chosen.sizes)
    # vectors of documents, and a block of scores with its random draws, keys and masks
    memory = max(chosen.sizes) * (4 * width + 3 * 8 * ROWS_PER_CHUNK) + GIB
    core = ASSUMED_FLOPS_PER_SECOND["cpu"]
    how = (
        "disk: 8 bytes per negative; memory: documents of the largest domain, scores of a block of queries, and 1 GiB; "
        f"time: each document of a domain scored for each query at {core:.0e} operations per second, assumed for one core"
    )
    told = f"{flops:.1e} operations, {len(chosen.sizes)} {'domain' if len(chosen.sizes) == 1 else 'domains'}"
    name = f"negatives of {count}"
    return StageCost(chosen.title, name, 8 * count * chosen.num_pairs, memory, flops / core / 3600, "core", how, told)


def _get_gpu_speed() -> float:
    return ASSUMED_FLOPS_PER_SECOND["gpu"]

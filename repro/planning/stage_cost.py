"""What the stages of runs at the paper's size take: disk, memory and hours of each, and how each figure is obtained.

Disk is counted from the number of pairs. Hours are measured where the work is a core's (seconds a pair or a token, as
`benchmarks/paper_scale.json` and `benchmarks/tokenizing.json` have them), and arithmetic where it is an encoder's or
K-means': operations over the speed of a machine, assumed as in `cost.py`. Memory is the measured peak of a stage that
streams, what it holds of each pair, counted, and for clusters the points of the domain that is fitted on most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from repro.batches.cluster import NUM_ATTEMPTS, NUM_ITERATIONS, count_clusters, count_fitted_pairs
from repro.batches.fixed_encoder import FixedEncoder, filter_of, get_surrogate
from repro.batches.negatives import ROWS_AT_ONCE
from repro.data.own.imported import IMPORT_FOLDER, find_imported
from repro.data.own.importing import PAIRS_FILE
from repro.data.paper.hub import SOURCES
from repro.pipeline.needs import needs_surrogate
from repro.planning.cost import (
    ASSUMED_FLOAT32_FLOPS_PER_SECOND,
    ASSUMED_FLOPS_PER_SECOND,
    TEXT_SHARE,
    forward_flops,
    list_training_phases,
)
from repro.planning.pairs import count_domain_sizes, count_pairs, list_sources
from repro.report.view import format_seconds
from repro.spec import MEASURES, TRAINED, Run
from repro.storage.atomic import format_bytes

GIB = 2**30
LEAST_PAIRS = 1_000_000
"""Stages of smaller corpora take minutes, and are not worth a table."""
MICROSECONDS_A_PAIR = {
    "corpus": 38.0,
    "selection": 0.06,
    "embeddings": 42.0,
    "keys": 3.4,
    "positives": 3.4,
    "start": 0.6,
}
"""Of one core; a test holds them to the record."""
GENERATED_BYTES = 346
"""Of text in a pair that the rates were measured on; a test holds it to what is generated."""
MICROSECONDS_A_TOKEN = 0.85
"""Of one core, on mined text; a test holds it to the record."""
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
"""Of a stage on a million pairs, and of libraries and model at a training's start."""
BYTES_A_PAIR = {
    "corpus": 36,
    "selection": 8,
    "positives": 50,
    "tokens": 8,
    "embeddings": 12,
    "longest first": 28,
    "clusters": 20,
    "start": 24,
}
"""That a process holds: keys of pairs that came before, rows, codes of domains, places in an order; of an encoder's
texts, sorted by length. Of an import, which also cuts, and of word vectors with pages of the files that are mapped."""
NUM_ENCODER_LAYERS = 12
"""Of the paper's surrogate and filter, GTR-base's encoder and nomic-embed."""
WORDS = "minilm-words"


@dataclass(frozen=True)
class StageCost:
    """One stage of the pairs that some runs choose; hours are those of one core or one GPU, as `on` says."""

    pairs: str  # which, and how many
    name: str
    disk_bytes: float
    memory_bytes: float
    hours: float
    on: str  # core, GPU
    how: str  # the figures are obtained
    note: str = ""  # what is particular to this one

    @property
    def kind(self) -> str:
        """Which stages are reckoned in the same way."""
        return self.name.partition(" ")[0]

    def line(self) -> str:
        """Return it as a line for a reader."""
        disk, memory = format_bytes(self.disk_bytes), format_bytes(self.memory_bytes)
        hours = f"{format_seconds(3600 * self.hours)} of a {self.on}"
        line = f"  {self.name:<34} disk {disk:>11}  memory {memory:>10}  {hours:>18}  {self.note}"
        return line.rstrip()


@dataclass(frozen=True)
class Chosen:
    """The pairs that a run chooses from a declared or imported corpus."""

    run: Run

    @cached_property
    def sizes(self) -> Sequence[int]:
        """Pairs of each domain as the paper prints them, scaled to as many as are chosen; else all in one."""
        return count_domain_sizes(self.run.corpus, self.num_pairs, list_sources(self.run))

    @cached_property
    def num_pairs(self) -> int:
        """How many, as declared or imported; 0 where nobody knows."""
        return count_pairs(self.run) or 0

    @property
    def title(self) -> str:
        """Which pairs they are, for a reader."""
        of = f", {len(named)} of its sources" if (named := list_sources(self.run)) else ""
        return f"{self.run.corpus}{of}, {self.num_pairs:,} pairs"


def estimate_stage_costs(runs: Iterable[Run]) -> tuple[StageCost, ...]:
    """Return the stages of the runs, and of the trainings they go on from, whose corpus has, as far as known, a million
    pairs or more; each once, those of the same pairs together.
    """
    found: dict[tuple[str, str], StageCost] = {}
    for run in runs:
        for phase in list_training_phases(run):
            chosen = Chosen(phase)
            if chosen.num_pairs >= LEAST_PAIRS:
                for cost in _costs(chosen):
                    found.setdefault((cost.pairs, cost.name), cost)
    order = {title: number for number, title in enumerate(dict.fromkeys(cost.pairs for cost in found.values()))}
    return tuple(sorted(found.values(), key=lambda cost: order[cost.pairs]))


def unknown_corpora(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the corpora of the paper that runs choose from and of which nobody here knows how many pairs they have."""
    phases = (phase for run in runs for phase in list_training_phases(run))
    return tuple(dict.fromkeys(one.corpus for one in phases if one.corpus in SOURCES and count_pairs(one) is None))


def format_stage_costs(costs: Sequence[StageCost]) -> Iterator[str]:
    """Return the costs as lines for a reader: a row a stage, then how the figures of each kind are obtained."""
    disk = sum(one.disk_bytes for one in costs) / GIB
    yield f"stages, each once for all runs: {disk:,.0f} GiB of disk; memory is that of one process"
    yield from _beside(costs)
    title = ""
    for cost in costs:
        if cost.pairs != title:
            yield (title := cost.pairs)
        yield cost.line()
    yield "how these figures are obtained (a table of measured ones: REPRODUCING.md, The paper's own scale)"
    yield from dict.fromkeys(f"  {cost.kind}: {cost.how}" for cost in costs)


def _beside(costs: Sequence[StageCost]) -> Iterator[str]:
    """Say which disk is taken beside the stages: by what they are made of, and for a time."""
    download = sum(one.disk_bytes for one in costs if one.kind == "corpus" and one.pairs.partition(",")[0] in SOURCES)
    largest = max((one.disk_bytes for one in costs), default=0)
    also = [f"the download ({format_bytes(download)})"] if download else []
    also.append(f"the largest stage twice while its shards are joined ({format_bytes(largest)} more)")
    yield f"beside it: {', and '.join(also)}"


def _costs(chosen: Chosen) -> Iterator[StageCost]:
    run, trains, embeds = chosen.run, chosen.run.architecture in TRAINED, needs_surrogate(chosen.run)
    if not (trains or embeds or MEASURES[run.measure].reads_pairs):
        return
    yield _corpus(chosen)
    yield _estimate_streamed_stage(chosen, "selection", 8, "disk: 8 bytes a pair")
    if trains:
        yield _tokens(chosen)
    if trains or embeds:
        yield _estimate_streamed_stage(chosen, "keys", 8, "disk: 8 bytes a pair")
        if run.known_positives == "mask":
            yield _estimate_streamed_stage(chosen, "positives", 8, "disk: 8 bytes a pair")
    if embeds:
        for encoder in {get_surrogate(run): 0} | ({filter_of(run): 0} if run.filter == "surrogate" else {}):
            yield _embeddings(chosen, encoder)
    if embeds and run.sampler == "cluster":
        yield _clusters(chosen)
    if trains and run.num_hard_negatives:
        yield _negatives(chosen)
    if trains:
        yield _estimate_streamed_stage(
            chosen, "start", 8, "disk: rows and epoch, 8 bytes a pair while it trains", " of a training"
        )


def _corpus(chosen: Chosen) -> StageCost:
    whole = Chosen(replace(chosen.run, num_pairs=None, sources=None))
    source = SOURCES.get(chosen.run.corpus)
    size = (source.size_gb * 1e9 if source else _estimate_import_bytes(chosen.run.corpus)) / whole.num_pairs
    how = (
        f"disk: the estimate of the download, or what is imported; time: that of generated pairs of {GENERATED_BYTES} "
        "bytes imported and cut, by the bytes where pairs have more"
    )
    found, times = _estimate_streamed_stage(whole, "corpus", size, how), max(1.0, size / GENERATED_BYTES)
    return replace(found, hours=found.hours * times, note=f"{size:,.0f} bytes a pair")


def _estimate_import_bytes(corpus: str) -> int:
    return (find_imported(corpus).folder / IMPORT_FOLDER / PAIRS_FILE).stat().st_size


def _estimate_streamed_stage(chosen: Chosen, kind: str, disk_a_pair: float, how: str, more: str = "") -> StageCost:
    """Return the cost of a stage that holds a block at a time, by the rates of its kind."""
    a_pair, held = MICROSECONDS_A_PAIR.get(kind, 0.0), BYTES_A_PAIR.get(kind, 0)
    told = f"{how}; memory: {PEAK_GIB[kind]} GiB" + (f" and {held} bytes a pair" if held else ", measured")
    told += f"; time: {a_pair:g} µs a pair, measured on one core" if a_pair else ""
    memory = PEAK_GIB[kind] * GIB + held * chosen.num_pairs
    hours = a_pair * chosen.num_pairs / 3.6e9
    return StageCost(chosen.title, kind + more, disk_a_pair * chosen.num_pairs, memory, hours, "core", told)


def _tokens(chosen: Chosen) -> StageCost:
    ids = 2 * TEXT_SHARE * chosen.run.max_tokens
    how = (
        f"disk: 16 bytes a pair, and 4 a token (assumed: texts have {TEXT_SHARE} of the longest); "
        f"memory: {PEAK_GIB['tokens']} GiB and {BYTES_A_PAIR['tokens']} bytes a pair; "
        f"time: {MICROSECONDS_A_TOKEN:g} µs a token, measured on one core, on mined text"
    )
    hours = MICROSECONDS_A_TOKEN * ids * chosen.num_pairs / 3.6e9
    memory = PEAK_GIB["tokens"] * GIB + BYTES_A_PAIR["tokens"] * chosen.num_pairs
    disk, name = (4 * ids + 16) * chosen.num_pairs, f"tokens of {chosen.run.max_tokens}"
    return StageCost(chosen.title, name, disk, memory, hours, "core", how, f"{ids:.0f} tokens a pair")


def _embeddings(chosen: Chosen, encoder: FixedEncoder) -> StageCost:
    width, disk, how = encoder.width, 2 * 2 * encoder.width, "disk: 2 sides in float16"
    if encoder.name == WORDS:
        return _estimate_streamed_stage(chosen, "embeddings", disk, how, f" by {encoder.name}")
    flops = 2 * chosen.num_pairs * forward_flops(TEXT_SHARE * chosen.run.max_tokens, width, NUM_ENCODER_LAYERS)
    held = BYTES_A_PAIR["longest first"]
    how += (
        f"; memory: {PEAK_GIB['embeddings']} GiB and {held} bytes a pair, to sort texts by their length; "
        f"time: operations of {NUM_ENCODER_LAYERS} layers at {_gpu():.0e} a second in bfloat16, assumed for one GPU"
    )
    memory = PEAK_GIB["embeddings"] * GIB + held * chosen.num_pairs
    told = f"{width} wide, {flops:.1e} operations"
    name = f"embeddings by {encoder.name.rpartition('/')[2]}"
    return StageCost(chosen.title, name, disk * chosen.num_pairs, memory, flops / _gpu() / 3600, "GPU", how, told)


def _clusters(chosen: Chosen) -> StageCost:
    size, width = chosen.run.cluster_size, 2 * get_surrogate(chosen.run).width
    assert size is not None, "only runs with clusters have this stage"
    counts = [count_clusters(domain, size) for domain in chosen.sizes]
    fitted = [count_fitted_pairs(domain, size) for domain in chosen.sizes]
    rate = ASSUMED_FLOAT32_FLOPS_PER_SECOND
    rounds, each = NUM_ATTEMPTS * NUM_ITERATIONS, list(zip(chosen.sizes, counts, fitted, strict=True))
    flops = sum(2.0 * width * count * (rounds * 2 * fit + domain) for domain, count, fit in each)
    disk = 4 * chosen.num_pairs + 4 * width * sum(counts)
    held = BYTES_A_PAIR["clusters"]
    memory = 4.0 * width * 2 * max(fitted) + PEAK_GIB["clusters"] * GIB + held * chosen.num_pairs
    how = (
        "disk: 4 bytes a pair, and the centroids; "
        f"memory: the points of the largest fit, {PEAK_GIB['clusters']} GiB and {held} bytes a pair; "
        f"time: at most, all {NUM_ITERATIONS} iterations at {rate:.0e} operations a second in float32, "
        "assumed for one GPU"
    )
    sampled = sum(fit < domain for domain, _, fit in each)
    told = f"{sum(counts):,} clusters, {sampled} of {len(counts)} domains by a sample, {flops:.1e} operations"
    return StageCost(chosen.title, f"clusters of {size}", disk, memory, flops / rate / 3600, "GPU", how, told)


def _negatives(chosen: Chosen) -> StageCost:
    width, count = get_surrogate(chosen.run).width, chosen.run.num_hard_negatives
    flops = 2.0 * width * sum(size * size for size in chosen.sizes)
    # documents and a block of scores, the lots, keys and masks beside them
    memory = max(chosen.sizes) * (4 * width + 3 * 8 * ROWS_AT_ONCE) + GIB
    core = ASSUMED_FLOPS_PER_SECOND["cpu"]
    how = (
        "disk: 8 bytes a negative; memory: documents of the largest domain, scores of a block of queries, and 1 GiB; "
        f"time: each document of a domain scored for each query at {core:.0e} operations a second, assumed for one core"
    )
    told = f"{flops:.1e} operations, {len(chosen.sizes)} {'domain' if len(chosen.sizes) == 1 else 'domains'}"
    name = f"negatives of {count}"
    return StageCost(chosen.title, name, 8 * count * chosen.num_pairs, memory, flops / core / 3600, "core", how, told)


def _gpu() -> float:
    return ASSUMED_FLOPS_PER_SECOND["gpu"]

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
from itertools import groupby

from repro.batches.cluster import NUM_ATTEMPTS, NUM_ITERATIONS, count_clusters, count_fitted_pairs
from repro.batches.fixed_encoder import FixedEncoder, get_filter_encoder, get_surrogate
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
from repro.text import count_noun, format_bytes, format_seconds

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
WORD_VECTORS = "minilm-words"


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
        sources = list_sources(self.run)
        restriction = f", {len(sources)} of its sources" if sources else ""
        return f"{self.run.corpus}{restriction}, {self.num_pairs:,} pairs"

    def make_cost(
        self, name: str, disk_per_pair: float, memory: float, hours: float, on: str, how: str, note: str = ""
    ) -> StageCost:
        """Return the cost of a stage on these pairs."""
        return StageCost(self.title, name, disk_per_pair * self.num_pairs, memory, hours, on, how, note)


def estimate_stage_costs(runs: Iterable[Run]) -> tuple[StageCost, ...]:
    """Return the stage costs of runs and their earlier training phases on corpora of a million pairs or more.

    Each stage occurs once, and stages of the same pairs are grouped.
    """
    costs: dict[tuple[str, str], StageCost] = {}
    for run in runs:
        for phase in list_training_phases(run):
            selection = Selection(phase)
            if selection.num_pairs >= MIN_PAIRS:
                for cost in _estimate_costs(selection):
                    costs.setdefault((cost.pairs, cost.name), cost)
    # The sort is stable, so stages of the same pairs keep their order.
    titles = list(dict.fromkeys(cost.pairs for cost in costs.values()))
    return tuple(sorted(costs.values(), key=lambda cost: titles.index(cost.pairs)))


def list_unknown_corpora(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the paper's corpora in these runs whose number of pairs is unknown."""
    phases = (phase for run in runs for phase in list_training_phases(run))
    return tuple(
        dict.fromkeys(phase.corpus for phase in phases if phase.corpus in SOURCES and count_pairs(phase) is None)
    )


def format_stage_costs(costs: Sequence[StageCost]) -> Iterator[str]:
    """Yield the costs as lines of text: a row per stage, then the source of the figures per kind."""
    if not costs:
        return
    disk = sum(cost.disk_bytes for cost in costs) / GIB
    yield f"stages, each once for all runs: {disk:,.0f} GiB of disk; memory is that of one process"
    yield from _format_extra_disk(costs)
    for title, group in groupby(costs, key=lambda cost: cost.pairs):
        yield title
        yield from (cost.format_line() for cost in group)
    yield "how these figures are obtained (a table of measured ones: REPRODUCING.md, The paper's own scale)"
    yield from dict.fromkeys(f"  {cost.kind}: {cost.how}" for cost in costs)


def _format_extra_disk(costs: Sequence[StageCost]) -> Iterator[str]:
    """Yield a line on further disk space: downloads, and temporary space while shards are joined."""
    download = sum(
        cost.disk_bytes for cost in costs if cost.kind == "corpus" and cost.pairs.partition(",")[0] in SOURCES
    )
    largest = max((cost.disk_bytes for cost in costs), default=0)
    joined = f"the largest stage twice while its shards are joined ({format_bytes(largest)} more)"
    yield f"in addition: the download ({format_bytes(download)}), and {joined}"


def _estimate_costs(selection: Selection) -> Iterator[StageCost]:
    run = selection.run
    is_trained = run.architecture in TRAINED
    is_embedded = needs_surrogate(run)
    if not (is_trained or is_embedded or MEASURES[run.measure].reads_pairs):
        return
    yield _estimate_corpus(selection)
    yield _estimate_streamed_stage(selection, "selection", 8, "disk: 8 bytes per pair")
    if is_trained:
        yield _estimate_tokens(selection)
    if is_trained or is_embedded:
        yield _estimate_streamed_stage(selection, "keys", 8, "disk: 8 bytes per pair")
        if run.known_positives == "mask":
            yield _estimate_streamed_stage(selection, "positives", 8, "disk: 8 bytes per pair")
    if is_embedded:
        encoders = [get_surrogate(run)]
        if run.filter == "surrogate":
            encoders.append(get_filter_encoder(run))
        # Filter and surrogate are often the same encoder, which embeds once.
        for encoder in dict.fromkeys(encoders):
            yield _estimate_embeddings(selection, encoder)
    if is_embedded and run.sampler == "cluster":
        yield _estimate_clusters(selection)
    if is_trained and run.num_hard_negatives and run.mined_negatives != "given":
        yield _estimate_negatives(selection)
    if is_trained:
        how = "disk: rows and epoch, 8 bytes per pair while it trains"
        yield _estimate_streamed_stage(selection, "start", 8, how, " of a training")


def _estimate_corpus(selection: Selection) -> StageCost:
    corpus = Selection(replace(selection.run, num_pairs=None, sources=None))
    source = SOURCES.get(selection.run.corpus)
    if source:
        num_bytes = source.size_gb * 1e9
    else:
        num_bytes = (find_imported(selection.run.corpus).folder / IMPORT_FOLDER / PAIRS_FILE).stat().st_size
    size = num_bytes / corpus.num_pairs
    how = (
        f"disk: the estimate of the download, or what is imported; time: that of generated pairs of {GENERATED_BYTES} "
        "bytes imported and cut, by the bytes where pairs have more"
    )
    cost = _estimate_streamed_stage(corpus, "corpus", size, how)
    # Longer pairs take longer, in proportion to their bytes.
    factor = max(1.0, size / GENERATED_BYTES)
    return replace(cost, hours=cost.hours * factor, note=f"{size:,.0f} bytes per pair")


def _estimate_streamed_stage(
    selection: Selection, kind: str, disk_per_pair: float, how: str, name_suffix: str = ""
) -> StageCost:
    """Return the cost of a stage that streams blocks of pairs, from the rates of its kind."""
    microseconds = MICROSECONDS_PER_PAIR.get(kind, 0.0)
    bytes_per_pair = BYTES_PER_PAIR.get(kind, 0)
    source = f"{how}; memory: {PEAK_GIB[kind]} GiB"
    source += f" and {bytes_per_pair} bytes per pair" if bytes_per_pair else ", measured"
    if microseconds:
        source += f"; time: {microseconds:g} µs per pair, measured on one core"
    memory = PEAK_GIB[kind] * GIB + bytes_per_pair * selection.num_pairs
    hours = microseconds * selection.num_pairs / 3.6e9
    return selection.make_cost(kind + name_suffix, disk_per_pair, memory, hours, "core", source)


def _estimate_tokens(selection: Selection) -> StageCost:
    tokens_per_pair = 2 * TEXT_SHARE * selection.run.max_tokens
    how = (
        f"disk: 16 bytes per pair, and 4 per token (assumed: texts have {TEXT_SHARE} of the longest); "
        f"memory: {PEAK_GIB['tokens']} GiB and {BYTES_PER_PAIR['tokens']} bytes per pair; "
        f"time: {MICROSECONDS_PER_TOKEN:g} µs per token, measured on one core, on mined text"
    )
    hours = MICROSECONDS_PER_TOKEN * tokens_per_pair * selection.num_pairs / 3.6e9
    memory = PEAK_GIB["tokens"] * GIB + BYTES_PER_PAIR["tokens"] * selection.num_pairs
    name = f"tokens of {selection.run.max_tokens}"
    details = f"{tokens_per_pair:.0f} tokens per pair"
    return selection.make_cost(name, 4 * tokens_per_pair + 16, memory, hours, "core", how, details)


def _estimate_embeddings(selection: Selection, encoder: FixedEncoder) -> StageCost:
    width = encoder.width
    disk_per_pair = 2 * 2 * width
    how = "disk: 2 sides in float16"
    if encoder.name == WORD_VECTORS:
        return _estimate_streamed_stage(selection, "embeddings", disk_per_pair, how, f" by {encoder.name}")
    speed = ASSUMED_FLOPS_PER_SECOND["gpu"]
    num_tokens = TEXT_SHARE * selection.run.max_tokens
    flops = 2 * selection.num_pairs * count_forward_flops(num_tokens, width, NUM_ENCODER_LAYERS)
    bytes_per_pair = BYTES_PER_PAIR["longest first"]
    how += (
        f"; memory: {PEAK_GIB['embeddings']} GiB and {bytes_per_pair} bytes per pair, to sort texts by their length; "
        f"time: operations of {NUM_ENCODER_LAYERS} layers at {speed:.0e} per second in bfloat16, assumed for one GPU"
    )
    memory = PEAK_GIB["embeddings"] * GIB + bytes_per_pair * selection.num_pairs
    details = f"{width} wide, {flops:.1e} operations"
    name = f"embeddings by {encoder.name.rpartition('/')[2]}"
    return selection.make_cost(name, disk_per_pair, memory, flops / speed / 3600, "GPU", how, details)


def _estimate_clusters(selection: Selection) -> StageCost:
    size = selection.run.cluster_size
    # A pair is clustered by its query and its document together.
    width = 2 * get_surrogate(selection.run).width
    assert size is not None, "only runs with clusters have this stage"
    counts = [count_clusters(domain, size) for domain in selection.sizes]
    fitted = [count_fitted_pairs(domain, size) for domain in selection.sizes]
    rate = ASSUMED_FLOAT32_FLOPS_PER_SECOND
    num_rounds = NUM_ATTEMPTS * NUM_ITERATIONS
    domains = list(zip(selection.sizes, counts, fitted, strict=True))
    # K-means compares 2n points with all centroids in every iteration. Assignment compares each pair once more.
    flops = sum(2.0 * width * count * (num_rounds * 2 * num_fitted + domain) for domain, count, num_fitted in domains)
    disk_per_pair = 4 + 4 * width * sum(counts) / selection.num_pairs
    bytes_per_pair = BYTES_PER_PAIR["clusters"]
    # Large domains are clustered one after another, so the largest one decides.
    memory = 4.0 * width * 2 * max(fitted) + PEAK_GIB["clusters"] * GIB + bytes_per_pair * selection.num_pairs
    how = (
        "disk: 4 bytes per pair, and the centroids; "
        f"memory: the points of the largest fit, {PEAK_GIB['clusters']} GiB and {bytes_per_pair} bytes per pair; "
        f"time: at most, all {NUM_ITERATIONS} iterations at {rate:.0e} operations per second in float32, "
        "assumed for one GPU"
    )
    sampled = sum(num_fitted < domain for domain, _, num_fitted in domains)
    details = f"{sum(counts):,} clusters, {sampled} of {len(counts)} domains by a sample, {flops:.1e} operations"
    return selection.make_cost(f"clusters of {size}", disk_per_pair, memory, flops / rate / 3600, "GPU", how, details)


def _estimate_negatives(selection: Selection) -> StageCost:
    width = get_surrogate(selection.run).width
    count = selection.run.num_hard_negatives
    # Every query is scored against every document of its domain.
    flops = 2.0 * width * sum(size * size for size in selection.sizes)
    # vectors of documents, and a block of scores with its random draws, keys and masks
    memory = max(selection.sizes) * (4 * width + 3 * 8 * ROWS_PER_CHUNK) + GIB
    core = ASSUMED_FLOPS_PER_SECOND["cpu"]
    how = (
        "disk: 8 bytes per negative; memory: documents of the largest domain, scores of a block of queries, and 1 GiB; "
        f"time: each document of a domain scored for each query at {core:.0e} operations per second, assumed for one core"
    )
    details = f"{flops:.1e} operations, {count_noun(len(selection.sizes), 'domain')}"
    return selection.make_cost(f"negatives of {count}", 8 * count, memory, flops / core / 3600, "core", how, details)

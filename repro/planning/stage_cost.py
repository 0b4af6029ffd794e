"""What the stages of runs at the paper's size take: disk, memory and hours of each, and how each figure is obtained.

Disk is counted from the number of pairs. Hours are measured where the work is a core's (seconds a pair, as
`benchmarks/paper_scale.json` has them for a million generated pairs of 40 words), and arithmetic where it is an
encoder's or K-means': operations over the speed of a machine, assumed as in `cost.py`. Memory is the measured peak of a
stage that streams, and for clusters the points of the domain that is fitted on most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from repro.batches.fit import NUM_ATTEMPTS, NUM_ITERATIONS, clusters_of, num_fitted_pairs
from repro.data.paper.hub import SOURCES
from repro.inputs.stages import WIDEST, WIDTHS, needs_surrogate
from repro.planning.cost import ASSUMED_FLOPS_PER_SECOND, NUM_PAIRS, TEXT_SHARE, forward_flops
from repro.report.view import format_seconds
from repro.spec import TRAINED, Run

GIB = 2**30
LEAST_PAIRS = 1_000_000
"""Stages of smaller corpora take minutes, and are not worth a table."""
MICROSECONDS_A_PAIR = {"corpus": 44.0, "embeddings": 140.0, "keys": 3.4, "start": 0.5}
"""Of one core; a test holds them to the record."""
MICROSECONDS_A_TOKEN = 2.2
PEAK_GIB = {"corpus": 0.5, "tokens": 0.5, "embeddings": 0.5, "keys": 0.3}
START_GIB, START_BYTES_A_PAIR = 0.7, 55
"""Of a training's start: libraries and model, and what the sampler holds of each pair while it groups them."""
NUM_ENCODER_LAYERS = 12
"""Of the paper's surrogate and filter, GTR-base's encoder and nomic-embed."""


@dataclass(frozen=True)
class StageCost:
    """One stage of one corpus; hours are those of one core or one GPU, as `how` says."""

    name: str
    disk_bytes: float
    memory_bytes: float
    hours: float
    how: str

    def line(self) -> str:
        """Return it as a line for a reader."""
        disk, memory = f"{self.disk_bytes / GIB:,.1f} GiB", f"{self.memory_bytes / GIB:,.1f} GiB"
        hours = format_seconds(3600 * self.hours)
        return f"  {self.name:<34} disk {disk:>11}  memory {memory:>10}  {hours:>9}  {self.how}"


def stage_costs(runs: Iterable[Run]) -> tuple[StageCost, ...]:
    """Return the stages of the runs that have a declared corpus of a million pairs or more, each once."""
    found: dict[str, StageCost] = {}
    for run in runs:
        if pairs_of(run) >= LEAST_PAIRS:
            for cost in _costs(run):
                found.setdefault(cost.name, cost)
    return tuple(found.values())


def pairs_of(run: Run) -> int:
    """Return the number of pairs that a run chooses from, as declared; 0 where nobody knows."""
    return min(filter(None, (NUM_PAIRS.get(run.corpus), run.num_pairs)), default=0)


def _costs(run: Run) -> Iterator[StageCost]:
    num_pairs = pairs_of(run)
    source = SOURCES.get(run.corpus)
    size = source.size_gb * 1e9 * num_pairs / (source.num_rows or num_pairs) if source else 0.0
    yield _measured("corpus", num_pairs, size, "disk: the estimate of the download")
    yield _measured("selection", num_pairs, 8 * num_pairs, "disk: 8 bytes a pair")
    if run.architecture in TRAINED:
        ids = 2 * TEXT_SHARE * run.max_tokens
        how = (
            f"disk: 16 bytes a pair, and 4 for each of {ids:.0f} tokens (assumed: {TEXT_SHARE} of the longest); "
            f"time: {MICROSECONDS_A_TOKEN:g} µs a token, measured on one core"
        )
        hours, name = MICROSECONDS_A_TOKEN * ids * num_pairs / 3.6e9, f"tokens of {run.max_tokens}"
        yield StageCost(name, (4 * ids + 16) * num_pairs, PEAK_GIB["tokens"] * GIB, hours, how)
    yield _measured("keys", num_pairs, 8 * num_pairs, "disk: 8 bytes a pair")
    if needs_surrogate(run):
        encoders = [run.surrogate, run.filter_model or run.surrogate] if run.filter == "surrogate" else [run.surrogate]
        for encoder in dict.fromkeys(encoders):
            yield _embeddings(encoder, run.max_tokens, num_pairs)
        if run.sampler == "cluster" and run.cluster_size is not None:
            sizes = domain_sizes(run.corpus, num_pairs)
            yield _clusters(run.cluster_size, 2 * WIDTHS.get(run.surrogate, WIDEST), sizes)
    memory = START_GIB * GIB + START_BYTES_A_PAIR * num_pairs
    hours = MICROSECONDS_A_PAIR["start"] * num_pairs / 3.6e9
    how = "disk: rows and epoch, 8 bytes a pair while it trains; memory and time: measured, in proportion"
    yield StageCost("start of a training, a process", 8 * num_pairs, memory, hours, how)


def domain_sizes(corpus: str, num_pairs: int) -> Sequence[int]:
    """Return the pairs of each domain as the paper prints them, scaled to so many in all; else all in one."""
    domains: Mapping[str, object] = SOURCES[corpus].domains if corpus in SOURCES else {}
    printed = [rows for domain in domains.values() if (rows := getattr(domain, "num_rows", None))]
    return [round(rows * num_pairs / sum(printed)) for rows in printed] or [num_pairs]


def _measured(kind: str, num_pairs: int, disk: float, how: str, *, name: str = "") -> StageCost:
    a_pair = MICROSECONDS_A_PAIR.get(kind, 0.0)
    told = f"{how}; time: {a_pair:g} µs a pair, measured on one core" if a_pair else how
    return StageCost(name or kind, disk, PEAK_GIB.get(kind, 0.1) * GIB, a_pair * num_pairs / 3.6e9, told)


def _embeddings(encoder: str, max_tokens: int, num_pairs: int) -> StageCost:
    width = WIDTHS.get(encoder, WIDEST)
    disk, name = 2 * 2 * width * num_pairs, f"embeddings by {encoder.rpartition('/')[2]}"
    how = f"disk: 2 sides of {width} float16"
    if encoder == "minilm-words":
        return _measured("embeddings", num_pairs, disk, how, name=name)
    flops = 2 * num_pairs * forward_flops(TEXT_SHARE * max_tokens, width, NUM_ENCODER_LAYERS)
    how += f"; time: {flops:.1e} operations at {_gpu():.0e} a second, assumed for one GPU"
    return StageCost(name, disk, PEAK_GIB["embeddings"] * GIB, flops / _gpu() / 3600, how)


def _clusters(cluster_size: int, width: int, sizes: Sequence[int]) -> StageCost:
    counts = [clusters_of(size, cluster_size) for size in sizes]
    fitted = [num_fitted_pairs(size, cluster_size) for size in sizes]
    rounds = NUM_ATTEMPTS * NUM_ITERATIONS
    flops = sum(
        2.0 * width * count * (rounds * 2 * fit + size) for size, count, fit in zip(sizes, counts, fitted, strict=True)
    )
    disk = 4 * sum(sizes) + 4 * width * sum(counts)
    memory = 4.0 * width * 2 * max(fitted) + GIB
    sampled = sum(fit < size for fit, size in zip(fitted, sizes, strict=True))
    how = (
        f"{sum(counts):,} clusters, {sampled} of {len(sizes)} domains fitted on a sample; memory: the points of the "
        f"largest fit; time: at most {flops:.1e} operations at {_gpu():.0e} a second, assumed for one GPU"
    )
    return StageCost(f"clusters of {cluster_size}", disk, memory, flops / _gpu() / 3600, how)


def _gpu() -> float:
    return ASSUMED_FLOPS_PER_SECOND["gpu"]

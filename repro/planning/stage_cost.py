"""Estimate disk, memory and hours of each stage at the paper's size.

Disk follows from the number of pairs. Hours on a core are measured per pair or token, in `benchmarks/paper_scale.json` and
`benchmarks/tokenizing.json`. Hours of an encoder or of K-means are operations divided by the assumed speed in `cost.py`.
Memory is the measured peak of a streaming stage plus a number of bytes per pair. For clusters, the points of the largest
fit are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from repro.batches.cluster import NUM_ATTEMPTS, NUM_ITERATIONS, count_clusters, count_fitted_pairs
from repro.batches.fixed_encoder import FixedEncoder, get_filter_encoder, get_surrogate
from repro.batches.negatives import ROWS_PER_CHUNK
from repro.data.own.imported import IMPORT_FOLDER, find_imported
from repro.data.own.importing import PAIRS_FILE
from repro.data.paper.hub import SOURCES
from repro.pipeline.needs import list_pair_kinds, uses_given_negatives
from repro.planning.cost import (
    ASSUMED_FLOAT32_FLOPS_PER_SECOND,
    ASSUMED_FLOPS_PER_SECOND,
    TEXT_SHARE,
    count_forward_flops,
    list_training_phases,
)
from repro.planning.pairs import count_domain_sizes, count_pairs, list_sources
from repro.spec import TRAINED, Run
from repro.text import GIB, count_noun, format_bytes, format_seconds

MIN_PAIRS = 1_000_000
"""Smallest corpus with a table of costs. Stages of smaller corpora take minutes."""


@dataclass(frozen=True)
class Rates:
    """What a stage takes: memory on a million pairs, and memory and time on one core for each pair."""

    peak_gib: float
    bytes_per_pair: int = 0
    microseconds_per_pair: float = 0.0


RATES = {
    # With the cut.
    "corpus": Rates(0.5, 36, 38.0),
    "selection": Rates(0.1, 8, 0.06),
    "tokens": Rates(0.5, 8),
    # By word vectors, with pages of mapped files.
    "embeddings": Rates(0.5, 12, 42.0),
    "keys": Rates(0.3, 0, 3.4),
    "positives": Rates(0.3, 50, 3.4),
    "clusters": Rates(1.0, 20),
    "negatives": Rates(1.0),
    # Libraries and model at the start of training.
    "start": Rates(1.6, 24, 0.6),
}
"""Measured rates by kind of stage. A test compares them with the benchmark record.

Bytes per pair are keys of earlier pairs, rows, domain codes and positions in an order.
"""
SORTING_ENCODER = Rates(0.5, 28)
"""Rates of an encoder that sorts texts by their length."""
GENERATED_BYTES = 346
"""Bytes of text per pair in the measurement. A test compares it with the generated pairs."""
MICROSECONDS_PER_TOKEN = 0.85
"""Time per token on one core and mined text. A test compares it with the benchmark record."""
NUM_ENCODER_LAYERS = 12
"""Layers of the paper's surrogate and filter: the encoder of GTR-base, and nomic-embed."""
WORD_VECTORS = "minilm-words"
ASSUMPTIONS = (
    "hours of a core are measured, except those of negatives. The others are operations at an assumed speed: on a GPU "
    f"{ASSUMED_FLOPS_PER_SECOND['gpu']:.0e} per second in bfloat16 and {ASSUMED_FLOAT32_FLOPS_PER_SECOND:.0e} in "
    f"float32, on a core {ASSUMED_FLOPS_PER_SECOND['cpu']:.0e}. Texts are assumed to have {TEXT_SHARE} of the longest "
    "length"
)


@dataclass(frozen=True)
class StageCost:
    """Cost of one stage on a selection of pairs. Hours are per core or per GPU, depending on `on`."""

    pairs: str  # name and number of the pairs
    name: str
    disk_bytes: float
    memory_bytes: float
    hours: float
    on: str  # core, GPU
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
        self,
        name: str,
        disk_per_pair: float,
        *,
        rates: Rates | None = None,
        further_bytes: float = 0.0,
        hours: float | None = None,
        on: str = "core",
        note: str = "",
    ) -> StageCost:
        """Return the cost of a stage on these pairs.

        Args:
            name: the kind of stage, and what distinguishes it from others of this kind.
            disk_per_pair: bytes of disk per pair.
            rates: memory and time, by default those of the kind.
            further_bytes: memory that the rates do not cover.
            hours: on a core or GPU (`on`). By default they follow from the rates.
            note: details of this stage.
        """
        rates = rates or RATES[name.partition(" ")[0]]
        if hours is None:
            hours = rates.microseconds_per_pair * self.num_pairs / 3.6e9
        memory_bytes = rates.peak_gib * GIB + rates.bytes_per_pair * self.num_pairs + further_bytes
        return StageCost(self.title, name, disk_per_pair * self.num_pairs, memory_bytes, hours, on, note)


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
    """Yield the costs as lines of text: a row per stage, then the assumptions."""
    if not costs:
        return
    disk = sum(cost.disk_bytes for cost in costs) / GIB
    downloads = (cost for cost in costs if cost.kind == "corpus" and cost.pairs.partition(",")[0] in SOURCES)
    download = format_bytes(sum(cost.disk_bytes for cost in downloads))
    largest = format_bytes(max(cost.disk_bytes for cost in costs))
    yield f"stages, each once for all runs: {disk:,.0f} GiB of disk; memory is that of one process"
    joined = f"the largest stage twice while its shards are joined ({largest} more)"
    yield f"in addition: the download ({download}), and {joined}"
    for title, group in groupby(costs, key=lambda cost: cost.pairs):
        yield title
        yield from (cost.format_line() for cost in group)
    yield ASSUMPTIONS


def _estimate_costs(selection: Selection) -> Iterator[StageCost]:
    kinds = list_pair_kinds(selection.run)
    if not kinds:
        return
    yield _estimate_corpus(selection)
    # Every other stage needs the selection.
    for kind in dict.fromkeys(("selection", *kinds)):
        if kind != "negatives" or not uses_given_negatives(selection.run):
            yield ESTIMATES[kind](selection)
    if selection.run.architecture in TRAINED:
        # rows and epoch, while it trains
        yield selection.make_cost("start of a training", 8)


def _estimate_corpus(selection: Selection) -> StageCost:
    whole = Selection(replace(selection.run, num_pairs=None, sources=None))
    # of some corpora, only the number of selected pairs is known
    corpus = whole if whole.num_pairs else selection
    source = SOURCES.get(selection.run.corpus)
    if source:
        num_bytes = source.size_gb * 1e9
    else:
        num_bytes = (find_imported(selection.run.corpus).folder / IMPORT_FOLDER / PAIRS_FILE).stat().st_size
    size = num_bytes / corpus.num_pairs
    cost = corpus.make_cost("corpus", size, note=f"{size:,.0f} bytes per pair")
    # The rate was measured on generated pairs. Longer pairs take longer in proportion.
    return replace(cost, hours=cost.hours * max(1.0, size / GENERATED_BYTES))


def _estimate_tokens(selection: Selection) -> StageCost:
    tokens_per_pair = 2 * TEXT_SHARE * selection.run.max_tokens
    return selection.make_cost(
        f"tokens of {selection.run.max_tokens}",
        4 * tokens_per_pair + 16,
        hours=MICROSECONDS_PER_TOKEN * tokens_per_pair * selection.num_pairs / 3.6e9,
        note=f"{tokens_per_pair:.0f} tokens per pair",
    )


def _estimate_embeddings(selection: Selection, encoder: FixedEncoder) -> StageCost:
    # two sides in float16
    disk_per_pair = 2 * 2 * encoder.width
    if encoder.name == WORD_VECTORS:
        return selection.make_cost(f"embeddings by {encoder.name}", disk_per_pair)
    num_tokens = TEXT_SHARE * selection.run.max_tokens
    flops = 2 * selection.num_pairs * count_forward_flops(num_tokens, encoder.width, NUM_ENCODER_LAYERS)
    return selection.make_cost(
        f"embeddings by {encoder.name.rpartition('/')[2]}",
        disk_per_pair,
        rates=SORTING_ENCODER,
        hours=flops / ASSUMED_FLOPS_PER_SECOND["gpu"] / 3600,
        on="GPU",
        note=f"{encoder.width} wide, {flops:.1e} operations",
    )


def _estimate_clusters(selection: Selection) -> StageCost:
    size = selection.run.cluster_size
    # A pair is clustered by its query and its document together.
    width = 2 * get_surrogate(selection.run).width
    assert size is not None, "only runs with clusters have this stage"
    counts = [count_clusters(domain, size) for domain in selection.sizes]
    fitted = [count_fitted_pairs(domain, size) for domain in selection.sizes]
    num_rounds = NUM_ATTEMPTS * NUM_ITERATIONS
    domains = list(zip(selection.sizes, counts, fitted, strict=True))
    # K-means compares 2n points with all centroids in every iteration. Assignment compares each pair once more.
    flops = sum(2.0 * width * count * (num_rounds * 2 * num_fitted + domain) for domain, count, num_fitted in domains)
    sampled = sum(num_fitted < domain for domain, _, num_fitted in domains)
    return selection.make_cost(
        f"clusters of {size}",
        # the assignment, and the centroids
        4 + 4 * width * sum(counts) / selection.num_pairs,
        # The points of the largest fit. Large domains are clustered one after another, so the largest one decides.
        further_bytes=4.0 * width * 2 * max(fitted),
        hours=flops / ASSUMED_FLOAT32_FLOPS_PER_SECOND / 3600,
        on="GPU",
        note=f"{sum(counts):,} clusters, {sampled} of {len(counts)} domains by a sample, {flops:.1e} operations",
    )


def _estimate_negatives(selection: Selection) -> StageCost:
    width = get_surrogate(selection.run).width
    count = selection.run.num_hard_negatives
    # Every query is scored against every document of its domain.
    flops = 2.0 * width * sum(size * size for size in selection.sizes)
    return selection.make_cost(
        f"negatives of {count}",
        8 * count,
        # Vectors of documents, and a block of scores with its random draws, keys and masks.
        further_bytes=max(selection.sizes) * (4 * width + 3 * 8 * ROWS_PER_CHUNK),
        hours=flops / ASSUMED_FLOPS_PER_SECOND["cpu"] / 3600,
        note=f"{flops:.1e} operations, {count_noun(len(selection.sizes), 'domain')}",
    )


def _estimate_rows(kind: str) -> Callable[[Selection], StageCost]:
    """Return the estimator of a stage that stores one number per pair."""
    return lambda selection: selection.make_cost(kind, 8)


ESTIMATES: Mapping[str, Callable[[Selection], StageCost]] = {
    "selection": _estimate_rows("selection"),
    "tokens": _estimate_tokens,
    "keys": _estimate_rows("keys"),
    "positives": _estimate_rows("positives"),
    "embeddings": lambda selection: _estimate_embeddings(selection, get_surrogate(selection.run)),
    "filter_embeddings": lambda selection: _estimate_embeddings(selection, get_filter_encoder(selection.run)),
    "clusters": _estimate_clusters,
    "negatives": _estimate_negatives,
}
"""Estimators by kind of stage, as in `list_pair_kinds`."""

"""Batch size, cluster size and filter for both architectures: one grid for figures 2, 3, 4, 9, 12 and 13."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import fresh
from experiments.e01_table1 import seeds_at
from experiments.shared import (
    BELOW_PAPERS_GAINS,
    LOSS,
    MEAN_OF_SEEDS,
    NDCG,
    SCORE,
    SCORE_LINES,
    get_budget,
    get_size_at,
    ndcg,
)
from repro.spec import Claim, Experiment, Figure, Row, Run, Term, base, by_scale, grid, pick, term

# As in the paper, clusters are made within a whole source (§5), so they may be larger than a fine domain. The largest
# source of desk has 47,616 pairs, so its largest clusters are whole sources.
BATCH_SIZES: dict[str, tuple[int, ...]] = {"smoke": (8, 16, 24), "desk": (128, 256, 512, 1024), "lab": (32, 128, 512)}
BATCH_SIZES |= dict.fromkeys(("small", "large"), (256, 512, 1024, 2048, 4096))
CLUSTER_SIZES: dict[str, tuple[int, ...]] = {
    "smoke": (8, 16, 40),
    "desk": (64, 256, 1024, 4096, 16384, 47616),
    "lab": (64, 1024, 32768),
}
# Four-fold steps from 64 to 4194304. The paper prints 2097152 as well (§5).
PAPER_CLUSTER_SIZES = (64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 2097152, 4194304)
CLUSTER_SIZES |= dict.fromkeys(("small", "large"), PAPER_CLUSTER_SIZES)
# per training run, so larger batches mean fewer steps
NUM_TRAINING_PAIRS = {"smoke": 192, "desk": 61440, "lab": 131072}
FEWER_PAIRS = NUM_TRAINING_PAIRS | {"desk": 15360}
"""A quarter at desk, for experiments with more seeds or longer training runs."""
FEW_CLUSTER_SIZES = CLUSTER_SIZES | {"desk": (64, 512, 4096)}
SMALL_BATCH_SIZES: dict[str, tuple[int, ...]] = {"smoke": BATCH_SIZES["smoke"], "desk": (32, 128, 512)}
"""Batches of 32 are below the range that figure 13 calls best. They are compared on fewer pairs, with other seeds."""
# at desk this would add 54 training runs
UNFILTERED_CONTEXTUAL = ("lab", "small", "large")
BLIND_CLUSTER = {"smoke": 16, "desk": 1024}
"""The cluster size of the context-blind models."""
EQUAL_STEPS = {"smoke": 12, "desk": 240}
EQUAL_STEPS_CLUSTER = {"smoke": 32, "desk": 512}
"""The cluster size of runs with equal steps. It is not in the grid, so no cell of the grid contains them."""

GRID: dict[str, Any] = {"sampler": "cluster", "domain_column": "source", "packing": "greedy"}
BIENCODER, CONTEXTUAL = {"architecture": "biencoder", **GRID}, {"architecture": "contextual", **GRID}
FILTERED, UNFILTERED = {"filter": "surrogate"}, {"filter": "none"}
PLAIN, PLAIN_UNFILTERED = BIENCODER | FILTERED, BIENCODER | UNFILTERED
OWN_CONTEXT = {"test_contexts": "own"}
CDE, CDE_UNFILTERED = CONTEXTUAL | FILTERED | OWN_CONTEXT, CONTEXTUAL | UNFILTERED | OWN_CONTEXT
BLIND = CDE | fresh.CONTEXT_BLIND

MANY = {"batch_size": get_size_at(BATCH_SIZES, -1)}
# Claims on batch sizes compare sizes of at least 100, as in the paper.
BATCH_SIZES_IN_RANGE = BATCH_SIZES | {"smoke": (16, 24), "lab": (128, 512)}
SMALLEST = {"batch_size": get_size_at(BATCH_SIZES_IN_RANGE, 0)}
CONTEXTUAL_AT_DESK = {"desk": (128, 256, 512)}
CONTEXTUAL_BATCH_SIZES = BATCH_SIZES | CONTEXTUAL_AT_DESK
GRID_SEEDS = {scale: fresh.GRID if scale == "desk" else seeds_at(scale) for scale in BATCH_SIZES}
OF_GRID: dict[str, Any] = {"seed": by_scale(GRID_SEEDS)}
"""The runs of the grid, without those with small batches, which have other seeds."""
IN_RANGE = OF_GRID | {"batch_size": by_scale(BATCH_SIZES_IN_RANGE)}
CONTEXTUAL_IN_RANGE = OF_GRID | {"batch_size": by_scale(BATCH_SIZES_IN_RANGE | CONTEXTUAL_AT_DESK)}
ALL_CLUSTER_SIZES = {"cluster_size": by_scale(CLUSTER_SIZES), **OF_GRID}
"""The cluster sizes and seeds of every series."""
FEWER: dict[str, Any] = {"cluster_size": by_scale(FEW_CLUSTER_SIZES)}
FEWER |= {"seed": by_scale({scale: seeds_at(scale) for scale in SMALL_BATCH_SIZES})}
SMALL_BATCH_LINES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("filter", PLAIN | FEWER),
    ("no filter", PLAIN_UNFILTERED | FEWER),
    ("contextual, filter", CDE | FEWER),
)
EQUAL_STEPS_SIZE, BLIND_SIZE = ({"cluster_size": by_scale(sizes)} for sizes in (EQUAL_STEPS_CLUSTER, BLIND_CLUSTER))
ALONG_STEPS = PLAIN | OF_GRID | EQUAL_STEPS_SIZE


def budget(scale: str, batch_size: int, num_pairs: Mapping[str, int] = NUM_TRAINING_PAIRS) -> dict[str, int | None]:
    """Return the training length: equal numbers of pairs at our scales, three epochs at the paper's."""
    if scale not in num_pairs:
        return {}
    # Larger batches mean fewer steps. The number of pairs, not of steps, is the same for all cells.
    num_steps = num_pairs[scale] // batch_size
    return {"num_steps": num_steps, "num_warmup_steps": num_steps // 10}


def cells(
    scale: str,
    row: dict[str, Any],
    batches: Sequence[int],
    clusters: Sequence[int],
    seeds: Sequence[int],
    num_pairs: Mapping[str, int] = NUM_TRAINING_PAIRS,
) -> tuple[Run, ...]:
    """Return one run of a row for each batch size, cluster size and seed."""
    return tuple(
        run
        for batch_size in batches
        for run in grid(
            base(scale, **OWN_CONTEXT | row | budget(scale, batch_size, num_pairs) | {"cluster_size": clusters[0]}),
            batch_size=batch_size,
            cluster_size=clusters,
            seed=seeds,
        )
    )


def runs(scale: str) -> tuple[Run, ...]:
    """Return, seed by seed, both architectures over the grid, context-blind models, and biencoders with equal steps.

    At desk, contextual models have the filter only, and no batches of 1024. Small batches come last.
    """
    clusters, contextual_batches = CLUSTER_SIZES[scale], CONTEXTUAL_BATCH_SIZES[scale]
    rows = [(PLAIN, BATCH_SIZES[scale], clusters), (PLAIN_UNFILTERED, BATCH_SIZES[scale], clusters)]
    rows += [(CDE, contextual_batches, clusters)]
    if scale in UNFILTERED_CONTEXTUAL:
        rows += [(CDE_UNFILTERED, contextual_batches, clusters)]
    if scale in BLIND_CLUSTER:
        rows += [(BLIND, contextual_batches, (BLIND_CLUSTER[scale],))]
    all_runs: tuple[Run, ...] = ()
    for seed in GRID_SEEDS[scale]:
        for row, batches, cluster_sizes in rows:
            all_runs += cells(scale, row, batches, cluster_sizes, (seed,))
        if scale in EQUAL_STEPS:
            fields = PLAIN | OWN_CONTEXT | get_budget(EQUAL_STEPS[scale])
            fields |= {"cluster_size": EQUAL_STEPS_CLUSTER[scale], "seed": seed}
            all_runs += grid(base(scale, **fields), batch_size=BATCH_SIZES[scale])
    return tuple(dict.fromkeys((*all_runs, *list_small_batches(scale))))


def list_small_batches(scale: str) -> tuple[Run, ...]:
    """Return biencoders with and without the filter and contextual models with it, from batches of 32 on."""
    if scale not in SMALL_BATCH_SIZES:
        return ()
    sizes = SMALL_BATCH_SIZES[scale], FEW_CLUSTER_SIZES[scale]
    rows = (PLAIN, PLAIN_UNFILTERED, CDE)
    return tuple(run for row in rows for run in cells(scale, row, *sizes, seeds_at(scale), FEWER_PAIRS))


WITH_FILTER, WITHOUT_FILTER = (
    Row(label=label, runs=pick(**row, **ALL_CLUSTER_SIZES))
    for label, row in (("filter", PLAIN), ("no filter", PLAIN_UNFILTERED))
)
BY_CLUSTER: dict[str, Any] = SCORE_LINES | {"x": "cluster_size", "x_label": "cluster size (pairs)"}
BY_BATCH: dict[str, Any] = SCORE_LINES | {"x": "batch_size", "x_label": "batch size (pairs)"}
BY_DIFFICULTY: dict[str, Any] = SCORE | {
    "is_panelled": True,
    "kind": "scatter",
    "x": LOSS,
    "x_label": "training loss over the last tenth of the steps",
    "hue": "batch_size",
}
BY_BATCH_AND_CLUSTER: dict[str, Any] = {
    "kind": "heatmap",
    "x": "cluster_size",
    "y": "batch_size",
    "x_label": "cluster size (pairs)",
    "y_label": "batch size (pairs)",
    "cell": NDCG,
    "factor": 100,
}
EQUAL_PAIRS = "At our scales, all training runs see the same number of pairs."
WHOLE_SOURCES = "The largest clusters of desk are whole sources."
DIFFICULTY_NOTE = (
    "NDCG@10 of biencoders against the training loss at the end of training, which measures the difficulty of their "
    "batches. A faint dot is one training run with a batch size (colour and shape), a cluster size and a seed. A bold "
    "dot is the mean over the seeds of one cluster size."
)
CELLS_NOTE = (
    "A cell is the mean over n seeds. The best cell of a row is framed if it is clearly ahead of the second best."
)

FIGURES = (
    Figure(
        name="figure2",
        title="Score against batch difficulty, with and without the filter",
        caption=(
            f"{DIFFICULTY_NOTE} With five or more cluster sizes, lines are least-squares fits to these means and r is "
            f"Pearson's correlation. With fewer, the means are only joined. {EQUAL_PAIRS}"
        ),
        series=(WITH_FILTER, WITHOUT_FILTER),
        **BY_DIFFICULTY,
    ),
    Figure(
        name="figure3",
        title="Score by batch size and cluster size, with and without the filter",
        caption=(
            "NDCG@10 of biencoders by batch and cluster size, with the false-negative filter (left) and without "
            f"(right). {WHOLE_SOURCES} {CELLS_NOTE} {EQUAL_PAIRS}"
        ),
        series=(WITH_FILTER, WITHOUT_FILTER),
        **BY_BATCH_AND_CLUSTER,
    ),
    Figure(
        name="figure4",
        title="Score with and without the filter, run by run",
        caption=(
            "NDCG@10 of biencoders with the false-negative filter ('surrogate') and without ('none'). A dot is one "
            "training run, its colour and shape are the batch size (from left to right). A dash is the mean over "
            "cluster sizes and seeds, with the 95 % interval of the mean over n seeds."
        ),
        kind="dots",
        x="filter",
        x_label="false-negative filter",
        hue="batch_size",
        series=(Row(label="biencoder", runs=pick(**BIENCODER, **ALL_CLUSTER_SIZES)),),
        **SCORE,
    ),
    Figure(
        name="figure9",
        title="Contextual model and biencoder, by batch size and cluster size",
        caption=(
            "NDCG@10 of the contextual model by batch and cluster size, with the filter, and of the biencoder. "
            "The paper's second panel, without the filter, is not run at desk, nor are contextual batches of 1024. "
            f"{WHOLE_SOURCES} {CELLS_NOTE} {EQUAL_PAIRS}"
        ),
        series=(
            Row(label="contextual, filter", runs=pick(**CDE | ALL_CLUSTER_SIZES)),
            Row(label="contextual, no filter", runs=pick(**CDE_UNFILTERED), scales=UNFILTERED_CONTEXTUAL),
            Row(label="biencoder, filter", runs=WITH_FILTER.runs),
        ),
        **BY_BATCH_AND_CLUSTER,
    ),
    Figure(
        name="figure12",
        title="Score by cluster size, with and without the filter",
        caption=f"NDCG@10 of biencoders by cluster size, averaged over batch sizes. {WHOLE_SOURCES} {MEAN_OF_SEEDS}",
        series=(WITH_FILTER, WITHOUT_FILTER),
        **BY_CLUSTER,
    ),
    Figure(
        name="figure13",
        title="Score by batch size, with and without the filter",
        caption=(
            "NDCG@10 of biencoders by batch size, averaged over cluster sizes. "
            f"{MEAN_OF_SEEDS} {EQUAL_PAIRS} The line of equal steps is an exception. Its clusters have one size, and larger "
            "batches see more pairs. `figure13_small_batches` has batches of 32."
        ),
        series=(
            WITH_FILTER,
            WITHOUT_FILTER,
            Row(label="filter, equal steps", runs=pick(**ALONG_STEPS), scales=tuple(EQUAL_STEPS)),
        ),
        **BY_BATCH,
    ),
    Figure(
        name="figure13_small_batches",
        title="Score by batch size, with batches below the paper's range",
        caption=(
            "NDCG@10 by batch size, averaged over cluster sizes of 64 to 4096. All training runs see the same number of "
            f"pairs, a quarter of those of figure 13. {MEAN_OF_SEEDS}"
        ),
        series=tuple(
            Row(label=label, runs=pick(**row), scales=tuple(SMALL_BATCH_SIZES)) for label, row in SMALL_BATCH_LINES
        ),
        **BY_BATCH,
    ),
)

SMALLER, LARGER = ("cluster_size", -1), ("cluster_size", 1)
ONE_POINT = 0.01
SEEDS = fresh.declare(fresh.GRID)
RESTATED: dict[str, Any] = SEEDS | {"stated": "2026-11-27", "version": 5}
"""The claims were restated on the paper's range, and their seeds at desk declared, before those were trained."""
SEEN = RESTATED | {"descriptive": "worded after two of its three seeds at desk were trained"}

POINT_REASON = "is read as one point, less than the gains of Table 1"
NO_GAIN_SENTENCE = "larger batches do not clearly improve the contextual model"
NO_CONTRAST = "no contrast: unfiltered batches lose as much"
RANGE_NOTE = "from the smallest batch of the paper's range (at desk 128) to the largest"


def claim_trend(
    id: str, statement: str, axis: str, sign: int, source: str, of: dict[str, Any], **options: Any
) -> Claim:
    """Claim a trend of NDCG@10 with cluster size at each batch size, or with batch size at each cluster size."""
    within = "batch_size" if axis == "cluster_size" else "cluster_size"
    return Claim.trend(
        id,
        statement,
        over=term(NDCG, **of),
        axis=axis,
        within=within,
        sign=sign,
        source=source,
        because="a slope beyond chance, the mean over the sizes of the other axis",
        **options,
    )


def list_pairs(better: dict[str, Any], worse: dict[str, Any], *cells: dict[str, Any]) -> list[tuple[Term, Term]]:
    """Return one comparison of NDCG@10 for each place: a batch size, a cluster size, or both."""
    return [(term(NDCG, **better | cell), term(NDCG, **worse | cell)) for cell in cells]


def gain_of_small_clusters(
    row: dict[str, Any], clusters: dict[str, tuple[int, ...]] = CLUSTER_SIZES
) -> tuple[Term, Term]:
    """Return a row at the smallest and at the largest cluster size."""
    smallest, largest = (term(NDCG, **row | {"cluster_size": get_size_at(clusters, index)}) for index in (0, -1))
    return smallest, largest


def claim_small_gain(id: str, statement: str, source: str, adverb: str, of: dict[str, Any], **options: Any) -> Claim:
    """Claim that the largest batches gain only little over the smallest of the paper's range. `adverb` is the paper's."""
    largest = {
        "batch_size": get_size_at(CONTEXTUAL_BATCH_SIZES if of["architecture"] == "contextual" else BATCH_SIZES, -1)
    }
    pairs = list_pairs(of | SMALLEST, of | largest, ALL_CLUSTER_SIZES)
    because = f"'{adverb}' {POINT_REASON}; {RANGE_NOTE}"
    return Claim.order(id, statement, pairs=pairs, margin=-ONE_POINT, source=source, because=because, **options)


PLAIN_IN_RANGE, UNFILTERED_IN_RANGE, CDE_IN_RANGE = (
    row | batches | ALL_CLUSTER_SIZES
    for row, batches in ((PLAIN, IN_RANGE), (PLAIN_UNFILTERED, IN_RANGE), (CDE, CONTEXTUAL_IN_RANGE))
)

CLAIMS = (
    Claim.correlation(
        "F2.a",
        "with the filter, at each batch size, harder batches go with higher scores",
        x=term(LOSS, **PLAIN_IN_RANGE),
        y=term(NDCG, **PLAIN_IN_RANGE),
        points="runs",
        within="batch_size",
        sign=1,
        source="Figure 2 and §6",
        because="Pearson's r over cluster sizes beyond chance, the mean over batch sizes; after one phase, not two",
        **RESTATED,
    ),
    claim_trend(
        "F3.a",
        "with the filter, smaller clusters are better",
        *SMALLER,
        "Figure 3",
        PLAIN_IN_RANGE,
        **RESTATED | fresh.ADDED_DELTA | {"version": 6},
    ),
    claim_trend(
        "F3.b", "without the filter, larger clusters are better", *LARGER, "Figure 3", UNFILTERED_IN_RANGE, **RESTATED
    ),
    claim_small_gain(
        "F3.c",
        "with the filter, large batches do not add much",
        "§6, Figure 3",
        "much",
        PLAIN,
        caveat=NO_CONTRAST,
        **SEEN,
    ),
    Claim.order(
        "F3.d",
        "without the filter, larger batches are better at equal numbers of pairs",
        pairs=list_pairs(PLAIN_UNFILTERED | MANY, PLAIN_UNFILTERED | SMALLEST, ALL_CLUSTER_SIZES),
        source="§6",
        **BELOW_PAPERS_GAINS | RESTATED,
    ),
    Claim.order(
        "F4.a",
        "filtered batches beat unfiltered ones over all settings",
        pairs=list_pairs(PLAIN, PLAIN_UNFILTERED, IN_RANGE | ALL_CLUSTER_SIZES),
        source="Figure 4",
        **BELOW_PAPERS_GAINS | RESTATED,
    ),
    claim_trend(
        "F9.a",
        "the contextual model, too, is better with smaller clusters",
        *SMALLER,
        "Figure 9",
        CDE_IN_RANGE,
        **RESTATED,
    ),
    Claim.order(
        "F9.b",
        "the contextual model beats the biencoder across the board: on average over batch and cluster sizes",
        pairs=list_pairs(CDE, PLAIN, CONTEXTUAL_IN_RANGE | ALL_CLUSTER_SIZES),
        source="Figure 9 and §9.5",
        **BELOW_PAPERS_GAINS | RESTATED | fresh.MET_BY_BLIND,
    ),
    Claim.interaction(
        "F9.c",
        "the contextual model does well even at large clusters: the biencoder loses more from the smallest to the largest",
        of=gain_of_small_clusters(PLAIN | CONTEXTUAL_IN_RANGE),
        above=gain_of_small_clusters(CDE | CONTEXTUAL_IN_RANGE),
        source="§9.5",
        **BELOW_PAPERS_GAINS | RESTATED,
    ),
    claim_small_gain("F9.d", f"{NO_GAIN_SENTENCE}, which does well at small ones", "Figure 9", "clearly", CDE, **SEEN),
    claim_trend(
        "F9.e",
        "without the filter, too, the contextual model is better with smaller clusters",
        *SMALLER,
        "Figure 9",
        CDE_UNFILTERED | CONTEXTUAL_IN_RANGE | ALL_CLUSTER_SIZES,
        scales=UNFILTERED_CONTEXTUAL,
        **fresh.FIRST_SEEDS | {"stated": "2026-11-28", "version": 3},
    ),
    claim_small_gain(
        "F9.f",
        f"without the filter, too, {NO_GAIN_SENTENCE}",
        "Figure 9",
        "clearly",
        CDE_UNFILTERED,
        scales=UNFILTERED_CONTEXTUAL,
        **fresh.FIRST_SEEDS | {"stated": "2026-11-24"},
    ),
    Claim.order(
        "F9.g",
        "at one cluster size, the contextual model beats the one trained without documents",
        pairs=[(term(NDCG, **CDE | BLIND_SIZE), term(ndcg("null"), **BLIND | BLIND_SIZE))],
        source="our question: what documents add to learned vectors in front of the text",
        scales=("desk",),
        **BELOW_PAPERS_GAINS | SEEDS | {"stated": "2026-11-27"},
    ),
    Claim.interaction(
        "F12.a",
        "small clusters gain more with the filter than without",
        of=gain_of_small_clusters(PLAIN | IN_RANGE),
        above=gain_of_small_clusters(PLAIN_UNFILTERED | IN_RANGE),
        source="Figure 12",
        **BELOW_PAPERS_GAINS | RESTATED,
    ),
    Claim.order(
        "F13.a",
        "with and without the filter, the best batch size is between 100 and 10,000: smaller sizes score lower",
        pairs=[
            pair
            for row in (PLAIN, PLAIN_UNFILTERED)
            for pair in list_pairs(row | {"batch_size": 128}, row | {"batch_size": 32}, FEWER)
        ],
        source="Figure 13",
        because="batches of 128 beat batches of 32 beyond chance; elsewhere all sizes of the grid are inside the range",
        scales=("desk",),
        **fresh.RESTATED | fresh.FIRST_SEEDS,
    ),
    Claim.order(
        "F13.b",
        "with the filter, larger batches are better at equal numbers of steps",
        pairs=list_pairs(ALONG_STEPS | MANY, ALONG_STEPS | SMALLEST, {}),
        source="our question: §6 compares at equal epochs, and finds little gain with the filter",
        scales=("desk",),
        **BELOW_PAPERS_GAINS | SEEDS | {"stated": "2026-11-27"},
    ),
)

EXPERIMENT = Experiment(
    title="Batch size, cluster size and the filter",
    runs=runs,
    artefacts=FIGURES,
    claims=CLAIMS,
    local_seeds=(0, fresh.GRID[0]),
)

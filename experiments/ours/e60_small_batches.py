"""Batches of 32, below the range that figure 13 calls best and below all of the paper's, on a quarter of the pairs."""

from typing import Any

from experiments.e01_table1 import seeds_at
from experiments.e04_batch_by_cluster import BATCH_SIZES as GRID_BATCH_SIZES
from experiments.e04_batch_by_cluster import (
    BY_BATCH,
    CDE,
    FEWER_PAIRS,
    PLAIN,
    PLAIN_UNFILTERED,
    cells,
    list_pairs,
)
from experiments.e07_packing import ALL_CLUSTER_SIZES, CLUSTER_SIZES
from experiments.fresh import FIRST_SEEDS, RESTATED
from experiments.shared import MEAN_OF_SEEDS
from repro.spec import Claim, Experiment, Figure, Row, Run, pick

BATCH_SIZES: dict[str, tuple[int, ...]] = {"smoke": GRID_BATCH_SIZES["smoke"], "desk": (32, 128, 512)}
LINES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("filter", PLAIN),
    ("no filter", PLAIN_UNFILTERED),
    ("contextual, filter", CDE),
)


def runs(scale: str) -> tuple[Run, ...]:
    """Return biencoders with and without the filter, and contextual models with it."""
    return tuple(
        run
        for _, row in LINES
        for run in cells(scale, row, BATCH_SIZES[scale], CLUSTER_SIZES[scale], seeds_at(scale), FEWER_PAIRS)
    )


FIGURE = Figure(
    name="figure13_small_batches",
    title="Score by batch size, with batches below the paper's range",
    caption=(
        "NDCG@10 by batch size, averaged over cluster sizes of 64 to 4096. All training runs see the same number of "
        f"pairs, a quarter of those of figure 13. {MEAN_OF_SEEDS}"
    ),
    series=tuple(Row(label=label, runs=pick(**row)) for label, row in LINES),
    **BY_BATCH,
)
SMALL_BATCH, LARGER_BATCH = {"batch_size": 32}, {"batch_size": 128}

CLAIMS = (
    Claim.order(
        "F13.a",
        "with and without the filter, the best batch size is between 100 and 10,000: smaller sizes score lower",
        pairs=[
            pair
            for row in (PLAIN, PLAIN_UNFILTERED)
            for pair in list_pairs(row | LARGER_BATCH, row | SMALL_BATCH, ALL_CLUSTER_SIZES)
        ],
        source="Figure 13",
        because="batches of 128 beat batches of 32 beyond chance; elsewhere all sizes of the grid are inside the range",
        scales=("desk",),
        **RESTATED | FIRST_SEEDS,
    ),
)

EXPERIMENT = Experiment(
    number=60, title="Batches of 32", runs=runs, artefacts=(FIGURE,), claims=CLAIMS, scales=tuple(BATCH_SIZES)
)

"""Why contextual batches score lower with several views of a text, on validation domains. Not in the paper."""

from typing import Any

from experiments.e01_table1 import BATCHES, NEITHER, get_sizes
from experiments.ours.e03_settings_tried import SCALES, SUITES
from experiments.shared import ACCURACY_COLUMN, NDCG_COLUMN
from repro.spec import Column, Experiment, Row, Run, Table, base, by_scale, pick

SEEDS = {"smoke": (0,), "desk": (0,), "lab": (1,)}

TEXTS: dict[str, dict[str, str]] = {
    "documents": {"smoke": "planted-tiny", "desk": "desk", "lab": "desk"},
    "views": {"smoke": "planted-tiny", "desk": "desk-views", "lab": "desk-views"},
}
"""The same text, with each document once or with its views too (`repro/data/mined/views.py`). All pairs are used."""
ROWS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("documents", "one source per batch", NEITHER),
    ("documents", "clusters, filter", BATCHES),
    ("views", "one source per batch", NEITHER),
    ("views", "one source per batch, filter", NEITHER | {"filter": "surrogate"}),
    ("views", "clusters, filter", BATCHES),
    ("views", "clusters, no filter", BATCHES | {"filter": "none"}),
)


def runs(scale: str) -> tuple[Run, ...]:
    """Return biencoders on both texts, with batches of a source or of clusters, with and without the filter."""
    fixed: dict[str, Any] = {"suite": SUITES[scale], "num_pairs": None}
    all_runs = (
        base(scale, **batches | get_sizes(batches, scale) | fixed, corpus=TEXTS[text][scale], seed=seed)
        for text, _, batches in ROWS
        for seed in SEEDS[scale]
    )
    return tuple(dict.fromkeys(all_runs))


TABLE = Table(
    name="batches_of_views",
    caption=(
        "Biencoders trained on each document once and on all views of it (crops of its text), by kind of batch: "
        "training accuracy, the share of negatives that the filter masks, batch difficulty (mean cosine under the "
        "surrogate), and NDCG@10 on validation domains of the training sources. One seed."
    ),
    columns=(
        ACCURACY_COLUMN,
        Column(label="masked %", value="train/masked_fraction", factor=100),
        Column(label="difficulty", value="train/difficulty", decimals=2),
        NDCG_COLUMN,
    ),
    rows=tuple(
        Row(label=f"{text}, {words}", runs=pick(**kind, corpus=by_scale(TEXTS[text]))) for text, words, kind in ROWS
    ),
)

EXPERIMENT = Experiment(title="Contextual batches on views of a text", runs=runs, artefacts=(TABLE,), scales=SCALES)

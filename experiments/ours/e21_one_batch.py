"""Details of one batch: its pairs, the hardest negatives, and the removals of the filter. Not in the paper."""

from typing import Any

from repro.spec import Exhibit, Experiment, Run, base, pick

BATCHED: dict[str, Any] = {"measure": "batches", "architecture": "none", "sampler": "cluster", "filter": "surrogate"}
CLUSTER = {"smoke": 16, "desk": 256, "lab": 256, "small": 256, "large": 256}
BATCH = {"smoke": 8, "desk": 32, "lab": 32, "small": 32, "large": 32}


def runs(scale: str) -> tuple[Run, ...]:
    """Return one epoch of small filtered batches. Nothing is trained."""
    return (base(scale, **BATCHED, cluster_size=CLUSTER[scale], batch_size=BATCH[scale], domain_column="source"),)


MICROSCOPE = Exhibit(
    name="one_batch",
    caption=(
        "The first batch of an epoch of clusters within one source. Hardest: positions and scores of the negatives "
        "that are nearest to the query under the surrogate. Removed: documents that score at least as high as the "
        "query's own (eq. 4), or have its text. The command explain-batch shows any batch of any run in this form."
    ),
    columns=("pair", "cluster", "query", "document", "score", "hardest", "removed"),
    runs=pick(**BATCHED),
    rows="batch",
)

EXPERIMENT = Experiment(
    number=21, title="Pairs, hard negatives and the filter of one batch", runs=runs, artefacts=(MICROSCOPE,)
)

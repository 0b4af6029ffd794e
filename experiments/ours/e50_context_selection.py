"""Which documents serve as context: random ones of the corpus, centres, typical, diverse or relevant ones.

The paper samples at random (§9.12). Trained models are evaluated again, and nothing is trained.
"""

from typing import Any

from experiments.e01_table1 import ARCHITECTURE_DOMAIN, MINI_SEEDS, PLAIN_BATCH
from experiments.fresh import TABLE1
from experiments.shared import BELOW_PAPERS_GAINS, BELOW_SMALLEST_GAIN, HALF_A_POINT
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, by_scale, pick, term

SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), "desk": TABLE1, "mini": MINI_SEEDS}
SELECTED: dict[str, Any] = ARCHITECTURE_DOMAIN | {"measure": "selection", "test_contexts": "own"}
SELECTIONS = {
    "random": "random (the paper)",
    "centres": "nearest to cluster centres",
    "typical": "nearest to the corpus mean",
    "diverse": "farthest from each other",
    "relevant": "nearest to the test queries",
}


def runs(scale: str) -> tuple[Run, ...]:
    """Return Table 1's contextual model on batches of one domain, for each seed."""
    return tuple(base(scale, **SELECTED, batch_size=PLAIN_BATCH[scale], seed=seed) for seed in SEEDS[scale])


TABLE = Table(
    name="context_selection",
    caption=(
        "NDCG@10 of the contextual model on batches of one domain, by the selection of its context documents from the "
        "searched corpus. The last column selects by the test queries. It is an upper bound, not a usable method."
    ),
    columns=tuple(
        Column(label=label, value=f"selection/{way}/mean/ndcg_at_10", factor=100, decimals=2)
        for way, label in SELECTIONS.items()
    ),
    rows=(Row(label="contextual, one domain per batch", runs=pick(**SELECTED)),),
)


def score(way: str) -> Term:
    """Return the mean NDCG@10 under one selection."""
    return term(f"selection/{way}/mean/ndcg_at_10", **SELECTED)


COMMON: dict[str, Any] = {
    "source": "our question: §9.12 samples the context at random",
    "stated": "2026-11-25",
    "scales": ("desk", "mini"),
    "seeds": by_scale(SEEDS),  # declared with the claims
}
CLAIMS = (
    Claim.equivalence(
        "CS.a",
        "central, typical and diverse documents as context score within half a point of random ones",
        pairs=[(score(way), score("random")) for way in ("centres", "typical", "diverse")],
        delta=HALF_A_POINT,
        because=BELOW_SMALLEST_GAIN,
        **COMMON,
    ),
    Claim.order(
        "CS.b",
        "documents near the test queries as context score higher than random ones",
        pairs=[(score("relevant"), score("random"))],
        **BELOW_PAPERS_GAINS,
        **COMMON,
    ),
)

EXPERIMENT = Experiment(
    number=50,
    title="Choice of context documents",
    runs=runs,
    artefacts=(TABLE,),
    claims=CLAIMS,
    scales=tuple(SEEDS),
    local_seeds=(0,),
)

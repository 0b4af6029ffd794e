"""Ways that might make a pretrained contextual model read its corpus, on validation collections. Not in the paper.

The threshold is the biencoder, whitened by its corpus without training. All ways pass it. The best one, word frequencies,
is tested on fresh seeds in experiment 58. All runs use seed 100, which no claim uses. The test suite is not read. Training
is as long as in experiment 58, because after the 240 steps of `mini` no model uses its context.
"""

from typing import Any

from experiments.e01_table1 import ARCHITECTURE_DOMAIN
from experiments.fresh import CONTEXT_BLIND
from experiments.ours.e58_context_curve import ALL_PAIRS, BIENCODER, END, STEPS
from experiments.shared import NDCG, get_budget
from repro.spec import Column, Experiment, Row, Run, Table, base, pick

CONTRASTS = (("in-corpus − random text", "own_minus_random"), ("in − out-of-corpus", "own_minus_wrong"))
SUITES = {"smoke": "planted-validation", "mini": "desk-validation"}
SEED = 100
CONTEXTS = {"test_contexts": "own+wrong+random+null"}
TABLE1 = {
    name: getattr(base("mini"), name) for name in ("num_contexts", "tokens_per_document", "pooling", "sequence_dropout")
}
LONG_BIENCODER = BIENCODER | END
UNCHANGED: dict[str, Any] = ARCHITECTURE_DOMAIN | ALL_PAIRS | END | TABLE1 | CONTEXTS
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("as in Table 1", {}),
    ("64 context documents", {"num_contexts": 64}),
    ("four vectors per context document", {"tokens_per_document": 4}),
    ("sequence dropout 0.5", {"sequence_dropout": 0.5}),
    ("word frequencies (ours)", {"pooling": "frequency"}),
    ("word frequencies, 64 context documents (ours)", {"pooling": "frequency", "num_contexts": 64}),
)
"""Each differs from the first one in how the context enters."""
BLIND = UNCHANGED | CONTEXT_BLIND
WHITENED = LONG_BIENCODER | {"measure": "whitening"}


def runs(scale: str) -> tuple[Run, ...]:
    """Return each way, the context-blind model, and the biencoder with and without whitening."""
    rows = [*(UNCHANGED | changes for _, changes in WAYS), BLIND, LONG_BIENCODER, WHITENED]
    budget = get_budget(STEPS[scale][1])
    return tuple(base(scale, **row | budget, suite=SUITES[scale], seed=SEED) for row in rows)


TABLE = Table(
    name="context_search",
    caption=(
        "Ways that might make a pretrained contextual model read its corpus: NDCG@10 on validation collections with "
        "in-corpus context, and its gain over random training text and over out-of-corpus context. One seed per row."
    ),
    columns=(
        Column(label="NDCG@10", value=NDCG, factor=100),
        *(
            Column(label=label, value=f"context_effect/{contrast}/mean/difference", factor=100, decimals=2)
            for label, contrast in CONTRASTS
        ),
    ),
    rows=(
        *(Row(label=label, runs=pick(**UNCHANGED | changes)) for label, changes in WAYS),
        Row(label="trained without documents", runs=pick(**BLIND), context="null"),
        Row(label="biencoder", runs=pick(**LONG_BIENCODER)),
        Row(label="biencoder, whitened by its corpus", runs=pick(**WHITENED), context="whitened"),
    ),
)

EXPERIMENT = Experiment(
    number=55,
    title="Search for a pretrained model that uses its corpus",
    runs=runs,
    artefacts=(TABLE,),
    scales=tuple(SUITES),
)

"""Figure 18: many context documents with one vector each, or few with several, at a fixed number of vectors."""

from experiments.e01_table1 import BOTH, CLUSTER, CONTEXTUAL_BATCH
from repro.spec import Claim, Experiment, Figure, Row, Run, Term, base, pick, term

TOTAL = {"smoke": 8, "desk": 16, "lab": 64, "small": 64, "large": 512}
PER_DOCUMENT = {
    "smoke": (1, 2, 4),
    "desk": (1, 2, 4),
    "lab": (1, 2, 4, 8),
    "small": (1, 2, 4, 8),
    "large": (1, 2, 4, 8),
}
SEEDS = (0, 1, 2)


def runs(scale: str) -> tuple[Run, ...]:
    """Table 1's last row with the same number of context vectors, shared out differently."""
    sizes = {"batch_size": CONTEXTUAL_BATCH[scale], "cluster_size": CLUSTER[scale]}
    return tuple(
        base(scale, **BOTH, **sizes, tokens_per_document=each, num_contexts=TOTAL[scale] // each, seed=seed)
        for each in PER_DOCUMENT[scale]
        for seed in SEEDS
    )


FAMILIES = ("services", "packages", "collections", "cloud", "medical")
FIGURE = Figure(
    name="figure18",
    caption="NDCG@10 by the number of vectors a context document gives, at a fixed number of context vectors.",
    kind="lines",
    points="{suite}/{family}/ndcg_at_10",
    x="tokens_per_document",
    y="value",
    hue="part1",
    x_label="vectors a context document",
    y_label="NDCG@10 (points)",
    factor=100,
    x_is_log=True,
    series=(Row(label="both", of=pick(**BOTH)),),
)


def best_differs(one: str, other: str) -> tuple[tuple[Term, Term], ...]:
    """Claims that few vectors are better on one family of datasets and many on another."""
    first, last = {**BOTH, "tokens_per_document": 1}, {**BOTH, "tokens_per_document": 4}
    paths = [f"{{suite}}/{family}/ndcg_at_10" for family in (one, other)]
    return ((term(paths[0], **first), term(paths[0], **last)), (term(paths[1], **last), term(paths[1], **first)))


CLAIMS = (
    Claim.order(
        "F18.a",
        "the best setting differs by dataset: one vector on services, several on medical terms",
        pairs=best_differs("services", "medical"),
        source="Figure 18",
        because="both differences beyond chance; which families differ is our choice, made before any run",
    ),
)

EXPERIMENT = Experiment(number=9, title="Vectors of a context document", runs=runs, shows=(FIGURE,), claims=CLAIMS)

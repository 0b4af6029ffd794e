"""Figure 18: many context documents with one vector each, or few with several, for a fixed number of vectors."""

from experiments.e01_table1 import BOTH, get_contextual_sizes, seeds_at
from experiments.fresh import FIRST_SEEDS, MET_BY_BLIND, RESTATED
from repro.spec import Claim, Experiment, Figure, Row, Run, base, pick, term

TOTAL = {"smoke": 8, "desk": 16, "lab": 16, "small": 64, "large": 512}
PER_DOCUMENT: dict[str, tuple[int, ...]] = dict.fromkeys(("smoke", "desk", "lab"), (1, 2, 4))
PER_DOCUMENT |= dict.fromkeys(("small", "large"), (1, 2, 4, 8))


def runs(scale: str) -> tuple[Run, ...]:
    """Return Table 1's last row with the same number of context vectors in different arrangements."""
    sizes = get_contextual_sizes(scale)
    return tuple(
        base(scale, **BOTH, **sizes, tokens_per_document=num_tokens, num_contexts=TOTAL[scale] // num_tokens, seed=seed)
        for num_tokens in PER_DOCUMENT[scale]
        for seed in seeds_at(scale)
    )


FIGURE = Figure(
    name="figure18",
    title="Score by number of vectors per context document, by family of evaluation sets",
    caption=(
        "NDCG@10 by the number of vectors per context document, at a fixed total number of context vectors. A line is "
        "a family of evaluation sets. Marks are mean changes from one vector over n seeds, bands are 95 % intervals of"
        " the mean."
    ),
    kind="lines",
    points="{suite}/{family}/ndcg_at_10",
    x="tokens_per_document",
    y="value",
    hue="part1",
    x_label="vectors per context document",
    y_label="change in NDCG@10 (points)",
    factor=100,
    x_is_log=True,
    is_paired=True,
    series=(Row(label="both", runs=pick(**BOTH)),),
)


CLAIMS = (
    Claim.varies(
        "F18.a",
        "different domains prefer different numbers of vectors per context document",
        over=term("{suite}/*/ndcg_at_10", **BOTH),
        axis="tokens_per_document",
        source="Figure 18",
        because="the best number is counted per dataset",
        descriptive="a statement about datasets",
        **RESTATED | FIRST_SEEDS | MET_BY_BLIND | {"version": 3},
    ),
)

EXPERIMENT = Experiment(number=9, title="Vectors of a context document", runs=runs, artefacts=(FIGURE,), claims=CLAIMS)

"""GTE figure 2: Recall@100 of BM25 and of a dense model after pre-training, by collection."""

from experiments.companions.e31_prefixes import IN_FULL
from experiments.companions.e33_improved_loss import IMPROVED, SEEDS, make_first_phase
from experiments.e01_table1 import BM25
from experiments.fresh import COMPANION
from repro.spec import Claim, Experiment, Figure, Row, Run, base, grid, pick, term

RECALL = "{suite}/mean/recall_at_100"


def runs(scale: str) -> tuple[Run, ...]:
    """Return BM25 and table 11's first phase, both with exhaustive search. Nothing more is trained."""
    return (base(scale, **BM25, **IN_FULL), *grid(make_first_phase(scale, **IN_FULL), seed=SEEDS))


FIGURE = Figure(
    name="gte_figure2",
    title="Recall@100 of BM25 and of a dense model",
    caption=(
        "Recall@100 after pre-training with the improved loss, and of BM25, by family of collections. A dot is a "
        "seed, a dash with whiskers the mean over n seeds with its 95 % interval. The paper has fifteen collections of BEIR, and SimCSE "
        "and Contriever in addition."
    ),
    kind="dots",
    points="{suite}/{family}/recall_at_100",
    x="part1",
    y="value",
    x_label="family of collections",
    y_label="Recall@100 (%)",
    factor=100,
    series=(Row(label="BM25", runs=pick(**BM25)), Row(label="pre-trained", runs=pick(**IMPROVED))),
)
CLAIMS = (
    Claim.order(
        "GF2.a",
        "after pre-training, without human labels, the dense model finds more than BM25",
        pairs=[(term(RECALL, **IMPROVED), term(RECALL, **BM25))],
        source="§1 and Figure 2",
        because="any difference beyond chance; the picture has no readable number",
        **COMPANION,
    ),
)

EXPERIMENT = Experiment(title="Recall by collection", runs=runs, artefacts=(FIGURE,), claims=CLAIMS, paper="GTE")

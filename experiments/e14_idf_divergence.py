"""Figure 8: where word statistics differ from those of training, do neural systems fall behind BM25?"""

from experiments.e01_table1 import BATCHES, BM25, BOTH, NEITHER_RANDOM, SURROGATE
from experiments.e01_table1 import runs as table1_runs
from repro.spec import Claim, Experiment, Figure, Row, Run, base, pick, term

DIVERGENCE = {"measure": "divergence", "architecture": "none"}
SCORED = {"measure": "retrieval"}
TRAINED = {"architecture": ("biencoder", "contextual"), **SCORED}
NDCG, APART = "{suite}/*/ndcg_at_10", "{suite}/*/idf_divergence"


def runs(scale: str) -> tuple[Run, ...]:
    """The runs of Table 1, and one that counts words."""
    return (base(scale, **DIVERGENCE), *table1_runs(scale))


FIGURE = Figure(
    name="figure8",
    caption=(
        "NDCG@10 of neural systems less that of BM25, by how far the IDF of the test corpus is from that of the "
        "training corpus: mean difference of the two IDFs over words, weighted by the share of test documents they are "
        "in. A dot is a dataset; the paper's are of BEIR."
    ),
    kind="scatter",
    points=NDCG,
    x="{suite}/{part1}/idf_divergence",
    x_of=pick(**DIVERGENCE),
    y="value",
    minus=pick(**BM25, **SCORED),
    factor=100,
    x_label="IDF divergence of the test corpus (nats)",
    y_label="NDCG@10 less BM25's (points)",
    series=(
        Row(label="biencoder", of=pick(**NEITHER_RANDOM, **SCORED)),
        Row(label="contextual batches", of=pick(**BATCHES, **SCORED)),
        Row(label="both", of=pick(**BOTH, **SCORED)),
        Row(label="surrogate, untrained", of=pick(**SURROGATE, **SCORED)),
    ),
)

CLAIMS = (
    Claim.correlation(
        "F8.a",
        "the further the words of a corpus are from those of training, the worse neural systems are against BM25",
        x=term(APART, **DIVERGENCE),
        y=term(NDCG, **TRAINED),
        minus=term(NDCG, **BM25, **SCORED),
        points="datasets",
        sign=-1,
        source="Figure 8",
        because="any correlation beyond chance, the mean over trained systems; datasets are drawn again",
    ),
)

EXPERIMENT = Experiment(number=14, title="Word statistics and BM25", runs=runs, shows=(FIGURE,), claims=CLAIMS)

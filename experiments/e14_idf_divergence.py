"""Figure 8: do neural systems fall behind BM25 if word statistics differ from those of the training text?"""

from typing import Any

from experiments.e01_table1 import ARCHITECTURE, BATCHES, BM25, BOTH, NEITHER, PLAIN_BATCH, SURROGATE
from experiments.e01_table1 import runs as table1_runs
from experiments.fresh import RESTATED, ROWS, STATED, TABLE1, declare
from repro.spec import Claim, Experiment, Figure, Row, Run, base, by_scale, pick, term

DIVERGENCE = {"measure": "divergence", "architecture": "none"}
SCORED = {"measure": "retrieval"}
ENCODER, ENCODER_SCALES = {"surrogate": "minilm"}, ("desk", "lab")  # all-MiniLM-L6-v2, trained on web text
OWN_SURROGATE = {"surrogate": by_scale({scale: base(scale).surrogate for scale in PLAIN_BATCH})}
TRAINED = {"architecture": "biencoder", **SCORED}
NDCG, DIVERGENCE_METRIC = "{suite}/*/ndcg_at_10", "{suite}/*/idf_divergence"
NDCG_OUT_OF_CORPUS = "{suite}+wrong/*/ndcg_at_10"


def runs(scale: str) -> tuple[Run, ...]:
    """Return the paper's four rows of Table 1, its references, one run that counts words, and a pretrained encoder."""
    rows = [pick(**row) for row in (NEITHER, BATCHES, ARCHITECTURE, BOTH, BM25, SURROGATE)]
    table1_subset = tuple(run for run in table1_runs(scale) if any(row.matches(run) for row in rows))
    encoder = (base(scale, **SURROGATE | ENCODER),) if scale in ENCODER_SCALES else ()
    return tuple(dict.fromkeys((base(scale, **DIVERGENCE), *table1_subset, *encoder)))


FIGURE = Figure(
    name="figure8",
    caption=(
        "NDCG@10 of neural systems less that of BM25, by how far the IDF of the test corpus is from that of the "
        "training corpus: mean difference of the two IDFs over words, weighted by the share of test documents they are "
        "in. A panel is a system, a dot a dataset, the mean over seeds; the line is least squares. r is Pearson's over "
        "the n datasets, its 95 % interval true if datasets are independent. The paper's are of BEIR."
    ),
    kind="scatter",
    title="Distance from the training text, and score relative to BM25",
    is_panelled=True,
    points=NDCG,
    x="{suite}/{part1}/idf_divergence",
    x_of=pick(**DIVERGENCE),
    y="value",
    minus=pick(**BM25, **SCORED),
    factor=100,
    x_label="IDF divergence of the test corpus (nats)",
    y_label="NDCG@10 − BM25 (points)",
    series=(
        Row(label="biencoder", runs=pick(**NEITHER, **SCORED)),
        Row(label="contextual batches", runs=pick(**BATCHES, **SCORED)),
        Row(label="both", runs=pick(**BOTH, **SCORED)),
        Row(label="surrogate", runs=pick(**SURROGATE, **SCORED, **OWN_SURROGATE)),
        Row(label="MiniLM, pretrained", runs=pick(**SURROGATE, **SCORED, **ENCODER), scales=ENCODER_SCALES),
    ),
)

HIGH_CORRELATION = 0.5
BLOCKS_NOTE = "families of datasets count as one each, their datasets being alike"


def claim_falling_behind(id: str, says: str, of: dict[str, Any], **options: Any) -> Claim:
    """Claim that a system loses more against BM25 if its words differ more from those of the training text."""
    return Claim.correlation(
        id,
        says,
        x=term(DIVERGENCE_METRIC, **DIVERGENCE),
        y=term(NDCG, **of),
        minus=term(NDCG, **BM25, **SCORED),
        points="datasets",
        blocks="family",
        sign=-1,
        margin=HIGH_CORRELATION,
        source="Figure 8 and §9.2",
        because=f"'very high' correlation is read as r beyond {HIGH_CORRELATION}; {BLOCKS_NOTE}",
        **options,
    )


CLAIMS = (
    claim_falling_behind(
        "F8.a",
        "the further the words of a corpus are from those of training, the worse neural systems are against BM25",
        TRAINED,
        **RESTATED | ROWS | {"version": 3},
    ),
    claim_falling_behind(
        "F8.b",
        "MiniLM, an encoder off the shelf, is worse against BM25 the further words are from those of (our) training",
        SURROGATE | SCORED | ENCODER,
        scales=ENCODER_SCALES,
        **STATED,
    ),
    Claim.correlation(
        "own.d",
        "the right corpus as context is worth more over a wrong one the further its words are from those of training",
        x=term(DIVERGENCE_METRIC, **DIVERGENCE),
        y=term(NDCG, **ARCHITECTURE, **SCORED),
        minus=term(NDCG_OUT_OF_CORPUS, **ARCHITECTURE, **SCORED),
        points="datasets",
        blocks="family",
        sign=1,
        source="our reading of §9.2: this gap is what context is to close",
        because=f"any correlation beyond chance; a model blind to its context has none; {BLOCKS_NOTE}",
        version=2,
        stated="2026-11-23",
        **declare((0, *TABLE1), range(1, 7)),
    ),
)

EXPERIMENT = Experiment(number=14, title="Word statistics and BM25", runs=runs, artefacts=(FIGURE,), claims=CLAIMS)

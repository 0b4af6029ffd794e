"""Table 3: nearest documents of a training document under the surrogate, and the share of possible positives."""

from experiments import fresh
from repro.spec import Claim, Column, Exhibit, Experiment, Row, Run, Table, base, pick, term

ANALYSIS = {"measure": "neighbours", "architecture": "none"}
SEEDS = (0, 1, 2)
SAMPLES = ("nearest", "domain", "anywhere")
LABELS = ("11 nearest documents", "11 of its own domain", "11 from anywhere")


def runs(scale: str) -> tuple[Run, ...]:
    """Return three draws of documents, eight at desk."""
    seeds = SEEDS + (fresh.NEIGHBOURS if scale == "desk" else ())
    return tuple(base(scale, **ANALYSIS, seed=seed) for seed in seeds)


TEXTS = Exhibit(
    name="table3",
    caption=(
        "A training document and its nearest other documents under the surrogate. A neighbour may be a positive of the"
        " query if the surrogate ranks it at or above the query's own document (eq. 4)."
    ),
    columns=("query", "document", "domain", "similarity", "may be a positive"),
    runs=pick(**ANALYSIS, seed=0),
    rows="neighbours",
)

SHARES = Table(
    name="table3_shares",
    title="How many of a document's neighbours may be positives",
    caption=(
        "Neighbours of 1000 training documents: percentage that eq. 4 would exclude as false negatives of their query, "
        "percentage of the same domain and of the same source, and mean similarity. The last column is the percentage "
        "of documents with at least one excluded neighbour."
    ),
    columns=(
        Column(label="may be positives %", value="{part}/plausible", factor=100),
        Column(label="same domain %", value="{part}/same_domain", factor=100),
        Column(label="same source %", value="{part}/same_source", factor=100),
        Column(label="similarity", value="{part}/similarity", decimals=2),
        Column(label="have one %", value="{part}/any_plausible", factor=100),
    ),
    rows=tuple(Row(label=label, part=kind, runs=pick(**ANALYSIS)) for label, kind in zip(LABELS, SAMPLES, strict=True)),
)

CLAIMS = (
    Claim.order(
        "T3.a",
        "many of the nearest documents could also answer the query: more than twice as many as in its domain",
        pairs=[(term("log2 nearest/plausible", **ANALYSIS), term("log2 domain/plausible", **ANALYSIS))],
        margin=1.0,
        source="Table 3 and §9.2",
        because="'many' is read as twice the share among other documents of the same domain",
        **fresh.RESTATED | fresh.declare(fresh.NEIGHBOURS, fresh.FIRST),
    ),
    Claim.order(
        "T3.b",
        "the nearest documents of a large corpus are very close: closer than documents of the same domain",
        pairs=[(term("nearest/similarity", **ANALYSIS), term("domain/similarity", **ANALYSIS))],
        source="§9.2",
        because="any difference beyond chance; the paper gives no distance",
        **fresh.STATED | fresh.declare(fresh.NEIGHBOURS, fresh.FIRST),
    ),
)

EXPERIMENT = Experiment(
    number=12,
    title="Nearest neighbours of a document",
    runs=runs,
    artefacts=(TEXTS, SHARES),
    claims=CLAIMS,
    local_seeds=SEEDS,
)

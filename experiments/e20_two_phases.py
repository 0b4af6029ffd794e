"""Table 7: retrieval by dataset, after each of two phases, for a plain and a contextual system."""

from experiments.e01_table1 import BOTH, CLUSTER, CONTEXTUAL_BATCH, NEITHER_DOMAIN, PLAIN_BATCH
from experiments.e01_table1 import runs as table1_runs
from experiments.e05_epochs import PRETRAINING
from experiments.e06_hard_negatives import CORPUS, LENGTH
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, grid, pick, term

SEEDS = (0, 1, 2)
NUM_HARD_NEGATIVES = {"smoke": 1, "desk": 1, "lab": 3, "small": 7, "large": 7}
SYSTEMS = (NEITHER_DOMAIN, BOTH)


def runs(scale: str) -> tuple[Run, ...]:
    """The first phases are runs of Table 1; each second phase goes on from its own."""
    sizes = (
        {"batch_size": PLAIN_BATCH[scale]},
        {"batch_size": CONTEXTUAL_BATCH[scale], "cluster_size": CLUSTER[scale]},
    )
    phase = PRETRAINING[scale] | LENGTH[scale] | {"corpus": CORPUS[scale], "test_contexts": "own"}
    phase |= {"num_hard_negatives": NUM_HARD_NEGATIVES[scale]}
    second = tuple(
        run
        for system, size in zip(SYSTEMS, sizes, strict=True)
        for run in grid(base(scale, **{**system, **size, **phase}), seed=SEEDS)
    )
    first = tuple(run for run in table1_runs(scale) if any(pick(**system).matches(run) for system in SYSTEMS))
    return first + second


DATASETS = (
    *("Arg", "CQA", "CFEVER", "DBP", "FEVER", "FiQA", "HPQA", "MSMRC"),
    *("NFC", "NQ", "QUORA", "SCID", "SCIF", "TREC", "TOUCHE"),
)
NAMES = (
    *("arguana", "cqadupstack", "climate-fever", "dbpedia-entity", "fever", "fiqa", "hotpotqa", "msmarco"),
    *("nfcorpus", "nq", "quora", "scidocs", "scifact", "trec-covid", "webis-touche2020"),
)
PRINTED = {
    "unsupervised, plain": (
        (54.8, 41.4, 24.7, 40.2, 74.4, 39.9, 63.8, 35.0, 35.7, 48.6, 88.2, 20.2, 72.0, 62.2, 19.2),
        48.0,
    ),
    "unsupervised, contextual": (
        (54.9, 43.1, 24.4, 40.7, 79.6, 42.1, 68.8, 38.9, 36.5, 57.8, 88.9, 21.1, 72.8, 77.1, 21.9),
        51.2,
    ),
    "supervised, plain": (
        (49.3, 40.5, 38.3, 45.0, 85.0, 38.4, 73.6, 43.1, 35.0, 59.4, 87.7, 18.3, 70.5, 79.9, 28.2),
        52.8,
    ),
    "supervised, contextual": (
        (53.8, 41.2, 38.8, 43.3, 89.2, 40.1, 73.9, 42.2, 35.9, 61.6, 87.1, 20.1, 72.7, 82.6, 27.8),
        54.0,
    ),
}
OURS, PAPERS = ("smoke", "desk", "lab"), ("small", "large")
FAMILIES = ("services", "packages", "collections", "cloud", "medical")
PHASES = {
    "unsupervised": None,
    "supervised": tuple(sorted({str(e["pretraining_corpus"]) for e in PRETRAINING.values()})),
}
PLAIN, CONTEXTUAL = SYSTEMS


def printed(label: str) -> dict[str, float]:
    """What the paper prints in one row."""
    scores, mean = PRINTED[label]
    return {**dict(zip(DATASETS, scores, strict=True)), "mean": mean}


TABLE = Table(
    name="table7",
    caption=(
        "Retrieval after each phase, NDCG@10. The paper's 15 datasets of MTEB; at desk and lab the mined families, the "
        "second phase with mined hard negatives."
    ),
    columns=(
        *(
            Column(label=label, value=f"{{suite}}/{name}/ndcg_at_10", factor=100, scales=PAPERS)
            for label, name in zip(DATASETS, NAMES, strict=True)
        ),
        *(
            Column(label=family, value=f"{{suite}}/{family}/ndcg_at_10", factor=100, scales=("desk", "lab"))
            for family in FAMILIES
        ),
        Column(label="mean", value="{suite}/mean/ndcg_at_10", factor=100),
    ),
    rows=tuple(
        Row(label=f"{phase}, {kind}", of=pick(**system, pretraining_corpus=of), paper=printed(f"{phase}, {kind}"))
        for phase, of in PHASES.items()
        for kind, system in (("plain", PLAIN), ("contextual", CONTEXTUAL))
    ),
)


def means_follow() -> tuple[bool, str]:
    """Says whether each printed mean is the mean of its printed row."""
    found = {label: sum(scores) / len(scores) for label, (scores, _) in PRINTED.items()}
    worst = max(abs(found[label] - mean) for label, (_, mean) in PRINTED.items())
    return worst <= 0.05 + 1e-9, f"largest difference {worst:.3f}, rounding allows 0.05"


def gain(metric: str, of: object) -> tuple[Term, Term]:
    """Claims that the contextual system is above the plain one after a phase."""
    return term(metric, **CONTEXTUAL, pretraining_corpus=of), term(metric, **PLAIN, pretraining_corpus=of)


MEAN = "{suite}/mean/ndcg_at_10"
CLAIMS = (
    Claim.order(
        "T7.a",
        "the contextual system beats the plain one in both phases",
        pairs=[gain(MEAN, of) for of in PHASES.values()],
        source="Table 7",
        because="any difference beyond chance",
    ),
    Claim.order(
        "T7.b",
        "the gain is more than ten points on ArguAna and TREC-COVID, where the paper's are largest",
        pairs=[gain(f"{{suite}}/{name}/ndcg_at_10", None) for name in ("arguana", "trec-covid")],
        source="Table 7",
        because="beyond chance; these datasets are in the paper's suites only",
    ),
    Claim.identity(
        "T7.c",
        "the printed means follow from the printed rows",
        holds=means_follow,
        source="Table 7",
        because="printed to 0.1",
    ),
)

EXPERIMENT = Experiment(number=20, title="Two phases", runs=runs, shows=(TABLE,), claims=CLAIMS)

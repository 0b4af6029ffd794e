"""Figures 10 and 11: supervised training with mined hard negatives, by their number and by cluster size."""

from typing import Any

from experiments.e01_table1 import BATCHES, CLUSTER, CONTEXTUAL_BATCH
from experiments.e05_epochs import PRETRAINING
from repro.spec import Claim, Experiment, Figure, Row, Run, base, grid, pick, term

CORPUS = {
    "smoke": "planted-tiny",
    "desk": "desk",
    "lab": "lab",
    "small": "nomic-supervised",
    "large": "nomic-supervised",
}
NUMBERS: dict[str, tuple[int, ...]] = {"smoke": (0, 1, 3)}
NUMBERS |= dict.fromkeys(("desk", "lab", "small", "large"), (0, 1, 3, 7, 15))
CLUSTERS: dict[str, tuple[int, ...]] = {"smoke": (8, 16, 40), "desk": (64, 512, 4096), "lab": (64, 512, 4096)}
CLUSTERS |= dict.fromkeys(("small", "large"), (64, 512, 4096, 65536))
LENGTH: dict[str, dict[str, Any]] = {
    "smoke": {"num_steps": 6, "num_warmup_steps": 1},
    "desk": {"num_steps": 30, "num_warmup_steps": 3},
    "lab": {"num_steps": 1000, "num_warmup_steps": 50},
    "small": {"num_steps": None, "num_epochs": 3},
    "large": {"num_steps": None, "num_epochs": 3},
}
SEEDS = (0, 1, 2)


def supervised(scale: str) -> Run:
    """The second phase of a biencoder on contextual batches, whose first phase Table 1 trains as well."""
    sizes = {"batch_size": CONTEXTUAL_BATCH[scale], "cluster_size": CLUSTER[scale]}
    return base(scale, **{**BATCHES, **sizes, **PRETRAINING[scale], **LENGTH[scale], "corpus": CORPUS[scale]})


def runs(scale: str) -> tuple[Run, ...]:
    """A second phase for each number of hard negatives; and, from scratch with one of them, for each cluster size."""
    by_number = grid(supervised(scale), num_hard_negatives=NUMBERS[scale], seed=SEEDS)
    one_phase: dict[str, Any] = {"pretraining_corpus": None, "num_pretraining_steps": None, "num_hard_negatives": 1}
    one_phase |= {"learning_rate": base(scale).learning_rate, "domain_column": "source"}
    by_cluster = grid(supervised(scale), **one_phase, cluster_size=CLUSTERS[scale], seed=SEEDS)
    return by_number + by_cluster


NDCG = "{suite}/mean/ndcg_at_10"
PHASE_TWO = {"pretraining_corpus": tuple(sorted({str(each["pretraining_corpus"]) for each in PRETRAINING.values()}))}
ONE_PHASE = {"pretraining_corpus": None, "num_hard_negatives": 1}
POINTS: dict[str, Any] = {"y": NDCG, "y_label": "NDCG@10 (points)", "factor": 100}
FIGURES = (
    Figure(
        name="figure10",
        caption=(
            "Supervised: NDCG@10 against batch difficulty under the surrogate, with one hard negative a pair; a dot is "
            "a cluster size and a seed."
        ),
        kind="scatter",
        x="train/difficulty",
        x_label="batch difficulty (mean cosine under the surrogate)",
        series=(Row(label="biencoder", of=pick(**ONE_PHASE)),),
        **POINTS,
    ),
    Figure(
        name="figure11",
        caption="Supervised, after one pre-training: NDCG@10 by the number of mined hard negatives of each pair.",
        kind="lines",
        x="num_hard_negatives",
        x_label="hard negatives a pair",
        series=(Row(label="biencoder", of=pick(**PHASE_TWO)),),
        **POINTS,
    ),
)
CLAIMS = (
    Claim.correlation(
        "F10.a",
        "in supervised training, too, harder batches go with higher scores",
        x=term("train/difficulty", **ONE_PHASE),
        y=term(NDCG, **ONE_PHASE),
        points="runs",
        sign=1,
        source="Figure 10",
        because="Pearson's r beyond chance",
    ),
    Claim.trend(
        "F11.a",
        "the more hard negatives, the lower the score",
        over=term(NDCG, **PHASE_TWO),
        axis="num_hard_negatives",
        sign=-1,
        source="Figure 11",
        because="rank correlation beyond chance",
    ),
)

EXPERIMENT = Experiment(number=6, title="Hard negatives", runs=runs, shows=FIGURES, claims=CLAIMS)

"""Figures 10 and 11: supervised training with mined hard negatives, by their number and by cluster size."""

from typing import Any

from experiments import fresh
from experiments.e01_table1 import BATCHES, CLUSTER, CONTEXTUAL_BATCH, get_contextual_sizes, seeds_at
from experiments.e04_batch_by_cluster import BATCH_SIZES, PAPER_CLUSTER_SIZES
from experiments.e05_epochs import PRETRAINING
from experiments.shared import HALF_A_POINT, NDCG, PAPERS, SCORE, by_group, get_budget, get_size_at
from repro.spec import Claim, Experiment, Figure, Row, Run, base, by_scale, grid, pick, term

CORPUS = by_group("planted-tiny", "desk", "nomic-supervised")
NUMBERS = by_group((0, 1, 3), (0, 1, 3, 7, 15), (0, 1, 3, 7, 15))
# The paper's supervised data are 1.8 M pairs (§5). None of its sources exceeds half a million.
PAPER_SIZES = tuple(size for size in PAPER_CLUSTER_SIZES if size <= 262_144)
CLUSTER_SIZES = by_group((8, 16, 40), (64, 128, 256, 512, 1024, 4096), PAPER_SIZES)
LENGTH: dict[str, dict[str, Any]] = {"smoke": get_budget(6), "desk": get_budget(30), "lab": get_budget(240)}
LENGTH |= {scale: {} for scale in PAPERS}  # three epochs and the usual warm-up (§5)


def make_second_phase(scale: str) -> Run:
    """Return the second phase of a biencoder on contextual batches. Table 1 trains its first phase as well."""
    phase: dict[str, Any] = BATCHES | get_contextual_sizes(scale) | PRETRAINING[scale] | LENGTH[scale]
    return base(scale, **phase | {"corpus": CORPUS[scale]})


def by_cluster(scale: str) -> tuple[Run, ...]:
    """Return runs with one hard negative per pair for each cluster size, and each batch size at the paper's scales.

    For each seed, all of them start from Table 1's first phase, whatever the clusters of the second.
    """
    axes: dict[str, Any] = {"num_hard_negatives": 1, "domain_column": "source", "cluster_size": CLUSTER_SIZES[scale]}
    axes |= {"pretraining_cluster_size": CLUSTER[scale]}
    if scale in PAPERS:
        axes |= {"batch_size": BATCH_SIZES[scale], "pretraining_batch_size": CONTEXTUAL_BATCH[scale]}
    return grid(make_second_phase(scale), **axes, seed=fresh.BY_CLUSTER if scale == "desk" else seeds_at(scale))


def by_number(scale: str) -> tuple[Run, ...]:
    """Return a second phase for each number of hard negatives, ranked below the pair's own document or unrestricted."""
    seeds = seeds_at(scale, fresh.SUPERVISED)
    any_seeds = fresh.SUPERVISED if scale == "desk" else seeds
    # zero negatives are the same in both series
    nonzero_numbers = NUMBERS[scale][1:]
    ranked_below = grid(make_second_phase(scale), num_hard_negatives=NUMBERS[scale], seed=seeds)
    return ranked_below + grid(
        make_second_phase(scale), mined_negatives="any", num_hard_negatives=nonzero_numbers, seed=any_seeds
    )


def runs(scale: str) -> tuple[Run, ...]:
    """Return the training runs of both figures."""
    return by_number(scale) + by_cluster(scale)


PHASE_TWO = {
    "pretraining_corpus": tuple(sorted({str(each["pretraining_corpus"]) for each in PRETRAINING.values()})),
    "cluster_size": by_scale(CLUSTER),
    "batch_size": by_scale(CONTEXTUAL_BATCH),
    "pretraining_cluster_size": None,
}
BELOW, ANY = PHASE_TWO | {"mined_negatives": "below"}, PHASE_TWO | {"mined_negatives": "any"}
ONE_NEGATIVE = {
    "pretraining_cluster_size": by_scale(CLUSTER),
    "num_hard_negatives": 1,
    "mined_negatives": "below",
    "domain_column": "source",
}
EASIEST, HARDEST = ({"cluster_size": get_size_at(CLUSTER_SIZES, index)} for index in (-1, 0))
FIGURES = (
    Figure(
        name="figure10",
        title="Supervised training: score against batch difficulty",
        caption=(
            "NDCG@10 of biencoders after supervised training with one hard negative per pair, against the difficulty "
            "of their batches under the surrogate. A faint dot is one training run, a bold dot the mean over the seeds"
            " of one cluster size. With five or more cluster sizes, the line is a least-squares fit to these means and"
            " r is Pearson's correlation. With fewer, the means are only joined. Each seed has one first phase that "
            "all its runs share. Seeds examined before F10.a was stated are drawn, but do not judge it."
        ),
        kind="scatter",
        x="train/difficulty",
        x_label="batch difficulty (mean cosine under the surrogate)",
        hue="batch_size",
        series=(Row(label="biencoder", runs=pick(**ONE_NEGATIVE)),),
        **SCORE,
    ),
    Figure(
        name="figure11",
        title="Supervised training: score by number of hard negatives",
        caption=(
            "NDCG@10 after supervised training by the number of mined hard negatives per pair, after one pre-training "
            "run per seed. 'any' also mines negatives that the surrogate ranks above the positive document, from one "
            "negative on. Marks are mean changes from the first mark of the line over n seeds, bands are 95 % "
            "intervals of the mean."
        ),
        kind="lines",
        x="num_hard_negatives",
        x_label="hard negatives per pair",
        is_paired=True,
        series=(Row(label="below the positive document", runs=pick(**BELOW)), Row(label="any", runs=pick(**ANY))),
        **SCORE | {"y_label": "change in NDCG@10 (points)"},
    ),
)


def claim_fall_with_number(id: str, statement: str, of: dict[str, Any], **options: Any) -> Claim:
    """Claim that the score decreases with the number of hard negatives."""
    return Claim.trend(
        id,
        statement,
        over=term(NDCG, **of),
        axis="num_hard_negatives",
        sign=-1,
        source="Figure 11 and §9.5",
        because="a slope beyond chance; effects within δ are small",
        **options,
    )


LATER = fresh.declare(fresh.SUPERVISED)
CLAIMS = (
    Claim.correlation(
        "F10.a",
        "in supervised training, too, harder batches go with higher scores at equal batch size",
        x=term("train/difficulty", **ONE_NEGATIVE),
        y=term(NDCG, **ONE_NEGATIVE),
        points="runs",
        within="batch_size",
        sign=1,
        source="Figure 10 and §9.5",
        because="Pearson's r over cluster sizes beyond chance; at our scales one batch size; of difficulty under the "
        "surrogate, since the paper says of figure 2 alone what it is: the loss",
        **fresh.RESTATED | LATER,
    ),
    Claim.order(
        "F10.b",
        "the smallest clusters, which are the most difficult, give the best scores",
        pairs=[(term(NDCG, **ONE_NEGATIVE, **HARDEST), term(NDCG, **ONE_NEGATIVE, **EASIEST))],
        source="§9.5",
        because="the smallest beat the largest beyond chance; effects within half a point are small",
        delta=HALF_A_POINT,
        **fresh.RESTATED | LATER,
    ),
    claim_fall_with_number(
        "F11.a",
        "the score falls with the number of hard negatives that rank below the positive document",
        BELOW,
        delta=fresh.TENTH_OF_POINT_PER_DOUBLING,
        version=4,
        **fresh.STATED | LATER,
    ),
    claim_fall_with_number(
        "F11.b",
        "the score falls with the number of hard negatives, from one on, at any rank under the surrogate",
        ANY,
        scales=("desk", "lab", "small", "large"),
        version=2,
        **fresh.ADDED_DELTA | LATER,
    ),
)

EXPERIMENT = Experiment(title="Hard negatives", runs=runs, artefacts=FIGURES, claims=CLAIMS)

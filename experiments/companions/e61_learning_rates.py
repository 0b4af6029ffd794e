"""GTE table 3: the learning rate by model size. Also the rate of fine-tuning, alone and after pre-training."""

from typing import Any

from experiments.companions.e33_improved_loss import make_first_phase
from experiments.companions.e36_stages import BOTH_PHASES, FINE_TUNED, PRETRAINED, make_fine_tuning
from experiments.companions.e39_model_size import SIZES, get_width_at
from experiments.fresh import RATES as SEEDS
from experiments.shared import A_POINT_IS_SMALL, MEAN_OF_SEEDS, NDCG, SCORE_LINES, by_group, get_size_at
from repro.spec import Claim, Experiment, Figure, Row, Run, Term, grid, pick, term

RATES = by_group((2.5e-3, 1e-2), (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3), (5e-5, 2e-4, 3e-4))
"""At the paper's scales the rates of table 3. At ours around 2e-3, the rate of the other experiments."""
TUNING_RATES = by_group((5e-4, 5e-3), (1e-4, 4e-4, 2e-3, 8e-3), (2e-5, 2e-4))
"""The lowest is the rate of our second phases. The paper divides the rate of pre-training by ten (§3.4)."""


def runs(scale: str) -> tuple[Run, ...]:
    """Return the first phase by size and learning rate, and fine-tuning of the largest model by learning rate."""
    all_runs: tuple[Run, ...] = ()
    for size in SIZES[scale]:
        all_runs += grid(make_first_phase(scale), **size | {"learning_rate": RATES[scale]}, seed=SEEDS)
    for phase in make_fine_tuning(scale):
        all_runs += grid(phase, learning_rate=TUNING_RATES[scale], seed=SEEDS)
    return all_runs


def at(size: int, rate: int) -> Term:
    """Return NDCG@10 after pre-training. Sizes and rates are counted from the smallest, or from the largest if < 0."""
    return term(NDCG, **PRETRAINED, hidden_size=get_width_at(size), learning_rate=get_size_at(RATES, rate))


BY_SIZE = Figure(
    name="gte_table3",
    title="The best learning rate by model size",
    caption=(
        "NDCG@10 after pre-training by learning rate, one line per width of the model. The paper's table 3 gives 3e-4, "
        f"2e-4 and 5e-5 for models of 30, 110 and 330 M parameters. {MEAN_OF_SEEDS}"
    ),
    x="learning_rate",
    x_label="learning rate",
    hue="hidden_size",
    hue_label="dimensions",
    series=(Row(label="width", runs=pick(**PRETRAINED)),),
    **SCORE_LINES,
)
TUNING = Figure(
    name="gte_table3_tuning",
    title="The learning rate of fine-tuning",
    caption=(
        "NDCG@10 after fine-tuning with one hard negative, alone and after pre-training, by the learning rate of "
        f"fine-tuning. {MEAN_OF_SEEDS}"
    ),
    x="learning_rate",
    x_label="learning rate of fine-tuning",
    series=(
        Row(label="after pre-training", runs=pick(**BOTH_PHASES)),
        Row(label="fine-tuning alone", runs=pick(**FINE_TUNED)),
    ),
    **SCORE_LINES,
)

COMMON: dict[str, Any] = {"seeds": SEEDS, "stated": "2026-11-27"}


def tuned(row: dict[str, Any], index: int) -> Term:
    """Return NDCG@10 of fine-tuning at a rate, counted from the smallest, or from the largest if below 0."""
    return term(NDCG, **row, learning_rate=get_size_at(TUNING_RATES, index))


CLAIMS = (
    Claim.interaction(
        "G3.a",
        "larger models need lower learning rates: from the highest rate to the lowest, the largest model gains more "
        "(or loses less) than the smallest",
        of=(at(-1, 0), at(-1, -1)),
        above=(at(0, 0), at(0, -1)),
        source="§3.4 and Table 3",
        **COMMON,
    ),
    Claim.order(
        "G3.b",
        "after pre-training, fine-tuning at the lowest rate beats fine-tuning at the highest",
        pairs=[(tuned(BOTH_PHASES, 0), tuned(BOTH_PHASES, -1))],
        source="§3.4: the rate is decreased by a factor of ten",
        **A_POINT_IS_SMALL | COMMON,
    ),
    Claim.order(
        "G3.c",
        "fine-tuning after pre-training at the lowest rate beats fine-tuning alone at every rate",
        pairs=[(tuned(BOTH_PHASES, 0), tuned(FINE_TUNED, index)) for index in (0, 1, -2, -1)],
        source="§5.3 and Table 9, whatever the rate",
        **A_POINT_IS_SMALL | COMMON,
    ),
)

EXPERIMENT = Experiment(title="Learning rates", runs=runs, artefacts=(BY_SIZE, TUNING), claims=CLAIMS, paper="GTE")

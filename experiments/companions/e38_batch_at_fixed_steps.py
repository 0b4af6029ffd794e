"""GTE figure 3b: the batch size at a fixed number of steps. Figure 13 shows it at a fixed number of pairs."""

from typing import Any

from experiments import fresh
from experiments.companions.e33_improved_loss import IMPROVED, SEEDS, STEPS
from experiments.shared import MEAN_OF_SEEDS, NDCG, SCORE_LINES, by_group, get_size_at
from repro.spec import Claim, Experiment, Figure, Row, Run, Term, base, grid, pick, term

BATCH_SIZES = by_group((4, 8, 16), (16, 32, 64, 128), (2048, 4096, 8192, 16384, 32768))
PAPER_STEPS = {"num_steps": 50_000, "num_epochs": None, "num_warmup_steps": 2_500}  # GTE §3.4
BUDGET: dict[str, dict[str, Any]] = {scale: {"num_steps": steps} for scale, steps in STEPS.items()}
BUDGET |= dict.fromkeys(("small", "large"), PAPER_STEPS)


def runs(scale: str) -> tuple[Run, ...]:
    """Return GTE's first phase at each batch size. At our scales, the largest is table 11's."""
    base_run = base(scale, **IMPROVED, **BUDGET.get(scale, {}))
    return grid(base_run, batch_size=BATCH_SIZES[scale], seed=(*SEEDS, *(fresh.DOUBLED if scale == "desk" else ())))


def at(index: int) -> Term:
    """Return NDCG@10 at a batch size, counted from the smallest, or from the largest if negative."""
    return term(NDCG, **IMPROVED, batch_size=get_size_at(BATCH_SIZES, index))


FIGURE = Figure(
    name="gte_figure3b",
    title="Score by batch size at a fixed number of steps",
    caption=(
        "NDCG@10 after pre-training with the improved loss, by batch size at a fixed number of steps. Larger batches "
        f"see more pairs. {MEAN_OF_SEEDS} The paper prints MTEB scores."
    ),
    x="batch_size",
    x_label="batch size (pairs)",
    series=(Row(label="pre-training", runs=pick(**IMPROVED)),),
    **SCORE_LINES,
)

COMMON = {"source": "§5.1 and Figure 3b"} | fresh.STATED | fresh.declare((*fresh.FIRST, *fresh.DOUBLED), fresh.FIRST)
CLAIMS = (
    Claim.trend(
        "GF3.b",
        "larger batches are better at a fixed number of steps",
        over=term(NDCG, **IMPROVED),
        axis="batch_size",
        sign=1,
        because="any slope beyond chance",
        **COMMON,
    ),
    Claim.interaction(
        "GF3.c",
        "gains of larger batches saturate: doubling the smallest gains more than doubling half the largest",
        of=(at(1), at(0)),
        above=(at(-1), at(-2)),
        because="any difference beyond chance; the paper sees no gain above ten thousand, which desk does not reach",
        **COMMON,
    ),
)

EXPERIMENT = Experiment(title="Batch size at fixed steps", runs=runs, artefacts=(FIGURE,), claims=CLAIMS, paper="GTE")

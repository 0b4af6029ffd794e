"""GTE figures 3c and 4: models of three sizes on the same batches, their scores, and their losses along the steps.

Figure 3c also shows them after fine-tuning.
"""

from typing import Any

from experiments.companions.e33_improved_loss import SEEDS, make_first_phase
from experiments.companions.e36_stages import BOTH_PHASES, PRETRAINED, make_fine_tuning
from experiments.fresh import COMPANION, MINED_TWICE
from experiments.shared import MEAN_OF_SEEDS, NDCG, SCORE_LINES, by_group
from repro.spec import ByScale, Claim, Experiment, Figure, Row, Run, Term, by_scale, grid, pick, term

Size = dict[str, Any]


def checkpoint(start: str, num_layers: int, hidden_size: int, learning_rate: float) -> Size:
    """Return one of GTE's three models (Table 3)."""
    sizes = {"num_layers": num_layers, "hidden_size": hidden_size}
    return {"start": start, "backbone": "bert", "learning_rate": learning_rate, **sizes}


def from_words(*sizes: tuple[int, int]) -> tuple[Size, ...]:
    """Return models with these numbers of layers and dimensions, initialised from word vectors."""
    return tuple({"start": "words", "num_layers": layers, "hidden_size": width} for layers, width in sizes)


GTE = (
    checkpoint("microsoft/MiniLM-L12-H384-uncased", 12, 384, 3e-4),
    checkpoint("bert-base-uncased", 12, 768, 2e-4),
    checkpoint("bert-large-uncased", 24, 1024, 5e-5),
)
SIZES = by_group(({"hidden_size": 16}, {"hidden_size": 32}), from_words((1, 32), (1, 64), (2, 128)), GTE)
"""At desk and lab 1.0, 2.0 and 4.3 million weights, most of them word vectors."""
CURVES = PRETRAINED | {"measure": "curve"}


def runs(scale: str) -> tuple[Run, ...]:
    """Return both of GTE's phases by model size. At our scales, the largest model is table 11's.

    Curves share the training runs. The first phase of a fine-tuned model has the learning rate of its scale.
    """
    measures = tuple(row["measure"] for row in (PRETRAINED, CURVES))
    second_phase, _ = make_fine_tuning(scale)
    all_runs: tuple[Run, ...] = ()
    for size in SIZES[scale]:
        all_runs += grid(make_first_phase(scale), **size, measure=measures, seed=SEEDS)
        # fine-tuning has a learning rate of its own
        all_runs += grid(second_phase, **size | {"learning_rate": second_phase.learning_rate}, seed=SEEDS)
    return all_runs


def get_width_at(index: int) -> ByScale:
    """Return the width of the models of one size, counted from the smallest, or from the largest if negative."""
    return by_scale({scale: sizes[index]["hidden_size"] for scale, sizes in SIZES.items()})


def at(index: int, metric: str) -> Term:
    """Return a metric of the models of one size, counted as in `get_width_at`."""
    return term(metric, **PRETRAINED, hidden_size=get_width_at(index))


FIGURE_3C = Figure(
    name="gte_figure3c",
    title="Score by model size",
    caption=(
        "NDCG@10 after pre-training and after fine-tuning, by the width of the model. At desk, each model has twice "
        f"the weights of the one before. {MEAN_OF_SEEDS} The paper has models of 30, 110 and 330 M parameters and "
        "MTEB scores."
    ),
    x="hidden_size",
    x_label="dimensions of the model",
    series=(
        Row(label="pre-training", runs=pick(**PRETRAINED)),
        Row(label="pre-training and fine-tuning", runs=pick(**BOTH_PHASES)),
    ),
    **SCORE_LINES,
)
FIGURE_4 = Figure(
    name="gte_figure4",
    title="Training loss by model size",
    caption=(
        "Training loss by step for each width of the model, averaged over equal intervals of steps. All models see the"
        " same batches in the same order. Lines are means over n seeds, bands are 95 % intervals of the mean. The axis"
        " of the loss is logarithmic."
    ),
    kind="lines",
    points="curve/*/loss",
    x="part1",
    y="value",
    hue="hidden_size",
    hue_label="dimensions",
    x_label="training steps",
    y_label="training loss (nats)",
    y_is_log=True,
    series=(Row(label="width", runs=pick(**CURVES)),),
)

CLAIMS = (
    Claim.trend(
        "GF3.d",
        "larger models are better, with each doubling",
        over=term(NDCG, **PRETRAINED),
        axis="hidden_size",
        sign=1,
        source="§5.1 and Figure 3c",
        because="any slope beyond chance; the paper says linear in the logarithm of the weights",
        **COMPANION,
    ),
    Claim.trend(
        "GF3.e",
        "larger models are better after fine-tuning too, with each doubling",
        over=term(NDCG, **BOTH_PHASES),
        axis="hidden_size",
        sign=1,
        source="§5.1 and Figure 3c",
        because="any slope beyond chance; the paper says linear in the logarithm of the weights",
        **COMPANION | {"stated": "2026-11-27", "caveat": MINED_TWICE},
    ),
    Claim.order(
        "GF4.a",
        "larger models have a lower training loss",
        pairs=[(at(0, "train/loss"), at(-2, "train/loss")), (at(-2, "train/loss"), at(-1, "train/loss"))],
        source="§5.2 and Figure 4",
        **COMPANION,
    ),
)

EXPERIMENT = Experiment(title="Model size", runs=runs, artefacts=(FIGURE_3C, FIGURE_4), claims=CLAIMS, paper="GTE")

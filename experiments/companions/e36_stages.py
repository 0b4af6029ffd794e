"""GTE tables 8 and 9: pre-training alone, fine-tuning alone, and both. Also scores along one pre-training."""

from experiments.companions.e33_improved_loss import BEFORE, IMPROVED, SEEDS, make_first_phase, make_second_phase
from experiments.e01_table1 import FAMILY_COLUMNS, PLAIN_BATCH
from experiments.fresh import COMPANION
from experiments.shared import A_POINT_IS_SMALL, NDCG, NDCG_COLUMN, ndcg
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, grid, pick, term

STAGES = {"PT": 59.0, "FT": 57.8, "Full": 62.4}
"""Table 9: MTEB after pre-training, after fine-tuning, and after both."""
STEP_SCORES = {10: 56.4, 20: 59.0, 30: 57.8, 40: 57.7, 50: 59.0}
"""Table 8: MTEB by thousands of steps."""
FIFTHS = tuple(f"fifth{part}" for part in range(1, 6))

PRETRAINED = {**IMPROVED, "num_hard_negatives": 0, "pretraining_corpus": None, "measure": "retrieval"}
ALONG_STEPS = PRETRAINED | {"measure": "steps"}
BOTH_PHASES = {**IMPROVED, "pretraining_corpus": BEFORE["fine-tuned"]}
FINE_TUNED = {**IMPROVED, "num_hard_negatives": 1, "pretraining_corpus": None}


def runs(scale: str) -> tuple[Run, ...]:
    """Return table 11's phases with the improved loss, the first scored along its steps, and the second phase alone."""
    first = grid(make_first_phase(scale), measure=("retrieval", "steps"), seed=SEEDS)
    return (*first, *(run for phase in make_fine_tuning(scale) for run in grid(phase, seed=SEEDS)))


def make_fine_tuning(scale: str) -> tuple[Run, Run]:
    """Return fine-tuning after pre-training, and alone.

    Alone, it uses the scale's own learning rate. The rate of a second phase would barely move it from its start.
    """
    second_phase = make_second_phase(scale)
    alone = {
        name: value for name, value in second_phase.items() if "pretraining" not in name and name != "learning_rate"
    }
    batch = {"batch_size": PLAIN_BATCH[scale]}
    after, by_itself = (base(scale, **IMPROVED, **batch | phase) for phase in (second_phase, alone))
    return after, by_itself


TABLE_9 = Table(
    name="gte_table9",
    caption=(
        "The improved loss in pre-training alone, in fine-tuning alone and in both. The paper prints the mean over "
        "MTEB, ours is NDCG@10. Fine-tuning uses the same mined text with one hard negative per query."
    ),
    columns=(
        Column(label="steps of the last phase", value="num_steps", decimals=0),
        *FAMILY_COLUMNS,
        NDCG_COLUMN,
        Column(label="MTEB", value="mteb/mean"),
    ),
    rows=tuple(
        Row(label=label, runs=pick(**of), paper={"MTEB": STAGES[name]})
        for label, name, of in (
            ("pre-training", "PT", PRETRAINED),
            ("fine-tuning", "FT", FINE_TUNED),
            ("both", "Full", BOTH_PHASES),
        )
    ),
)
TABLE_8 = Table(
    name="gte_table8",
    caption=(
        "The score along one pre-training run, after each fifth of its steps, on one learning-rate schedule. A fifth "
        "is 10,000 steps in the paper, which prints the mean over MTEB."
    ),
    columns=(
        Column(label="NDCG@10", value=ndcg("{part}"), factor=100),
        Column(label="MTEB", value="mteb/mean"),
    ),
    rows=tuple(
        Row(label=f"{number} / 5 of the steps", runs=pick(**ALONG_STEPS), part=part, paper={"MTEB": printed})
        for number, (part, printed) in enumerate(zip(FIFTHS, STEP_SCORES.values(), strict=True), 1)
    ),
)


def after(part: str) -> Term:
    """Return NDCG@10 after a fifth of the steps."""
    return term(ndcg(part), **ALONG_STEPS)


CLAIMS = (
    Claim.order(
        "G9.a",
        "pre-training alone beats fine-tuning alone",
        pairs=[(term(NDCG, **PRETRAINED), term(NDCG, **FINE_TUNED))],
        source="§5.3 and Table 9",
        **A_POINT_IS_SMALL | COMPANION,
    ),
    Claim.order(
        "G9.b",
        "fine-tuning after pre-training beats each alone",
        pairs=[(term(NDCG, **BOTH_PHASES), term(NDCG, **alone)) for alone in (PRETRAINED, FINE_TUNED)],
        source="§5.3 and Table 9",
        **A_POINT_IS_SMALL | COMPANION,
    ),
    Claim.equivalence(
        "G8.c",
        "the score is as good after two fifths of the steps as at the end",
        pairs=[(after("fifth2"), after("fifth5"))],
        delta=0.01,
        source="§5.2 and Table 8: saturates at 20 k of 50 k steps",
        because="one point",
        **COMPANION,
    ),
    Claim.order(
        "G8.d",
        "the score is better after two fifths of the steps than after one",
        pairs=[(after("fifth2"), after("fifth1"))],
        source="Table 8",
        **A_POINT_IS_SMALL | COMPANION,
    ),
)

EXPERIMENT = Experiment(title="Stages and steps", runs=runs, artefacts=(TABLE_9, TABLE_8), claims=CLAIMS, paper="GTE")

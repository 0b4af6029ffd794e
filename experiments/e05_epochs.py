"""Figure 5: the number of supervised epochs, on two supervised sets, after one shared pre-training."""

from typing import Any

from experiments import fresh
from experiments.e01_table1 import BOTH, get_contextual_sizes, seeds_at
from experiments.shared import MEAN_OF_SEEDS, NDCG, OURS, PAPERS, SCORE_LINES, by_group
from repro.spec import Claim, Experiment, Figure, Row, Run, base, grid, pick, term

# The paper uses the sets of Nomic and BGE. At our own scales, two sources of the same mined text replace them.
FIRST_SET = by_group(("planted-tiny", "planted"), ("desk", "services"), ("nomic-supervised", None))
SECOND_SET = by_group(("planted-tiny", None), ("desk", "packages+modules"), ("bge-full-data", None))
# Too many epochs hurt only if a set can be memorised: here with few pairs, at the full learning rate.
NUM_PAIRS = {"smoke": None, "desk": 1024, "lab": 4096, "small": None, "large": None}
# Start of other second phases. At our scales they use a twentieth of the first phase's rate, which was best on
# validation domains (`recipes`). At the full rate, thirty steps undo part of the first phase.
PRETRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"pretraining_corpus": "planted-tiny", "num_pretraining_steps": 12},
}
PRETRAINING |= {
    scale: {
        "pretraining_corpus": "desk",
        "num_pretraining_steps": base(scale).num_steps,
        "learning_rate": base(scale).learning_rate / 20,
    }
    for scale in ("desk", "lab")
}
PRETRAINING |= {
    scale: {"pretraining_corpus": base(scale).corpus, "num_pretraining_epochs": base(scale).num_epochs}  # Table 1's run
    for scale in PAPERS
}
# §6: the best model has one hard negative per query and warms up as usual (§5). Ours have too few steps to warm up.
SUPERVISED: dict[str, dict[str, Any]] = {
    scale: {"num_warmup_steps": 0, "learning_rate": base(scale).learning_rate} for scale in OURS
}
SUPERVISED |= {scale: {"num_hard_negatives": 1} for scale in PAPERS}
EPOCHS = by_group((1, 2), (1, 2, 4, 8), (1, 2, 4, 8))


def runs(scale: str) -> tuple[Run, ...]:
    """Return one training run for each number of epochs and each set. All runs of a seed share one pre-training."""
    seeds = fresh.OVERFITTED if scale == "desk" else seeds_at(scale)
    return tuple(
        run
        for training_sets in (FIRST_SET, SECOND_SET)
        for run in grid(make_second_phase(scale, training_sets[scale], 1), num_epochs=EPOCHS[scale], seed=seeds)
    )


def make_second_phase(scale: str, training_set: tuple[str, str | None], num_epochs: int) -> Run:
    """Return the second phase of the contextual model on a set, given by a corpus and its sources."""
    phase: dict[str, Any] = BOTH | PRETRAINING[scale] | SUPERVISED[scale] | get_contextual_sizes(scale)
    phase |= dict(zip(("corpus", "sources"), training_set, strict=True)) | {"num_pairs": NUM_PAIRS[scale]}
    return base(scale, **phase | {"num_steps": None, "num_epochs": num_epochs, "test_contexts": "own"})


NOMIC = {"corpus": "nomic-supervised"}
BGE = {"corpus": "bge-full-data"}
FIGURE = Figure(
    name="figure5",
    title="Score by number of supervised epochs, on two sets",
    caption=(
        f"NDCG@10 by number of supervised epochs, after one pre-training run per seed. {MEAN_OF_SEEDS} The paper's "
        "sets are Nomic's and BGE's. At desk and lab they are two sources of the mined text."
    ),
    x="num_epochs",
    x_label="supervised epochs",
    series=(
        Row(label="services", runs=pick(sources=("services", "planted")), scales=OURS),
        Row(label="packages and modules", runs=pick(sources=("packages+modules", None)), scales=OURS),
        Row(label="nomic", runs=pick(**NOMIC), scales=PAPERS),
        Row(label="BGE", runs=pick(**BGE), scales=PAPERS),
    ),
    **SCORE_LINES,
)
SECOND = {"corpus": ("bge-full-data", "desk"), "sources": (None, "packages+modules")}
CLAIMS = (
    Claim.order(
        "F5.a",
        "on the second set (the paper's BGE data) four epochs are best",
        pairs=[(term(NDCG, num_epochs=4, **SECOND), term(NDCG, num_epochs=other, **SECOND)) for other in (1, 2, 8)],
        source="Figure 5",
        because="any difference beyond chance, between second phases that start from the same first phase",
        **fresh.RESTATED | fresh.declare(fresh.SUPERVISED),
    ),
    Claim.order(
        "F5.b",
        "the best of the supervised models is trained on the second set (BGE), four epochs",
        pairs=[(term(NDCG, num_epochs=4, **BGE), term(NDCG, num_epochs=epochs, **NOMIC)) for epochs in EPOCHS["small"]],
        source="§6",
        because="any difference beyond chance; mined sources cannot show which of the paper's sets is better",
        scales=PAPERS,
        **fresh.STATED | fresh.FIRST_SEEDS,
    ),
)

EXPERIMENT = Experiment(title="Supervised epochs", runs=runs, artefacts=(FIGURE,), claims=CLAIMS)

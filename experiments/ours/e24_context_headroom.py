"""The value of knowing the corpus: scores of IDF-weighted words, by the source of the IDF. Not in the paper.

The paper's motivation is that documents of the searched corpus reveal which words matter. This experiment measures the
benefit to a system that uses nothing else, and so the possible gain of a contextual model on the same text.
"""

from typing import Any

from experiments.companions.e31_prefixes import IN_FULL
from experiments.e01_table1 import FAMILIES, NEITHER_RANDOM, OWN_SCALES, PLAIN_BATCH, seeds_at
from experiments.fresh import FIRST_SEEDS
from experiments.shared import ndcg
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, pick, term

UNTRAINED = {"measure": "headroom", "architecture": "none"}
TRAINED = NEITHER_RANDOM | {"measure": "headroom"}
WEIGHTINGS = {
    "flat": "all words alike",
    "training": "IDF of the training text",
    "wrong": "IDF of another corpus",
    "own16": "IDF of 16 documents",
    "own64": "IDF of 64 documents",
    "own": "IDF of the whole corpus",
}
SYSTEMS = {"overlap": "word overlap", "words": "word vectors", "repooled": "trained biencoder, re-pooled"}


def runs(scale: str) -> tuple[Run, ...]:
    """Return one run that trains nothing, and Table 1's plain biencoders with another analysis."""
    trained = TRAINED | IN_FULL | {"batch_size": PLAIN_BATCH[scale]}
    return (base(scale, **UNTRAINED, **IN_FULL), *(base(scale, **trained, seed=seed) for seed in seeds_at(scale)))


def pick_system(system: str) -> dict[str, Any]:
    """Return the filter that selects the runs with a system's scores."""
    return TRAINED if system == "repooled" else UNTRAINED


def score(system: str, weights: str, name: str = "mean") -> str:
    """Return the metric of a system under weights."""
    return ndcg(f"{system}-{weights}", name)


TABLE = Table(
    name="context_headroom",
    title="How much a score can gain from knowing the corpus",
    caption=(
        "NDCG@10 of three systems that weight words by IDF, by the text from which the IDF is computed. A contextual "
        "model reads sixteen documents."
    ),
    columns=(
        *(Column(label=family, value=ndcg("{part}", family), factor=100, scales=OWN_SCALES) for family in FAMILIES),
        Column(label="NDCG@10", value=ndcg("{part}"), factor=100),
    ),
    rows=tuple(
        Row(label=f"{label}, {words}", runs=pick(**pick_system(system)), part=f"{system}-{kind}")
        for system, label in SYSTEMS.items()
        for kind, words in WEIGHTINGS.items()
    ),
)

STATED = "2026-11-22"
OURS = "our question: the paper's motivation (§1, §4.2), which it does not measure"


def above(id: str, statement: str, *pairs: tuple[tuple[str, str], tuple[str, str]]) -> Claim:
    """Claim that the first system and weights of each pair score above the second."""
    comparisons = [tuple(term(score(*side), **pick_system(side[0])) for side in pair) for pair in pairs]
    return Claim.order(
        id,
        statement,
        pairs=[(first, second) for first, second in comparisons],
        source=OURS,
        stated=STATED,
        **FIRST_SEEDS,
    )


def on(family: str, weights: str) -> Term:
    """Return word overlap on one family."""
    return term(score("overlap", weights, family), **UNTRAINED)


CLAIMS = (
    above(
        "H.a",
        "IDF from sixteen documents of the searched corpus scores higher than IDF from the whole training text",
        (("overlap", "own16"), ("overlap", "training")),
        (("words", "own16"), ("words", "training")),
    ),
    above(
        "H.b",
        "the gain comes from the searched corpus: IDF from the whole of another corpus scores lower",
        (("overlap", "own"), ("overlap", "wrong")),
        (("words", "own"), ("words", "wrong")),
    ),
    above(
        "H.c",
        "a trained biencoder, too, gains if its words are averaged with IDF weights of the searched corpus",
        (("repooled", "own16"), ("repooled", "flat")),
        (("repooled", "own"), ("repooled", "wrong")),
    ),
    Claim.interaction(
        "H.d",
        "knowing the corpus helps more where training text is scarce: more on packages than on services",
        of=(on("packages", "own"), on("packages", "training")),
        above=(on("services", "own"), on("services", "training")),
        source=OURS,
        stated=STATED,
        **FIRST_SEEDS,
    ),
)

EXPERIMENT = Experiment(title="Gain from knowing the corpus", runs=runs, artefacts=(TABLE,), claims=CLAIMS)

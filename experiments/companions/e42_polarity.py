"""GTE table 4: zero-shot polarity of film reviews from the words of a label, with and without prompt."""

from typing import Any

from experiments.companions.e33_improved_loss import IMPROVED, SEEDS
from experiments.companions.e34_mixing import make_mixed_run
from experiments.companions.e37_number_of_sources import ALPHA
from experiments.e01_table1 import SURROGATE
from experiments.fresh import COMPANION
from experiments.shared import ignore_small
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, grid, pick, term

TRAINED = {**IMPROVED, "mixing_alpha": ALPHA}
PRETRAINED_ENCODER = {"smoke": "minilm-words"}
"""At smoke, a replacement of MiniLM."""
UNTRAINED = "minilm-words"
POLARITY: dict[str, Any] = {
    "E5 base": (None, 81.3),
    "E5 large": (None, 85.3),
    "cpt-text, 6B": (88.1, 89.1),
    "GTE base": (85.1, 87.2),
}
"""Table 4: accuracy on SST-2 without and with a prompt."""
OURS = ("desk", "lab", "small", "large")


def runs(scale: str) -> tuple[Run, ...]:
    """Return table 10's first phase at α = 0.5, and two encoders not trained here."""
    measure: dict[str, Any] = {"measure": "polarity"}
    names = dict.fromkeys((PRETRAINED_ENCODER.get(scale, "minilm"), UNTRAINED))
    references = tuple(base(scale, **SURROGATE, surrogate=name, **measure) for name in names)
    return (*references, *grid(make_mixed_run(scale), mixing_alpha=ALPHA, **measure, seed=SEEDS))


def accuracy(verbaliser: str) -> str:
    """Return the metric of one way to write the labels."""
    return f"polarity/{verbaliser}/accuracy"


def at(verbaliser: str, **row: Any) -> Term:
    """Return the accuracy of a row under one way to write the labels."""
    return term(accuracy(verbaliser), **row)


def printed(name: str) -> dict[str, float]:
    """Return the paper's numbers of one model. Unprinted label wordings are omitted."""
    return {label: value for label, value in zip(("plain", "prompted"), POLARITY[name], strict=True) if value}


TABLE = Table(
    name="gte_table4",
    caption=(
        "Zero-shot polarity: accuracy in % of assigning a sentence to the nearer of two label texts. These are 'positive' "
        "and 'negative' (plain), or 'this is an example of … movie review' (prompted). Ours are 200 sentences of film "
        "reviews, half of each label. The paper has SST-2, which consists of such reviews. Its models are fine-tuned, "
        "ours are pre-trained on documentation."
    ),
    columns=(
        Column(label="plain", value=accuracy("plain"), factor=100),
        Column(label="prompted", value=accuracy("prompted"), factor=100),
        Column(label="called positive, plain", value="polarity/plain/called_positive", factor=100),
        Column(label="called positive, prompted", value="polarity/prompted/called_positive", factor=100),
    ),
    rows=(
        *(
            Row(label=name, runs=pick(architecture="none"), paper=printed(name))
            for name in POLARITY
            if "GTE" not in name
        ),
        Row(label="pre-trained", runs=pick(**TRAINED), paper=printed("GTE base")),
        Row(label="off-the-shelf MiniLM (reference)", runs=pick(**SURROGATE, surrogate="minilm"), scales=OURS),
        Row(label="word vectors, untrained (reference)", runs=pick(**SURROGATE, surrogate=UNTRAINED)),
    ),
)


CLAIMS = (
    Claim.order(
        "G4.c",
        "prompts improve zero-shot polarity, although the model was trained without prompts",
        pairs=[(at("prompted", **TRAINED), at("plain", **TRAINED))],
        source="§4.1 and Table 4",
        **ignore_small(0.02, "the paper prints 2.1 points, so effects within two are small"),
        scales=OURS,
        **COMPANION,
    ),
    Claim.order(
        "G4.d",
        "the trained model predicts zero-shot polarity better than untrained word vectors",
        pairs=[(at("plain", **TRAINED), at("plain", **SURROGATE, surrogate=UNTRAINED))],
        source="§4.1: 'one method to assess the quality of learned representation'",
        **ignore_small(0.02, "effects within two points are small"),
        scales=OURS,
        **COMPANION,
    ),
)

EXPERIMENT = Experiment(title="Zero-shot polarity", runs=runs, artefacts=(TABLE,), claims=CLAIMS, paper="GTE")

"""Value of a corpus for a finished model: vectors whitened by the corpus's moments. Not in the paper.

The paper trains an architecture to read documents of the searched corpus. Here, two moments of the corpus's vectors
adapt the model without any training. The same model is also whitened by another corpus and by training text. This
separates the effect of the *right* corpus from the effect of whitening.
"""

from typing import Any

from experiments import e01_table1 as table1
from experiments.companions.e31_prefixes import IN_FULL
from experiments.shared import BELOW_PAPERS_GAINS, NDCG, gain_over, ndcg
from repro.spec import Claim, Column, Experiment, Row, Run, Table, base, by_scale, pick, term

SCALES = ("smoke", *table1.WHITENED_SEEDS)
SEEDS = {"smoke": (0,)} | table1.WHITENED_SEEDS
MINILM = {"architecture": "surrogate", "surrogate": "minilm"} | table1.WHITENED
BIENCODER, CONTEXTUAL = table1.NEITHER_DOMAIN | table1.WHITENED, table1.ARCHITECTURE_DOMAIN | table1.WHITENED
OTHER_BATCHES: dict[str, dict[str, Any]] = {
    "biencoder, one source per batch": table1.NEITHER | table1.WHITENED,
    "biencoder, contextual batches": table1.BATCHES | table1.WHITENED,
    "contextual, in-corpus, one source per batch": table1.ARCHITECTURE | table1.WHITENED,
    "contextual, in-corpus, contextual batches": table1.BOTH | table1.WHITENED,
}
"""The same models trained on other batches, at mini only. No claim is about them."""


def runs(scale: str) -> tuple[Run, ...]:
    """Return plain MiniLM and both models on batches of one domain, whitened, and at mini those on other batches.

    The contextual model's scores under its contexts, and BM25's, are those of Table 1.
    """
    whitened = [BIENCODER, CONTEXTUAL, *(OTHER_BATCHES.values() if scale in table1.MINI else ())]
    trained = (
        base(scale, **row | table1.get_sizes(row, scale), seed=seed)
        for row in (*(row | IN_FULL for row in whitened), table1.ARCHITECTURE_DOMAIN)
        for seed in SEEDS[scale]
    )
    return (base(scale, **table1.BM25), base(scale, **MINILM, **IN_FULL), *trained)


MODELS: dict[str, dict[str, Any]] = {
    "off-the-shelf MiniLM": MINILM,
    "biencoder": BIENCODER,
    "contextual, in-corpus": CONTEXTUAL,
}
VIEWS = {
    "unchanged": "",
    "searched corpus": "whitened",
    "another corpus": "whitened-wrong",
    "training text": "whitened-random",
    "16 documents": "whitened16",
    "64 documents": "whitened64",
    "256 documents": "whitened256",
    "mean alone": "centred",
    "all-but-the-top": "all-but-the-top",
    "Rocchio": "rocchio",
    "hubness": "hubness",
}
TABLE = Table(
    name="whitening",
    title="What whitening by a corpus adds",
    caption=(
        "NDCG@10 of vectors adapted to the searched corpus without training. Vectors are whitened by all documents of "
        "the searched corpus, by another corpus, by as many training documents, or by 16, 64 or 256 documents of the "
        "searched corpus. The baselines use the searched corpus. The shrinkage s and the parameters of the baselines "
        "are chosen on validation domains. The last column is the gain of the contextual model from in-corpus over "
        "out-of-corpus context."
    ),
    columns=(
        *(Column(label=label, value=ndcg(view), factor=100) for label, view in VIEWS.items()),
        Column(label="s", value="adaptation/whitened/parameter", decimals=2),
        Column(
            label="context: in − out-of-corpus",
            value="context_effect/own_minus_wrong/mean/difference",
            factor=100,
            decimals=2,
        ),
    ),
    rows=(
        *(Row(label=label, runs=pick(**row)) for label, row in MODELS.items()),
        *(Row(label=label, runs=pick(**row), scales=table1.MINI) for label, row in OTHER_BATCHES.items()),
        Row(label="contextual, scored under its contexts", runs=pick(**table1.ARCHITECTURE_DOMAIN)),
        Row(label="BM25 (reference)", runs=pick(**table1.BM25)),
    ),
)


COMMON: dict[str, Any] = {
    "source": "our question: what is the searched corpus worth to a dense model (§1, §4.2)?",
    "stated": "2026-11-25",
    "scales": tuple(table1.WHITENED_SEEDS),
    "seeds": by_scale(table1.WHITENED_SEEDS),
}
OF_A_GAIN = COMMON | BELOW_PAPERS_GAINS
AS_IS, OWN = term(NDCG, **BIENCODER), term(ndcg("whitened"), **BIENCODER)
CLAIMS = (
    Claim.order(
        "WH.a",
        "a biencoder scores higher if its vectors are whitened by the searched corpus",
        pairs=[(OWN, AS_IS)],
        **OF_A_GAIN,
    ),
    Claim.order(
        "WH.b",
        "the gain comes from the searched corpus: a biencoder whitened by it scores higher than whitened by another",
        pairs=[(OWN, term(ndcg("whitened-wrong"), **BIENCODER))],
        **OF_A_GAIN,
    ),
    Claim.order(
        "WH.c",
        "a biencoder whitened by the searched corpus scores higher than whitened by as much training text",
        pairs=[(OWN, term(ndcg("whitened-random"), **BIENCODER))],
        **OF_A_GAIN,
    ),
    Claim.order(
        "WH.d",
        "a biencoder whitened by the searched corpus scores higher than the contextual architecture that reads it",
        pairs=[(OWN, term(NDCG, **CONTEXTUAL))],
        **OF_A_GAIN,
    ),
    Claim.interaction(
        "WH.e",
        "whitening by 64 documents gives at least half of the gain of whitening by all documents",
        of=(term(ndcg("whitened64"), **BIENCODER), AS_IS),
        above=(OWN, term(ndcg("whitened64"), **BIENCODER)),
        because="half of the gain: the first 64 documents add more than all that follow",
        **COMMON,
    ),
    Claim.order(
        "WH.f",
        "whitening adds to the architecture: the contextual model, too, scores higher if whitened by the searched corpus",
        pairs=[(term(ndcg("whitened"), **CONTEXTUAL), term(NDCG, **CONTEXTUAL))],
        **OF_A_GAIN,
    ),
    Claim.interaction(
        "WH.g",
        "the searched corpus instead of another one is worth more to a whitened biencoder than to the contextual model",
        of=(OWN, term(ndcg("whitened-wrong"), **BIENCODER)),
        above=gain_over("wrong", table1.ARCHITECTURE_DOMAIN),
        **COMMON,
    ),
    Claim.order(
        "WH.h",
        "a biencoder gains more by whitening than by mean subtraction, all-but-the-top, Rocchio feedback and hubness "
        "correction",
        pairs=[(OWN, term(ndcg(view), **BIENCODER)) for view in ("centred", "all-but-the-top", "rocchio", "hubness")],
        **COMMON,
    ),
)

EXPERIMENT = Experiment(
    title="Gain from the mean and covariance of a corpus", runs=runs, artefacts=(TABLE,), claims=CLAIMS, scales=SCALES
)

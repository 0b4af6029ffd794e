"""When a model begins to read its corpus: own, wrong and null context against steps, on real text; not in the paper.

Three models of one budget: the biencoder, the paper's architecture, and that architecture with an extension of ours,
which hands the second stage what its attention would have to find out: the share of the context documents that hold a
word weighs the word in the mean over tokens (`repro.model.frequency`).
"""

from typing import Any

from experiments import fresh
from experiments.e01_table1 import BATCHES, BOTH, CLUSTER, CONTEXTUAL_BATCH, FAMILIES, OWN_SCALES, SEEDS
from repro.spec import Claim, Column, Experiment, Figure, Row, Run, Table, Term, base, pick, term

STEPS = {"smoke": (6, 12), "desk": (240, 960), "lab": (1000, 4000), "small": (None,), "large": (None,)}
"""Training steps; None: as many epochs as the scale has."""
LONGEST = 960
PAPERS, OURS = BOTH | {"pooling": "mean"}, BOTH | {"pooling": "frequency"}
WARMUP_SHARE = 10


def runs(scale: str) -> tuple[Run, ...]:
    """Table 1's contextual batches under three models and growing numbers of steps."""
    sizes: dict[str, Any] = {"batch_size": CONTEXTUAL_BATCH[scale], "cluster_size": CLUSTER[scale]}
    found = []
    for num_steps in STEPS[scale]:
        budget = {"num_steps": num_steps, "num_warmup_steps": max(1, num_steps // WARMUP_SHARE)} if num_steps else {}
        more = fresh.FREQUENCY if scale == "desk" and num_steps == LONGEST else ()
        rows = ((BATCHES, SEEDS), (PAPERS, SEEDS), (OURS, SEEDS + more))
        found += [base(scale, **row, **sizes, **budget, seed=seed) for row, seeds in rows for seed in seeds]
    return tuple(found)


NDCG = "{suite}/mean/ndcg_at_10"
SERIES = {
    "ours": ("with word frequencies", OURS),
    "paper's": ("paper's architecture", PAPERS),
}
FIGURE = Figure(
    name="context_emergence",
    title="When a model begins to read its corpus",
    caption=(
        "NDCG@10 of held-out collections of real text by the number of training steps, under documents of the searched "
        "corpus, of another one, and none. A mark is the mean over n seeds, each a training of its own whose learning "
        "rate has decayed to zero; bands: 95 % interval of that mean. With word frequencies: an extension of ours."
    ),
    kind="lines",
    x="num_steps",
    y="{suite}/mean/ndcg_at_10",
    x_label="training steps",
    y_label="NDCG@10 (points)",
    factor=100,
    x_is_log=True,
    series=(
        *(
            Row(label=f"{label}, {words}", of=pick(**row), context=context)
            for label, row in SERIES.values()
            for context, words in (("own", "own corpus"), ("wrong", "wrong corpus"), ("null", "null context"))
        ),
        Row(label="biencoder", of=pick(**BATCHES)),
    ),
)


def at(scale: str) -> list[int]:
    """Return the steps of a scale that has more than one number of them."""
    return [steps for steps in STEPS[scale] if steps]


def table_rows(scale: str) -> tuple[Row, ...]:
    """Return the rows of the table at one scale: models, and contexts, at each number of steps."""
    found: list[Row] = []
    for steps in at(scale):
        found.append(Row(label=f"biencoder, {steps} steps", of=pick(**BATCHES, num_steps=steps), scales=(scale,)))
        for label, row in SERIES.values():
            of = pick(**row, num_steps=steps)
            found.append(Row(label=f"{label}, {steps} steps", of=of, scales=(scale,)))
            for context, words in (("wrong", "· wrong corpus as context"), ("null", "· null context")):
                found.append(Row(label=words, of=of, context=context, scales=(scale,)))
    return tuple(found)


TABLE = Table(
    name="context_emergence_table",
    caption="NDCG@10 by family under the own, a wrong and no context, by training steps.",
    columns=(
        *(
            Column(label=family, value=f"{{suite}}/{family}/ndcg_at_10", factor=100, scales=OWN_SCALES)
            for family in FAMILIES
        ),
        Column(label="NDCG@10", value=NDCG, factor=100),
    ),
    rows=tuple(row for scale in ("smoke", *OWN_SCALES) for row in table_rows(scale)),
)

END = {"num_steps": LONGEST}
START = {"num_steps": 240}
OUR_QUESTION = "our question: the paper's central claim (§1, §4.2) at our scale, with and without an extension of ours"
BEYOND_CHANCE = "any difference beyond chance"
SAID: dict[str, Any] = {"source": OUR_QUESTION, "stated": "2026-11-22", "scales": ("desk",)}
UNLIKE_TRAINING = ("packages", "collections", "cloud", "medical")


def under(context: str, row: dict[str, Any], budget: dict[str, int], of: str = "mean") -> Term:
    """A model under a context ("" is its own corpus) after so many steps."""
    suite = f"{{suite}}+{context}" if context else "{suite}"
    return term(f"{suite}/{of}/ndcg_at_10", **row, **budget)


CLAIMS = (
    Claim.order(
        "E.a",
        "handed word frequencies, a model finds half a point or more with its own corpus than with a wrong one",
        pairs=[(under("", OURS, END), under("wrong", OURS, END))],
        margin=0.005,
        because="half a point, what a reader would call an effect",
        **SAID,
    ),
    Claim.order(
        "E.b",
        "and more with its own corpus than with none",
        pairs=[(under("", OURS, END), under("null", OURS, END))],
        because=BEYOND_CHANCE,
        **SAID,
    ),
    Claim.order(
        "E.c",
        "and more than a biencoder and than the paper's architecture of the same budget",
        pairs=[(under("", OURS, END), under("", BATCHES, END)), (under("", OURS, END), under("", PAPERS, END))],
        because=BEYOND_CHANCE,
        **SAID,
    ),
    Claim.order(
        "E.d",
        "its own corpus is worth more than a wrong one on every family unlike training",
        pairs=[(under("", OURS, END, family), under("wrong", OURS, END, family)) for family in UNLIKE_TRAINING],
        because=BEYOND_CHANCE,
        **SAID,
    ),
    Claim.order(
        "E.e",
        "the paper's architecture finds more with its own corpus than with a wrong one on real text",
        pairs=[(under("", PAPERS, END), under("wrong", PAPERS, END))],
        delta=0.005,
        because="any difference beyond chance; within half a point there is no effect",
        **SAID,
    ),
    Claim.interaction(
        "E.f",
        "and the difference grows with training",
        of=(under("", PAPERS, END), under("wrong", PAPERS, END)),
        above=(under("", PAPERS, START), under("wrong", PAPERS, START)),
        delta=0.005,
        because="any difference beyond chance; within half a point there is no effect",
        **SAID,
    ),
)

EXPERIMENT = Experiment(
    number=25, title="When context begins to be read", runs=runs, shows=(FIGURE, TABLE), claims=CLAIMS
)

"""The value of in-corpus context at every width of nested vectors, under each of two losses. In neither paper.

Combines a contextual model with given word frequencies (e25) and a loss summed over prefixes (e31). Does the gain from
the searched corpus persist if the search uses only the first 16, 32 or 64 dimensions?
"""

from typing import Any

from experiments import fresh
from experiments.companions.e31_prefixes import ALL, IN_FULL, SCALES
from experiments.e01_table1 import get_contextual_sizes
from experiments.ours.e25_context_emergence import CONTEXT_LABELS, OURS
from experiments.shared import BELOW_PAPERS_GAINS, ndcg
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, grid, pick, term

SEEDS = (0, 1, 2)
NARROW = (16, 32, 64)
"""The widths of interest. Every scale has them, except that smoke has only two."""
NESTED = OURS | {"measure": "widths", "nested_sizes": tuple(sorted(set(ALL.values())))}
PLAIN, IMPROVED = NESTED | {"loss": "infonce"}, NESTED | {"loss": "icl"}


def runs(scale: str) -> tuple[Run, ...]:
    """Return one nested contextual model per seed and loss. Temperature and filter are the same for both losses."""
    base_run = base(scale, **PLAIN | IN_FULL | get_contextual_sizes(scale) | {"nested_sizes": ALL[scale]})
    extra_seeds = fresh.WIDTHS if scale == "desk" else ()
    return grid(base_run, loss=(PLAIN["loss"], IMPROVED["loss"]), seed=SEEDS + extra_seeds)


def at(context: str, width: int | None, of: dict[str, Any]) -> Term:
    """Return NDCG@10 under a context ("" is in-corpus) at a width (None for whole vectors)."""
    view = "-".join(filter(None, (context, f"width{width}" if width else "")))
    return term(ndcg(view), **of)


def columns() -> tuple[Column, ...]:
    """Return a column for each width, and for the whole vector at each scale."""
    ours = ("desk", "lab", "small", "large")
    narrow = [(str(width), width, ()) for width in (8, *NARROW[:-1])] + [("64", 64, ours)]
    whole_vectors = [("whole", base(scale).hidden_size, (scale,)) for scale in SCALES]
    return tuple(
        Column(label=label, value=ndcg(f"{{part}}width{width}"), factor=100, scales=scales)
        for label, width, scales in (*narrow, *whole_vectors)
    )


TABLE = Table(
    name="context_by_width",
    title="Gain from in-corpus context, by width",
    caption="NDCG@10 with in-corpus, out-of-corpus and null context, by the number of dimensions used in the search.",
    columns=columns(),
    rows=tuple(
        Row(label=f"{loss}, {words}", runs=pick(**of), part="" if kind == "own" else f"{kind}-")
        for loss, of in (("InfoNCE", PLAIN), ("improved loss", IMPROVED))
        for kind, words in CONTEXT_LABELS.items()
    ),
)

COMMON: dict[str, Any] = {"source": "our question, not a paper's", "stated": "2026-11-22"} | fresh.declare(
    (*fresh.FIRST, *fresh.WIDTHS), fresh.FIRST
)


def gain(other: str, width: int | None, of: dict[str, Any]) -> tuple[Term, Term]:
    """Return the comparison of in-corpus with another context, at a width."""
    return at("", width, of), at(other, width, of)


CLAIMS = (
    Claim.order(
        "W.a",
        "in-corpus beats out-of-corpus context at 16, 32 and 64 dimensions",
        pairs=[gain("wrong", width, PLAIN) for width in NARROW],
        **COMMON,
    ),
    Claim.order(
        "W.b",
        "in-corpus context beats null context at 16, 32 and 64 dimensions",
        pairs=[gain("null", width, PLAIN) for width in NARROW],
        **COMMON,
    ),
    Claim.interaction(
        "W.c",
        "the gain of in-corpus over out-of-corpus context is larger in whole vectors than in 16 dimensions",
        of=gain("wrong", None, PLAIN),
        above=gain("wrong", 16, PLAIN),
        **BELOW_PAPERS_GAINS,
        **COMMON,
    ),
    Claim.order(
        "W.d",
        "under the improved loss, too, in-corpus beats out-of-corpus context at 16, 32, 64 and all dimensions",
        pairs=[gain("wrong", width, IMPROVED) for width in (None, *NARROW)],
        **COMMON,
    ),
    Claim.interaction(
        "W.e",
        "the gain of in-corpus over out-of-corpus context is larger under the improved loss than under InfoNCE",
        of=gain("wrong", None, IMPROVED),
        above=gain("wrong", None, PLAIN),
        **BELOW_PAPERS_GAINS,
        **COMMON,
    ),
)

EXPERIMENT = Experiment(
    title="Gain from in-corpus context by width", runs=runs, artefacts=(TABLE,), claims=CLAIMS, paper="MRL"
)

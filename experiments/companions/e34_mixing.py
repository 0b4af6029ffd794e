"""GTE table 10: sampling rate of each source, by the exponent α of its size (0: equal, 1: proportional)."""

from experiments.companions.e33_improved_loss import IMPROVED, make_first_phase
from experiments.e01_table1 import FAMILY_COLUMNS
from experiments.fresh import COMPANION
from experiments.shared import A_POINT_IS_SMALL, LOSS_COLUMN, NDCG, NDCG_COLUMN, ignore_small
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, grid, pick, term

ALPHAS = (0.0, 0.3, 0.5, 1.0)
MIXING = {0.0: (36.7, 73.2, 55.4), 0.3: (44.6, 75.9, 58.9), 0.5: (44.2, 76.5, 59.0), 1.0: (42.0, 75.5, 58.3)}
"""Table 10: retrieval, STS and MTEB by the exponent α."""
SEEDS = (0, 1, 2)
WIDE = {"corpus": "wide", "num_pairs": None}
"""Nine sources at full size. A selection of pairs would already apply α once."""
MORE_SOURCES = {"desk": WIDE, "lab": WIDE}


def runs(scale: str) -> tuple[Run, ...]:
    """Return GTE's first phase for each α, or for one at smoke, whose corpus has one source."""
    return grid(make_mixed_run(scale), mixing_alpha=ALPHAS if scale != "smoke" else 0.5, seed=SEEDS)


def make_mixed_run(scale: str) -> Run:
    """Return GTE's first phase on as many sources as a scale has."""
    return make_first_phase(scale, **MORE_SOURCES.get(scale, {}))


def at(alpha: float) -> Term:
    """Return NDCG@10 of the training runs with an exponent."""
    return term(NDCG, **IMPROVED, mixing_alpha=alpha)


def make_printed_row(alpha: float) -> dict[str, float]:
    """Return the paper's numbers of one row."""
    return dict(zip(("NDCG@10", "STS", "MTEB"), MIXING[alpha], strict=True))


TABLE = Table(
    name="gte_table10",
    caption=(
        "Pre-training with batches of one source each, drawn with p ∝ (pairs of the source)^α. The paper mixes 33 "
        "datasets and prints retrieval, STS and the mean of MTEB. At desk there are nine sources of documentation with"
        " 1 to 57 % of the pairs. NDCG@10 is measured on collections of three of these sources and of two others."
    ),
    columns=(
        LOSS_COLUMN,
        *FAMILY_COLUMNS,
        NDCG_COLUMN,
        Column(label="STS", value="mteb/STS"),
        Column(label="MTEB", value="mteb/mean"),
    ),
    rows=tuple(
        Row(label=f"α = {alpha:g}", runs=pick(**IMPROVED, mixing_alpha=alpha), paper=make_printed_row(alpha))
        for alpha in ALPHAS
    ),
)

CLAIMS = (
    Claim.order(
        "G10.c",
        "neither uniform (α = 0) nor proportional (α = 1) sampling of sources is best: α = 0.5 retrieves better",
        pairs=[(at(0.5), at(0.0)), (at(0.5), at(1.0))],
        source="§5.4 and Table 10",
        **A_POINT_IS_SMALL | COMPANION,
    ),
    Claim.order(
        "G10.d",
        "uniform sampling of sources is worse than proportional sampling",
        pairs=[(at(1.0), at(0.0))],
        source="Table 10",
        **ignore_small(
            0.01,
            "effects within one point are small; the paper prints 5.3 points, for 33 datasets whose sizes differ more",
        ),
        **COMPANION,
    ),
)

EXPERIMENT = Experiment(
    title="How often each source is drawn", runs=runs, artefacts=(TABLE,), claims=CLAIMS, paper="GTE"
)

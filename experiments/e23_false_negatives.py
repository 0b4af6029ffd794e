"""§4.1: do false negatives grow with the data, and does the filter remove too much? Nothing is trained."""

from experiments import fresh
from repro.spec import Claim, Column, Experiment, Row, Run, Table, base, by_scale, grid, pick, term

ANALYSIS = {"measure": "neighbours", "architecture": "none"}
SIZES: dict[str, tuple[int, ...]] = {
    "smoke": (64, 128, 192),
    "desk": (8192, 32768, 65536, 131072),
    "lab": (8192, 32768, 131072),
}
SIZES |= dict.fromkeys(("small", "large"), (2**18, 2**20, 2**22))
# A surrogate and a better one, on as many pairs as the better one embeds in a minute.
WEAK = {"smoke": "minilm-words", "desk": "minilm-words", "lab": "minilm-words"}
WEAK |= dict.fromkeys(("small", "large"), "sentence-transformers/gtr-t5-base")
STRONG = {"smoke": "minilm", "desk": "minilm", "lab": "minilm"}
STRONG |= dict.fromkeys(("small", "large"), "nomic-ai/nomic-embed-text-v1")
SEEDS = fresh.DRAWS


def runs(scale: str) -> tuple[Run, ...]:
    """Return draws of documents at each data size, and at the smallest size under a better surrogate."""
    by_size = grid(base(scale, **ANALYSIS, surrogate=WEAK[scale]), num_pairs=SIZES[scale], seed=SEEDS)
    better = base(scale, **ANALYSIS, num_pairs=SIZES[scale][0], surrogate=STRONG[scale])
    return by_size + grid(better, seed=SEEDS)


BY_WEAK = ANALYSIS | {"surrogate": by_scale(WEAK)}
FEWEST_PAIRS = {"num_pairs": by_scale({scale: sizes[0] for scale, sizes in SIZES.items()})}
BY_STRONG = ANALYSIS | {"surrogate": by_scale(STRONG)} | FEWEST_PAIRS
NEAREST, ANYWHERE = "nearest/plausible", "anywhere/plausible"


def make_size_row(size: int) -> Row:
    """Return the row of one number of pairs, shown at the scales that have it."""
    scales = tuple(scale for scale, sizes in SIZES.items() if size in sizes)
    return Row(label=f"{size:,} pairs", runs=pick(**BY_WEAK, num_pairs=size), scales=scales)


TABLE = Table(
    name="false_negatives",
    caption=(
        "Percentage of the 11 nearest documents of a training document, and of 11 random documents, that eq. 4 would "
        "exclude as false negatives of its query. Means over 1000 training documents, by number of pairs, and under a "
        "better surrogate. 'have one %' is the percentage of documents with at least one excluded neighbour. Random "
        "documents are almost certainly not answers, so excluding them is over-pruning."
    ),
    columns=(
        Column(label="nearest %", value=NEAREST, factor=100),
        Column(label="have one %", value="nearest/any_plausible", factor=100),
        Column(label="anywhere %", value=ANYWHERE, factor=100),
    ),
    rows=(
        *(make_size_row(size) for size in sorted({size for sizes in SIZES.values() for size in sizes})),
        Row(label="fewest pairs, a better surrogate", runs=pick(**BY_STRONG)),
    ),
)

CLAIMS = (
    Claim.trend(
        "S4.a",
        "false negatives become more common as the data grows",
        over=term(NEAREST, **BY_WEAK),
        axis="num_pairs",
        sign=1,
        source="§4.1",
        because="a slope beyond chance, of the share of near documents that eq. 4 takes for positives",
        seeds=SEEDS,
        **fresh.STATED,
    ),
    Claim.order(
        "S4.b",
        "the filter over-prunes: a better surrogate mistakes fewer random documents for positives",
        pairs=[(term(ANYWHERE, **BY_WEAK, **FEWEST_PAIRS), term(ANYWHERE, **BY_STRONG))],
        source="§4.1",
        because="any difference beyond chance; random documents are almost certainly not answers",
        seeds=SEEDS,
        **fresh.STATED,
    ),
)

EXPERIMENT = Experiment(
    number=23, title="False negatives and the filter", runs=runs, artefacts=(TABLE,), claims=CLAIMS, local_seeds=SEEDS
)

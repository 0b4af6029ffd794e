"""Recipes for contextual batches at desk scale, compared on the validation domains of the training sources only."""

from repro.spec import Column, Experiment, Row, Run, Table, base, pick

# What was tried before Table 1's recipe was chosen. Larger clusters over a whole source ("domain_column") bring
# near-copies of one document from many services into one batch.
TRIED: tuple[tuple[str, dict[str, object]], ...] = (
    ("random batches", {"sampler": "random"}),
    ("one domain a batch", {"sampler": "domain"}),
    ("one domain a batch, filter", {"sampler": "domain", "filter": "surrogate"}),
    ("one source a batch", {"sampler": "domain", "domain_column": "source"}),
    ("clusters of 64 in a domain", {"sampler": "cluster", "cluster_size": 64, "packing": "greedy"}),
    ("clusters of 64, filter", {"sampler": "cluster", "cluster_size": 64, "packing": "greedy", "filter": "surrogate"}),
    (
        "clusters of 256, filter",
        {"sampler": "cluster", "cluster_size": 256, "packing": "greedy", "filter": "surrogate"},
    ),
)
FIXED = {
    "domain_column": "domain",
    "architecture": "biencoder",
    "filter": "none",
    "packing": "random",
    "cluster_size": None,
    "suite": "desk-validation",
}
SMOKE = {"suite": "planted-validation"}


def settings(scale: str, tried: dict[str, object]) -> dict[str, object]:
    """One recipe at one scale; the planted corpus of smoke has smaller domains and a suite of its own."""
    chosen = FIXED | tried
    if scale != "smoke":
        return chosen
    return chosen | SMOKE | ({"cluster_size": 8} if chosen["sampler"] == "cluster" else {})


def runs(scale: str) -> tuple[Run, ...]:
    """One seed of each recipe, at the scales that have validation domains."""
    at = scale if scale in ("smoke", "desk", "lab") else "lab"
    return tuple(base(at, **settings(at, tried)) for _, tried in TRIED)


TABLE = Table(
    name="recipes",
    caption="Biencoders under several ways to make batches; NDCG@10 on validation domains of the training sources.",
    columns=(
        Column(label="batch", value="batch_size", decimals=0),
        Column(label="train loss", value="train/loss", decimals=2),
        Column(label="masked %", value="train/masked_fraction", factor=100),
        *(
            Column(label=family, value=f"{{suite}}/{family}/ndcg_at_10", factor=100, scales=("desk", "lab"))
            for family in ("services", "packages", "collections")
        ),
        Column(label="NDCG@10", value="{suite}/mean/ndcg_at_10", factor=100),
    ),
    rows=tuple(Row(label=label, of=pick(**(FIXED | tried))) for label, tried in TRIED),
)

EXPERIMENT = Experiment(number=3, title="What was tried before Table 1", runs=runs, shows=(TABLE,))

"""Tables 5 and 6: number of pairs per training source and size of each evaluation set. Nothing is trained."""

from repro.spec import TRAINING_PAIRS, Column, Experiment, Row, Run, Table, base, pick

# Table 5 counts whole batches only. Table 6 as printed.
PRINTED_TOTAL = 234_553_344
EVALUATION = {
    "nfcorpus": (323, 3_633),
    "scifact": (300, 5_183),
    "arguana": (1_406, 8_674),
    "scidocs": (1_000, 25_657),
    "trec-covid": (50, 171_332),
    "quora": (5_000, 522_931),
    "nq": (3_452, 2_681_468),
    "msmarco": (6_980, 8_841_823),
}
NUM_QUERIES, NUM_DOCUMENTS = map(sum, zip(*EVALUATION.values(), strict=True))
EVALUATION_TOTAL = {"sets": len(EVALUATION), "queries": NUM_QUERIES, "documents": NUM_DOCUMENTS}
COUNTED = {"measure": "counts", "architecture": "none"}
OURS = {"desk": ("services", "modules", "packages"), "smoke": ("planted",)}
FAMILIES = {"desk": ("services", "packages", "collections", "cloud", "medical"), "smoke": ("planted",)}
SCALES_OF = {"desk": ("desk", "lab"), "smoke": ("smoke",)}


def runs(scale: str) -> tuple[Run, ...]:
    """Return one count of everything. The paper's sources are the domains of its corpus."""
    column = "domain" if scale in ("small", "large") else "source"
    return (base(scale, **COUNTED, domain_column=column),)


def ours(names: dict[str, tuple[str, ...]]) -> tuple[Row, ...]:
    """Return a row for each of our own sources or families, at the scales that have it."""
    return tuple(
        Row(label=name, part=name, runs=pick(**COUNTED, scale=SCALES_OF[scale]), scales=SCALES_OF[scale])
        for scale, parts in names.items()
        for name in parts
    )


PAPERS = pick(**COUNTED, scale=("small", "large"))

TABLE_5 = Table(
    name="table5",
    caption=(
        "Training pairs by source: the paper's 29 sources, and those mined from installed packages. 'used' counts the "
        "pairs that a run of this scale trains on."
    ),
    columns=(
        Column(label="pairs", value="train/{part}/num_pairs", decimals=0),
        Column(label="used", value="train/{part}/num_pairs_used", decimals=0),
        Column(label="% of used", value="train/{part}/share", factor=100),
        Column(label="domains", value="train/{part}/num_domains", decimals=0),
    ),
    rows=(
        *(
            Row(label=name, part=name, runs=PAPERS, paper={"pairs": pairs, "% of used": 100 * pairs / PRINTED_TOTAL})
            for name, pairs in TRAINING_PAIRS.items()
        ),
        *ours(OURS),
        Row(label="total", part="total", runs=pick(**COUNTED), paper={"pairs": PRINTED_TOTAL, "% of used": 100}),
    ),
)

TABLE_6 = Table(
    name="table6",
    caption="Evaluation sets: the paper's, and those of this scale by family. Numbers of words are means over texts.",
    columns=(
        Column(label="sets", value="{suite}/{part}/num_datasets", decimals=0),
        Column(label="queries", value="{suite}/{part}/num_queries", decimals=0),
        Column(label="documents", value="{suite}/{part}/num_documents", decimals=0),
        Column(label="words per query", value="{suite}/{part}/query_words"),
        Column(label="words per document", value="{suite}/{part}/document_words"),
    ),
    rows=(
        *(
            Row(label=name, part=name, runs=PAPERS, paper={"sets": 1, "queries": queries, "documents": documents})
            for name, (queries, documents) in EVALUATION.items()
        ),
        *ours(FAMILIES),
        Row(label="total", part="total", runs=pick(**COUNTED), paper=EVALUATION_TOTAL),
    ),
)


EXPERIMENT = Experiment(title="Training and evaluation data", runs=runs, artefacts=(TABLE_5, TABLE_6))

"""Tables 5 and 6: how many pairs each training source has, how large each evaluation set is; nothing is trained."""

from repro.spec import Claim, Column, Experiment, Row, Run, Table, base, pick

# Table 5 and Table 6 as printed.
PRETRAINING = {
    "reddit_title_body": 64_978_944,
    "paq": 52_953_088,
    "amazon_reviews": 38_682_624,
    "s2orc_title_abstract": 35_438_592,
    "wikianswers": 9_912_320,
    "s2orc_citation_titles": 7_585_792,
    "s2orc_abstract_citation": 7_503_872,
    "s2orc_abstract_body": 6_389_760,
    "wikipedia": 6_078_464,
    "gooaq": 1_245_184,
    "codesearch": 835_584,
    "agnews": 409_600,
    "ccnews": 344_064,
    "npr": 344_064,
    "cnn": 278_528,
    "yahoo_title_answer": 262_144,
    "amazonqa": 212_992,
    "yahoo_title_question": 196_608,
    "sentence_compression": 163_840,
    "yahoo_qa": 131_072,
    "eli5": 98_304,
    "altlex": 98_304,
    "wikihow": 81_920,
    "simplewiki": 81_920,
    "stackexchange_duplicate_questions": 65_536,
    "stackexchange_title_body": 65_536,
    "stackexchange_body_body": 65_536,
    "quora": 32_768,
    "squad": 16_384,
}
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
ANNOUNCED = 9
COUNTED = {"measure": "counts", "architecture": "none"}
OURS = {"desk": ("services", "modules", "packages"), "smoke": ("planted",)}
FAMILIES = {"desk": ("services", "packages", "collections", "cloud", "medical"), "smoke": ("planted",)}
SCALES_OF = {"desk": ("desk", "lab"), "smoke": ("smoke",)}


def runs(scale: str) -> tuple[Run, ...]:
    """One count of everything; the paper's sources are the domains of its corpus."""
    column = "domain" if scale in ("small", "large") else "source"
    return (base(scale, **COUNTED, domain_column=column),)


def ours(names: dict[str, tuple[str, ...]]) -> tuple[Row, ...]:
    """A row for each of our own sources or families, at the scales that have it."""
    return tuple(
        Row(label=name, part=name, of=pick(**COUNTED, scale=SCALES_OF[scale]), scales=SCALES_OF[scale])
        for scale, each in names.items()
        for name in each
    )


PAPERS = pick(**COUNTED, scale=("small", "large"))

TABLE_5 = Table(
    name="table5",
    caption=(
        "Training pairs by source: the paper's 29, and what was mined here from installed packages. "
        "'used': what a run of this scale trains on."
    ),
    columns=(
        Column(label="pairs", value="train/{part}/num_pairs", decimals=0),
        Column(label="used", value="train/{part}/num_pairs_used", decimals=0),
        Column(label="% of used", value="train/{part}/share", factor=100),
        Column(label="domains", value="train/{part}/num_domains", decimals=0),
    ),
    rows=(
        *(
            Row(label=name, part=name, of=PAPERS, paper={"pairs": pairs, "% of used": 100 * pairs / PRINTED_TOTAL})
            for name, pairs in PRETRAINING.items()
        ),
        *ours(OURS),
        Row(label="total", part="total", of=pick(**COUNTED), paper={"pairs": PRINTED_TOTAL, "% of used": 100}),
    ),
)

TABLE_6 = Table(
    name="table6",
    caption="Evaluation sets: the paper's, and those of this scale by family. Words are means over texts.",
    columns=(
        Column(label="sets", value="{suite}/{part}/num_datasets", decimals=0),
        Column(label="queries", value="{suite}/{part}/num_queries", decimals=0),
        Column(label="documents", value="{suite}/{part}/num_documents", decimals=0),
        Column(label="words a query", value="{suite}/{part}/query_words"),
        Column(label="words a document", value="{suite}/{part}/document_words"),
    ),
    rows=(
        *(
            Row(label=name, part=name, of=PAPERS, paper={"sets": 1, "queries": queries, "documents": documents})
            for name, (queries, documents) in EVALUATION.items()
        ),
        *ours(FAMILIES),
        Row(
            label="total",
            part="total",
            of=pick(**COUNTED),
            paper={
                "sets": len(EVALUATION),
                "queries": sum(queries for queries, _ in EVALUATION.values()),
                "documents": sum(documents for _, documents in EVALUATION.values()),
            },
        ),
    ),
)


def pretraining_adds_up() -> tuple[bool, str]:
    """Whether the rows of Table 5 sum to the total that is printed under them."""
    total = sum(PRETRAINING.values())
    return total == PRINTED_TOTAL, f"{len(PRETRAINING)} rows sum to {total:,}"


def one_row_is_missing() -> tuple[bool, str]:
    """Whether Table 6 has one row fewer than the text announces."""
    return len(EVALUATION) == ANNOUNCED - 1, f"{len(EVALUATION)} rows; the text announces {ANNOUNCED} datasets"


CLAIMS = (
    Claim.identity(
        "T5.a",
        "the 29 rows of the pre-training data sum to 234,553,344",
        holds=pretraining_adds_up,
        source="Table 5",
        because="arithmetic of printed numbers",
    ),
    Claim.identity(
        "T6.a",
        "eight evaluation sets are listed where the text says nine",
        holds=one_row_is_missing,
        source="Table 6",
        because="a count of printed rows",
    ),
)

EXPERIMENT = Experiment(
    number=11, title="Training and evaluation data", runs=runs, shows=(TABLE_5, TABLE_6), claims=CLAIMS
)

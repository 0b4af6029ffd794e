"""Tables 5 and 6: number of pairs per training source and size of each evaluation set. Nothing is trained."""

from experiments.fresh import STATED
from repro.spec import Claim, Column, Experiment, Row, Run, Table, base, pick

# Tables 5 and 6 as printed.
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
SHARES = (28, 23, 16, 15, 4, 3, 3, 3, 3, 1)  # Table 5, "% Dataset" of its first rows. The others print "<.01".
QUORA_TEST = 10_000  # queries of BEIR's test set
BATCH = 16_384  # of the paper's plain runs, Table 1
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
            for name, pairs in PRETRAINING.items()
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
        Row(
            label="total",
            part="total",
            runs=pick(**COUNTED),
            paper={
                "sets": len(EVALUATION),
                "queries": sum(queries for queries, _ in EVALUATION.values()),
                "documents": sum(documents for _, documents in EVALUATION.values()),
            },
        ),
    ),
)


def pretraining_adds_up() -> tuple[bool, str]:
    """Whether the rows of Table 5 sum to the printed total."""
    total = sum(PRETRAINING.values())
    return total == PRINTED_TOTAL, f"{len(PRETRAINING)} rows sum to {total:,}"


def shares_follow() -> tuple[bool, str]:
    """Whether the printed shares follow from the printed numbers of pairs."""
    shares = tuple(round(100 * pairs / PRINTED_TOTAL) for pairs in PRETRAINING.values())[: len(SHARES)]
    return shares == SHARES, f"the first {len(SHARES)} rows are {', '.join(map(str, shares))} %"


def reddit_is_a_quarter() -> tuple[bool, str]:
    """Whether Reddit provides over a quarter of the pairs."""
    share = PRETRAINING["reddit_title_body"] / PRINTED_TOTAL
    return share > 0.25, f"Reddit has {share:.1%} of the pairs"


def nineteen_are_small() -> tuple[bool, str]:
    """Whether 19 sources have less than a hundredth of the pairs each."""
    small = sum(pairs < PRINTED_TOTAL / 100 for pairs in PRETRAINING.values())
    return small == 19, f"{small} are: Gooaq, printed as .01, is {PRETRAINING['gooaq'] / PRINTED_TOTAL:.2%}"


def as_many_sources() -> tuple[bool, str]:
    """Whether the 24 datasets of §5 are the rows of Table 5."""
    return len(PRETRAINING) == 24, f"Table 5 and §9.8 have {len(PRETRAINING)}"


def as_many_pairs() -> tuple[bool, str]:
    """Whether 200 M (§5), 234 M (§9.8) and 235 M (§9.1) pairs equal the total of Table 5."""
    millions, printed = PRINTED_TOTAL / 1e6, (200, 234, 235)
    details = f"Table 5 has {millions:.1f} M: 234 M cut off, 235 M rounded, and a sixth more than 200 M"
    return all(abs(millions - count) < 1 for count in printed), details


def whole_batches() -> tuple[bool, str]:
    """Whether every row of Table 5 is a multiple of a batch of 16384."""
    remainders = {name: pairs % BATCH for name, pairs in PRETRAINING.items()}
    return not any(
        remainders.values()
    ), f"all {len(remainders)} rows divide by {BATCH:,}: pairs that fill no batch are not counted"


def nine_sets() -> tuple[bool, str]:
    """Whether Table 6 has the nine datasets announced in the text."""
    return len(EVALUATION) == ANNOUNCED, f"{len(EVALUATION)} rows; the official code has FiQA as the ninth"


def ordered_by_size() -> tuple[bool, str]:
    """Whether Table 6 is ordered by corpus size."""
    sizes = [documents for _, documents in EVALUATION.values()]
    return sizes == sorted(sizes), f"{sizes[0]:,} to {sizes[-1]:,} documents"


def two_are_small() -> tuple[bool, str]:
    """Whether ArguAna and SciFact are in the smaller half of Table 6."""
    ranks = [list(EVALUATION).index(name) + 1 for name in ("scifact", "arguana")]
    return max(ranks) <= len(EVALUATION) / 2, f"they are numbers {ranks[0]} and {ranks[1]} of {len(EVALUATION)}"


def as_published() -> tuple[bool, str]:
    """Whether Table 6 counts the 10,000 queries of Quora's test set (MS MARCO is scored on dev, as usual)."""
    return EVALUATION["quora"][
        0
    ] == QUORA_TEST, f"Quora's test set has {QUORA_TEST:,} queries, its development set 5,000"


PRINTED_ROWS = "arithmetic of printed numbers, and counts of the public data"
CLAIMS = tuple(
    Claim.identity(id, statement, holds=holds, source=source, because=PRINTED_ROWS, **(STATED | said))
    for id, statement, holds, source, said in (
        (
            "T5.a",
            "the 29 rows of the pre-training data sum to 234,553,344",
            pretraining_adds_up,
            "Table 5",
            {"stated": ""},
        ),
        ("T5.b", "the printed shares follow from the numbers of pairs", shares_follow, "Table 5", {}),
        ("T5.c", "Reddit alone makes up over 25 % of the data", reddit_is_a_quarter, "§9.8", {}),
        ("T5.d", "19 of the datasets are under 1 % of the data each", nineteen_are_small, "§9.8", {}),
        ("T5.e", "the collection is of 24 datasets", as_many_sources, "§5", {}),
        ("T5.f", "the unsupervised phase has 200 M, 234 M or 235 M pairs", as_many_pairs, "§5, §9.8, §9.1", {}),
        (
            "own.e",
            "rows of Table 5 count whole batches of 16384",
            whole_batches,
            "our question: our reading of Table 5",
            {},
        ),
        ("T6.a", "initial experiments evaluate on nine datasets, those of Table 6", nine_sets, "§9.9", {"version": 2}),
        ("T6.b", "Table 6 is ordered by corpus size", ordered_by_size, "Table 6", {}),
        ("T6.c", "ArguAna and SciFact are two of the smaller datasets", two_are_small, "§6", {}),
        ("T6.d", "Table 6 counts Quora's published test set", as_published, "Table 6", {}),
    )
)

EXPERIMENT = Experiment(
    number=11, title="Training and evaluation data", runs=runs, artefacts=(TABLE_5, TABLE_6), claims=CLAIMS
)

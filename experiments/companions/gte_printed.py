"""Numbers printed in GTE (Li et al. 2023): its tables, and claims about the arithmetic between them."""

from typing import Any

from experiments.fresh import STATED
from repro.spec import Claim

ROUNDING_NOTE = "printed to 0.1"
EPSILON = 1e-9
SIZES = {
    "web page": (3, 18.7, 147),
    "academic paper": (5, 5.7, 45),
    "hyperlink": (4, 13.4, 106),
    "social media": (2, 41.5, 327),
    "knowledge base": (2, 4.8, 38),
    "community QA": (7, 1.5, 12),
    "news": (5, 0.4, 3),
    "code": (2, 2.5, 20),
    "others": (3, 11.6, 91),
}
"""Table 1: datasets, per cent, millions of pairs."""
TOTAL = 788
BEIR = {
    "BM25": ((22.8, 65.6, 32.5, 32.9, 60.3, 23.6, 31.5, 36.7, 29.9, 78.9, 31.3, 15.8, 75.3, 21.3, 66.5), 41.7),
    "SimCSE": ((9.4, 26.2, 9.9, 11.7, 19.8, 9.8, 38.3, 8.9, 13.2, 78.0, 15.0, 5.5, 21.1, 11.8, 25.7), 20.3),
    "Contriever": ((20.6, 27.4, 31.7, 25.4, 48.1, 24.5, 37.9, 19.3, 28.4, 83.5, 29.2, 14.9, 68.2, 15.5, 64.9), 36.0),
    "E5 small": ((25.4, 52.0, 29.3, 37.3, 46.0, 38.3, 42.5, 19.9, 35.0, 85.8, 34.5, 19.9, 62.5, 14.5, 68.5), 40.8),
    "E5 base": ((26.0, 61.0, 35.8, 39.0, 52.4, 40.0, 42.2, 16.9, 35.4, 85.7, 35.4, 21.1, 63.4, 15.4, 73.7), 42.9),
    "E5 large": ((26.2, 61.8, 33.7, 41.7, 52.2, 43.2, 44.4, 19.8, 38.9, 86.1, 37.1, 21.8, 68.6, 15.7, 72.3), 44.2),
    "GTE small": ((31.3, 61.8, 34.9, 32.0, 49.3, 37.0, 41.6, 17.7, 38.1, 86.1, 33.5, 21.5, 71.3, 21.4, 72.7), 43.4),
    "GTE base": ((31.8, 64.0, 36.2, 35.3, 50.8, 36.9, 41.0, 18.2, 39.9, 85.0, 33.2, 22.5, 72.7, 21.0, 74.1), 44.2),
    "GTE large": ((31.7, 64.8, 38.1, 34.5, 49.2, 40.6, 41.3, 18.5, 39.8, 84.8, 33.6, 22.7, 70.5, 25.4, 74.1), 44.6),
}
"""Table 5: NDCG@10 of fifteen datasets, and the printed average. CPT-S lacks four."""
WEIGHTS = (12, 11, 3, 4, 15, 10, 1)
MTEB = {
    "GTE small, unsupervised": ((71.0, 44.9, 82.4, 57.5, 43.4, 77.2, 30.4), 58.5),
    "GTE base, unsupervised": ((71.5, 46.0, 83.3, 58.4, 44.2, 76.5, 29.5), 59.0),
    "GTE large, unsupervised": ((71.8, 46.4, 83.3, 58.8, 44.6, 76.3, 30.1), 59.3),
    "GTE small": ((72.3, 44.9, 83.5, 57.7, 49.5, 82.1, 30.4), 61.4),
    "GTE base": ((73.0, 46.1, 84.3, 58.6, 51.2, 82.3, 30.7), 62.4),
    "GTE large": ((73.3, 46.8, 85.0, 59.1, 52.2, 83.4, 31.7), 63.1),
}
"""Table 6: seven categories, and the printed average over 56 datasets. GTE's own rows."""
E5 = {
    "small": ((67.0, 41.7, 78.2, 53.1, 40.8, 68.8, 25.2), 54.2),
    "base": ((67.9, 43.4, 79.2, 53.5, 42.9, 69.5, 24.3), 55.5),
    "large": ((69.0, 44.3, 80.3, 54.4, 44.2, 69.9, 24.8), 56.4),
}
"""E5's rows before fine-tuning."""
FINE_TUNED = {"E5 large": 61.4, "InstructOR large": 61.6, "OpenAI ada-002": 61.0}
TEN_TIMES_LARGER = {"InstructOR xl": 61.8, "GTR xxl": 59.0, "Sentence-T5 xxl": 59.5}
WEIGHTS_OF = {"GTE small": 30, "E5 large": 330}
"""Averages of other models after fine-tuning, with larger ones listed separately. Millions of weights."""
POLARITY: dict[str, Any] = {
    "E5 base": (None, 81.3),
    "E5 large": (None, 85.3),
    "cpt-text, 6B": (88.1, 89.1),
    "GTE base": (85.1, 87.2),
}
"""Table 4: accuracy on SST-2 without and with a prompt."""
CODE = {
    "CodeBERT": ((69.3, 70.6, 84.0, 86.8, 74.8, 70.6), 76.0),
    "GraphCodeBERT": ((84.1, 73.2, 87.9, 75.7, 71.1, 72.5), 77.4),
    "cpt-code S": ((86.3, 86.0, 97.7, 99.8, 94.0, 96.7), 93.4),
    "cpt-code M": ((85.5, 86.5, 97.5, 99.9, 94.4, 97.2), 93.5),
    "GTE base": ((79.6, 79.4, 84.2, 98.8, 86.8, 86.8), 85.9),
}
"""Table 13: Ruby, JS, Go, Python, Java, PHP, and the printed average."""
CODE_ALL = {
    "CodeBERT": ((67.9, 62.0, 88.2, 67.2, 67.6, 62.8), 69.3),
    "GraphCodeBERT": ((70.3, 64.4, 89.7, 69.2, 69.1, 64.9), 71.3),
    "UniXcoder": ((74.0, 68.4, 91.5, 72.0, 72.6, 67.6), 74.4),
    "CodeRetriever": ((77.1, 71.9, 92.4, 75.8, 76.5, 70.8), 77.4),
    "GTE base": ((76.1, 73.6, 88.1, 95.9, 80.1, 85.3), 83.2),
}
"""Table 7: the same among all candidates."""
PYTHON = 3
"""Column of Python in both."""
STEPS = {10: 56.4, 20: 59.0, 30: 57.8, 40: 57.7, 50: 59.0}
"""Table 8: MTEB by thousands of steps."""
STAGES = {"PT": 59.0, "FT": 57.8, "Full": 62.4}
MIXING = {0.0: (36.7, 73.2, 55.4), 0.3: (44.6, 75.9, 58.9), 0.5: (44.2, 76.5, 59.0), 1.0: (42.0, 75.5, 58.3)}
"""Table 10: retrieval, STS and MTEB by the exponent α."""
LOSSES = {"vanilla": (57.3, 61.8), "improved": (57.8, 62.4)}
"""Table 11: MTEB after pre-training of 30 k steps, and after fine-tuning."""
MAX_CHANGE = 0.5
"""Points within which a score counts as saturated."""


def sizes_add_up() -> tuple[bool, str]:
    """Whether the sizes of Table 1 sum to the printed total, within the rounding of nine numbers."""
    total, datasets = sum(size for _, _, size in SIZES.values()), sum(count for count, _, _ in SIZES.values())
    return abs(total - TOTAL) <= len(SIZES) / 2 and datasets == 33, (
        f"{total} M where {TOTAL} M is printed: nine roundings allow {len(SIZES) / 2:g}; {datasets} datasets"
    )


def shares_follow() -> tuple[bool, str]:
    """Whether the shares of Table 1 follow from the sizes, which are rounded to a million."""
    deviations = {name: abs(100 * size / TOTAL - share) for name, (_, share, size) in SIZES.items()}
    allowed = 0.05 + 100 * 0.5 / TOTAL
    worst = max(deviations, key=deviations.__getitem__)
    return deviations[
        worst
    ] <= allowed, f"furthest off is {worst} by {deviations[worst]:.3f}; rounding allows {allowed:.3f}"


def means_follow(rows: dict[str, Any], weights: tuple[int, ...] | None = None) -> tuple[bool, str]:
    """Whether printed averages follow from printed rows, all of them printed to 0.1."""
    deviations = {}
    for name, (values, printed) in rows.items():
        row_weights = weights or (1,) * len(values)
        deviations[name] = abs(
            sum(weight * value for weight, value in zip(row_weights, values, strict=True)) / sum(row_weights) - printed
        )
    worst = max(deviations, key=deviations.__getitem__)
    return deviations[worst] <= 0.1 + EPSILON, f"{len(rows)} rows; furthest off is {worst} by {deviations[worst]:.3f}"


def tables_agree() -> tuple[bool, str]:
    """Whether the tables print the same numbers for the same models."""
    pairs = {
        "Table 8 at 50 k and Table 9, PT": (STEPS[50], STAGES["PT"]),
        "Table 9, PT and Table 6, unsupervised": (STAGES["PT"], MTEB["GTE base, unsupervised"][1]),
        "Table 10 at 0.5 and Table 9, PT": (MIXING[0.5][2], STAGES["PT"]),
        "Table 8 at 30 k and Table 11, improved": (STEPS[30], LOSSES["improved"][0]),
        "Table 11, fine-tuned and Table 9, Full": (LOSSES["improved"][1], STAGES["Full"]),
        "Table 6, base and Table 9, Full": (MTEB["GTE base"][1], STAGES["Full"]),
    }
    different = [name for name, (first, second) in pairs.items() if first != second]
    return not different, f"{len(pairs)} numbers printed twice; different: {', '.join(different) or 'none'}"


def ahead_on_beir() -> tuple[bool, str]:
    """Whether each size beats BM25, E5 of its size, SimCSE and Contriever over BEIR, and base equals E5 large."""
    rows = {size: (BEIR[f"GTE {size}"][1], BEIR[f"E5 {size}"][1]) for size in E5}
    details = ", ".join(f"{size} {own} and {other}" for size, (own, other) in rows.items())
    best_other = max(BEIR[name][1] for name in ("BM25", "SimCSE", "Contriever"))
    are_ahead = all(own > max(other, best_other) for own, other in rows.values())
    return are_ahead and rows["base"][0] == rows["large"][
        1
    ], f"{details}; BM25, SimCSE and Contriever at most {best_other}"


def ahead_of_e5() -> tuple[bool, str]:
    """Whether each size beats E5 of its size in every category before fine-tuning."""
    pairs = {size: tuple(zip(MTEB[f"GTE {size}, unsupervised"][0], E5[size][0], strict=True)) for size in E5}
    smallest_lead = min(own - other for size_pairs in pairs.values() for own, other in size_pairs)
    return smallest_lead > 0, f"by {smallest_lead:.1f} points and more"


def ahead_of_larger() -> tuple[bool, str]:
    """Whether base beats OpenAI's model and models of ten times its size, and large beats them by 1.5 points."""
    own, others = MTEB["GTE base"][1], [*TEN_TIMES_LARGER.values(), FINE_TUNED["OpenAI ada-002"]]
    lead = round(MTEB["GTE large"][1] - FINE_TUNED["InstructOR large"], 1)
    return own > max(others) and lead == 1.5, f"{own} against {max(others)} at most; InstructOR large is {lead} behind"


def small_is_enough() -> tuple[bool, str]:
    """Whether the small model equals E5 large, with a tenth of its weights."""
    own, other = MTEB["GTE small"][1], FINE_TUNED["E5 large"]
    return own == other and WEIGHTS_OF["E5 large"] >= 10 * WEIGHTS_OF["GTE small"], f"{own} and {other}"


def saturates_at_20k() -> tuple[bool, str]:
    """Whether the score is constant from 20 k steps on."""
    later = [score for steps, score in STEPS.items() if steps > 20]
    largest_change = max(abs(score - STEPS[20]) for score in later)
    return (
        largest_change <= MAX_CHANGE,
        f"{STEPS[20]} at 20 k, then {', '.join(map(str, later))}: it moves by {largest_change:.1f}",
    )


def half_is_best_everywhere() -> tuple[bool, str]:
    """Whether α = 0.5 is best on retrieval, STS and MTEB."""
    best = [max(MIXING, key=lambda alpha: MIXING[alpha][column]) for column in range(3)]
    details = ", ".join(f"{name} {alpha:g}" for name, alpha in zip(("retrieval", "STS", "MTEB"), best, strict=True))
    return set(best) == {0.5}, f"best: {details}; retrieval is {MIXING[0.3][0]} at 0.3, {MIXING[0.5][0]} at 0.5"


def extremes_are_not_best() -> tuple[bool, str]:
    """Whether neither uniform nor proportional mixing is best on any of the three."""
    best = {max(MIXING, key=lambda alpha: MIXING[alpha][column]) for column in range(3)}
    return not best & {0.0, 1.0}, f"the best α are {sorted(best)}"


def most_languages() -> tuple[bool, str]:
    """Whether GTE beats CodeBERT and GraphCodeBERT in most languages."""
    ours, others = CODE["GTE base"][0], [CODE[name][0] for name in ("CodeBERT", "GraphCodeBERT")]
    ahead = sum(own > max(other_scores) for own, *other_scores in zip(ours, *others, strict=True))
    return ahead > len(ours) / 2, f"ahead in {ahead} of {len(ours)}"


ARITHMETIC: tuple[Claim, ...] = tuple(
    Claim.identity(id, statement, holds=holds, source=source, because=because, **STATED)
    for id, statement, holds, source, because in (
        (
            "G1.a",
            "the sizes of the sources sum to 788 M pairs of 33 datasets",
            sizes_add_up,
            "Table 1",
            "rounded to 1 M",
        ),
        ("G1.b", "the shares follow from the sizes", shares_follow, "Table 1", "printed to 0.1 and to 1 M"),
        ("G5.a", "averages over BEIR follow from the rows", lambda: means_follow(BEIR), "Table 5", ROUNDING_NOTE),
        (
            "G6.a",
            "averages over MTEB follow from the categories, weighted by number of datasets",
            lambda: means_follow(MTEB, WEIGHTS),
            "Table 6",
            ROUNDING_NOTE,
        ),
        (
            "G5.b",
            "before fine-tuning, on BEIR: ahead of BM25, SimCSE, Contriever and E5 of its size, the base model like E5 large",
            ahead_on_beir,
            "§1, §4.2 and Table 5",
            "printed averages",
        ),
        (
            "G6.b",
            "before fine-tuning the model is ahead of E5 in every category of MTEB, at each size",
            ahead_of_e5,
            "§4.3 and Table 6",
            "printed numbers",
        ),
        (
            "G6.c",
            "the base model beats OpenAI's and models ten times as large, and the large model beats InstructOR by 1.5",
            ahead_of_larger,
            "Abstract, §4.3 and Table 6",
            "printed averages",
        ),
        (
            "G6.d",
            "the small model is as good as E5 large, which is ten times as large",
            small_is_enough,
            "§4.3 and Table 6",
            "printed averages",
        ),
        ("G8.a", "the score saturates at 20 k steps", saturates_at_20k, "§5.2 and Table 8", "half a point of movement"),
        ("G8.b", "GTE's tables agree with each other", tables_agree, "Tables 6, 8, 9, 10, 11", "the same models"),
        ("G10.a", "α = 0.5 improves all tasks", half_is_best_everywhere, "§5.4 and Table 10", "printed numbers"),
        ("G10.b", "neither extreme of α is best", extremes_are_not_best, "§5.4 and Table 10", "printed numbers"),
        (
            "G13.a",
            "averages over languages follow from the rows",
            lambda: means_follow(CODE),
            "Table 13",
            ROUNDING_NOTE,
        ),
        (
            "G7.d",
            "averages over languages follow from the rows of Table 7",
            lambda: means_follow(CODE_ALL),
            "Table 7",
            ROUNDING_NOTE,
        ),
        (
            "G13.b",
            "in code search the model is ahead of open models in most languages",
            most_languages,
            "Appendix C and Table 13",
            "printed numbers",
        ),
    )
)

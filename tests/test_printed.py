"""Recompute the claims about printed numbers. docs/ERRATA.md states each, with the outcome and the computed numbers."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from math import dist, sqrt
from pathlib import Path

import pytest

from experiments.companions.e33_improved_loss import LOSSES
from experiments.companions.e34_mixing import MIXING
from experiments.companions.e36_stages import STAGES, STEP_SCORES
from experiments.companions.e41_code_search import CODE, CODE_ALL, PYTHON
from experiments.companions.e42_polarity import POLARITY
from experiments.e11_data import EVALUATION, PRINTED_TOTAL
from experiments.e19_mteb import CATEGORIES
from experiments.e19_mteb import PRINTED as MTEB
from experiments.e20_two_phases import DATASETS
from experiments.e20_two_phases import PRINTED as TABLE_7
from repro.spec import TRAINING_PAIRS

ROOT = Path(__file__).resolve().parent
GTE = tomllib.loads((ROOT / "gte_printed.toml").read_text())
PAGE = (ROOT.parent / "docs" / "ERRATA.md").read_text()
CONTRADICTED, AGREEING = PAGE.split("## Where the paper contradicts itself")[1].split("## Printed numbers that agree")
NUMBER = re.compile(r"\d+(?:,\d{3})+|\d+(?:\.\d+)?")
ROUNDING = 0.1 + 1e-9
"""Largest deviation of a mean of numbers that are printed to 0.1."""

Outcome = tuple[bool, str]
"""Whether the claim holds, and the computed numbers."""


def check_means(rows: Mapping[str, Sequence[float]], weights: Sequence[int] = (), allowed: float = ROUNDING) -> Outcome:
    """Return whether the last number of each row is the weighted mean of the others, and the largest deviation."""
    deviations = []
    for *values, mean in rows.values():
        of_row = weights or [1] * len(values)
        total = sum(weight * value for weight, value in zip(of_row, values, strict=True))
        deviations.append(abs(total / sum(of_row) - mean))
    return max(deviations) <= allowed, f"{len(rows)} {max(deviations):.3f}"


def subtract(rows: Iterable[float], others: Iterable[float]) -> list[float]:
    """Return the differences of two printed rows, rounded as they are printed."""
    return [round(value - other, 1) for value, other in zip(rows, others, strict=True)]


def check_cost() -> Outcome:
    """Compare the tokens of both stages with those of a biencoder: 512 tokens a text, 512 contexts."""
    ratios = [(512 * 512 + 2 * batch * (512 + 512)) / (2 * batch * 512) for batch in (512, 16384)]
    return all(1.5 <= ratio <= 2.5 for ratio in ratios), " ".join(f"{ratio:.2f}" for ratio in ratios)


def check_triangle() -> Outcome:
    """Go from a pair of unit vectors to itself, directly and by way of the pair with query and document swapped."""

    def distance(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
        return dist(one[0], other[1]) + dist(other[0], one[1])

    pair = ((1.0, 0.0), (0.0, 1.0))
    detour, direct = 2 * distance(pair, pair[::-1]), distance(pair, pair)
    return detour >= direct, f"{direct:.2f} {detour:.2f}"


def check_products() -> Outcome:
    """Sum the distances of unit vectors for two sets of dot products with equal sums."""
    first, second = (sum(sqrt(2 - 2 * product) for product in products) for products in ((1.0, -1.0), (0.0, 0.0)))
    return first == second, f"{first:.2f} {second:.2f}"


GAINS = {
    phase: subtract(TABLE_7[f"{phase}, contextual"][0], TABLE_7[f"{phase}, plain"][0])
    for phase in ("unsupervised", "supervised")
}


def check_largest_gains() -> Outcome:
    """Rank the gains on ArguAna and TREC-COVID in each phase and on average."""
    mean_gains = [sum(gains) for gains in zip(*GAINS.values(), strict=True)]
    ranks = [
        [1 + sum(other > gains[DATASETS.index(name)] for other in gains) for name in ("Arg", "TREC")]
        for gains in (*GAINS.values(), mean_gains)
    ]
    return any(sorted(pair) == [1, 2] for pair in ranks), " ".join(str(rank) for pair in ranks for rank in pair)


def check_adaptive_cost() -> Outcome:
    """Compute how many times fewer multiplications the routes of MRL's figure 8 need, for both image sets."""
    small, large, whole = 1_281_167, 4_202_000, 2048
    funnel = 16 * small + sum(a * b for a, b in zip((200, 100, 50, 25, 10), (32, 64, 128, 256, whole), strict=True))
    costs = {128: [(small, 16 * small + 200 * whole), (small, funnel)], 32: [(large, 64 * large + 200 * whole)]}
    ratios = [(whole * count / cost, printed) for printed, routes in costs.items() for count, cost in routes]
    holds = all(abs(ratio / printed - 1) < 0.03 for ratio, printed in ratios)
    return holds, " ".join(f"{ratio:.1f}" for ratio, _ in ratios)


RANDOM, CONTEXTUAL = MTEB["cde-small-v1 [Random]"], MTEB["cde-small-v1 [Contextual]"]
MOVED = [abs(value) for value in subtract(CONTEXTUAL[:-1], RANDOM[:-1])]
OVER_NOMIC = subtract(CONTEXTUAL[:-1], MTEB["nomic-embed-v1"][:-1])
STS = [label for _, label, _ in CATEGORIES].index("STS")
BEST_OTHER = max(row[-1] for name, row in MTEB.items() if not name.startswith("cde"))
REDDIT = 100 * TRAINING_PAIRS["reddit_title_body"] / PRINTED_TOTAL
SMALL_SOURCES = sum(pairs < PRINTED_TOTAL / 100 for pairs in TRAINING_PAIRS.values())
SHARES = [round(100 * pairs / PRINTED_TOTAL) for pairs in TRAINING_PAIRS.values()][:10]
RANKS = [list(EVALUATION).index(name) + 1 for name in ("scifact", "arguana")]
LOWER = [sum(gain < 0 for gain in gains) for gains in GAINS.values()]
SIZES, BEIR, E5, OTHERS = GTE["sizes"], GTE["beir"], GTE["e5"], GTE["others"]
BEIR_MEANS = {name: row[-1] for name, row in BEIR.items()}
MEANS = {name: row[-1] for name, row in GTE["mteb"].items()}
TOTAL = sum(size for _, _, size in SIZES.values())
LEADS = [gain for size in E5 for gain in subtract(GTE["mteb"][f"GTE {size}, unsupervised"][:-1], E5[size][:-1])]
CODE_GAINS = subtract(CODE_ALL["GTE base"][0], CODE_ALL["CodeRetriever"][0])
CODE_MEANS, CODE_ALL_MEANS = ({name: mean for name, (_, mean) in rows.items()} for rows in (CODE, CODE_ALL))
HARDER = subtract(CODE["GTE base"][0], CODE_ALL["GTE base"][0])
GO = HARDER.index(min(HARDER))
CPT_CODE = [CODE_MEANS[f"cpt-code {size}"] for size in "SM"]
OPEN_CODE = [max(pair) for pair in zip(CODE["CodeBERT"][0], CODE["GraphCodeBERT"][0], strict=True)]
NUM_AHEAD = sum(own > other for own, other in zip(CODE["GTE base"][0], OPEN_CODE, strict=True))
BEST_ALPHAS = [max(MIXING, key=lambda alpha: MIXING[alpha][column]) for column in range(3)]
LEAD = round(MEANS["GTE large"] - OTHERS["InstructOR large"], 1)
BEST_LARGER = max(OTHERS[name] for name in ("InstructOR xl", "GTR xxl", "Sentence-T5 xxl", "OpenAI ada-002"))
GAPS = subtract(POLARITY["cpt-text, 6B"], POLARITY["GTE base"])
LATER_STEPS = [score for steps, score in STEP_SCORES.items() if steps > 20]
PRINTED_TWICE = (
    (STEP_SCORES[50], STAGES["PT"]),
    (STAGES["PT"], MEANS["GTE base, unsupervised"]),
    (MIXING[0.5][2], STAGES["PT"]),
    (STEP_SCORES[30], LOSSES["improved"][0]),
    (LOSSES["improved"][1], STAGES["Full"]),
    (MEANS["GTE base"], STAGES["Full"]),
)

OUTCOMES: dict[str, Outcome] = {
    "C.c": check_cost(),
    "T5.a": (sum(TRAINING_PAIRS.values()) == 234_553_344, f"{len(TRAINING_PAIRS)} {sum(TRAINING_PAIRS.values()):,}"),
    "T5.b": (SHARES == [28, 23, 16, 15, 4, 3, 3, 3, 3, 1], " ".join(map(str, SHARES))),
    "T5.c": (REDDIT > 25, f"{REDDIT:.1f}"),
    "T5.d": (SMALL_SOURCES == 19, f"{SMALL_SOURCES} {100 * TRAINING_PAIRS['gooaq'] / PRINTED_TOTAL:.2f}"),
    "T5.e": (len(TRAINING_PAIRS) == 24, f"{len(TRAINING_PAIRS)}"),
    "T5.f": (all(abs(PRINTED_TOTAL / 1e6 - count) < 1 for count in (200, 234, 235)), f"{PRINTED_TOTAL / 1e6:.1f}"),
    "own.e": (not any(pairs % 16_384 for pairs in TRAINING_PAIRS.values()), f"{len(TRAINING_PAIRS)} 16,384"),
    "T6.a": (len(EVALUATION) == 9, ""),
    "T6.b": (
        list(EVALUATION.values()) == sorted(EVALUATION.values(), key=lambda row: row[1]),
        f"{EVALUATION['nfcorpus'][1]:,} {EVALUATION['msmarco'][1]:,}",
    ),
    "T6.c": (max(RANKS) <= len(EVALUATION) / 2, f"{RANKS[0]} {RANKS[1]} {len(EVALUATION)}"),
    "T6.d": (EVALUATION["quora"][0] == 10_000, f"{EVALUATION['quora'][0]:,} 10,000"),
    "S4.d": check_triangle(),
    "S4.e": check_products(),
    "T2.d": check_means(MTEB, [count for _, _, count in CATEGORIES], allowed=0.03),
    "T2.f": (round(CONTEXTUAL[-1] - RANDOM[-1], 1) == 1.2, f"{CONTEXTUAL[-1] - RANDOM[-1]:.2f}"),
    "T2.g": (min(MOVED) == MOVED[STS], " ".join(map(str, MOVED))),
    "T2.h": (min(OVER_NOMIC) >= 0, ""),
    "T2.i": (CONTEXTUAL[-1] > BEST_OTHER, f"{CONTEXTUAL[-1]:.2f} {BEST_OTHER:.2f}"),
    "T2.j": (2 * 137 < 250, f"{2 * 137}"),
    "T2.k": (CONTEXTUAL[4] == TABLE_7["supervised, contextual"][1], f"{TABLE_7['supervised, contextual'][1]}"),
    "T4.b": (15 == 16, ""),
    "T4.c": (1.5 == 1.8, "1.8"),
    "T7.b": check_largest_gains(),
    "T7.c": check_means({name: (*scores, mean) for name, (scores, mean) in TABLE_7.items()}),
    "T7.f": (all(2 * lower < len(DATASETS) for lower in LOWER), " ".join(map(str, LOWER))),
    "M6.c": (round(512 / 37) == 14, f"{512 / 37:.1f}"),
    "M8.e": check_adaptive_cost(),
    "G1.a": (abs(TOTAL - 788) <= len(SIZES) / 2 and sum(row[0] for row in SIZES.values()) == 33, f"{TOTAL}"),
    "G1.b": (all(abs(100 * size / 788 - share) <= 0.113 for _, share, size in SIZES.values()), "0.113"),
    "G4.a": (
        abs(POLARITY["GTE base"][0] - POLARITY["E5 large"][1]) <= 0.5,
        f"{POLARITY['GTE base'][0]} {POLARITY['E5 large'][1]}",
    ),
    "G4.b": (GAPS[1] < GAPS[0], " ".join(map(str, GAPS))),
    "G5.a": check_means(BEIR),
    "G5.b": (
        all(BEIR_MEANS[f"GTE {size}"] > max(BEIR_MEANS[f"E5 {size}"], BEIR_MEANS["BM25"]) for size in E5)
        and BEIR_MEANS["GTE base"] == BEIR_MEANS["E5 large"],
        " ".join(f"{BEIR_MEANS[f'{model} {size}']}" for size in E5 for model in ("GTE", "E5")),
    ),
    "G6.a": check_means(GTE["mteb"], [count for _, _, count in CATEGORIES]),
    "G6.b": (min(LEADS) > 0, f"{min(LEADS)}"),
    "G6.c": (MEANS["GTE base"] > BEST_LARGER and LEAD == 1.5, f"{MEANS['GTE base']} {BEST_LARGER} {LEAD}"),
    "G6.d": (MEANS["GTE small"] == OTHERS["E5 large"], f"{MEANS['GTE small']}"),
    "G7.a": (
        CODE_ALL_MEANS["GTE base"] == max(CODE_ALL_MEANS.values()),
        f"{CODE_ALL_MEANS['GTE base']} {CODE_ALL_MEANS['CodeRetriever']}",
    ),
    "G7.b": (max(CODE_GAINS) == CODE_GAINS[PYTHON], " ".join(f"{abs(gain)}" for gain in CODE_GAINS)),
    "G7.d": check_means({name: (*scores, mean) for name, (scores, mean) in CODE_ALL.items()}),
    "G8.a": (max(abs(score - STEP_SCORES[20]) for score in LATER_STEPS) <= 0.5, " ".join(map(str, LATER_STEPS))),
    "G8.b": (all(first == second for first, second in PRINTED_TWICE), f"{len(PRINTED_TWICE)}"),
    "G10.a": (set(BEST_ALPHAS) == {0.5}, f"{MIXING[0.3][0]} {MIXING[0.5][0]}"),
    "G10.b": (not set(BEST_ALPHAS) & {0.0, 1.0}, "0.3 0.5"),
    "G13.a": check_means({name: (*scores, mean) for name, (scores, mean) in CODE.items()}),
    "G13.b": (len(OPEN_CODE) < 2 * NUM_AHEAD, f"{NUM_AHEAD} {len(OPEN_CODE)}"),
    "G13.c": (min(HARDER) > 0, f"{CODE_ALL['GTE base'][0][GO]} {CODE['GTE base'][0][GO]}"),
    "G13.d": (CODE_MEANS["GTE base"] < min(CPT_CODE), f"{CODE_MEANS['GTE base']} {' '.join(map(str, CPT_CODE))}"),
}


def read_claims(table: str) -> dict[str, str]:
    """Return the third cell of each row that names a claim in its last cell, by claim."""
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines() if " | " in line]
    return {row[3]: row[2] for row in rows if re.fullmatch(r"[A-Za-z]+\d*\.[a-z]", row[3])}


def test_page_lists_every_outcome() -> None:
    """Claims that hold are in one table of the page, the others in the other."""
    assert read_claims(AGREEING).keys() == {id for id, (holds, _) in OUTCOMES.items() if holds}
    assert read_claims(CONTRADICTED).keys() == {id for id, (holds, _) in OUTCOMES.items() if not holds}


@pytest.mark.parametrize("id", OUTCOMES)
def test_page_has_computed_numbers(id: str) -> None:
    printed = NUMBER.findall((read_claims(AGREEING) | read_claims(CONTRADICTED))[id])
    assert [number for number in NUMBER.findall(OUTCOMES[id][1]) if number not in printed] == []

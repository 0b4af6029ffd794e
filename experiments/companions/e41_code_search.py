"""GTE tables 7 and 13: code search from docstring to function, by a model without training on code."""

from typing import Any

from experiments.companions.e33_improved_loss import IMPROVED, SEEDS, make_first_phase
from experiments.companions.gte_printed import CODE, CODE_ALL, PYTHON
from experiments.e01_table1 import BM25, SURROGATE
from experiments.fresh import COMPANION
from experiments.shared import BEYOND_CHANCE
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, grid, pick, term

SUITE = {"smoke": "planted"} | dict.fromkeys(("desk", "lab", "small", "large"), "functions")
OURS = ("desk", "lab", "small", "large")
TRAINED = {**IMPROVED, "pretraining_corpus": None}
MRR = "mrr_at_10"


def runs(scale: str) -> tuple[Run, ...]:
    """Return table 11's first phase and two references on functions of held-out packages. Nothing more is trained."""
    full: dict[str, Any] = {"suite": SUITE[scale], "protocol": "full", "rerank_depth": None}
    references = (base(scale, **row, **full) for row in (BM25, SURROGATE))
    return (*references, *grid(make_first_phase(scale, **full), seed=SEEDS))


def columns(name: str) -> tuple[Column, ...]:
    """Return the score on one collection, or on its replacement at smoke."""
    return (
        Column(label="Python", value=f"{{suite}}/python-{name}/{MRR}", factor=100, scales=OURS),
        Column(label="planted", value=f"{{suite}}/mean/{MRR}", factor=100, scales=("smoke",)),
    )


def table(number: int, name: str, candidates: str, printed: dict[str, Any]) -> Table:
    """Return one of the two tables."""
    return Table(
        name=f"gte_table{number}",
        caption=(
            f"Code search among {candidates}: MRR@10 of the function that the first paragraph of a docstring "
            "describes. The paper has six languages, ours is Python. The functions come from four packages that are "
            "not part of the training text. Only their first tokens are read (at desk, little more than the signature)."
        ),
        columns=columns(name),
        rows=(
            *(
                Row(label=label, runs=pick(architecture="none"), paper={"Python": scores[PYTHON]})
                for label, (scores, _) in printed.items()
                if not label.startswith("GTE")
            ),
            Row(label="pre-trained on text", runs=pick(**TRAINED), paper={"Python": printed["GTE base"][0][PYTHON]}),
            Row(label="surrogate (reference)", runs=pick(**SURROGATE)),
            Row(label="BM25 (reference)", runs=pick(**BM25)),
        ),
    )


def at(name: str) -> Term:
    """Return MRR@10 of the trained model on one collection."""
    return term(f"{{suite}}/python-{name}/{MRR}", **TRAINED)


def surpasses() -> tuple[bool, str]:
    """Whether GTE's printed average is above those of models trained for code."""
    means = {name: mean for name, (_, mean) in CODE_ALL.items()}
    others = {name: mean for name, mean in means.items() if name != "GTE base"}
    best = max(others, key=others.__getitem__)
    return means["GTE base"] > others[best], f"{means['GTE base']} against {others[best]} of {best}"


def most_in_python() -> tuple[bool, str]:
    """Whether GTE gains most on CodeRetriever, the best other model, in Python."""
    pairs = zip(CODE_ALL["GTE base"][0], CODE_ALL["CodeRetriever"][0], strict=True)
    gains = [round(ours - other, 1) for ours, other in pairs]
    return max(gains) == gains[PYTHON], f"gains by language: {', '.join(map(str, gains))}; Python {gains[PYTHON]}"


def harder_among_all() -> tuple[bool, str]:
    """Whether each language scores better among a thousand candidates than among all."""
    languages = ("Ruby", "JS", "Go", "Python", "Java", "PHP")
    pairs = zip(languages, CODE["GTE base"][0], CODE_ALL["GTE base"][0], strict=True)
    lower = [f"{name} {few} among 1k, {all_} among all" for name, few, all_ in pairs if few <= all_]
    return not lower, f"lower among a thousand: {'; '.join(lower) or 'none'}"


def behind_cpt_code() -> tuple[bool, str]:
    """Whether both sizes of cpt-code lead on the average among a thousand candidates."""
    own, others = CODE["GTE base"][1], [CODE[f"cpt-code {size}"][1] for size in "SM"]
    return own < min(others), f"{own}, and {' and '.join(map(str, others))}"


CLAIMS = (
    Claim.identity(
        "G7.a",
        "in code search, one model without language-specific training surpasses models trained for each language",
        holds=surpasses,
        source="§4.4 and Table 7",
        because="printed averages",
        **COMPANION,
    ),
    Claim.identity(
        "G7.b",
        "the gain in code search is largest in Python",
        holds=most_in_python,
        source="§4.4 and Table 7",
        because="printed numbers, over CodeRetriever",
        **COMPANION,
    ),
    Claim.identity(
        "G13.c",
        "searching all candidates is the harder setting, in every language",
        holds=harder_among_all,
        source="§4.4, Tables 7 and 13",
        because="printed numbers",
        **COMPANION,
    ),
    Claim.identity(
        "G13.d",
        "in code search there is a gap to cpt-code, which was trained on code",
        holds=behind_cpt_code,
        source="Appendix C and Table 13",
        because="printed averages",
        stated="2026-11-25",
    ),
    Claim.order(
        "G7.c",
        "code search among a thousand candidates scores higher than among all",
        pairs=[(at("1k"), at("all"))],
        source="§4.4: 'the challenging settings'",
        because=BEYOND_CHANCE,
        scales=OURS,
        **COMPANION,
    ),
)

EXPERIMENT = Experiment(
    number=41,
    title="Code search",
    runs=runs,
    artefacts=(table(7, "all", "all candidates", CODE_ALL), table(13, "1k", "a thousand candidates", CODE)),
    claims=CLAIMS,
    paper="GTE",
)

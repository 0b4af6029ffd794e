"""GTE tables 7 and 13: code search from docstring to function, by a model without training on code."""

from typing import Any

from experiments.companions.e33_improved_loss import IMPROVED, SEEDS, make_first_phase
from experiments.e01_table1 import BM25, SURROGATE
from experiments.fresh import COMPANION
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, grid, pick, term

SUITE = {"smoke": "planted"} | dict.fromkeys(("desk", "lab", "small", "large"), "functions")
OURS = ("desk", "lab", "small", "large")
TRAINED = {**IMPROVED, "pretraining_corpus": None}
MRR = "mrr_at_10"
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


def runs(scale: str) -> tuple[Run, ...]:
    """Return table 11's first phase and two references on functions of held-out packages. Nothing more is trained."""
    full: dict[str, Any] = {"suite": SUITE[scale], "protocol": "full", "rerank_depth": None}
    references = (base(scale, **row, **full) for row in (BM25, SURROGATE))
    return (*references, *grid(make_first_phase(scale, **full), seed=SEEDS))


def table(number: int, name: str, candidates: str, printed: dict[str, Any]) -> Table:
    """Return one of the two tables."""
    return Table(
        name=f"gte_table{number}",
        caption=(
            f"Code search among {candidates}: MRR@10 of the function that the first paragraph of a docstring "
            "describes. The paper has six languages, ours is Python. The functions come from four packages that are "
            "not part of the training text. Only their first tokens are read (at desk, little more than the signature)."
        ),
        columns=(
            Column(label="Python", value=f"{{suite}}/python-{name}/{MRR}", factor=100, scales=OURS),
            Column(label="planted", value=f"{{suite}}/mean/{MRR}", factor=100, scales=("smoke",)),
        ),
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


CLAIMS = (
    Claim.order(
        "G7.c",
        "code search among a thousand candidates scores higher than among all",
        pairs=[(at("1k"), at("all"))],
        source="§4.4: 'the challenging settings'",
        scales=OURS,
        **COMPANION,
    ),
)

EXPERIMENT = Experiment(
    title="Code search",
    runs=runs,
    artefacts=(table(7, "all", "all candidates", CODE_ALL), table(13, "1k", "a thousand candidates", CODE)),
    claims=CLAIMS,
    paper="GTE",
)

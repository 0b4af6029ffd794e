"""Every choice of a field is implemented, and code only compares fields with declared choices."""

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from repro.analyses.mteb import CONTEXTS as TASK_CONTEXTS
from repro.batches.pack import PACKINGS
from repro.batches.sampler import KINDS as SAMPLERS
from repro.data.prompts import PROMPTS
from repro.evaluate.contexts import KINDS as CONTEXT_KINDS
from repro.model.config import ARCHITECTURES, BACKBONES, POOLINGS
from repro.model.start import HEADS
from repro.model.start import KINDS as PRETRAINED_KINDS
from repro.spec import TRAINED
from repro.spec.run import CHOICES, CONTEXTS
from repro.train.chunks import NARROW, WIDE
from repro.train.loss import LOSSES

ROOT = Path(__file__).resolve().parents[2] / "repro"
PACKAGES = ("batches", "evaluate", "pipeline", "analyses", "model", "train")
"""The packages that execute runs."""
OTHER_NAMES = {("sampler", "sampler.py"): "kind"}
"""Other names of a field, by field and file."""
IMPLIED = {
    "domain_column": "domain",
    "sampler": "domain",
    "packing": "greedy",
    "filter": "none",
    "heads": "identity",
    "backbone": "modernbert",
    "prompts": "task",
    "protocol": "rerank",
    "kept_weights": "last",
}
"""The choice of a field that remains after comparing with all others, so code need not name it."""
BY_NAME = {"loss": LOSSES}
"""Functions that are looked up by the choice of a field, without a comparison."""
DECLARED = {**CHOICES, "trained architecture": TRAINED, "test_contexts": CONTEXTS}


def list_measures() -> list[str]:
    """Return the modules of `repro.analyses` that have a function `measure`."""
    paths = (ROOT / "analyses").glob("*.py")
    return [path.stem for path in paths if "\ndef measure(inputs: Inputs, model:" in path.read_text()]


IMPLEMENTED: list[tuple[str, str, Iterable[str]]] = [
    ("sampler", "repro.batches.sampler.KINDS", SAMPLERS),
    ("packing", "repro.batches.pack.PACKINGS", PACKINGS),
    ("trained architecture", "repro.model.config.ARCHITECTURES", ARCHITECTURES),
    ("heads", "repro.model.start.HEADS", HEADS),
    ("backbone", "repro.model.config.BACKBONES", BACKBONES),
    ("backbone", "repro.model.start.KINDS", PRETRAINED_KINDS.values()),
    ("backbone", "repro.train.chunks.NARROW", NARROW),
    ("backbone", "repro.train.chunks.WIDE", WIDE),
    ("pooling", "repro.model.config.POOLINGS", POOLINGS),
    ("prompts", "repro.data.prompts.PROMPTS", PROMPTS),
    ("loss", "repro.train.loss.LOSSES", LOSSES),
    ("test_contexts", "repro.evaluate.contexts.KINDS", CONTEXT_KINDS),
    (
        "test_contexts",
        "repro.analyses.mteb.CONTEXTS",
        ["random", *(name for name, _ in TASK_CONTEXTS.values())],
    ),
    ("measure", "the modules of repro/analyses with a function `measure`", list_measures()),
]


@pytest.mark.parametrize(("field", "where", "values"), IMPLEMENTED, ids=[where for _, where, _ in IMPLEMENTED])
def test_implementations_cover_all_choices(field: str, where: str, values: Iterable[str]) -> None:
    missing = sorted(set(DECLARED[field]) - set(values))
    assert not missing, f"{field}={missing[0]!r} is a choice, but missing in {where}"
    undeclared = sorted(set(values) - set(DECLARED[field]))
    assert not undeclared, f"{where} has {undeclared[0]!r}, which is missing in the CHOICES of {field}"


def iter_comparisons(path: Path) -> Iterable[tuple[str, str]]:
    """Yield each field of CHOICES that a file compares with a word, and the word."""
    fields = {OTHER_NAMES.get((field, path.name), field): field for field in CHOICES}
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Compare):
            continue
        name = getattr(node.left, "attr", None) or getattr(node.left, "id", None)
        words = (word for other in node.comparators for word in ast.walk(other) if isinstance(word, ast.Constant))
        if name in fields:
            yield from ((fields[name], word.value) for word in words if isinstance(word.value, str))


COMPARED = {pair for package in PACKAGES for path in (ROOT / package).rglob("*.py") for pair in iter_comparisons(path)}


@pytest.mark.parametrize("field", CHOICES)
def test_code_compares_with_choices_only(field: str) -> None:
    undeclared = sorted(word for name, word in COMPARED if name == field and word not in CHOICES[field])
    assert not undeclared, f"code compares {field} with {undeclared[0]!r}, which is missing in CHOICES"


@pytest.mark.parametrize("field", [field for field in CHOICES if field != "measure"])  # each measure is a module
def test_code_distinguishes_every_choice(field: str) -> None:
    implied = IMPLIED.get(field)
    assert implied is None or implied in CHOICES[field], f"IMPLIED has {field}={implied!r}, which is no choice"
    known = {implied, *BY_NAME.get(field, ())}
    missing = [value for value in CHOICES[field] if (field, value) not in COMPARED and value not in known]
    assert not missing, (
        f"no code compares {field} with {missing[0]!r}: compare run.{field} with it, or add it to IMPLIED"
    )

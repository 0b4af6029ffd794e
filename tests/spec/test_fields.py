"""Every field of a run is read by the code that carries runs out: a record never says what nobody looked at."""

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
ROOMS_THAT_CARRY_OUT = ("batches", "evaluate", "pipeline", "analyses", "model", "train")


OTHER_NAMES = {("sampler", "sampler.py"): "kind"}
"""What a field is called where it is not called by its own name, by field and file."""
BEHIND_ELSE = {
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
"""The value of a field that code need not name: what is left when all others are told apart."""
BY_NAME = {"loss": LOSSES}
"""Functions by the words of a field, which tells them apart without a comparison."""
DECLARED = {**CHOICES, "trained architecture": TRAINED, "test_contexts": CONTEXTS}


def modules_that_measure() -> list[str]:
    """The modules of `repro.analyses` that have the function of a measure."""
    paths = (ROOT / "analyses").glob("*.py")
    return [path.stem for path in paths if "\ndef measure(inputs: Inputs, model:" in path.read_text()]


CARRIED_OUT: list[tuple[str, str, Iterable[str]]] = [
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
        ["random", *(context.asked_as for context in TASK_CONTEXTS.values())],
    ),
    ("measure", "the modules of repro/analyses with a function `measure`", modules_that_measure()),
]


@pytest.mark.parametrize(("field", "where", "values"), CARRIED_OUT, ids=[where for _, where, _ in CARRIED_OUT])
def test_implementations_cover_all_choices(field: str, where: str, values: Iterable[str]) -> None:
    lacking = sorted(set(DECLARED[field]) - set(values))
    assert not lacking, f"a Run may have {field}={lacking[0]!r}, which {where} lacks: add it there too"
    undeclared = sorted(set(values) - set(DECLARED[field]))
    assert not undeclared, f"{where} has {undeclared[0]!r}, which Run.{field} may not be: add it to CHOICES too"


def compared(path: Path) -> Iterable[tuple[str, str]]:
    """Yield each field of CHOICES that a file compares with a word, and the word."""
    fields = {OTHER_NAMES.get((field, path.name), field): field for field in CHOICES}
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Compare):
            continue
        name = getattr(node.left, "attr", None) or getattr(node.left, "id", None)
        words = (word for other in node.comparators for word in ast.walk(other) if isinstance(word, ast.Constant))
        if name in fields:
            yield from ((fields[name], word.value) for word in words if isinstance(word.value, str))


TOLD_APART = {pair for room in ROOMS_THAT_CARRY_OUT for path in (ROOT / room).rglob("*.py") for pair in compared(path)}


@pytest.mark.parametrize("field", CHOICES)
def test_code_compares_with_choices_only(field: str) -> None:
    undeclared = sorted(word for name, word in TOLD_APART if name == field and word not in CHOICES[field])
    assert not undeclared, f"code asks for {field} == {undeclared[0]!r}, which a Run cannot have: add it to CHOICES too"


@pytest.mark.parametrize("field", [field for field in CHOICES if field != "measure"])  # each of which is a module
def test_code_distinguishes_every_choice(field: str) -> None:
    left = BEHIND_ELSE.get(field)
    assert left is None or left in CHOICES[field], f"BEHIND_ELSE has {field}={left!r}, which a Run cannot have"
    told = {left, *BY_NAME.get(field, ())}
    untold = [value for value in CHOICES[field] if (field, value) not in TOLD_APART and value not in told]
    assert not untold, (
        f"a Run may have {field}={untold[0]!r}, and no code that carries out runs looks for that: compare run.{field} "
        "with it, or say in BEHIND_ELSE that it is what is left when all others are told apart"
    )

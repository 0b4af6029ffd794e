"""The recipes of CONTRIBUTING.md execute. tests/cli/test_new_figure.py adds the figure to a copy."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from repro.evaluate.retrieval import MEASURES
from repro.execute import execute
from repro.model.modeling_cde import POOLINGS
from repro.spec import CHOICES, Interaction, Order, Run, base
from repro.storage.paths import CHECKOUT
from repro.train.loss import LOSSES
from repro.train.setup import SAMPLERS
from tests.commands import ignore

BLOCKS = re.findall(r"```python\n(.*?)```", (CHECKOUT / "CONTRIBUTING.md").read_text(), re.DOTALL)
REGISTERED = [("loss", "margin", "LOSSES"), ("sampler", "shuffled", "SAMPLERS"), ("pooling", "max", "POOLINGS")]


@pytest.fixture(autouse=True)
def unchanged_registries() -> Iterator[None]:
    """Remove from the registries what a recipe has added."""
    with ExitStack() as stack:
        for registry in (CHOICES, LOSSES, SAMPLERS, POOLINGS, MEASURES):
            stack.enter_context(patch.dict(registry))
        yield


def find_block(word: str) -> str:
    """Return the only block that contains a word."""
    (block,) = [block for block in BLOCKS if word in block]
    return block


def run_block(block: str) -> dict[str, Any]:
    """Execute a block and return the names that it defines."""
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(block, names)
    return names


def make_run(**fields: Any) -> Run:
    return base("smoke", architecture="contextual", num_steps=2, num_warmup_steps=1, test_contexts="own", **fields)


def test_figure_recipe_works() -> None:
    """The claim compares batch sizes, as the title of the figure does."""
    experiment = run_block(find_block("EXPERIMENT = Experiment("))["EXPERIMENT"]
    (claim,), (figure,) = experiment.claims, experiment.artefacts
    assert isinstance(claim, Interaction)
    for word in ("clusters", "gain", "small batches"):
        assert word in figure.title and word in claim.statement


def test_table_and_claim_recipes_work() -> None:
    """The table has the declared rows. The claim declares its seeds and its threshold."""
    assert [row.label for row in run_block(find_block("two_rows"))["TABLE"].rows] == ["plain", "contextual"]
    claim = run_block(find_block("own.batches"))["CLAIM"]
    assert isinstance(claim, Order) and claim.margin == 0.01 and claim.declared_seeds("desk") == (1, 2, 3, 4, 5)


def test_loss_recipe_equals_its_formula() -> None:
    """The loss of two orthogonal pairs is 0, and that of two equal documents is the margin, at any length."""
    loss = run_block(find_block("margin_loss"))["LOSSES"]["margin"]
    same = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert loss(torch.eye(2), torch.eye(2), 1.0, None).loss.item() == 0
    assert loss(same, 10 * same, 1.0, None).loss.item() == pytest.approx(0.2)
    # "meta" stands for a GPU: tensors of two devices cannot be combined
    assert loss(same.to("meta"), same.to("meta"), 1.0, None).accuracy.device.type == "meta"


def test_sampler_recipe_is_pure() -> None:
    """A number always gives the same batch. Another number gives another batch."""
    sampler = run_block(find_block("ShuffledSampler"))["ShuffledSampler"](100, 8, seed=0)
    assert np.array_equal(sampler.at(3), sampler.at(3)) and not np.array_equal(sampler.at(3), sampler.at(4))


@pytest.mark.usefixtures("shared_home")
@pytest.mark.parametrize(("field", "value", "registry"), REGISTERED)
def test_recipe_trains(field: str, value: str, registry: str) -> None:
    """A model is trained with it. Without one of its two lines, the error names the file of the missing one."""
    block = find_block(f'CHOICES["{field}"]')
    choice = block.strip().splitlines()[-1]
    run_block(block.replace(choice, ""))
    with pytest.raises(ValueError, match=r"CHOICES in repro\.spec\.run"):
        make_run(**{field: value})
    run_block(f"from repro.spec import CHOICES\n{choice}")
    record = execute(make_run(**{field: value}), progress=ignore)
    assert record.metrics["train/loss"] > 0
    {"LOSSES": LOSSES, "SAMPLERS": SAMPLERS, "POOLINGS": POOLINGS}[registry].pop(value)
    with pytest.raises(ValueError, match=f"add it to {registry} in "):
        execute(make_run(**{field: value}, seed=1), progress=ignore)


def test_metric_recipe_is_recorded() -> None:
    """A run has the new metric next to the others."""
    run_block(find_block("precision_at_5"))
    record = execute(base("smoke", architecture="bm25"), progress=ignore)
    assert 0 < record.metrics["planted/mean/precision_at_5"] < 1


def test_field_recipe_works() -> None:
    """A value that equals the scale's default keeps the id."""
    before, same, other = run_block(find_block("run_id"))["ids"]
    assert before == same != other

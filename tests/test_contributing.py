"""The recipes of CONTRIBUTING.md execute. tests/cli/test_new_figure.py adds the figure to a copy."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from repro.execute import execute as run_recipe
from repro.spec import Interaction, Order, base
from repro.storage.paths import CHECKOUT
from repro.train import trainer
from tests.commands import ignore

BLOCKS = re.findall(r"```python\n(.*?)```", (CHECKOUT / "CONTRIBUTING.md").read_text(), re.DOTALL)


def execute(word: str) -> dict[str, Any]:
    """Execute the only block that contains a word. Return the names that it defines."""
    (block,) = [block for block in BLOCKS if word in block]
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(block, names)
    return names


def test_there_are_six_recipes() -> None:
    """A figure, a table, a claim, a loss, a sampler and a field."""
    assert len(BLOCKS) == 6


def test_figure_recipe_works() -> None:
    """The claim compares batch sizes, as the title of the figure does."""
    experiment = execute("EXPERIMENT = Experiment(")["EXPERIMENT"]
    (claim,), (figure,) = experiment.claims, experiment.artefacts
    assert isinstance(claim, Interaction)
    for word in ("clusters", "gain", "small batches"):
        assert word in figure.title and word in claim.statement


def test_table_recipe_works() -> None:
    """The table has the declared rows."""
    assert [row.label for row in execute("two_rows")["TABLE"].rows] == ["plain", "contextual"]


def test_claim_recipe_works() -> None:
    """The claim declares its seeds and its threshold."""
    claim = execute("own.batches")["CLAIM"]
    assert isinstance(claim, Order) and claim.margin == 0.01 and claim.declared_seeds("desk") == (1, 2, 3, 4, 5)


def test_loss_recipe_works() -> None:
    """The loss of two orthogonal pairs is 0, and that of two equal documents is the margin, at any length."""
    loss = execute("margin_loss")["losses"]["margin"]
    same = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert loss(torch.eye(2), torch.eye(2), 1.0, None).loss.item() == 0
    assert loss(same, 10 * same, 1.0, None).loss.item() == pytest.approx(0.2)
    # "meta" stands for a GPU: tensors of two devices cannot be combined
    assert loss(same.to("meta"), same.to("meta"), 1.0, None).accuracy.device.type == "meta"


def test_sampler_recipe_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number always gives the same batch. Another number gives another batch."""
    make_sampler = execute("ShuffledSampler")["ShuffledSampler"]
    sampler = make_sampler(100, 8, seed=0)
    assert np.array_equal(sampler.at(3), sampler.at(3)) and not np.array_equal(sampler.at(3), sampler.at(4))
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    monkeypatch.setattr(
        trainer, "build_sampler", lambda inputs: make_sampler(len(inputs.pairs), inputs.run.batch_size, inputs.run.seed)
    )
    record = run_recipe(base("smoke", num_steps=4, num_warmup_steps=1), progress=ignore)
    assert record.metrics["train/loss"] > 0


def test_field_recipe_works() -> None:
    """A value that equals the scale's default keeps the id."""
    before, same, other = execute("run_id")["ids"]
    assert before == same != other

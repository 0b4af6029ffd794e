"""The loss on pairs set apart decides which weights are kept and when training ends early."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.model.contextual import Model
from repro.stopping import Interrupted
from repro.train import set_apart
from repro.train.checkpoint import CHECKPOINT_FILE, TrainState, read_metrics
from repro.train.feed import SetApart
from repro.train.loop import train
from repro.train.set_apart import SET_APART_LOSS, compute_set_apart_loss, is_measured_after
from tests.model.samples import build_small_model
from tests.train.fixtures import assert_close_weights, draw_tokens, make_settings, make_small_data, stop_after

APART = SetApart(draw_tokens(12, 8), draw_tokens(12, 9))


TEMPERATURE = make_settings().temperature


def train_apart(folder: Path, model: Model | None = None, num_steps: int = 40, **hooks: Any) -> TrainState:
    """Train with pairs that are set apart."""
    data = replace(make_small_data(), set_apart=APART)
    return train(model or build_small_model(), data, make_settings(num_steps=num_steps), folder=folder, **hooks)


def read_losses(folder: Path) -> dict[int, float]:
    """Return the measured losses by step."""
    return {line["step"]: line[SET_APART_LOSS] for line in read_metrics(folder) if SET_APART_LOSS in line}


def assert_equal_weights(model: Model, expected: Model) -> None:
    assert_close_weights(model.state_dict(), expected.state_dict(), rtol=0, atol=0)


def test_loss_is_the_cross_entropy() -> None:
    """The reference is computed in numpy from cosines divided by the temperature."""
    model = build_small_model(architecture="biencoder").eval()
    queries, documents = (model.encode_tokens(tokens).astype(np.float64) for tokens in APART)
    scores = queries @ documents.T / TEMPERATURE
    expected = np.mean(np.log(np.exp(scores - scores.max()).sum(1)) + scores.max() - np.diag(scores))
    loss = compute_set_apart_loss(model, APART, seed=0, temperature=TEMPERATURE)
    assert loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_lowest_loss_is_kept(tmp_path: Path, architecture: str) -> None:
    """The final weights and those of the checkpoint have the lowest loss of the log, which is not the last one."""
    model, reloaded = (build_small_model(architecture=architecture) for _ in range(2))
    state = train_apart(tmp_path, model)
    losses = read_losses(tmp_path)
    assert state.best_step == min(losses, key=losses.__getitem__) < state.step
    loss = compute_set_apart_loss(model, APART, seed=0, temperature=TEMPERATURE)
    assert loss == pytest.approx(min(losses.values()), rel=1e-6)
    train_apart(tmp_path, reloaded, on_step=lambda line: pytest.fail("trained again"))
    assert_equal_weights(reloaded, model)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == [CHECKPOINT_FILE]


def test_training_ends_early(tmp_path: Path) -> None:
    """Training ends after `PATIENCE` measurements above the minimum."""
    state = train_apart(tmp_path, num_steps=60)
    measured = list(read_losses(tmp_path))
    assert state.has_ended and state.step == measured[-1] < 60
    assert measured.index(state.best_step) == len(measured) - 1 - set_apart.PATIENCE
    assert all(is_measured_after(step, 60) for step in measured)


@pytest.mark.parametrize("num_steps", [3, 12])
def test_resuming_keeps_the_same_weights(tmp_path: Path, num_steps: int) -> None:
    """A run that was stopped ends with the weights of an uninterrupted one."""
    uninterrupted, resumed = build_small_model(), build_small_model()
    expected = train_apart(tmp_path / "whole", uninterrupted)
    with pytest.raises(Interrupted):
        train_apart(tmp_path / "cut", should_stop=stop_after(num_steps))
    state = train_apart(tmp_path / "cut", resumed)
    assert (state.best_step, state.best_loss, state.step) == (expected.best_step, expected.best_loss, expected.step)
    assert_equal_weights(resumed, uninterrupted)


def test_measuring_changes_no_step(tmp_path: Path) -> None:
    """A run with pairs set apart has the same losses as one without, until it ends."""
    train_apart(tmp_path / "with")
    train(build_small_model(), make_small_data(), make_settings(num_steps=40), folder=tmp_path / "without")
    losses, expected = ([line["loss"] for line in read_metrics(tmp_path / name)] for name in ("with", "without"))
    assert losses == expected[: len(losses)]


@pytest.mark.parametrize("num_steps", [1, 5, 12, 30, 100])
def test_measurements_are_evenly_spaced(num_steps: int) -> None:
    """There are at most `NUM_MEASUREMENTS`. The last one follows the last step."""
    measured = [step for step in range(1, num_steps + 1) if is_measured_after(step, num_steps)]
    assert len(measured) == min(num_steps, set_apart.NUM_MEASUREMENTS) and measured[-1] == num_steps

"""The loss on pairs set apart decides which weights are kept and when training ends early."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from repro.stopping import Interrupted
from repro.train import set_apart
from repro.train.checkpoint import CHECKPOINT_FILE, read_metrics
from repro.train.feed import SetApart, TrainData
from repro.train.loop import train
from repro.train.set_apart import SET_APART_LOSS, compute_set_apart_loss, is_measured_after
from tests.model.samples import build_small_model
from tests.train.fixtures import draw_tokens, make_settings, make_small_data

APART = SetApart(draw_tokens(12, 8), draw_tokens(12, 9))


def make_data() -> TrainData:
    return replace(make_small_data(), set_apart=APART)


def test_loss_is_the_cross_entropy() -> None:
    """The reference is computed in numpy from cosines divided by the temperature."""
    model = build_small_model(architecture="biencoder").eval()
    queries, documents = (model.encode_tokens(tokens).astype(np.float64) for tokens in APART)
    scores = queries @ documents.T / make_settings().temperature
    expected = np.mean(np.log(np.exp(scores - scores.max()).sum(1)) + scores.max() - np.diag(scores))
    assert compute_set_apart_loss(model, APART, seed=0, temperature=make_settings().temperature) == pytest.approx(
        expected, rel=1e-4
    )


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_lowest_loss_is_kept(tmp_path: Path, architecture: str) -> None:
    """The final weights and those of the checkpoint have the lowest loss of the log, which is not the last one."""
    model = build_small_model(architecture=architecture)
    state = train(model, make_data(), make_settings(num_steps=40), folder=tmp_path)
    losses = {line["step"]: line[SET_APART_LOSS] for line in read_metrics(tmp_path) if SET_APART_LOSS in line}
    assert state.best_step == min(losses, key=losses.__getitem__) < state.step
    assert compute_set_apart_loss(model, APART, seed=0, temperature=make_settings().temperature) == pytest.approx(
        min(losses.values()), rel=1e-6
    )
    reloaded = build_small_model(architecture=architecture)
    train(
        reloaded,
        make_data(),
        make_settings(num_steps=40),
        folder=tmp_path,
        on_step=lambda line: pytest.fail("trained again"),
    )
    assert all(torch.equal(value, reloaded.state_dict()[name]) for name, value in model.state_dict().items())
    assert [path.name for path in tmp_path.glob("*.safetensors")] == [CHECKPOINT_FILE]


def test_training_ends_early(tmp_path: Path) -> None:
    """Training ends after `PATIENCE` measurements above the minimum."""
    state = train(build_small_model(), make_data(), make_settings(num_steps=60), folder=tmp_path)
    measured = [line["step"] for line in read_metrics(tmp_path) if SET_APART_LOSS in line]
    assert state.has_ended and state.step == measured[-1] < 60
    assert measured.index(state.best_step) == len(measured) - 1 - set_apart.PATIENCE
    assert all(is_measured_after(step, 60) for step in measured)


@pytest.mark.parametrize("stop", [3, 12])
def test_resuming_keeps_the_same_weights(tmp_path: Path, stop: int) -> None:
    """A run that was stopped ends with the weights of an uninterrupted one."""
    uninterrupted, resumed = build_small_model(), build_small_model()
    expected = train(uninterrupted, make_data(), make_settings(num_steps=40), folder=tmp_path / "whole")
    steps: list[int] = []
    hooks = {"on_step": lambda line: steps.append(line["step"]), "should_stop": lambda: len(steps) == stop}
    with pytest.raises(Interrupted):
        train(build_small_model(), make_data(), make_settings(num_steps=40), folder=tmp_path / "cut", **hooks)
    state = train(resumed, make_data(), make_settings(num_steps=40), folder=tmp_path / "cut")
    assert (state.best_step, state.best_loss, state.step) == (expected.best_step, expected.best_loss, expected.step)
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in uninterrupted.state_dict().items())


def test_measuring_changes_no_step(tmp_path: Path) -> None:
    """A run with pairs set apart has the same losses as one without, until it ends."""
    train(build_small_model(), make_data(), make_settings(num_steps=40), folder=tmp_path / "with")
    train(build_small_model(), make_small_data(), make_settings(num_steps=40), folder=tmp_path / "without")
    first, second = (
        [(line["batch"], line["loss"]) for line in read_metrics(tmp_path / name)] for name in ("with", "without")
    )
    assert first == second[: len(first)]


def test_measurements_are_evenly_spaced() -> None:
    """There are at most `NUM_MEASUREMENTS`. The last one follows the last step."""
    for num_steps in (1, 5, 12, 30, 100):
        measured = [step for step in range(1, num_steps + 1) if is_measured_after(step, num_steps)]
        assert len(measured) == min(num_steps, set_apart.NUM_MEASUREMENTS) and measured[-1] == num_steps

"""The loss on pairs set apart decides which weights are kept and when training ends early."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from repro.model.contextual import ContextualModel, Model
from repro.model.modeling_cde import fill_context
from repro.stopping import Interrupted
from repro.train import set_apart
from repro.train.checkpoint import CHECKPOINT_FILE, TrainState, has_final_weights, read_metrics
from repro.train.feed import SetApart
from repro.train.set_apart import LOSS, compute_loss, is_measured_after, select_tokens
from repro.train.trainer import train
from tests.model.samples import build_small_model
from tests.train.fixtures import assert_close_weights, draw_tokens, make_settings, make_small_data, stop_after

APART = SetApart(draw_tokens(12, 8), draw_tokens(12, 9))


NUM_STEPS, TEMPERATURE = 30, make_settings().temperature


def train_apart(folder: Path, model: Model, **hooks: Any) -> TrainState:
    """Train with pairs that are set apart."""
    data = replace(make_small_data(), set_apart=APART)
    return train(model, data, make_settings(num_steps=NUM_STEPS), folder=folder, **hooks)


class Training(NamedTuple):
    """A training run that was never stopped."""

    folder: Path
    model: Model
    state: TrainState


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Training:
    folder, model = tmp_path_factory.mktemp("uninterrupted"), build_small_model()
    return Training(folder, model, train_apart(folder, model))


def read_losses(folder: Path) -> dict[int, float]:
    """Return the measured losses by step."""
    return {line["step"]: line[LOSS] for line in read_metrics(folder) if LOSS in line}


def assert_equal_weights(model: Model, expected: Model) -> None:
    assert_close_weights(model.state_dict(), expected.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_loss_is_the_cross_entropy(architecture: str) -> None:
    """The reference is computed in numpy from cosines divided by the temperature. The context is drawn from documents."""
    model = build_small_model(architecture=architecture).eval()
    if isinstance(model, ContextualModel):
        rows = fill_context(len(APART.documents), model.config.num_contexts, 0)
        model.set_context_tokens(select_tokens(APART.documents, rows))
    queries, documents = (model.encode_tokens(tokens).astype(np.float64) for tokens in APART)
    scores = queries @ documents.T / TEMPERATURE
    expected = np.mean(np.log(np.exp(scores - scores.max()).sum(1)) + scores.max() - np.diag(scores))
    loss = compute_loss(model, APART, make_settings())
    assert loss == pytest.approx(expected, rel=1e-4)


def test_loss_of_training_is_measured(tmp_path: Path) -> None:
    """The pairs set apart are scored by the loss and widths of the training run."""
    model = build_small_model(architecture="biencoder")
    settings = {"num_steps": 3, "num_warmup_steps": 1, "loss": "icl", "nested_sizes": (4, 8)}
    data = replace(make_small_data(), filter=None, set_apart=APART)
    train(model, data, make_settings(**settings), folder=tmp_path)
    expected = compute_loss(model.eval(), APART, make_settings(**settings))
    losses = read_losses(tmp_path)
    assert min(losses.values()) == pytest.approx(expected, rel=1e-4)
    assert expected != pytest.approx(compute_loss(model, APART, make_settings()), rel=1e-2)


def test_lowest_loss_is_kept(uninterrupted: Training) -> None:
    """The final weights and those of the checkpoint have the lowest loss of the log, which is not the last one."""
    folder, model, state = uninterrupted
    losses = read_losses(folder)
    assert state.best_step == min(losses, key=losses.__getitem__) < state.step
    loss = compute_loss(model, APART, make_settings())
    assert loss == pytest.approx(min(losses.values()), rel=1e-6)
    reloaded = build_small_model()
    train_apart(folder, reloaded, on_step=lambda line: pytest.fail("trained again"))
    assert_equal_weights(reloaded, model)
    assert [path.name for path in folder.glob("*.safetensors")] == [CHECKPOINT_FILE]


@pytest.mark.parametrize("num_steps", [1, 5, 30])
def test_measurements_are_evenly_spaced(num_steps: int) -> None:
    """There are at most `NUM_MEASUREMENTS`. The last one follows the last step."""
    measured = [step for step in range(1, num_steps + 1) if is_measured_after(step, num_steps)]
    assert len(measured) == min(num_steps, set_apart.NUM_MEASUREMENTS) and measured[-1] == num_steps


def test_training_ends_early(uninterrupted: Training) -> None:
    """Training ends after `PATIENCE` measurements above the minimum."""
    state, measured = uninterrupted.state, list(read_losses(uninterrupted.folder))
    assert state.has_ended and state.step == measured[-1] < NUM_STEPS
    assert measured.index(state.best_step) == len(measured) - 1 - set_apart.PATIENCE


def test_resuming_keeps_the_same_weights(tmp_path: Path, uninterrupted: Training) -> None:
    """A run that was stopped ends with the weights of an uninterrupted one."""
    with pytest.raises(Interrupted):
        train_apart(tmp_path, build_small_model(), should_stop=stop_after(12))
    model = build_small_model()
    state, expected = train_apart(tmp_path, model), uninterrupted.state
    assert (state.best_step, state.best_loss, state.step) == (expected.best_step, expected.best_loss, expected.step)
    assert_equal_weights(model, uninterrupted.model)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"step": 3}, False),
        ({"step": 4}, True),
        ({"step": 3, "has_ended": True, "best_step": 1, "holds_best": True}, True),
        ({"step": 4, "best_step": 1}, False),
    ],
)
def test_final_weights_are_the_best(values: dict[str, Any], expected: bool) -> None:
    """A run may be killed after its last step, before the checkpoint gets the best weights."""
    assert has_final_weights(TrainState("run", **values), 4) == expected

"""The training loop: checkpoints and resumption, its log, learning rates, and one or two processes."""

import hashlib
import multiprocessing
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from repro.model.contextual import Model
from repro.stopping import Interrupted
from repro.train import feed
from repro.train.checkpoint import CHECKPOINT_FILE, TrainState, read_metrics, read_state
from repro.train.feed import TrainData
from repro.train.performance import ChunkSizes
from repro.train.trainer import compute_learning_rate, train
from tests.model.samples import build_small_model
from tests.storage.test_tensor_files import flip_bits
from tests.train.fixtures import (
    Shuffled,
    assert_close_weights,
    make_settings,
    make_small_data,
    read_untimed_log,
    spoil_model,
    stop_after,
)


def run(
    folder: Path, model: Model | None = None, data: TrainData | None = None, **changes: Any
) -> tuple[Model, TrainState]:
    hooks = {name: changes.pop(name) for name in ("should_stop", "on_step") if name in changes}
    model = model or build_small_model()
    state = train(model, data or make_small_data(), make_settings(**changes), folder=folder, **hooks)
    return model, state


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Weights and log of a training run of ten steps that was never stopped."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    model, _ = run(folder)
    return model.state_dict(), read_untimed_log(folder)


def assert_resumes_as(uninterrupted: tuple[dict[str, torch.Tensor], list[dict[str, Any]]], folder: Path) -> list[int]:
    """Resume the run of a folder, compare it with an uninterrupted one, and return the steps that were taken."""
    weights, log = uninterrupted
    steps: list[int] = []
    model, state = run(folder, on_step=lambda line: steps.append(line["step"]))
    assert state.step == 10
    assert read_untimed_log(folder) == log
    assert_close_weights(model.state_dict(), weights, rtol=0, atol=0)
    return steps


def test_stopped_training_resumes_exactly(tmp_path: Path, uninterrupted: Any) -> None:
    with pytest.raises(Interrupted, match="after step 4 of 10"):
        run(tmp_path, should_stop=stop_after(4))
    state = read_state(tmp_path)
    assert state is not None and (state.step, state.chunks) == (4, ChunkSizes().words)
    assert assert_resumes_as(uninterrupted, tmp_path) == [5, 6, 7, 8, 9, 10]


class Reversed(Shuffled):
    """Batches of the same seed and number, as after other clusters."""

    def at(self, step: int) -> np.ndarray:
        return super().at(step)[::-1]


def train_until_killed(folder: Path, step: int) -> None:
    def kill(line: dict[str, Any]) -> None:
        if line["step"] == step:
            os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    run(folder, checkpoint_every_seconds=0.0, on_step=kill)


def test_killed_training_resumes_from_checkpoint(tmp_path: Path, uninterrupted: Any) -> None:
    child = multiprocessing.get_context("fork").Process(target=train_until_killed, args=(tmp_path, 8))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL and len(read_metrics(tmp_path)) == 8
    with (tmp_path / "metrics.jsonl").open("a") as log:
        log.write('rubbish\n{"step": 9, "lo')  # a damaged line, and one that is cut short
    assert assert_resumes_as(uninterrupted, tmp_path) == [8, 9, 10], "the last checkpoint was that of step 7"


def test_finished_training_is_not_repeated(tmp_path: Path, uninterrupted: Any) -> None:
    run(tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    assert assert_resumes_as(uninterrupted, tmp_path) == []
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_misfitting_checkpoint_is_refused(tmp_path: Path) -> None:
    """A checkpoint of another run, other values, sampler or model is never resumed from, nor is a damaged one."""
    run(tmp_path, values={"temperature": 0.02, "old_field": 1, "widths": (4, 8)})
    with pytest.raises(ValueError, match="of run abc, not of xyz"):
        run(tmp_path, run_id="xyz")
    with pytest.raises(ValueError, match=r"trained with temperature=0\.02, not 0\.05"):
        run(tmp_path, values={"temperature": 0.05, "new_field": 1, "widths": (4, 8)})
    with pytest.raises(ValueError, match="left its sampler at"):
        run(tmp_path, data=make_small_data(seed=5), num_steps=20)
    with pytest.raises(ValueError, match="took other batches until step 10"):
        run(tmp_path, data=replace(make_small_data(), batches=Reversed(seed=0)), num_steps=20)
    with pytest.raises(ValueError, match=r"fit this model \(remove it to start.*: 0 missing, \d\d? extra, \d+ of"):
        run(tmp_path, build_small_model(num_layers=1), num_steps=20)
    path = tmp_path / CHECKPOINT_FILE
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is damaged"):
        run(tmp_path)


def test_flipped_bits_are_refused(tmp_path: Path) -> None:
    """The model and its optimiser keep their values."""
    run(tmp_path)
    flip_bits(tmp_path / CHECKPOINT_FILE, start=60_000)
    model = build_small_model(seed=3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="does not match its digest"):
        run(tmp_path, model)
    assert_close_weights(model.state_dict(), before, rtol=0, atol=0)


def test_full_disk_keeps_last_checkpoint(tmp_path: Path, uninterrupted: Any) -> None:
    """Writing fails half-way. A limit on the size of files simulates the full disk."""
    with pytest.raises(Interrupted):
        run(tmp_path, should_stop=lambda: True)
    before, limits = (tmp_path / CHECKPOINT_FILE).read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises((OSError, SafetensorError), match="File too large"):
            run(tmp_path, checkpoint_every_seconds=0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / CHECKPOINT_FILE).read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKPOINT_FILE, "metrics.jsonl"]
    assert_resumes_as(uninterrupted, tmp_path)


def hash_checkpoint(folder: Path) -> str:
    """Return a digest, because pytest takes minutes to compare the bytes of two checkpoints."""
    return hashlib.sha256((folder / CHECKPOINT_FILE).read_bytes()).hexdigest()


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_non_finite_step_changes_nothing(tmp_path: Path, what: str, uninterrupted: Any) -> None:
    """Weights, log and checkpoint stay as they were before the step, and the run can be resumed."""
    with pytest.raises(Interrupted):
        run(tmp_path, should_stop=stop_after(6))
    model, before = build_small_model(), {}

    def spoil_after_7(line: dict[str, Any]) -> None:
        if line["step"] == 7:
            spoil_model(model, what)
            before["weights"] = {name: value.clone() for name, value in model.state_dict().items()}
            before["checkpoint"] = hash_checkpoint(tmp_path)

    rate = compute_learning_rate(8, peak=1e-2, num_warmup_steps=2, num_steps=10)
    with pytest.raises(ValueError, match=rf"^step 8 of 10: loss .* at learning rate {rate:.3g}: not finite") as caught:
        run(tmp_path, model, on_step=spoil_after_7)
    assert (": loss nan, norm" in str(caught.value)) == (what == "loss")
    assert hash_checkpoint(tmp_path) == before["checkpoint"] and len(read_metrics(tmp_path)) == 7
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before["weights"][name], rtol=0, atol=0, equal_nan=True, msg=name)
    assert assert_resumes_as(uninterrupted, tmp_path) == [7, 8, 9, 10]


class OneBatch:
    """The same batch at every step."""

    seed = 0

    def __len__(self) -> int:
        return 1

    def at(self, number: int) -> np.ndarray:
        return np.arange(8)


def test_dropped_contexts_follow_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step has the same contexts and nothing is learned, so losses differ only by the dropped contexts."""
    monkeypatch.setattr(feed, "draw_batch_context", lambda num_documents, num_contexts, *seed: np.arange(num_contexts))
    data = replace(make_small_data(), batches=OneBatch(), filter=None)

    def losses(dropout: float, seed: int) -> list[float]:
        folder, model = tmp_path / f"{dropout}-{seed}", build_small_model(sequence_dropout=dropout).double()
        run(folder, model, data, seed=seed, num_steps=3, learning_rate=0.0)
        return [round(line["loss"], 6) for line in read_metrics(folder)]

    assert len(set(losses(0.0, 0))) == 1
    assert len({*losses(0.25, 0), *losses(0.25, 1)}) == 6


def test_training_keeps_the_global_generator(tmp_path: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    run(tmp_path, num_steps=3)
    torch.testing.assert_close(torch.rand(2), expected)


def test_first_stage_has_own_rate(tmp_path: Path) -> None:
    start, slow, equal = build_small_model(), build_small_model(), build_small_model()
    run(tmp_path / "slow", model=slow, num_steps=1, num_warmup_steps=0, first_stage_rate=0.01, weight_decay=0.0)
    run(tmp_path / "equal", model=equal, num_steps=1, num_warmup_steps=0, weight_decay=0.0)
    before, moved, moved_fully = (dict(model.named_parameters()) for model in (start, slow, equal))
    for name, weight in before.items():
        rate = 0.01 if name.startswith("first_stage_model.") else 1.0
        torch.testing.assert_close(moved[name] - weight, rate * (moved_fully[name] - weight), atol=1e-6, rtol=1e-2)


def test_learning_rate_warms_up_and_decays() -> None:
    rates = [compute_learning_rate(step, peak=1.0, num_warmup_steps=4, num_steps=12) for step in range(1, 13)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:] == pytest.approx([1 - index / 8 for index in range(8)])
    assert compute_learning_rate(1, peak=1.0, num_warmup_steps=0, num_steps=5) == 1.0

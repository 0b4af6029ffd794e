"""The training loop: checkpoints and resumption, its log, learning rates, and one or two processes."""

import errno
import hashlib
import itertools
import json
import multiprocessing
import os
import resource
import signal
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from repro.model.biencoder import Biencoder
from repro.model.contextual import ContextualModel
from repro.stopping import Interrupted
from repro.train import feed, loop
from repro.train.checkpoint import CHECKPOINT_FILE, TrainState, read_metrics
from repro.train.chunks import ChunkSizes
from repro.train.feed import TrainData
from repro.train.loop import has_random_drops, train
from repro.train.optimizer import build_optimizer, compute_learning_rate
from tests.model.samples import build_small_model
from tests.train.fixtures import (
    assert_close_weights,
    join_group,
    make_settings,
    make_small_data,
    read_untimed_log,
    run_two_processes,
)


def run(
    folder: Path, model: Biencoder | ContextualModel | None = None, data: TrainData | None = None, **changes: Any
) -> tuple[Biencoder | ContextualModel, TrainState]:
    hooks = {name: changes.pop(name) for name in ("should_stop", "on_step") if name in changes}
    model = model or build_small_model()
    state = train(model, data or make_small_data(), make_settings(**changes), folder=folder, **hooks)
    return model, state


def assert_same_weights(first: Biencoder | ContextualModel, second: Biencoder | ContextualModel) -> None:
    assert_close_weights(second.state_dict(), first.state_dict(), rtol=0, atol=0)


def stop_after(num_steps: int) -> Callable[[], bool]:
    """Return a `should_stop` that is True from the given call on."""
    calls = itertools.count(1)
    return lambda: next(calls) >= num_steps


def test_stopped_training_resumes_exactly(tmp_path: Path) -> None:
    uninterrupted, _ = run(tmp_path / "whole")
    with pytest.raises(Interrupted, match="after step 4 of 10"):
        run(tmp_path / "cut", should_stop=stop_after(4))
    resumed, state = run(tmp_path / "cut")
    assert state.step == 10 and read_untimed_log(tmp_path / "cut") == read_untimed_log(tmp_path / "whole")
    assert_same_weights(uninterrupted, resumed)


def train_until_killed(folder: Path, step: int) -> None:
    def kill(line: dict[str, Any]) -> None:
        if line["step"] == step:
            os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    run(folder, checkpoint_every_steps=3, on_step=kill)


def test_killed_training_resumes_from_checkpoint(tmp_path: Path) -> None:
    uninterrupted, _ = run(tmp_path / "whole")
    child = multiprocessing.get_context("fork").Process(target=train_until_killed, args=(tmp_path / "cut", 8))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL and len(read_metrics(tmp_path / "cut")) == 8
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as log:
        log.write('{"step": 9, "lo')  # a line cut short
    steps = []
    resumed, _ = run(tmp_path / "cut", on_step=lambda line: steps.append(line["step"]))
    assert steps == [7, 8, 9, 10], "the last checkpoint was that of step 6"
    assert read_untimed_log(tmp_path / "cut") == read_untimed_log(tmp_path / "whole")
    assert_same_weights(uninterrupted, resumed)


def test_finished_training_is_not_repeated(tmp_path: Path) -> None:
    trained, _ = run(tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    repeated, state = run(tmp_path, on_step=lambda line: pytest.fail("a finished run took a step"))
    assert state.step == 10 and state.seconds > 0
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert_same_weights(trained, repeated)


def test_log_line_describes_its_step(tmp_path: Path) -> None:
    run(tmp_path)
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[2])
    assert line["step"] == 3 and len(line["batch"]) == 16
    assert 0 < line["masked_fraction"] < 1 and line["difficulty"] > 0 and 0 <= line["accuracy"] <= 1
    assert line["memory_bytes"] > 1e6 and line["pairs_per_second"] > 0


def test_misfitting_checkpoint_is_refused(tmp_path: Path) -> None:
    """A checkpoint of another run, sampler or model is never resumed from, nor is a damaged one."""
    run(tmp_path)
    with pytest.raises(ValueError, match="of run abc, not of xyz"):
        run(tmp_path, run_id="xyz")
    with pytest.raises(ValueError, match="left its sampler at"):
        run(tmp_path, data=make_small_data(seed=5), num_steps=20)
    with pytest.raises(ValueError, match=r"fit this model \(remove it to start.*: 0 missing, \d\d? extra, \d+ of"):
        run(tmp_path, build_small_model(num_layers=1), num_steps=20)
    path = tmp_path / CHECKPOINT_FILE
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is damaged"):
        run(tmp_path)


def test_older_checkpoint_is_resumed(tmp_path: Path) -> None:
    uninterrupted, _ = run(tmp_path / "whole")
    with pytest.raises(Interrupted):
        run(tmp_path / "cut", should_stop=lambda: True)
    path = tmp_path / "cut" / CHECKPOINT_FILE
    with safe_open(path, "pt") as file:
        state = {**json.loads(file.metadata()["state"]), "shares_batches": True}
    save_file(load_file(path), path, {"state": json.dumps(state)})
    resumed, _ = run(tmp_path / "cut")
    assert_same_weights(uninterrupted, resumed)


def test_full_disk_keeps_last_checkpoint(tmp_path: Path) -> None:
    """Writing fails half-way. A limit on the size of files simulates the full disk."""
    with pytest.raises(Interrupted):
        run(tmp_path, should_stop=lambda: True)
    before, limits = (tmp_path / CHECKPOINT_FILE).read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(OSError, match=r"could not write .*untouched") as failed:
            run(tmp_path, checkpoint_every_steps=4)
        assert failed.value.errno == errno.EFBIG, "the error number of the system is kept"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / CHECKPOINT_FILE).read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKPOINT_FILE, "metrics.jsonl"]
    run(tmp_path)


def hash_checkpoint(folder: Path) -> str:
    """Return a digest, because pytest takes minutes to compare the bytes of two checkpoints."""
    return hashlib.sha256((folder / CHECKPOINT_FILE).read_bytes()).hexdigest()


def spoil_model(model: Biencoder | ContextualModel, what: str) -> None:
    """Make the next loss NaN, or the gradient of one weight infinite."""
    weight = list(model.parameters())[-1]  # a dense weight of the last layer
    if what == "gradient":
        weight.register_hook(lambda gradient: gradient * torch.inf)
    else:
        with torch.no_grad():
            weight.fill_(torch.nan)


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_non_finite_step_changes_nothing(tmp_path: Path, what: str) -> None:
    """Weights, log and checkpoint stay as they were before the step, and the run can be resumed."""
    model, digests, weights = build_small_model(), [], []

    def spoil_after_7(line: dict[str, Any]) -> None:
        if line["step"] == 7:
            digests.append(hash_checkpoint(tmp_path))
            spoil_model(model, what)
            weights.append({name: value.clone() for name, value in model.state_dict().items()})

    rate = compute_learning_rate(8, peak=1e-2, num_warmup_steps=2, num_steps=10)
    line = rf"^step 8 of 10: loss [^\n]* at learning rate {rate:.3g}: not finite[^\n]*lower learning_rate[^\n]*$"
    with pytest.raises(ValueError, match=line) as caught:
        run(tmp_path, model, checkpoint_every_steps=3, on_step=spoil_after_7)
    assert (": loss nan, norm" in str(caught.value)) == (what == "loss")
    assert [hash_checkpoint(tmp_path)] == digests and len(read_metrics(tmp_path)) == 7
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, weights[0][name], rtol=0, atol=0, equal_nan=True, msg=name)
    resumed, _ = run(tmp_path)
    uninterrupted, _ = run(tmp_path / "whole")
    assert_same_weights(uninterrupted, resumed)


class OneBatch:
    """The same batch at every step."""

    def at(self, number: int) -> np.ndarray:
        return np.arange(8)


def test_dropped_contexts_follow_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step has the same contexts and nothing is learned, so losses differ only by the dropped contexts."""
    monkeypatch.setattr(feed, "draw_contexts", lambda num_documents, num_contexts, **options: np.arange(num_contexts))
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


def test_biases_and_norms_have_no_decay() -> None:
    model = build_small_model()
    names = {id(weight): name for name, weight in model.named_parameters()}
    groups = build_optimizer(model, learning_rate=1.0, weight_decay=0.1).param_groups
    decayed, spared = (
        {names[id(weight)] for group in groups if group["weight_decay"] == decay for weight in group["params"]}
        for decay in (0.1, 0.0)
    )
    assert all(name.endswith((".bias", "null_embedding")) or "norm" in name.lower() for name in spared)
    assert not any("norm" in name.lower() for name in decayed)
    assert decayed | spared == set(names.values()) and not decayed & spared


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


def test_too_long_warmup_is_refused() -> None:
    with pytest.raises(ValueError, match="num_warmup_steps=10"):
        make_settings(num_warmup_steps=10)


SHARED = {"chunks": ChunkSizes(3, 2), "num_steps": 6}


def run_double(folder: Path, shape: dict[str, Any] | None = None, **changes: Any) -> Biencoder | ContextualModel:
    """Train a float64 model without random drops on pairs with hard negatives."""
    return run(
        folder, build_small_model(sequence_dropout=0.0, **shape or {}).double(), make_small_data(num_hard=2), **changes
    )[0]


def train_in_group(number: int, folder: Path, shape: dict[str, Any], changes: dict[str, Any]) -> None:
    with join_group(number, folder):
        run_double(folder / "two", shape, **changes)


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ({}, ChunkSizes(3, 2)),
        # three context documents per process, one of them in both
        ({"num_contexts": 5, "tokens_per_document": 2}, ChunkSizes(3, 2)),
        # the whole step in one graph
        ({"num_contexts": 5}, ChunkSizes()),
        ({"num_contexts": 1}, ChunkSizes()),
        ({"architecture": "biencoder"}, ChunkSizes(3, 2)),
    ],
)
def test_two_processes_train_as_one(tmp_path: Path, shape: dict[str, Any], chunks: ChunkSizes) -> None:
    changes = SHARED | {"chunks": chunks}
    run_double(tmp_path / "one", shape, **changes)
    run_two_processes(train_in_group, tmp_path, shape, changes)
    assert_close_weights(*(load_file(tmp_path / name / CHECKPOINT_FILE) for name in ("two", "one")))
    for alone, together in zip(*(read_untimed_log(tmp_path / name) for name in ("one", "two")), strict=True):
        assert together.pop("batch") == alone.pop("batch") and together.pop("difficulty") == alone.pop("difficulty")
        assert together == pytest.approx(alone, rel=1e-6)


def test_step_time_includes_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU only queues work until a number is read. Here reading takes five seconds."""
    now, real = [0.0], torch.Tensor.tolist

    def wait(tensor: torch.Tensor) -> Any:
        # the model is float32, so only the logged numbers of a step are float64
        now[0] += 5.0 if tensor.dtype == torch.float64 else 0.0
        return real(tensor)

    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(torch.Tensor, "tolist", wait)
    _, state = run(tmp_path, num_steps=3)
    assert state.seconds == 15.0 and read_metrics(tmp_path)[0]["pairs_per_second"] == 8 / 5.0


def spoil_second_process(number: int, folder: Path) -> None:
    """Make the loss of the second process NaN from step 3 on. Each process has whole batches."""
    model = build_small_model(sequence_dropout=0.0).double()

    def spoil_after_2(line: dict[str, Any]) -> None:
        if line["step"] == 2 and number == 1:
            spoil_model(model, "loss")

    with join_group(number, folder), pytest.raises(ValueError, match=r"^step 3 of 10: loss nan"):
        run(folder, model, make_small_data(num_hard=2), on_step=spoil_after_2, batches_a_step=2)


@pytest.mark.enable_socket
def test_non_finite_process_ends_all(tmp_path: Path) -> None:
    run_two_processes(spoil_second_process, tmp_path)
    assert len(read_metrics(tmp_path)) == 2


def train_three_steps(number: int, folder: Path) -> None:
    """Train for three steps in two processes and leave a checkpoint."""
    with join_group(number, folder), pytest.raises(Interrupted):
        run_double(folder, should_stop=stop_after(3), **SHARED)


@pytest.mark.enable_socket
def test_process_count_may_change(tmp_path: Path) -> None:
    alone = run_double(tmp_path / "one", **SHARED)
    (tmp_path / "two").mkdir()
    run_two_processes(train_three_steps, tmp_path / "two")
    model = run_double(tmp_path / "two", **SHARED)
    one, two = ([line["batch"] for line in read_metrics(tmp_path / name)] for name in ("one", "two"))
    assert one == two
    assert_close_weights(model.state_dict(), alone.state_dict())


@pytest.mark.parametrize(
    ("changes", "batches_a_step", "has_warning"),
    [
        ({"sequence_dropout": 0.3}, 1, True),
        ({"sequence_dropout": 0.3}, 3, True),
        # each process has a whole batch with its own random draws
        ({"sequence_dropout": 0.3}, 2, False),
        ({"sequence_dropout": 0.0}, 1, False),
    ],
)
def test_changed_process_count_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], batches_a_step: int, has_warning: bool
) -> None:
    """Resuming with another number of processes warns if the random draws change."""
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(loop, "count_processes", lambda: 2)
        run(tmp_path, build_small_model(**changes), should_stop=lambda: True, batches_a_step=batches_a_step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(tmp_path, build_small_model(**changes), batches_a_step=batches_a_step)
    messages = [
        str(warning.message) for warning in caught if "is of 2 processes, now there are 1" in str(warning.message)
    ]
    assert len(messages) == has_warning and all("other draws" in warning for warning in messages)


def test_random_drops_depend_on_chunks(tmp_path: Path) -> None:
    """Without random drops, chunk sizes change no loss. Pooling by frequency draws twice per piece, so they do."""
    for name, changes in (("mean", {"sequence_dropout": 0.0}), ("frequency", {"pooling": "frequency"})):
        losses = []
        for sizes in (ChunkSizes(), ChunkSizes(3, 2)):
            model = build_small_model(**changes).double()
            folder = tmp_path / f"{name} {sizes.words}"
            run(folder, model, chunks=sizes, num_steps=3)
            losses.append([line["loss"] for line in read_metrics(folder)])
        assert (losses[0] != pytest.approx(losses[1], rel=1e-6)) == has_random_drops(model), name


def resume_without_checkpoint(number: int, folder: Path) -> None:
    """Resume in two processes, of which the second finds no checkpoint."""
    message = r"process 1 has another checkpoint than process 0 \(none, not of step 3"
    with join_group(number, folder, "meet again"), pytest.raises(ValueError, match=message):
        run_double(folder if number == 0 else folder / "elsewhere", **SHARED)


@pytest.mark.enable_socket
def test_differing_checkpoints_are_refused(tmp_path: Path) -> None:
    run_two_processes(train_three_steps, tmp_path)
    run_two_processes(resume_without_checkpoint, tmp_path)

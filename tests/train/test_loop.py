"""Promises of the training loop."""

import errno
import hashlib
import json
import multiprocessing
import os
import resource
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
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
from tests.model.samples import small_model
from tests.train.fixtures import settings, small_data

TIMED = ("pairs_per_second", "memory_bytes")


def run(
    folder: Path, model: Biencoder | ContextualModel | None = None, data: TrainData | None = None, **changes: Any
) -> tuple[Biencoder | ContextualModel, TrainState]:
    hooks = {name: changes.pop(name) for name in ("should_stop", "on_step") if name in changes}
    model = model or small_model()
    state = train(model, data or small_data(), settings(**changes), folder=folder, **hooks)
    return model, state


def lines(folder: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name not in TIMED} for line in read_metrics(folder)]


def assert_same_weights(first: Biencoder | ContextualModel, second: Biencoder | ContextualModel) -> None:
    for name, value in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], value, rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_training_lowers_the_loss(tmp_path: Path, architecture: str) -> None:
    run(tmp_path, small_model(architecture=architecture), num_steps=60)
    losses = [line["loss"] for line in read_metrics(tmp_path)]
    assert sum(losses[-10:]) < 0.85 * sum(losses[:10])


def test_stopped_training_resumes_exactly(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole")
    asked = []
    with pytest.raises(Interrupted, match="after step 4 of 10"):
        run(tmp_path / "cut", should_stop=lambda: asked.append(1) or len(asked) == 4)
    taken_up, state = run(tmp_path / "cut")
    assert state.step == 10 and lines(tmp_path / "cut") == lines(tmp_path / "whole")
    assert_same_weights(whole, taken_up)


def killed_at(folder: Path, step: int) -> None:
    def kill(line: dict[str, Any]) -> None:
        if line["step"] == step:
            os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    run(folder, checkpoint_every_steps=3, on_step=kill)


def test_killed_training_resumes_from_checkpoint(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole")
    child = multiprocessing.get_context("fork").Process(target=killed_at, args=(tmp_path / "cut", 8))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL and len(lines(tmp_path / "cut")) == 8
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as log:
        log.write('{"step": 9, "lo')  # a line cut short
    again = []
    taken_up, _ = run(tmp_path / "cut", on_step=lambda line: again.append(line["step"]))
    assert again == [7, 8, 9, 10], "it went on after step 6, the last checkpoint"
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    assert_same_weights(whole, taken_up)


def test_finished_training_is_not_repeated(tmp_path: Path) -> None:
    whole, _ = run(tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    again, state = run(tmp_path, on_step=lambda line: pytest.fail("a step was done"))
    assert state.step == 10 and state.seconds > 0
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert_same_weights(whole, again)


def test_chunk_sizes_change_nothing(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole", small_model(sequence_dropout=0.0).double())
    chunked, _ = run(tmp_path / "chunked", small_model(sequence_dropout=0.0).double(), chunks=ChunkSizes(3, 2))
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(chunked.state_dict()[name], value, rtol=1e-5, atol=1e-6, msg=name)


def test_log_line_describes_its_step(tmp_path: Path) -> None:
    run(tmp_path)
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[2])
    assert line["step"] == 3 and len(line["batch"]) == 16
    assert 0 < line["masked_fraction"] < 1 and line["difficulty"] > 0 and 0 <= line["accuracy"] <= 1
    assert line["memory_bytes"] > 1e6 and line["pairs_per_second"] > 0


def test_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ValueError, match="of run abc, not of xyz"):
        run(tmp_path, run_id="xyz")


def test_checkpoint_over_other_data_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ValueError, match="left its sampler at"):
        run(tmp_path, data=small_data(seed=5), num_steps=20)


def test_checkpoint_of_other_model_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ValueError, match=r"fit this model \(remove it to start.*: 0 missing, \d\d? extra, \d+ of"):
        run(tmp_path, small_model(num_layers=1), num_steps=20)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / CHECKPOINT_FILE
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is damaged"):
        run(tmp_path)


def test_older_checkpoint_is_resumed(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole")
    with pytest.raises(Interrupted):
        run(tmp_path / "cut", should_stop=lambda: True)
    path = tmp_path / "cut" / CHECKPOINT_FILE
    with safe_open(path, "pt") as file:
        state = {**json.loads(file.metadata()["state"]), "shares_batches": True}
    save_file(load_file(path), path, {"state": json.dumps(state)})
    taken_up, _ = run(tmp_path / "cut")
    assert_same_weights(whole, taken_up)


def test_full_disk_keeps_last_checkpoint(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: writing fails half-way, as there."""
    with pytest.raises(Interrupted):
        run(tmp_path, should_stop=lambda: True)
    before, limits = (tmp_path / CHECKPOINT_FILE).read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(OSError, match=r"could not write .*untouched") as failed:
            run(tmp_path, checkpoint_every_steps=4)
        assert failed.value.errno == errno.EFBIG, "the system's own number, by which a full disk is told"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / CHECKPOINT_FILE).read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKPOINT_FILE, "metrics.jsonl"]
    run(tmp_path)


def digest(folder: Path) -> str:
    """Of the checkpoint; its bytes side by side would take pytest minutes to compare."""
    return hashlib.sha256((folder / CHECKPOINT_FILE).read_bytes()).hexdigest()


def spoil(model: Biencoder | ContextualModel, what: str) -> None:
    """Make the next loss no number, or the gradient of one weight infinite."""
    weight = list(model.parameters())[-1]  # dense, and behind everything
    if what == "gradient":
        weight.register_hook(lambda gradient: gradient * torch.inf)
    else:
        with torch.no_grad():
            weight.fill_(torch.nan)


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_non_finite_step_changes_nothing(tmp_path: Path, what: str) -> None:
    model, kept, weights = small_model(), [], []

    def note(line: dict[str, Any]) -> None:
        if line["step"] == 7:
            kept.append(digest(tmp_path))
            spoil(model, what)
            weights.append({name: value.clone() for name, value in model.state_dict().items()})

    rate = compute_learning_rate(8, peak=1e-2, num_warmup_steps=2, num_steps=10)
    line = rf"^step 8 of 10: loss [^\n]* at learning rate {rate:.3g}: not finite[^\n]*lower learning_rate[^\n]*$"
    with pytest.raises(ValueError, match=line) as found:
        run(tmp_path, model, checkpoint_every_steps=3, on_step=note)
    assert (": loss nan, norm" in str(found.value)) == (what == "loss")
    assert [digest(tmp_path)] == kept and len(lines(tmp_path)) == 7
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, weights[0][name], rtol=0, atol=0, equal_nan=True, msg=name)
    taken_up, _ = run(tmp_path)
    whole, _ = run(tmp_path / "whole")
    assert_same_weights(whole, taken_up)


class OneBatch:
    """The same batch at every step."""

    def at(self, number: int) -> np.ndarray:
        return np.arange(8)


def test_dropped_contexts_follow_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same documents are context at every step, and nothing is learned: losses differ by what is dropped alone."""
    monkeypatch.setattr(feed, "draw_contexts", lambda num_documents, num_contexts, **drawn: np.arange(num_contexts))
    data = replace(small_data(), batches=OneBatch(), filter=None)

    def losses(dropout: float, seed: int) -> list[float]:
        folder, model = tmp_path / f"{dropout}-{seed}", small_model(sequence_dropout=dropout).double()
        run(folder, model, data, seed=seed, num_steps=3, learning_rate=0.0)
        return [round(line["loss"], 6) for line in read_metrics(folder)]

    assert len(set(losses(0.0, 0))) == 1
    assert len({*losses(0.25, 0), *losses(0.25, 1)}) == 6


def test_training_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    run(tmp_path, num_steps=3)
    torch.testing.assert_close(torch.rand(2), expected)


def test_biases_and_norms_have_no_decay() -> None:
    model = small_model()
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
    start, slow, equal = small_model(), small_model(), small_model()
    run(tmp_path / "slow", model=slow, num_steps=1, num_warmup_steps=0, first_stage_rate=0.01, weight_decay=0.0)
    run(tmp_path / "equal", model=equal, num_steps=1, num_warmup_steps=0, weight_decay=0.0)
    before, moved, moved_fully = (dict(model.named_parameters()) for model in (start, slow, equal))
    for name, weight in before.items():
        rate = 0.01 if name.startswith("first_stage_model.") else 1.0
        torch.testing.assert_close(moved[name] - weight, rate * (moved_fully[name] - weight), atol=1e-6, rtol=1e-2)


def test_learning_rate_warms_up_and_decays() -> None:
    rates = [compute_learning_rate(step, peak=1.0, num_warmup_steps=4, num_steps=12) for step in range(1, 13)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:] == pytest.approx([1 - place / 8 for place in range(8)])
    assert compute_learning_rate(1, peak=1.0, num_warmup_steps=0, num_steps=5) == 1.0


def test_too_long_warmup_is_refused() -> None:
    with pytest.raises(ValueError, match="num_warmup_steps=10"):
        settings(num_warmup_steps=10)


SHARED = {"chunks": ChunkSizes(3, 2), "num_steps": 6}


def in_group(number: int, folder: Path, shape: dict[str, Any], changes: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    run(folder / "two", small_model(sequence_dropout=0.0, **shape).double(), small_data(num_hard=2), **changes)
    dist.destroy_process_group()


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ({}, ChunkSizes(3, 2)),
        ({"num_contexts": 5, "tokens_per_document": 2}, ChunkSizes(3, 2)),  # 3 documents each, one of them twice
        ({"num_contexts": 5}, ChunkSizes()),  # all in one graph
        ({"num_contexts": 1}, ChunkSizes()),
        ({"architecture": "biencoder"}, ChunkSizes(3, 2)),
    ],
)
def test_two_processes_train_as_one(tmp_path: Path, shape: dict[str, Any], chunks: ChunkSizes) -> None:
    changes = SHARED | {"chunks": chunks}
    run(tmp_path / "one", small_model(sequence_dropout=0.0, **shape).double(), small_data(num_hard=2), **changes)
    mp.start_processes(in_group, (tmp_path, shape, changes), nprocs=2, start_method="fork")
    one, two = (load_file(tmp_path / name / CHECKPOINT_FILE) for name in ("one", "two"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-6, atol=1e-8, msg=name)
    for alone, together in zip(lines(tmp_path / "one"), lines(tmp_path / "two"), strict=True):
        assert together.pop("batch") == alone.pop("batch") and together.pop("difficulty") == alone.pop("difficulty")
        assert together == pytest.approx(alone, rel=1e-6)


def test_step_time_includes_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, work is only queued until a number is asked for; here asking for them takes five seconds."""
    now, real = [0.0], torch.Tensor.tolist

    def wait(tensor: torch.Tensor) -> Any:
        now[0] += 5.0 if tensor.dtype == torch.float64 else 0.0  # in a model of float32: the numbers of a step
        return real(tensor)

    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(torch.Tensor, "tolist", wait)
    _, state = run(tmp_path, num_steps=3)
    assert state.seconds == 15.0 and read_metrics(tmp_path)[0]["pairs_per_second"] == 8 / 5.0


def spoilt_in_one(number: int, folder: Path) -> None:
    """With whole batches, the loss of the second of two processes is no number from step 3 on; both are told so."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    model = small_model(sequence_dropout=0.0).double()

    def note(line: dict[str, Any]) -> None:
        if line["step"] == 2 and number == 1:
            spoil(model, "loss")

    with pytest.raises(ValueError, match=r"^step 3 of 10: loss nan"):
        run(folder, model, small_data(num_hard=2), on_step=note, batches_a_step=2)
    dist.destroy_process_group()


@pytest.mark.enable_socket
def test_non_finite_process_ends_all(tmp_path: Path) -> None:
    mp.start_processes(spoilt_in_one, (tmp_path,), nprocs=2, start_method="fork")
    assert len(lines(tmp_path)) == 2


def half_of_it(number: int, folder: Path, changes: dict[str, Any]) -> None:
    """Two processes do three steps of a training and leave their checkpoint."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    asked: list[int] = []
    with pytest.raises(Interrupted):
        model = small_model(sequence_dropout=0.0).double()
        run(folder, model, small_data(num_hard=2), should_stop=lambda: asked.append(1) or len(asked) == 3, **changes)
    dist.destroy_process_group()


@pytest.mark.enable_socket
def test_process_count_may_change(tmp_path: Path) -> None:
    alone, _ = run(tmp_path / "one", small_model(sequence_dropout=0.0).double(), small_data(num_hard=2), **SHARED)
    (tmp_path / "two").mkdir()
    mp.start_processes(half_of_it, (tmp_path / "two", SHARED), nprocs=2, start_method="fork")
    model, _ = run(tmp_path / "two", small_model(sequence_dropout=0.0).double(), small_data(num_hard=2), **SHARED)
    one, two = lines(tmp_path / "one"), lines(tmp_path / "two")
    assert [line["batch"] for line in two] == [line["batch"] for line in one]
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-6, atol=1e-8, msg=name)


@pytest.mark.parametrize(
    ("changes", "batches_a_step", "is_told"),
    [
        ({"sequence_dropout": 0.3}, 1, True),
        ({"sequence_dropout": 0.3}, 3, True),
        ({"sequence_dropout": 0.3}, 2, False),  # a whole batch each, which has draws of its own
        ({"sequence_dropout": 0.0}, 1, False),
    ],
)
def test_changed_process_count_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], batches_a_step: int, is_told: bool
) -> None:
    """As many processes as it says go on from a checkpoint; which is all that this needs to know of them."""
    with monkeypatch.context() as of_two, pytest.raises(Interrupted):
        of_two.setattr(loop, "count_processes", lambda: 2)
        run(tmp_path, small_model(**changes), should_stop=lambda: True, batches_a_step=batches_a_step)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run(tmp_path, small_model(**changes), batches_a_step=batches_a_step)
    found = [str(one.message) for one in told if "is of 2 processes, now there are 1" in str(one.message)]
    assert len(found) == is_told and all("other draws" in one for one in found)


def test_random_drops_depend_on_chunks(tmp_path: Path) -> None:
    """With pooling by frequency each piece draws twice: other chunks, other draws. `has_random_drops` says where."""
    for name, changes in (("mean", {"sequence_dropout": 0.0}), ("frequency", {"pooling": "frequency"})):
        losses = []
        for sizes in (ChunkSizes(), ChunkSizes(3, 2)):
            model = small_model(**changes).double()
            run(tmp_path / f"{name} {sizes.words}", model, chunks=sizes, num_steps=3)
            losses.append([line["loss"] for line in lines(tmp_path / f"{name} {sizes.words}")])
        assert (losses[0] != pytest.approx(losses[1], rel=1e-6)) == has_random_drops(model), name


def in_another_folder(number: int, folder: Path) -> None:
    """The second of two processes does not see the checkpoint that the first goes on from."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/met", rank=number, world_size=2)
    own = folder if number == 0 else folder / "elsewhere"
    with pytest.raises(ValueError, match=r"process 1 has another checkpoint than process 0 \(none, not of step 3"):
        run(own, small_model(sequence_dropout=0.0).double(), small_data(num_hard=2), **SHARED)
    dist.destroy_process_group()


@pytest.mark.enable_socket
def test_differing_checkpoints_are_refused(tmp_path: Path) -> None:
    mp.start_processes(half_of_it, (tmp_path, SHARED), nprocs=2, start_method="fork")
    mp.start_processes(in_another_folder, (tmp_path,), nprocs=2, start_method="fork")

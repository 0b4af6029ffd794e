"""Training in several processes and with several batches per step: two gloo processes give what one process gives."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_pre_hook

from repro.model.contextual import ContextualModel
from repro.model.modeling_cde import draw_batch_context
from repro.model.texts import make_texts
from repro.stopping import Interrupted
from repro.train.checkpoint import CHECKPOINT_FILE, TrainState, read_metrics
from repro.train.feed import SetApart, TrainData, compute_batch_hash
from repro.train.performance import ChunkSizes
from repro.train.set_apart import LOSS
from repro.train.shared_encoding import serve_encoding, share_encoding
from repro.train.trainer import train
from tests.model.samples import build_small_model
from tests.train.fixtures import (
    assert_close_weights,
    draw_tokens,
    join_group,
    make_settings,
    make_small_data,
    read_untimed_log,
    run_two_processes,
    spoil_model,
    stop_after,
)


def train_double(folder: Path, data: TrainData, shape: dict[str, Any], **changes: Any) -> TrainState:
    """Train a model in float64."""
    torch.set_num_threads(1)
    hooks = {name: changes.pop(name) for name in ("should_stop", "on_step") if name in changes}
    return train(build_small_model(**shape).double(), data, make_settings(**changes), folder=folder, **hooks)


def compute_by_autograd(model: ContextualModel, data: TrainData, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loss and gradient of one batch by plain autograd."""
    pairs_B = data.batches.at(number)
    rows_M = pairs_B if data.negative_rows_NH is None else np.concatenate([pairs_B, *data.negative_rows_NH[pairs_B]])
    places_C = draw_batch_context(len(rows_M), model.config.num_contexts, 0, number)
    contexts_CD = model.first_stage(make_texts(*data.documents.pad(rows_M[places_C])))
    queries_BD, documents_MD = (
        torch.nn.functional.normalize(model.second_stage(make_texts(*tokens.pad(rows)), contexts_CD), dim=-1)
        for tokens, rows in ((data.queries, pairs_B), (data.documents, rows_M))
    )
    losses = []
    for row, pair in enumerate(pairs_B):
        scores_M = documents_MD @ queries_BD[row] / 0.02
        # the filter of data without hard negatives masks pairs of equal remainder
        is_kept_M = np.full(len(rows_M), data.filter is None) | (rows_M % 3 != pair % 3)
        is_kept_M[row] = True
        losses.append(torch.logsumexp(scores_M[torch.from_numpy(is_kept_M)], 0) - scores_M[row])
    loss = torch.stack(losses).mean()
    model.zero_grad()
    loss.backward()
    gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in model.parameters()]
    return loss.detach(), torch.cat([gradient.flatten() for gradient in gradients])


def save_gradients(number: int, folder: Path, data: TrainData, changes: dict[str, Any], *, num_processes: int) -> None:
    """Train at learning rate 0 without clipping, alone or as one of two processes. Save the gradients of all steps."""
    model, gradients = build_gradient_model(), list[torch.Tensor]()
    hook = register_optimizer_step_pre_hook(
        lambda *_: gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
    )
    settings = make_settings(learning_rate=0.0, max_grad_norm=1e9, num_steps=3, **changes)
    with nullcontext() if num_processes == 1 else join_group(number, folder):
        train(model, data, settings, folder=folder)
    hook.remove()
    torch.save(torch.stack(gradients), folder / f"{number}.pt")


def build_gradient_model() -> ContextualModel:
    """Build a model whose contexts cannot be shared equally by two processes."""
    return build_small_model(sequence_dropout=0.0, num_contexts=11).double()


def assert_equals_autograd(folder: Path, data: TrainData, batches_a_step: int, num_processes: int) -> None:
    """Compare saved gradients and log with autograd. All processes have the mean gradient of the batches of a step."""
    model = build_gradient_model()
    gradients = [torch.load(folder / f"{number}.pt") for number in range(num_processes)]
    for step, line in enumerate(read_metrics(folder)):
        numbers = range(step * batches_a_step, (step + 1) * batches_a_step)
        losses, batch_gradients = zip(*(compute_by_autograd(model, data, number) for number in numbers), strict=True)
        assert line["loss"] == pytest.approx(float(torch.stack(losses).mean()), rel=1e-9)
        expected = torch.stack(batch_gradients).mean(0)
        assert expected.norm() > 0.1
        for process_gradients in gradients:
            torch.testing.assert_close(process_gradients[step], expected, rtol=1e-8, atol=1e-10)
        assert line["batch"].split("+") == [compute_batch_hash(data.batches.at(number)) for number in numbers]
        if data.filter is not None:
            assert line["difficulty"] == pytest.approx(np.mean([data.batches.at(number).mean() for number in numbers]))


@pytest.mark.parametrize(
    ("num_hard", "batches_a_step", "chunks"), [(0, 1, ChunkSizes()), (2, 2, ChunkSizes(3, 2)), (0, 3, ChunkSizes())]
)
def test_step_gradient_is_mean_of_batches(
    tmp_path: Path, num_hard: int, batches_a_step: int, chunks: ChunkSizes
) -> None:
    """Three steps of three batches cross the end of an epoch of seven batches."""
    data, changes = make_small_data(num_hard=num_hard), {"batches_a_step": batches_a_step, "chunks": chunks}
    save_gradients(0, tmp_path, data, changes, num_processes=1)
    assert_equals_autograd(tmp_path, data, batches_a_step, num_processes=1)


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("num_hard", "batches_a_step", "chunks"),
    [
        # more chunks of contexts than of inputs
        (2, 1, ChunkSizes(3, 2)),
        # each process has whole batches, hence its own negatives
        (0, 2, ChunkSizes(3, 100)),
    ],
)
def test_global_negatives_match_one_process(
    tmp_path: Path, num_hard: int, batches_a_step: int, chunks: ChunkSizes
) -> None:
    """Two processes that share a batch contrast all of its pairs, and backpropagate to all of its contexts."""
    data, changes = make_small_data(num_hard=num_hard), {"batches_a_step": batches_a_step, "chunks": chunks}
    run_two_processes(partial(save_gradients, num_processes=2), tmp_path, data, changes)
    assert_equals_autograd(tmp_path, data, batches_a_step, num_processes=2)


def test_steps_match_torch_adamw(tmp_path: Path) -> None:
    data, model, reference = make_small_data(), *(build_small_model(sequence_dropout=0.0).double() for _ in range(2))
    changes = {"num_steps": 4, "num_warmup_steps": 2, "max_grad_norm": 0.5, "weight_decay": 0.3}
    train(model, data, make_settings(**changes), folder=tmp_path)
    matrices = [weight for weight in reference.parameters() if weight.ndim > 1]
    vectors = [weight for weight in reference.parameters() if weight.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.3}, {"params": vectors, "weight_decay": 0.0}])
    for step, rate in enumerate((0.005, 0.01, 0.01, 0.005)):
        compute_by_autograd(reference, data, step)
        assert torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5) > 1, "every gradient is clipped"
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    assert_close_weights(model.state_dict(), reference.state_dict())


def train_in_group(
    number: int, folder: Path, data: TrainData, shape: dict[str, Any], changes: dict[str, Any], num_steps: int = 0
) -> None:
    """Train in one of two processes, which stop after `num_steps` steps if it is above 0."""
    hooks = {"should_stop": stop_after(num_steps)} if num_steps else {}
    with join_group(number, folder), pytest.raises(Interrupted) if num_steps else nullcontext():
        train_double(folder / "two", data, shape, **hooks, **changes)


def assert_same_training(folder: Path) -> None:
    """Compare weights and logs of the folders `one` and `two`."""
    assert_close_weights(*(load_file(folder / name / CHECKPOINT_FILE) for name in ("two", "one")))
    for line, line_of_two in zip(*(read_untimed_log(folder / name) for name in ("one", "two")), strict=True):
        assert line_of_two.pop("batch") == line.pop("batch")
        assert line_of_two == pytest.approx(line, rel=1e-6)


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("shape", "num_hard", "changes", "stop_at"),
    [
        ({}, 2, {"chunks": ChunkSizes(3, 2)}, 0),
        # three context documents per process, one of them in both
        ({"num_contexts": 5, "tokens_per_document": 2}, 2, {}, 2),
        ({"architecture": "biencoder"}, 0, {"batches_a_step": 3}, 2),
        # Each process has whole batches. Only then it draws the same dropout as a single process.
        ({"sequence_dropout": 0.3}, 0, {"batches_a_step": 4}, 2),
    ],
)
def test_two_processes_train_as_one(
    tmp_path: Path, shape: dict[str, Any], num_hard: int, changes: dict[str, Any], stop_at: int
) -> None:
    """Also if two processes stop after `stop_at` steps and one process resumes."""
    data, shape = make_small_data(num_hard=num_hard), {"sequence_dropout": 0.0} | shape
    changes = {"num_steps": 4} | changes
    train_double(tmp_path / "one", data, shape, **changes)
    run_two_processes(train_in_group, tmp_path, data, shape, changes, stop_at)
    if stop_at:
        assert len(read_metrics(tmp_path / "two")) == stop_at
        train_double(tmp_path / "two", data, shape, **changes)
    assert_same_training(tmp_path)


@pytest.mark.enable_socket
def test_best_weights_match_in_two_processes(tmp_path: Path) -> None:
    """Two processes that share each batch end early at the same step as one process, with the same best weights."""
    data = replace(make_small_data(), set_apart=SetApart(draw_tokens(12, 8), draw_tokens(12, 9)))
    shape, changes = {"sequence_dropout": 0.0}, {"num_steps": 60}
    expected = train_double(tmp_path / "one", data, shape, **changes)
    run_two_processes(train_in_group, tmp_path, data, shape, changes)
    log = read_metrics(tmp_path / "two")
    assert expected.has_ended and len(log) == expected.step < 60
    assert any(LOSS in line for line in log)
    assert_same_training(tmp_path)


def encode_in_group(number: int, folder: Path, shape: dict[str, Any]) -> None:
    """Encode in two processes under two contexts, and compare with one process."""
    model = build_small_model(**shape).eval()
    tokens = draw_tokens(50, 1)
    contexts = [None, None]
    if isinstance(model, ContextualModel):
        contexts = [model.context_from(None), model.context_from(None) + 1]
    expected = [model.encode_under(tokens, context_CE, 5) for context_CE in contexts]
    with join_group(number, folder):
        if number:
            return serve_encoding(model)
        with share_encoding(model):
            for context_CE, alone in zip(contexts, expected, strict=True):
                together = model.encode_under(tokens, context_CE, 5)
                assert together.shape == alone.shape and (together == alone).all()
    (folder / "compared").touch()


@pytest.mark.enable_socket
@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_two_processes_encode_as_one(tmp_path: Path, architecture: str) -> None:
    run_two_processes(encode_in_group, tmp_path, {"architecture": architecture})
    assert (tmp_path / "compared").is_file()


def stop_while_encoding(number: int, folder: Path) -> None:
    """Stop the first process in the middle of a call that it shares."""
    model, tokens = build_small_model().eval(), draw_tokens(50, 1)

    def fail(*_: Any) -> None:
        raise OSError("full")

    with join_group(number, folder), pytest.raises(RuntimeError if number else OSError):
        if number:
            serve_encoding(model)
            return
        with share_encoding(model):
            model.encode_batch = fail  # type: ignore[method-assign]
            model.encode_under(tokens, None)
    (folder / f"ended{number}").touch()


@pytest.mark.enable_socket
def test_error_while_encoding_ends_all(tmp_path: Path) -> None:
    run_two_processes(stop_while_encoding, tmp_path)
    assert len(list(tmp_path.glob("ended?"))) == 2


def spoil_second_process(number: int, folder: Path) -> None:
    """Make the loss of the second process NaN from step 3 on. Each process has whole batches."""
    model = build_small_model(sequence_dropout=0.0).double()

    def spoil_after_2(line: dict[str, Any]) -> None:
        if line["step"] == 2 and number == 1:
            spoil_model(model, "loss")

    with join_group(number, folder), pytest.raises(ValueError, match=r"^step 3 of 10: loss nan"):
        train(model, make_small_data(), make_settings(batches_a_step=2), folder=folder, on_step=spoil_after_2)


@pytest.mark.enable_socket
def test_non_finite_process_ends_all(tmp_path: Path) -> None:
    run_two_processes(spoil_second_process, tmp_path)
    assert len(read_metrics(tmp_path)) == 2


def resume_without_checkpoint(number: int, folder: Path) -> None:
    """Resume in two processes, of which the second finds no checkpoint."""
    message = "process 1 has another checkpoint than process 0"
    name = ("two", "elsewhere")[number]
    with join_group(number, folder, "meet again"), pytest.raises(ValueError, match=message):
        train_double(folder / name, make_small_data(), {})


@pytest.mark.enable_socket
def test_differing_checkpoints_are_refused(tmp_path: Path) -> None:
    run_two_processes(train_in_group, tmp_path, make_small_data(), {}, {}, 3)
    run_two_processes(resume_without_checkpoint, tmp_path)

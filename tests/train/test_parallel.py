"""Training in several processes and with several batches per step: two gloo processes give what one process gives."""

import itertools
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from repro.analyses.microscope import explain
from repro.execute import execute
from repro.model.contextual import ContextualModel
from repro.model.texts import Texts, texts_from
from repro.pipeline.inputs import Inputs
from repro.planning.cost import count_operations
from repro.spec import Run, base
from repro.spec.identity import run_id
from repro.stopping import Interrupted
from repro.storage.paths import run_folder
from repro.train import loop, parallel, trainer
from repro.train.checkpoint import CHECKPOINT_FILE, TrainState, read_metrics
from repro.train.chunks import ChunkSizes
from repro.train.feed import SetApart, TrainData, compute_batch_hash, draw_contexts
from repro.train.gradcache import Loss, Stages, StepTexts, add_gradients
from repro.train.loop import train
from repro.train.loss import LossParts, info_nce
from repro.train.parallel import (
    count_processes,
    gather_contexts,
    gather_documents,
    gather_with_gradient,
    rank,
    reduce_gradients,
    select_own_contexts,
)
from repro.train.set_apart import SET_APART_LOSS
from repro.train.sharing import explain_indivisible, list_own_places
from repro.train.trainer import build_sampler, make_train_settings
from tests.commands import ignore
from tests.model.samples import build_small_model, draw_texts
from tests.train.fixtures import (
    assert_close_weights,
    draw_tokens,
    join_group,
    make_settings,
    make_small_data,
    read_untimed_log,
    run_two_processes,
)

PAIRS, HARD = 8, 2
QUERIES = draw_texts(PAIRS, seed=1)
POSITIVES, NEGATIVES = draw_texts(PAIRS, seed=2), draw_texts(PAIRS * HARD, seed=3)
# six in each of two processes, one of them twice
CONTEXTS = draw_texts(11, seed=4)
# three chunks of contexts, more than a step has inputs
SIZES = ChunkSizes(texts=3, contexts=2)


def slice_texts(texts: Texts, first: int, last: int) -> Texts:
    return Texts(texts.ids_NS[first:last], texts.mask_NS[first:last])


def slice_documents(first: int, last: int) -> Texts:
    """Return the positives of some pairs, then their hard negatives."""
    positives, negatives = slice_texts(POSITIVES, first, last), slice_texts(NEGATIVES, first * HARD, last * HARD)
    return Texts(torch.cat([positives.ids_NS, negatives.ids_NS]), torch.cat([positives.mask_NS, negatives.mask_NS]))


def compute_step(
    first: int, last: int, loss: Loss, *, shared: bool, sizes: ChunkSizes = SIZES
) -> tuple[float, torch.Tensor]:
    """Return loss and gradient of a step on some pairs. If `shared`, all processes share the batch and its contexts."""
    model = build_small_model(sequence_dropout=0.0, num_contexts=CONTEXTS.num_texts).double().train()
    places = np.arange(CONTEXTS.num_texts)
    own = CONTEXTS.rows(torch.from_numpy(select_own_contexts(places) if shared else places))
    gather = gather_contexts if shared else lambda own_CD: own_CD
    step = StepTexts(slice_texts(QUERIES, first, last), slice_documents(first, last), own)
    parts = add_gradients(Stages(model.second_stage, loss, model.first_stage, gather), step, sizes)
    reduce_gradients(model.parameters(), 1 if shared else count_processes())
    return float(parts.loss), torch.cat([weight.grad.flatten() for weight in model.parameters()])


def compute_share(number: int, folder: Path, global_negatives: bool, sizes: ChunkSizes) -> None:
    """Save loss and gradient of one process, which has half of the pairs."""
    share = PAIRS // 2

    def gathered_loss(queries: torch.Tensor, documents: torch.Tensor) -> LossParts:
        return info_nce(gather_with_gradient(queries), gather_documents(documents, share))

    loss = gathered_loss if global_negatives else info_nce
    with join_group(number, folder):
        result = compute_step(number * share, (number + 1) * share, loss, shared=global_negatives, sizes=sizes)
        torch.save(result, f"{folder}/{rank()}.pt")
        assert count_processes() == 2


def compute_in_two_processes(
    folder: Path, global_negatives: bool, sizes: ChunkSizes = SIZES
) -> list[tuple[float, torch.Tensor]]:
    run_two_processes(compute_share, folder, global_negatives, sizes)
    results = [torch.load(folder / f"{number}.pt", weights_only=True) for number in range(2)]
    torch.testing.assert_close(results[0][1], results[1][1], rtol=0, atol=0)
    return results


@pytest.mark.enable_socket
@pytest.mark.parametrize("sizes", [SIZES, ChunkSizes(3, 100), ChunkSizes()])
def test_global_negatives_match_one_process(tmp_path: Path, sizes: ChunkSizes) -> None:
    loss, gradient = compute_step(0, PAIRS, info_nce, shared=False)
    for found_loss, found_gradient in compute_in_two_processes(tmp_path, True, sizes):
        assert found_loss == pytest.approx(loss, rel=1e-10)
        torch.testing.assert_close(found_gradient, gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.enable_socket
def test_own_negatives_give_the_mean(tmp_path: Path) -> None:
    halves = [compute_step(first, first + PAIRS // 2, info_nce, shared=False) for first in (0, PAIRS // 2)]
    results = compute_in_two_processes(tmp_path, False)
    for (found_loss, found_gradient), (loss, _) in zip(results, halves, strict=True):
        assert found_loss == pytest.approx(loss, rel=1e-10)
        torch.testing.assert_close(found_gradient, (halves[0][1] + halves[1][1]) / 2, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("num_contexts", "share"), [(512, 64), (9, 2), (1, 1)])
def test_processes_share_the_contexts(monkeypatch: pytest.MonkeyPatch, num_contexts: int, share: int) -> None:
    """The parts of all processes, in order of rank, start with all contexts in order. Only filler comes after them."""
    places, parts = np.random.default_rng(0).permutation(num_contexts), []
    monkeypatch.setattr(parallel, "count_processes", lambda: 8)
    for process in range(8):
        monkeypatch.setattr(parallel, "rank", lambda process=process: process)
        parts.append(select_own_contexts(places))
    assert {len(part) for part in parts} == {share}
    assert np.concatenate(parts)[:num_contexts].tolist() == places.tolist()


def test_single_process_keeps_gradients() -> None:
    model = build_small_model(sequence_dropout=0.0).train()
    model.second_stage(QUERIES, model.first_stage(CONTEXTS)).sum().backward()
    before = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    assert "sequence_dropout_null_embedding" not in before and len(before) > 10
    reduce_gradients(model.parameters())
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, before.get(name, torch.zeros_like(weight)), rtol=0, atol=0)


EPOCHS = base("smoke", num_steps=None, num_epochs=3)


def train_double(folder: Path, data: TrainData, shape: dict[str, Any], **changes: Any) -> TrainState:
    """Train a model in float64."""
    torch.set_num_threads(1)
    hooks = {name: changes.pop(name) for name in ("should_stop",) if name in changes}
    return train(build_small_model(**shape).double(), data, make_settings(**changes), folder=folder, **hooks)


def compute_by_autograd(model: ContextualModel, data: TrainData, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loss and gradient of one batch by plain autograd."""
    pairs_B = data.batches.at(number)
    places_C = draw_contexts(len(pairs_B), model.config.num_contexts, seed=0, number=number)
    contexts_CD = model.first_stage(texts_from(*data.documents.pad(pairs_B[places_C])))
    sides = [
        torch.nn.functional.normalize(model.second_stage(texts_from(*tokens.pad(pairs_B)), contexts_CD), dim=-1)
        for tokens in (data.queries, data.documents)
    ]
    losses = []
    for row, pair in enumerate(pairs_B):
        scores_B = sides[1] @ sides[0][row] / 0.02
        columns = [column for column, other in enumerate(pairs_B) if column == row or other % 3 != pair % 3]
        losses.append(torch.logsumexp(scores_B[columns], 0) - scores_B[row])
    loss = torch.stack(losses).mean()
    model.zero_grad()
    loss.backward()
    gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in model.parameters()]
    return loss.detach(), torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize("batches_a_step", [1, 2, 3])
def test_step_gradient_is_mean_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches_a_step: int) -> None:
    """Three steps at learning rate 0. They cross the end of an epoch of seven batches."""
    data, model, gradients = make_small_data(), build_small_model(sequence_dropout=0.0).double(), []
    real = loop.make_optimizer

    def build_watched_optimizer(*args: Any) -> torch.optim.Optimizer:
        optimizer = real(*args)
        optimizer.register_step_pre_hook(
            lambda *_: gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
        )
        return optimizer

    monkeypatch.setattr(loop, "make_optimizer", build_watched_optimizer)
    changes = {"learning_rate": 0.0, "max_grad_norm": 1e9, "num_steps": 3}
    train(model, data, make_settings(**changes, batches_a_step=batches_a_step), folder=tmp_path)
    for step, line in enumerate(read_metrics(tmp_path)):
        numbers = range(step * batches_a_step, (step + 1) * batches_a_step)
        expected = [compute_by_autograd(model, data, number) for number in numbers]
        assert line["loss"] == pytest.approx(float(torch.stack([loss for loss, _ in expected]).mean()), rel=1e-9)
        gradient = torch.stack([one for _, one in expected]).mean(0)
        assert gradient.norm() > 0.1
        torch.testing.assert_close(gradients[step], gradient, rtol=1e-8, atol=1e-10)
        assert line["batch"].split("+") == [compute_batch_hash(data.batches.at(number)) for number in numbers]
        assert line["difficulty"] == pytest.approx(np.mean([data.batches.at(number).mean() for number in numbers]))


def test_steps_match_torch_adamw(tmp_path: Path) -> None:
    data, model, reference = make_small_data(), *(build_small_model(sequence_dropout=0.0).double() for _ in range(2))
    changes = {"num_steps": 4, "num_warmup_steps": 2, "max_grad_norm": 0.5, "weight_decay": 0.3}
    train(model, data, make_settings(**changes), folder=tmp_path)
    groups = [
        {
            "params": [weight for weight in reference.parameters() if (weight.ndim > 1) == is_matrix],
            "weight_decay": decay,
        }
        for is_matrix, decay in ((True, 0.3), (False, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups)
    for step, rate in enumerate((0.005, 0.01, 0.01, 0.005)):
        compute_by_autograd(reference, data, step)
        assert torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5) > 1, "every gradient is clipped"
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    for (name, weight), expected in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-8, msg=name)


def train_in_group(
    number: int, folder: Path, data: TrainData, shape: dict[str, Any], changes: dict[str, Any], stop_after: int = 0
) -> None:
    """Train in one of two processes, which stop after a number of steps if it is above 0."""
    calls = itertools.count(1)
    with join_group(number, folder), pytest.raises(Interrupted) if stop_after else nullcontext():
        train_double(folder / "two", data, shape, should_stop=lambda: next(calls) == stop_after, **changes)


@pytest.mark.enable_socket
@pytest.mark.parametrize("stop_after", [0, 2])
# Two processes share each of three batches. They draw differently from one process, hence no dropout.
@pytest.mark.parametrize(("batches_a_step", "dropout"), [(2, 0.3), (4, 0.3), (3, 0.0)])
def test_several_batches_match_in_two_processes(
    tmp_path: Path, batches_a_step: int, dropout: float, stop_after: int
) -> None:
    """Also if two processes stop after two steps and one process resumes."""
    shape, changes = {"sequence_dropout": dropout}, {"num_steps": 5, "batches_a_step": batches_a_step}
    train_double(tmp_path / "one", make_small_data(), shape, **changes)
    run_two_processes(train_in_group, tmp_path, make_small_data(), shape, changes, stop_after)
    if stop_after:
        assert len(read_metrics(tmp_path / "two")) == 2
        train_double(tmp_path / "two", make_small_data(), shape, **changes)
    assert_close_weights(*(load_file(tmp_path / name / CHECKPOINT_FILE) for name in ("two", "one")))
    for line, line_of_two in zip(*(read_untimed_log(tmp_path / name) for name in ("one", "two")), strict=True):
        assert line_of_two.pop("batch") == line.pop("batch")
        assert line_of_two == pytest.approx(line, rel=1e-6)


@pytest.mark.enable_socket
def test_best_weights_match_in_two_processes(tmp_path: Path) -> None:
    """Two processes that share each batch end early at the same step as one process, with the same best weights."""
    data = replace(make_small_data(), set_apart=SetApart(draw_tokens(12, 8), draw_tokens(12, 9)))
    shape, changes = {"sequence_dropout": 0.0}, {"num_steps": 60}
    expected = train_double(tmp_path / "one", data, shape, **changes)
    run_two_processes(train_in_group, tmp_path, data, shape, changes)
    logs = [read_metrics(tmp_path / name) for name in ("one", "two")]
    assert expected.has_ended and len(logs[1]) == expected.step < 60
    assert_close_weights(*(load_file(tmp_path / name / CHECKPOINT_FILE) for name in ("two", "one")))
    losses = [{line["step"]: line[SET_APART_LOSS] for line in log if SET_APART_LOSS in line} for log in logs]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_processes_take_whole_batches() -> None:
    dealt = [list(list_own_places(8, rank=rank, num_processes=4)) for rank in range(4)]
    assert dealt == [[0, 1], [2, 3], [4, 5], [6, 7]]
    for batches_a_step, num_processes in ((1, 2), (8, 16), (8, 3)):
        assert list(list_own_places(batches_a_step, rank=1, num_processes=num_processes)) == list(range(batches_a_step))


def test_indivisible_batches_are_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    run = base("smoke", batches_a_step=2, pretraining_corpus="planted-tiny", num_pretraining_steps=5)
    assert run.batch_size == 16
    assert not any(explain_indivisible(run, num_processes) for num_processes in (1, 2, 4, 16))
    monkeypatch.setattr(trainer, "count_processes", lambda: 3)
    monkeypatch.setattr(trainer, "start_model", lambda *args: pytest.fail("something was trained"))
    message = r"a batch of 16 cannot be shared equally by 3 processes \(nor can batches_a_step=2 .*\)\. .* must divide 16 or 2$"
    with pytest.raises(ValueError, match=message):
        execute(run, progress=ignore)


@pytest.mark.parametrize(("batches_a_step", "num_steps"), [(1, 21), (2, 10), (3, 7), (4, 5)])
def test_epochs_drop_partial_steps(batches_a_step: int, num_steps: int) -> None:
    """Three epochs of seven batches."""
    assert make_train_settings(replace(EPOCHS, batches_a_step=batches_a_step), 7).num_steps == num_steps


def test_too_few_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="num_epochs=3 of 7 batches are less than one step"):
        make_train_settings(replace(EPOCHS, batches_a_step=22), 7)


def test_microscope_sees_each_batch() -> None:
    run = base("smoke", batches_a_step=3, num_steps=4, filter="surrogate")
    assert explain(run, 1, progress=ignore).parts[-1].last_batch == 12, "known before training"
    execute(run, progress=ignore)
    log, sampler = read_metrics(run_folder(run_id(run))), build_sampler(Inputs(run))
    batches = [explain(run, number, progress=ignore) for number in range(1, 13)]
    hashes = [batch.batch_hash for batch in batches]
    assert hashes == [batch_hash for line in log for batch_hash in line["batch"].split("+")]
    assert hashes == [compute_batch_hash(sampler.at(index)) for index in range(12)]
    difficulties = [batch.difficulty for batch in batches[3:6]]
    assert np.mean(difficulties) == pytest.approx(log[1]["difficulty"], abs=1e-6)
    assert [(part.first_batch, part.last_batch) for part in batches[0].parts] == [(1, 3), (4, 6), (7, 9), (10, 12)]
    with pytest.raises(ValueError, match="batches 1 to 12"):
        explain(run, 13, progress=ignore)


def count_work(run: Run) -> tuple[int, float]:
    operations = count_operations(run)
    return operations.num_pairs, operations.flops


def test_plan_counts_each_batch() -> None:
    run = base("desk", architecture="contextual", num_steps=100)
    by_eight = replace(run, batches_a_step=8)
    assert count_work(by_eight) == count_work(replace(run, num_steps=800))
    epochs = replace(run, num_pairs=4096, num_steps=None, num_epochs=8)  # 256 batches
    assert count_work(replace(epochs, batches_a_step=8)) == count_work(epochs)
    assert count_work(replace(epochs, batches_a_step=100))[0] == 200 * run.batch_size

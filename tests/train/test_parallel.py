"""Promises of training in several processes: two gloo processes give what one process gives."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from repro.model.contextual import ContextualModel
from repro.model.texts import Texts
from repro.train import parallel
from repro.train.chunks import ChunkSizes
from repro.train.gradcache import Loss, Stages, StepTexts, add_gradients
from repro.train.loss import LossParts, info_nce
from repro.train.parallel import (
    count_processes,
    finish_gradients,
    gather_contexts,
    gather_documents,
    gather_with_gradient,
    rank,
    select_own_contexts,
)
from tests.model.samples import random_texts, small_model

PAIRS, HARD = 8, 2
QUERIES = random_texts(PAIRS, seed=1)
POSITIVES, NEGATIVES = random_texts(PAIRS, seed=2), random_texts(PAIRS * HARD, seed=3)
CONTEXTS = random_texts(11, seed=4)  # six in each of two processes, one of them twice
SIZES = ChunkSizes(texts=3, contexts=2)  # three chunks of contexts: more than there are inputs to a step


def rows(texts: Texts, first: int, last: int) -> Texts:
    return Texts(texts.ids_NS[first:last], texts.mask_NS[first:last])


def documents_of(first: int, last: int) -> Texts:
    positives, negatives = rows(POSITIVES, first, last), rows(NEGATIVES, first * HARD, last * HARD)
    return Texts(torch.cat([positives.ids_NS, negatives.ids_NS]), torch.cat([positives.mask_NS, negatives.mask_NS]))


def gradient_of(model: ContextualModel) -> torch.Tensor:
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


def one_step(
    first: int, last: int, loss: Loss, *, shared: bool, sizes: ChunkSizes = SIZES
) -> tuple[float, torch.Tensor]:
    """A step of these pairs; `shared`: of a batch that all processes share, and its context documents with it."""
    model = small_model(sequence_dropout=0.0, num_contexts=CONTEXTS.num_texts).double().train()
    places = np.arange(CONTEXTS.num_texts)
    own = CONTEXTS.rows(torch.from_numpy(select_own_contexts(places) if shared else places))
    gather = gather_contexts if shared else lambda own_CD: own_CD
    step = StepTexts(rows(QUERIES, first, last), documents_of(first, last), own)
    parts = add_gradients(Stages(model.second_stage, loss, model.first_stage, gather), step, sizes)
    finish_gradients(model.parameters(), 1 if shared else count_processes())
    return float(parts.loss), gradient_of(model)


def work(number: int, folder: str, global_negatives: bool, sizes: ChunkSizes) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    share = PAIRS // 2
    first, last = number * share, (number + 1) * share

    def over_all(queries: torch.Tensor, documents: torch.Tensor) -> LossParts:
        return info_nce(gather_with_gradient(queries), gather_documents(documents, share))

    result = one_step(first, last, over_all if global_negatives else info_nce, shared=global_negatives, sizes=sizes)
    torch.save(result, f"{folder}/{rank()}.pt")
    assert count_processes() == 2
    dist.destroy_process_group()


def in_two_processes(
    folder: Path, global_negatives: bool, sizes: ChunkSizes = SIZES
) -> list[tuple[float, torch.Tensor]]:
    mp.start_processes(
        work, (str(folder), global_negatives, sizes), nprocs=2, start_method="fork"
    )  # spares two imports
    results = [torch.load(folder / f"{number}.pt", weights_only=True) for number in range(2)]
    torch.testing.assert_close(results[0][1], results[1][1], rtol=0, atol=0)
    return results


@pytest.mark.enable_socket
@pytest.mark.parametrize("sizes", [SIZES, ChunkSizes(3, 100), ChunkSizes()])
def test_two_processes_with_global_negatives_give_the_numbers_of_one(tmp_path: Path, sizes: ChunkSizes) -> None:
    loss, gradient = one_step(0, PAIRS, info_nce, shared=False)
    for found_loss, found_gradient in in_two_processes(tmp_path, True, sizes):
        assert found_loss == pytest.approx(loss, rel=1e-10)
        torch.testing.assert_close(found_gradient, gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.enable_socket
def test_two_processes_with_own_negatives_give_the_mean_of_both(tmp_path: Path) -> None:
    halves = [one_step(first, first + PAIRS // 2, info_nce, shared=False) for first in (0, PAIRS // 2)]
    results = in_two_processes(tmp_path, False)
    for (found_loss, found_gradient), (loss, _) in zip(results, halves, strict=True):
        assert found_loss == pytest.approx(loss, rel=1e-10)
        torch.testing.assert_close(found_gradient, (halves[0][1] + halves[1][1]) / 2, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("num_contexts", "share"), [(512, 64), (9, 2), (1, 1)])
def test_each_process_takes_a_share_of_the_contexts(
    monkeypatch: pytest.MonkeyPatch, num_contexts: int, share: int
) -> None:
    """All of them in order of rank begin with all contexts in order; what fills the last ones up is dropped."""
    places, parts = np.random.default_rng(0).permutation(num_contexts), []
    monkeypatch.setattr(parallel, "count_processes", lambda: 8)
    for number in range(8):
        monkeypatch.setattr(parallel, "rank", lambda number=number: number)
        parts.append(select_own_contexts(places))
    assert {len(part) for part in parts} == {share}
    assert np.concatenate(parts)[:num_contexts].tolist() == places.tolist()


def test_one_process_gives_every_weight_a_gradient_and_leaves_those_there_are() -> None:
    model = small_model(sequence_dropout=0.0).train()
    model.second_stage(QUERIES, model.first_stage(CONTEXTS)).sum().backward()
    before = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    assert "sequence_dropout_null_embedding" not in before and len(before) > 10, "nobody used the null vector"
    finish_gradients(model.parameters())
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, before.get(name, torch.zeros_like(weight)), rtol=0, atol=0)

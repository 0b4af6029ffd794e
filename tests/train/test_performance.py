"""Chunk sizes, switches and shares of processes: estimates match measured memory, and budgets are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from repro.model.backbone import Backbone
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.start import build_model
from repro.model.texts import Texts
from repro.spec import base
from repro.train import parallel, performance, setup
from repro.train.parallel import select_own_contexts
from repro.train.performance import (
    ChunkSizes,
    choose_chunks,
    estimate_graph_bytes,
    explain_indivisible,
    list_own_places,
    uses_autocast,
)
from repro.train.setup import check_model, make_train_settings

CONFIG = ModelConfig(
    architecture="contextual",
    hidden_size=128,
    num_heads=2,
    num_layers=2,
    num_first_stage_layers=2,
    vocab_size=200,
    num_contexts=12,
    num_soft_prompts=4,
    max_tokens=24,
)


@pytest.fixture(autouse=True)
def pad_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pad texts, as on a GPU."""
    monkeypatch.setattr(Backbone, "packs", False)


def measure_saved_bytes(compute: Callable[[], Tensor], weights: Iterable[Tensor]) -> int:
    """Return the bytes that autograd saves for a computation, without weights. Shared memory counts once."""
    saved: dict[int, Tensor] = {}
    weight_addresses = {weight.untyped_storage().data_ptr() for weight in weights}

    def pack(tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in weight_addresses:
            # holding the tensor prevents that its address is used again
            saved[address] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        _graph = compute()
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


def make_texts(num_texts: int, num_tokens: int = CONFIG.max_tokens, seed: int = 0) -> Texts:
    """Return texts of equal length, except for one token, so that there is a mask."""
    ids_NS = torch.randint(1, 200, (num_texts, num_tokens), generator=torch.Generator().manual_seed(seed))
    mask_NS = torch.ones_like(ids_NS)
    mask_NS[0, -1] = 0
    return Texts(ids_NS * mask_NS, mask_NS)


def measure_bytes_per_text(config: ModelConfig, *, autocast: bool) -> tuple[float, float]:
    """Return the bytes that one more text saves in the second stage and in the first."""
    model = build_model(config).train()
    assert isinstance(model, ContextualModel)
    contexts_CD = torch.randn(config.num_contexts, 128, requires_grad=True)
    results = []
    for stage in (partial(model.second_stage, contexts_CE=contexts_CD), model.first_stage):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            sizes = [
                measure_saved_bytes(partial(stage, make_texts(num_texts)), model.parameters()) for num_texts in (2, 4)
            ]
        results.append((sizes[1] - sizes[0]) / 2)
    return results[0], results[1]


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("backbone", ["nomic", "bert", "modernbert"])
def test_estimated_bytes_match_measured(backbone: str, autocast: bool) -> None:
    for num_layers in (1, 3):
        config = replace(CONFIG, backbone=backbone, num_layers=num_layers, num_first_stage_layers=num_layers)
        second, first = measure_bytes_per_text(config, autocast=autocast)
        assert performance.estimate_second_stage_bytes(config, autocast=autocast) == pytest.approx(second, rel=0.02)
        assert performance.estimate_first_stage_bytes(config, autocast=autocast) == pytest.approx(first, rel=0.02)


@pytest.mark.parametrize(
    ("scale", "gib", "num_passes"), [("small", 80, 1), ("small", 16, 2), ("large", 80, 2), ("large", 141, 2)]
)
def test_gpu_chunks_fill_their_share(scale: str, gib: int, num_passes: int) -> None:
    """A step that fits half of the memory takes one pass. Otherwise one more text would exceed the share of its stage."""
    run, memory = base(scale, architecture="contextual"), gib * 2**30
    num_texts = 2 * run.batch_size
    sizes = choose_chunks(run, autocast=True, num_texts=num_texts, gpu_bytes=memory)
    assert sizes.hold(num_texts, run.num_contexts) == (num_passes == 1)
    estimated = estimate_graph_bytes(run, sizes, autocast=True, num_texts=num_texts, num_contexts=run.num_contexts)
    assert estimated <= performance.STEP_SHARE * memory
    if num_passes == 2:
        num_bytes = performance.estimate_second_stage_bytes(run, autocast=True)
        assert sizes.texts * num_bytes <= performance.GPU_CHUNK_SHARE * memory < (sizes.texts + 1) * num_bytes
    assert choose_chunks(run, autocast=True, num_texts=num_texts, gpu_bytes=2**20) == ChunkSizes(4, 4)


@pytest.mark.parametrize("scale", ["smoke", "desk", "lab"])
def test_small_steps_keep_the_direct_path(scale: str) -> None:
    """They fit even without free memory, so golden numbers do not depend on the machine."""
    run = base(scale, architecture="contextual")
    assert choose_chunks(run, autocast=True, num_texts=2 * run.batch_size, free=0) == ChunkSizes()
    assert choose_chunks(run, autocast=True, num_texts=256, free=0, stored="5,3") == ChunkSizes(5, 3), "a resumed run"


def test_variable_turns_autocast_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert uses_autocast()
    monkeypatch.setenv("REPRO_SWITCHES", "no-autocast")
    assert not uses_autocast()
    monkeypatch.setenv("REPRO_SWITCHES", "bf16")
    with pytest.raises(ValueError, match="REPRO_SWITCHES has 'bf16'"):
        uses_autocast()


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


def test_processes_take_whole_batches() -> None:
    dealt = [list(list_own_places(8, rank=rank, num_processes=4)) for rank in range(4)]
    assert dealt == [[0, 1], [2, 3], [4, 5], [6, 7]]
    for batches_a_step, num_processes in ((1, 2), (8, 16), (8, 3)):
        assert list(list_own_places(batches_a_step, rank=1, num_processes=num_processes)) == list(range(batches_a_step))


def test_indivisible_batches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a first phase is trained."""
    run = base("smoke", batches_a_step=2, pretraining_corpus="planted-tiny", num_pretraining_steps=5)
    assert run.batch_size == 16
    assert not any(explain_indivisible(run, num_processes) for num_processes in (1, 2, 4, 16))
    monkeypatch.setattr(setup, "count_processes", lambda: 3)
    with pytest.raises(ValueError, match="a batch of 16 cannot be shared equally by 3 processes"):
        check_model(run)


@pytest.mark.parametrize(("batches_a_step", "num_steps"), [(1, 21), (2, 10), (4, 5)])
def test_epochs_drop_partial_steps(batches_a_step: int, num_steps: int) -> None:
    """Three epochs of seven batches."""
    run = base("smoke", num_steps=None, num_epochs=3, batches_a_step=batches_a_step)
    assert make_train_settings(run, 7).num_steps == num_steps
    with pytest.raises(ValueError, match="num_epochs=3 of 7 batches are less than one step"):
        make_train_settings(replace(run, batches_a_step=22), 7)

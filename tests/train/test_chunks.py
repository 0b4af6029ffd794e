"""How many texts keep their graph at the same time: estimates match measured memory, and budgets are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from repro.execute import execute
from repro.model.backbone import Backbone
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.start import build_model
from repro.model.texts import Texts
from repro.spec import base
from repro.spec.identity import run_id
from repro.stopping import Interrupted
from repro.storage.paths import run_folder
from repro.train import chunks, trainer
from repro.train.chunks import ChunkSizes, choose_chunks, estimate_graph_bytes, read_chunks_variable
from repro.train.gradcache import Stages, StepTexts, add_gradients
from repro.train.loss import info_nce
from repro.train.setup import check_model, measure_gpu_bytes
from repro.train.switches import Switches
from repro.train.trainer import prepare
from tests.commands import ignore

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
SMOKE = base("smoke", architecture="contextual", num_steps=3)


@pytest.fixture(autouse=True)
def pad_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pad texts, as on a GPU, and leave REPRO_CHUNKS unset."""
    monkeypatch.setattr(Backbone, "packs", False)
    monkeypatch.delenv("REPRO_CHUNKS", raising=False)


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


def build_prepared_model(config: ModelConfig, switches: Switches) -> ContextualModel:
    model = build_model(config).train()
    prepare(model, switches)
    assert isinstance(model, ContextualModel)
    return model


def measure_bytes_per_text(config: ModelConfig, switches: Switches) -> tuple[float, float]:
    """Return the bytes that one more text saves in the second stage and in the first."""
    model = build_prepared_model(config, switches)
    contexts_CD = torch.randn(config.num_contexts, 128, requires_grad=True)
    results = []
    for stage in (partial(model.second_stage, contexts_CE=contexts_CD), model.first_stage):
        with torch.autocast("cpu", torch.bfloat16, enabled=switches.autocast):
            sizes = [
                measure_saved_bytes(partial(stage, make_texts(num_texts)), model.parameters()) for num_texts in (2, 4)
            ]
        results.append((sizes[1] - sizes[0]) / 2)
    return results[0], results[1]


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("backbone", ["nomic", "bert", "modernbert"])
def test_estimated_bytes_match_measured(backbone: str, autocast: bool) -> None:
    switches = Switches(autocast=autocast)
    for num_layers in (1, 3):
        config = replace(CONFIG, backbone=backbone, num_layers=num_layers, num_first_stage_layers=num_layers)
        second, first = measure_bytes_per_text(config, switches)
        assert chunks.estimate_second_stage_bytes(config, switches) == pytest.approx(second, rel=0.02)
        assert chunks.estimate_first_stage_bytes(config, switches) == pytest.approx(first, rel=0.02)


def test_checkpointed_layers_keep_inputs() -> None:
    switches, one_layer = Switches(checkpoint=True), chunks.NARROW["nomic"] * 128 + 2 * 24
    for num_layers in (1, 3):
        config = replace(CONFIG, num_first_stage_layers=num_layers)
        _, first = measure_bytes_per_text(config, switches)
        assert chunks.estimate_first_stage_bytes(config, switches) - 24 * one_layer == pytest.approx(first, rel=0.05)


@pytest.mark.parametrize("scale", ["small", "large"])
@pytest.mark.parametrize("gib", [16, 80, 141])
def test_gpu_chunks_fill_their_share(scale: str, gib: int) -> None:
    run, memory = base(scale, architecture="contextual"), gib * 2**30
    sizes = choose_chunks(run, memory, Switches())
    for num_texts, estimate_bytes in (
        (sizes.texts, chunks.estimate_second_stage_bytes),
        (sizes.contexts, chunks.estimate_first_stage_bytes),
    ):
        num_bytes = estimate_bytes(run, Switches())
        assert num_texts * num_bytes <= chunks.SHARE * memory < (num_texts + 1) * num_bytes
    assert sizes.texts < 2 * run.batch_size or scale == "small", "GradCache is used at large"


def test_tiny_gpu_takes_a_few() -> None:
    assert choose_chunks(base("large", architecture="contextual"), 2**20, Switches()) == ChunkSizes(4, 4)


def test_cpu_keeps_its_sizes() -> None:
    assert measure_gpu_bytes(torch.device("cpu")) is None
    sizes = choose_chunks(base("large", architecture="contextual"), None, Switches())
    assert (sizes.texts, sizes.contexts, sizes.on(torch.device("cpu"))) == (4096, 4096, ChunkSizes(64, 64, 64))


def test_chunks_stay_within_budget() -> None:
    switches, budget = Switches(autocast=False), 20 * 10**6
    sizes, model = choose_chunks(CONFIG, budget, switches), build_prepared_model(CONFIG, switches)
    saved_bytes: dict[str, list[int]] = {"first": [], "second": []}

    def watch(name: str, stage: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def compute(*args: Any) -> Tensor:
            if torch.is_grad_enabled():
                saved_bytes[name].append(measure_saved_bytes(lambda: stage(*args), model.parameters()))
            return stage(*args)

        return compute

    first, second = watch("first", model.first_stage), watch("second", model.second_stage)
    step = StepTexts(make_texts(20, seed=1), make_texts(20, seed=2), make_texts(12, seed=3))
    add_gradients(Stages(second, info_nce, first), step, sizes)
    assert len(saved_bytes["second"]) > 4 and len(saved_bytes["first"]) > 1, "there are several chunks"
    estimated = estimate_graph_bytes(CONFIG, sizes, switches, num_texts=40, num_contexts=12)
    assert max(map(max, saved_bytes.values())) == pytest.approx(estimated, rel=0.1)
    assert estimated <= chunks.SHARE * budget


def test_fitting_step_keeps_both_graphs() -> None:
    switches, model = Switches(autocast=False), build_prepared_model(CONFIG, Switches())
    estimated = estimate_graph_bytes(CONFIG, ChunkSizes(), switches, num_texts=20, num_contexts=12)

    def compute_step() -> Tensor:
        contexts_CD = model.first_stage(make_texts(12))
        return torch.cat([model.second_stage(make_texts(10, seed=seed), contexts_CD) for seed in (1, 2)])

    assert estimated == pytest.approx(measure_saved_bytes(compute_step, model.parameters()), rel=0.05)


@pytest.mark.parametrize("text", ["64", "64,", "64,0", "64,-1", "64,128,256", "a,b", "6.4,1", "64;128", "9" * 5000])
def test_impossible_sizes_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_CHUNKS", text)
    for read in (
        read_chunks_variable,
        lambda: check_model(SMOKE),
        lambda: choose_chunks(CONFIG, 2**30, Switches()),
        lambda: execute(SMOKE, progress=ignore),
    ):
        with pytest.raises(ValueError, match="REPRO_CHUNKS is"):
            read()
    assert not run_folder(run_id(SMOKE)).exists()


@pytest.mark.parametrize("scale", ["smoke", "desk", "lab"])
def test_small_steps_keep_the_direct_path(scale: str) -> None:
    """They fit even without free memory, so golden numbers do not depend on the machine."""
    run = base(scale, architecture="contextual")
    assert choose_chunks(run, None, Switches(), free=0, num_texts=2 * run.batch_size) == ChunkSizes()


def test_cpu_chunks_keep_within_budget() -> None:
    """The chunks of a large step fill half of the free memory. One more text would not fit."""
    mini = base("desk", architecture="contextual", backbone="bert", num_layers=6, hidden_size=384)
    switches, free = Switches(autocast=False), 3 * 2**30
    sizes = choose_chunks(mini, None, Switches(), free=free, num_texts=256)
    bytes_per_text = chunks.estimate_second_stage_bytes(mini, switches)
    assert sizes.texts < 256 and sizes.texts * bytes_per_text <= free / 2 < (sizes.texts + 1) * bytes_per_text
    assert choose_chunks(mini, None, Switches(), free=2**34, num_texts=256) == ChunkSizes()


def test_resumed_run_keeps_its_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the free memory has changed, a resumed run still uses the stored sizes and repeats the losses."""
    run = replace(SMOKE, num_steps=4)
    monkeypatch.setattr(chunks, "MIN_BUDGET_BYTES", 0)
    monkeypatch.setattr(trainer, "measure_free_bytes", lambda: 200_000)
    uninterrupted = execute(run, progress=ignore)
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "resumed"))
    lines: list[str] = []
    with pytest.raises(Interrupted):
        execute(run, should_stop=lambda: bool(lines), progress=lines.append)
    monkeypatch.setattr(trainer, "measure_free_bytes", lambda: 2**40)
    resumed = execute(run, progress=ignore)
    sizes = [record.provenance["training"]["chunks"] for record in (uninterrupted, resumed)]
    assert sizes[0] == sizes[1] != ChunkSizes().words
    assert uninterrupted.metrics["train/loss"] == resumed.metrics["train/loss"]


def test_record_names_given_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "chunks" not in execute(SMOKE, progress=ignore).provenance["training"]
    monkeypatch.setenv("REPRO_CHUNKS", " 5, 3 ")
    assert execute(replace(SMOKE, seed=1), progress=ignore).provenance["training"]["chunks"] == "5,3"

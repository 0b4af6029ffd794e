"""The checks of `doctor --gpu`, run on a CPU: switches change rounding only, and every failure is a finding."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel
from transformers.models.bert.modeling_bert import BertSelfAttention

from repro.model.backbone import build_backbone
from repro.model.config import ModelConfig
from repro.planning import gpu
from repro.planning.doctor import Finding
from repro.spec import base
from repro.train import feed as feeding
from repro.train import loop
from repro.train.checkpoint import TrainState, read_checkpoint, write_checkpoint
from repro.train.chunks import ChunkSizes, choose_chunks
from repro.train.feed import Batch
from repro.train.gradcache import RandomState
from repro.train.loss import LossParts
from repro.train.optimizer import build_optimizer
from repro.train.switches import Switches, parse_switches

CPU = torch.device("cpu")
TINY = gpu.Shape(ModelConfig(architecture="contextual", vocab_size=100, num_contexts=3), 4, 7)


def test_words_set_switches() -> None:
    assert parse_switches("") == Switches()
    switches = parse_switches("compile no-fused checkpoint")
    assert switches == Switches(fused=False, compile=True, checkpoint=True)
    assert set(switches.words) == {"no-fused", "compile", "checkpoint"}
    with pytest.raises(ValueError, match="REPRO_SWITCHES has 'bf16'"):
        parse_switches("bf16")


@pytest.mark.parametrize("backbone", ["nomic", "bert"])
def test_checkpointing_keeps_gradients(backbone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = gpu._compute_gradient(CPU, backbone, Switches())
    attention = Mock(side_effect=BertSelfAttention.forward, spec=BertSelfAttention.forward)
    monkeypatch.setattr(BertSelfAttention, "forward", lambda *args, **kwargs: attention(*args, **kwargs))
    gradient = gpu._compute_gradient(CPU, backbone, Switches(checkpoint=True))
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-4)
    # Two layers: 3 forward passes (contexts, queries, documents), each repeated in backward, and 2 for the vectors.
    assert attention.call_count == (2 * (3 * 2 + 2) if backbone == "bert" else 0)


def test_compiled_forward_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict] = []

    def compile_nothing(forward: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: calls.append(options) or forward(*args, **kwargs)

    monkeypatch.setattr(torch, "compile", compile_nothing)
    is_good, message = gpu._compare_switches(CPU, "bert", "compile no-fused")
    assert is_good and "gradient by" in message
    assert len(calls) == 5 and all(options == {"dynamic": True, "backend": "inductor"} for options in calls)


def test_large_difference_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([(torch.zeros(2, 2), torch.ones(9)), (torch.zeros(2, 2), torch.ones(9) * 1.1)])
    monkeypatch.setattr(gpu, "_compute_gradient", lambda *args: next(results))
    assert not gpu._compare_switches(CPU, "bert", "")[0]


def test_measured_step_matches_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of `doctor` moves the weights exactly as one step of `train` on the same texts."""
    models, real = [], gpu.build_model
    monkeypatch.setattr(gpu, "build_model", lambda config: models.append(real(config)) or models[-1])
    monkeypatch.setattr(gpu, "NUM_STEPS", 1)
    gpu._measure_steps(TINY, CPU)
    model, feed, settings = gpu._prepare_trainer(TINY, CPU, Switches())
    monkeypatch.setattr(feeding, "feed_batch", lambda *args, **kwargs: feed)
    monkeypatch.setattr(feeding, "step_batches", lambda *args: [Batch(0, np.arange(TINY.batch_size))])
    loop.train(model, SimpleNamespace(batches=None, set_apart=None), settings, folder=tmp_path)  # type: ignore[arg-type]
    start = dict(real(TINY.config).named_parameters())
    moved = [name for name, weight in model.named_parameters() if not torch.equal(weight, start[name])]
    assert len(moved) >= len(start) - 1, "all weights move, except the null vector"
    for name, weight in models[0].named_parameters():
        torch.testing.assert_close(weight, dict(model.named_parameters())[name], rtol=0, atol=0, msg=name)


def test_non_finite_loss_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = LossParts(torch.tensor(torch.nan), torch.zeros(()), torch.zeros(()))
    monkeypatch.setattr(loop, "add_gradients", lambda *args: parts)
    finding = gpu._run_check("ten steps", gpu._measure_steps, TINY, CPU)
    assert not finding.good and finding.message.startswith("step 1 of 10: loss nan")


def test_measured_steps_use_training_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks, real = [], loop.add_gradients
    monkeypatch.setattr(loop, "add_gradients", lambda *args: chunks.append(args[2]) or real(*args))
    monkeypatch.setattr(gpu, "measure_gpu_bytes", lambda device: 80 * 2**30)
    large = gpu.get_model_shape("large")
    monkeypatch.setattr(gpu, "NUM_STEPS", 1)
    gpu._measure_steps(TINY, CPU)
    assert chunks == [choose_chunks(TINY.config, 80 * 2**30, Switches())] and chunks[0] != ChunkSizes()
    run = base("large", architecture="contextual")
    assert choose_chunks(large.config, 2**36, Switches()) == choose_chunks(run, 2**36, Switches())
    monkeypatch.setenv("REPRO_CHUNKS", "2,3")
    is_good, message = gpu._measure_steps(TINY, CPU)
    assert is_good and "tokens/s" in message and "chunks of 2,3" in message and chunks[-1] == ChunkSizes(2, 3)


def test_findings_are_written(own_home: Path) -> None:
    assert torch.cuda.is_available() or not gpu.find_gpu().good
    path = gpu.write_findings([Finding("a", True, "b")])
    assert json.loads(path.read_text())["findings"] == [{"what": "a", "good": True, "message": "b"}]


class TritonError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (AssertionError(), "AssertionError"),
        (
            TritonError("backend='inductor' raised:\nno C compiler\nand more"),
            "backend='inductor' raised: no C compiler",
        ),
    ],
)
def test_any_error_is_a_finding(error: Exception, message: str) -> None:
    assert gpu._run_check("compile", Mock(side_effect=error)) == Finding("compile", False, message)


@pytest.mark.parametrize("check", [gpu._compare_chunked_step, gpu._check_resume, gpu._compare_encoding])
def test_chunks_checkpoints_and_encoding_pass(check: Callable[[torch.device], tuple[bool, str]]) -> None:
    is_good, message = check(CPU)
    assert is_good and message


def test_other_dropout_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RandomState, "restore", lambda self: nullcontext())
    assert not gpu._compare_chunked_step(CPU)[0]


def test_lost_optimizer_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(folder: Path, run: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        read_checkpoint(folder, run, model, optimizer)
        optimizer.state.clear()

    monkeypatch.setattr(gpu, "read_checkpoint", forgetful)
    assert not gpu._check_resume(CPU)[0]


def test_older_transformers_are_checkpointed(monkeypatch: pytest.MonkeyPatch) -> None:
    for verb in ("enable", "disable"):
        do = getattr(PreTrainedModel, f"_activation_checkpointing_{verb}")
        monkeypatch.delattr(PreTrainedModel, f"activation_checkpointing_{verb}")
        monkeypatch.setattr(PreTrainedModel, f"gradient_checkpointing_{verb}", do)
    backbone = build_backbone(TINY.config, 1)
    backbone.set_checkpointing(True)
    assert backbone.model.is_gradient_checkpointing
    backbone.set_checkpointing(False)
    assert not backbone.model.is_gradient_checkpointing


def test_optimizer_steps_stay_on_cpu(tmp_path: Path) -> None:
    """On a GPU, every step would wait for these counters. The device "meta" stands for the GPU."""
    model = torch.nn.Linear(2, 2)
    optimizer = build_optimizer(model, learning_rate=0.1, weight_decay=0.0, fused=False)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    write_checkpoint(tmp_path, TrainState("a", 1), model, optimizer)
    on_meta = torch.nn.Linear(2, 2, device="meta")
    optimizer = build_optimizer(on_meta, learning_rate=0.1, weight_decay=0.0, fused=False)
    read_checkpoint(tmp_path, "a", on_meta, optimizer)
    state = optimizer.state[on_meta.weight]
    assert (state["step"].device.type, state["exp_avg"].device.type) == ("cpu", "meta")

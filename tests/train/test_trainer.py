"""What a run asks for reaches its training, and what the training's log says reaches the record."""

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from repro.batches.mask import compute_content_keys
from repro.batches.mixing import MixedSampler
from repro.batches.sampler import BatchSampler
from repro.model.start import build_model
from repro.spec import FIELDS, base
from repro.train.trainer import (
    build_filter,
    build_sampler,
    make_base_config,
    make_model_config,
    make_step_reporter,
    make_train_settings,
    start_model,
    summarise,
)

OF_TRAINING: dict[str, Any] = {
    "seed": 7,
    "num_steps": 11,
    "learning_rate": 0.003,
    "num_warmup_steps": 3,
    "first_stage_rate": 0.5,
    "weight_decay": 0.07,
    "max_grad_norm": 3.0,
    "temperature": 0.05,
    "loss": "icl",
    "batches_a_step": 3,
}
OF_MODEL: dict[str, Any] = {
    "architecture": "contextual",
    "backbone": "bert",
    "num_layers": 3,
    "num_first_stage_layers": 2,
    "hidden_size": 64,
    "num_contexts": 5,
    "tokens_per_document": 2,
    "num_soft_prompts": 3,
    "sequence_dropout": 0.2,
    "pooling": "frequency",
    "residual": True,
    "prompts": "task",
    "max_tokens": 9,
}
CODES = np.repeat([0, 1], [40, 60]).astype(np.int32)
PAIRS = SimpleNamespace(domain_codes=CODES, domain_names=("a", "b"))


def test_a_training_and_its_model_have_the_values_of_the_run() -> None:
    run, usual = base("smoke", **OF_TRAINING, **OF_MODEL), base("smoke")
    widths = replace(run, nested_sizes="8+32")
    assert make_train_settings(widths, 40).nested_sizes == (8, 32) and make_train_settings(run, 40).nested_sizes == ()
    for values, found in ((OF_TRAINING, make_train_settings(run, 40)), (OF_MODEL, make_base_config(run))):
        asked = {one.name for one in fields(found)} & set(FIELDS) - {"nested_sizes"}
        assert {name: getattr(found, name) for name in asked} == values
        assert all(getattr(usual, name) != value for name, value in values.items()), "equal values prove nothing"


@pytest.mark.parametrize(
    "changes", [{"sampler": "random"}, {"sampler": "domain"}, {"sampler": "domain", "mixing_alpha": 0.3}]
)
def test_batches_are_those_of_the_runs_seed(changes: dict[str, Any]) -> None:
    run = base("smoke", seed=3, **changes)
    found = build_sampler(SimpleNamespace(run=run, pairs=PAIRS))
    shape = {"batch_size": 16, "seed": 3}
    if run.mixing_alpha is None:
        expected: BatchSampler | MixedSampler = BatchSampler(run.sampler, CODES, **shape)
    else:
        expected = MixedSampler(CODES, alpha=0.3, **shape)
    assert [found.at(step).tolist() for step in range(9)] == [expected.at(step).tolist() for step in range(9)]


def test_the_first_weights_are_those_of_the_runs_seed() -> None:
    run = base("smoke", seed=3, heads="identity")
    found = start_model(SimpleNamespace(run=run, first_phase=None), lambda: False, print).state_dict()
    expected = build_model(make_model_config(run), seed=3, heads="identity").state_dict()
    assert all(weight.equal(expected[name]) for name, weight in found.items())


@pytest.mark.parametrize(("name", "margin"), [("none", 0.0), ("surrogate", 0.5), ("surrogate", -0.5)])
def test_a_batch_leaves_out_what_the_runs_filter_says_and_without_one_repeated_texts_alone(
    name: str, margin: float
) -> None:
    run, keys_N = base("smoke", filter=name, filter_margin=margin), compute_content_keys(list("abcadebf"))
    vectors = {side: np.random.default_rng(len(side)).normal(size=(8, 4)) for side in ("query", "document")}
    inputs = SimpleNamespace(run=run, content_keys=keys_N, embeddings=vectors.__getitem__, negatives=None, known_positives=None)
    scores = vectors["query"] @ vectors["document"].T
    is_same, is_near = keys_N[:, None] == keys_N, scores >= np.diag(scores)[:, None] + margin
    expected = (is_same | (is_near & (name == "surrogate"))) & ~np.eye(8, dtype=bool)
    np.testing.assert_array_equal(build_filter(inputs)(np.arange(8)).masked, expected)


def test_train_loss_and_accuracy_are_means_over_the_last_tenth_of_the_steps() -> None:
    rng = np.random.default_rng(0)
    names = ("loss", "accuracy", "masked_fraction", "pairs_per_second", "difficulty", "memory_bytes")
    columns = {name: rng.random(34) for name in names}
    lines = [{name: float(values[place]) for name, values in columns.items()} for place in range(34)]
    for line in lines[:5]:
        line["difficulty"] = None
    found = summarise(lines, {"id": "x"})
    expected = {f"train/{name}": columns[name][-3:].mean() for name in ("loss", "accuracy", "masked_fraction")}
    expected |= {"train/pairs_per_second": np.median(columns["pairs_per_second"])}
    expected |= {"train/difficulty": columns["difficulty"][5:].mean()}
    assert found.metrics == pytest.approx(expected)
    assert found.arrays["train/loss"].tolist() == columns["loss"][-3:].tolist()
    assert found.provenance == {"id": "x", "memory_bytes": columns["memory_bytes"].max()}
    assert summarise(lines[:1], {}).metrics["train/loss"] == lines[0]["loss"], "one step at least"
    assert "train/difficulty" not in summarise(lines[:5], {}).metrics


@pytest.mark.parametrize(("num_done", "left"), [(0, "about 6 min left"), (100, "about 12 min left")])
def test_rest_of_training_is_estimated(num_done: int, left: str) -> None:
    """The first line names the resumed step, and each estimates the rest from the steps of this sitting."""
    told, now = list[str](), iter((1000.0, 1000.1, 1000.0 + 360.0, 1000.0 + 361.0, 6000.0))
    tell = make_step_reporter(400, num_done, told.append, clock=lambda: next(now))
    line = {"loss": 1.0, "accuracy": 0.5, "pairs_per_second": 100.0}
    for step in (num_done + 1, 200, 201):
        tell({"step": step, **line})
    assert told[:-1] == ([f"  resuming after step {num_done} of 400"] if num_done else [])
    assert told[-1] == f"  step 200/400: loss 1.000, accuracy 0.500, 100 pairs/s, {left}"
    tell({"step": 400, **line})
    assert told[-1].endswith("100 pairs/s")


@pytest.mark.parametrize(("seconds", "num_steps"), [(0.01, 40), (3.0, 40), (7.0, 30), (0.4, 2400)])
def test_training_reports_in_time(seconds: float, num_steps: int) -> None:
    """No ten seconds pass without a line, and the shortest run has four."""
    now, told = [0.0], list[float]()
    tell = make_step_reporter(num_steps, 0, lambda line: told.append(now[0]), clock=lambda: now[0])
    for step in range(1, num_steps + 1):
        now[0] = step * seconds
        tell({"step": step, "loss": 1.0, "accuracy": 0.5, "pairs_per_second": 100.0})
    assert len(told) >= 4 and np.diff([0.0, *told]).max() <= max(10.0, num_steps * seconds / 4)
    assert np.diff(told).max() <= 10.0 or seconds * num_steps / 4 <= 10.0


def test_a_training_that_is_done_does_not_go_on() -> None:
    told: list[str] = []
    make_step_reporter(400, 400, told.append)
    assert told == []

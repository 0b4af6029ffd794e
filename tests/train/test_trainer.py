"""The fields of a run reach its training, and the training log reaches the record. Damaged logs are refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from repro.execute import execute
from repro.records.store import has_record
from repro.spec import base
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import get_local_records, run_folder
from repro.train.checkpoint import METRICS_FILE
from repro.train.setup import build_filter, check_model
from repro.train.summary import open_scalars, summarise
from tests.commands import ignore
from tests.train.fixtures import make_filter_inputs


def test_difficulty_is_sampled_at_paper_scales() -> None:
    """If its vectors serve nothing else, they are read for all batches of every hundredth step."""
    run, vectors = base("small", sampler="cluster", cluster_size=512, batches_a_step=2), np.eye(8, dtype=np.float32)
    sides = dict.fromkeys(("query", "document"), vectors)
    inputs = make_filter_inputs(run, sides, sides)
    compute = build_filter(inputs)
    is_measured = [compute(np.arange(8), number).difficulty is not None for number in range(202)]
    assert [number for number, measured in enumerate(is_measured) if measured] == [0, 1, 200, 201]
    inputs.run = replace(run, filter_model=None)
    assert build_filter(inputs)(np.arange(8), 5).difficulty == 0.0, "the filter has read the vectors"


def test_loss_is_mean_of_last_tenth() -> None:
    rng = np.random.default_rng(0)
    names = ("loss", "accuracy", "masked_fraction", "pairs_per_second", "difficulty", "memory_bytes")
    columns = {name: rng.random(34) for name in names}
    lines = [{name: float(values[index]) for name, values in columns.items()} for index in range(34)]
    for line in lines[:5]:
        line["difficulty"] = None
    summary = summarise(lines, {"id": "x"})
    expected = {f"train/{name}": columns[name][-3:].mean() for name in ("loss", "accuracy", "masked_fraction")}
    expected |= {"train/pairs_per_second": np.median(columns["pairs_per_second"])}
    expected |= {"train/difficulty": columns["difficulty"][5:].mean()}
    assert summary.metrics == pytest.approx(expected)
    assert summary.arrays["train/loss"].tolist() == columns["loss"][-3:].tolist()
    assert summary.provenance == {"id": "x", "memory_bytes": columns["memory_bytes"].max()}
    assert summarise(lines[:1], {}).metrics["train/loss"] == lines[0]["loss"]
    assert "train/difficulty" not in summarise(lines[:5], {}).metrics


def test_width_without_even_heads_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden_size=100"):
        check_model(base("smoke", hidden_size=100))


RUN = base("smoke", num_steps=4)
Lines = list[str]


def change_fields(lines: Lines, number: int, **changes: object) -> Lines:
    return [*lines[:number], json.dumps(json.loads(lines[number]) | changes, sort_keys=True), *lines[number + 1 :]]


DAMAGE: dict[str, Callable[[Lines], Lines]] = {
    "cut": lambda lines: lines[:-1],
    "repeated": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
    "a smaller loss": lambda lines: change_fields(lines, 3, loss=0.01),
    "no JSON": lambda lines: [*lines[:3], "{"],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which RUN was trained."""
    home = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_HOME", str(home))
        execute(RUN, progress=ignore)
    return home


@pytest.fixture
def log(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The log of RUN, which is restored after the test."""
    monkeypatch.setenv("REPRO_HOME", str(finished))
    path = run_folder(get_training_id(RUN)) / METRICS_FILE
    content = path.read_text()
    yield path
    path.write_text(content)


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_log_makes_no_record(damage: str, log: Path) -> None:
    (get_local_records() / f"{run_id(RUN)}.json").unlink(missing_ok=True)
    lines = DAMAGE[damage](log.read_text().splitlines())
    log.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(ValueError, match=r"metrics\.jsonl"):
        execute(RUN, progress=ignore)
    assert not has_record(get_local_records(), RUN)


def test_scalars_are_written_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard receives the numbers of each line. A resumed run replaces those after its checkpoint."""
    writer = MagicMock()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=writer))
    monkeypatch.setenv("REPRO_TENSORBOARD", "1")
    with open_scalars(tmp_path, 7, ignore) as on_step:
        on_step({"step": 8, "loss": 0.5, "batch": "ab", "difficulty": None})
    writer.assert_called_once_with(tmp_path / "tensorboard", purge_step=8)
    writer().__enter__().add_scalar.assert_called_once_with("train/loss", 0.5, 8)

"""The fields of a run reach its training, and the training log reaches the record. Damaged logs are refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from repro.execute import execute
from repro.pipeline.inputs import Inputs
from repro.records.store import has_record
from repro.spec import base
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import get_local_records, run_folder
from repro.train.checkpoint import METRICS_FILE, MetricsLog, read_metrics
from repro.train.setup import build_filter, check_model
from repro.train.summary import make_step_reporter, open_scalars, summarise
from repro.train.trainer import train_run
from tests.commands import ignore


def test_difficulty_is_sampled_at_paper_scales() -> None:
    """If its vectors serve nothing else, they are read for all batches of every hundredth step."""
    run, vectors = base("small", sampler="cluster", cluster_size=512, batches_a_step=2), np.eye(8, dtype=np.float32)
    inputs = SimpleNamespace(
        run=run,
        document_keys=np.arange(8),
        embeddings=lambda side: vectors,
        document_embeddings=lambda of_filter=False: vectors,
        filter_embeddings=lambda side: vectors,
        negatives=None,
        known_positives=None,
    )
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


@pytest.mark.parametrize(("num_done", "left"), [(0, "about 6 min left"), (100, "about 12 min left")])
def test_rest_of_training_is_estimated(num_done: int, left: str) -> None:
    """The first line names the resumed step. Each line estimates the rest from the steps of this session."""
    output, now = list[str](), iter((1000.0, 1000.1, 1000.0 + 360.0, 1000.0 + 361.0, 6000.0))
    report = make_step_reporter(400, num_done, output.append, clock=lambda: next(now))
    line = {"loss": 1.0, "accuracy": 0.5, "pairs_per_second": 100.0}
    for step in (num_done + 1, 200, 201):
        report({"step": step, **line})
    assert output[:-1] == ([f"  resuming after step {num_done} of 400"] if num_done else [])
    assert output[-1] == f"  step 200/400: loss 1.000, accuracy 0.500, 100 pairs/s, {left}"
    report({"step": 400, **line})
    assert output[-1].endswith("100 pairs/s")


@pytest.mark.parametrize("hidden_size", [33, 100, 300])
def test_width_without_even_heads_is_refused(hidden_size: int) -> None:
    with pytest.raises(ValueError, match=f"hidden_size={hidden_size}: use a multiple of 32"):
        check_model(base("smoke", hidden_size=hidden_size))


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


def test_log_continues_after_a_cut_line(log: Path) -> None:
    """A cut line after the last checkpoint is removed, and the next line follows the whole ones."""
    content = log.read_text()
    log.write_text(content + '{"step": 5, "lo')
    with MetricsLog(log.parent, 4) as opened:
        opened.append({"step": 5})
    assert log.read_text() == content + '{"step": 5}\n'
    assert len(read_metrics(log.parent)) == 5


def test_scalars_are_written_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard receives the numbers of each line. A resumed run replaces those after its checkpoint."""
    scalars: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, folder: Path, purge_step: int) -> None:
            assert (folder, purge_step) == (tmp_path / "tensorboard", 8)

        def __enter__(self) -> Writer:
            return self

        def __exit__(self, *error: object) -> None: ...

        def add_scalar(self, name: str, value: float, step: int) -> None:
            scalars.append((name, value, step))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    reported: list[dict[str, Any]] = []
    line = {"step": 8, "loss": 0.5, "batch": "ab", "difficulty": None}
    for value in ("", "1"):
        monkeypatch.setenv("REPRO_TENSORBOARD", value)
        with open_scalars(tmp_path, 7, reported.append) as on_step:
            on_step(line)
    assert scalars == [("train/loss", 0.5, 8)] and reported == [line, line]


def test_first_process_reads_the_log(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others read nothing. On a network disk they may not see the last lines yet."""
    monkeypatch.setattr("repro.train.parallel.rank", lambda: 1)
    monkeypatch.setattr("repro.train.trainer._acquire_for_all", lambda folder: nullcontext())
    inputs = Inputs(RUN)
    inputs.build(ignore)
    log.unlink()
    _, summary = train_run(inputs, progress=ignore)
    assert summary.metrics == {}

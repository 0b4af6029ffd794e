"""The fields of a run reach its training, and the training log reaches the record. Damaged logs are refused."""

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from repro.batches.mask import compute_content_keys
from repro.batches.mixing import MixedSampler
from repro.batches.sampler import BatchSampler
from repro.execute import execute
from repro.model.start import build_model
from repro.pipeline.inputs import Inputs
from repro.records.store import has_record
from repro.spec import base
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import get_local_records, run_folder
from repro.train.checkpoint import METRICS_FILE, MetricsLog
from repro.train.setup import build_filter, build_sampler, check_model, make_model_config
from repro.train.summary import make_step_reporter, summarise
from repro.train.trainer import start_model, train_run
from tests.commands import ignore

OTHER_MODEL = {"architecture": "contextual", "backbone": "bert", "hidden_size": 64}
CODES = np.repeat([0, 1], [40, 60]).astype(np.int32)
PAIRS = SimpleNamespace(domain_codes=CODES, domain_names=("a", "b"))


@pytest.mark.parametrize(
    "changes",
    [{"sampler": "random"}, {"sampler": "domain"}, {"sampler": "domain", "mixing_alpha": 0.3}, OTHER_MODEL],
    ids=["random", "domain", "mixed", "another model"],
)
def test_batches_follow_the_seed(changes: dict[str, Any]) -> None:
    """Only the sampler's fields matter. Models of other sizes train on the same batches."""
    run = base("smoke", seed=3, **changes)
    sampler = build_sampler(SimpleNamespace(run=run, pairs=PAIRS))
    shape = {"batch_size": 16, "seed": 3}
    if run.mixing_alpha is None:
        expected: BatchSampler | MixedSampler = BatchSampler(run.sampler, CODES, **shape)
    else:
        expected = MixedSampler(CODES, alpha=0.3, **shape)
    assert [sampler.at(step).tolist() for step in range(9)] == [expected.at(step).tolist() for step in range(9)]


def test_first_weights_follow_the_seed(tmp_path: Path) -> None:
    run = base("smoke", seed=3, heads="identity")
    inputs = SimpleNamespace(run=run, first_phase=None)
    weights = start_model(inputs, tmp_path, lambda: False, print).state_dict()
    expected = build_model(make_model_config(run), seed=3, heads="identity").state_dict()
    assert all(weight.equal(expected[name]) for name, weight in weights.items())


@pytest.mark.parametrize(("name", "margin"), [("none", 0.0), ("surrogate", 0.5), ("surrogate", -0.5)])
def test_batches_follow_the_filter(name: str, margin: float) -> None:
    run, keys_N = base("smoke", filter=name, filter_margin=margin), compute_content_keys(list("abcadebf"))
    vectors = {side: np.random.default_rng(len(side)).normal(size=(8, 4)) for side in ("query", "document")}
    inputs = SimpleNamespace(
        run=run,
        document_keys=keys_N,
        embeddings=vectors.__getitem__,
        document_embeddings=lambda: vectors["document"],
        given_negatives=None,
        negatives=None,
        known_positives=None,
    )
    scores = vectors["query"] @ vectors["document"].T
    is_same, is_near = keys_N[:, None] == keys_N, scores >= np.diag(scores)[:, None] + margin
    expected = (is_same | (is_near & (name == "surrogate"))) & ~np.eye(8, dtype=bool)
    np.testing.assert_array_equal(build_filter(inputs)(np.arange(8)).masked, expected)


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


@pytest.mark.parametrize("start", ["random", "words"])
def test_starts_may_use_minilm_tokens(start: str) -> None:
    run = base("smoke", start=start)
    check_model(run)
    assert make_model_config(run).tokenizer == "minilm"


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


def test_whole_log_is_kept(log: Path) -> None:
    """A whole log is not written again. A cut line after the last checkpoint is removed."""
    before, content = log.stat().st_ino, log.read_text()
    with MetricsLog(log.parent, 4):
        assert log.stat().st_ino == before
    log.write_text(content + '{"step": 5')
    with MetricsLog(log.parent, 4):
        assert log.read_text() == content


def test_first_process_reads_the_log(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others read nothing. On a network disk they may not see the last lines yet."""
    monkeypatch.setattr("repro.train.trainer.rank", lambda: 1)
    monkeypatch.setattr("repro.train.trainer._acquire_for_all", lambda folder: nullcontext())
    inputs = Inputs(RUN)
    inputs.build(ignore)
    log.unlink()
    _, summary = train_run(inputs, progress=ignore)
    assert summary.metrics == {}

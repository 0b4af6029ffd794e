"""A run that was stopped and resumed ends with the same record as an undisturbed one, and changes no other run."""

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from repro.analyses import Measured
from repro.analyses.caching import open_cache
from repro.analyses.retrieval import WithNulls
from repro.evaluate.collections import Collection
from repro.evaluate.suites import ModelSystem
from repro.execute import execute
from repro.model.contextual import ContextualModel
from repro.model.start import build_model
from repro.pipeline.stages import list_stages
from repro.records.store import Record, has_record
from repro.spec import Run, base, get_first_phase
from repro.spec.identity import run_id
from repro.stopping import Interrupted
from repro.storage.paths import get_local_records, home, run_folder
from repro.train.checkpoint import TrainState, read_metrics
from repro.train.trainer import make_model_config, trained_model
from tests.commands import ignore

CONTEXTUAL = base("smoke", sampler="cluster", cluster_size=8, architecture="contextual", sequence_dropout=0.2)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Fix the order of sums, since numbers are compared bit by bit."""
    torch.set_num_threads(1)


def stop_after(calls: int) -> Callable[[], bool]:
    """Return a stop condition that is false for this number of calls."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def assert_same_record(found: Record, expected: Record) -> None:
    """Compare everything but the speed, bit by bit."""
    speed = {"train/pairs_per_second": 0}
    assert found.metrics | speed == expected.metrics | speed
    assert found.exhibits == expected.exhibits and found.arrays.keys() == expected.arrays.keys()
    for name, values in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], values)


@pytest.mark.parametrize("run", [base("smoke"), CONTEXTUAL], ids=["biencoder", "contextual"])
def test_stopped_run_ends_the_same(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = execute(run, progress=ignore)
    expected = read_metrics(run_folder(run_id(run)))
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "other"))
    for calls in (2, 0, 4):
        with pytest.raises(Interrupted, match="the checkpoint is written"):
            execute(run, should_stop=stop_after(calls), progress=ignore)
        assert not has_record(get_local_records(), run)
    lines: list[str] = []
    resumed = execute(run, progress=lines.append)
    [steps] = [re.fullmatch(r"  resuming after step (\d+) of (\d+)", line) for line in lines if "resuming" in line]
    assert steps is not None and 0 < int(steps[1]) < int(steps[2]) == run.num_steps
    found = read_metrics(run_folder(run_id(run)))
    for name in ("step", "batch", "loss", "accuracy", "masked_fraction", "learning_rate"):
        assert [line[name] for line in found] == [line[name] for line in expected], name
    assert_same_record(resumed, whole)


def test_recorded_run_is_not_repeated() -> None:
    """The second call returns the record, which states the parameters of BM25."""
    run = base("smoke", architecture="bm25")
    first = execute(run, progress=ignore)
    assert first.provenance["suite"]["bm25"]["k1"] == 0.9
    assert execute(run, progress=ignore).provenance == first.provenance


def test_record_describes_its_evaluation() -> None:
    record = execute(CONTEXTUAL, progress=ignore)
    contexts = record.provenance["suite"]["contexts"]
    assert {context["kind"] for context in contexts} == {"own", "wrong", "null"}
    assert all(context["ids_sha256"] and context["seed"] == 0 for context in contexts if context["kind"] != "null")
    assert all(context["corpus"] == context["dataset"] for context in contexts if context["kind"] == "own")
    assert all(context["corpus"] != context["dataset"] for context in contexts if context["kind"] == "wrong")
    assert record.provenance["machine"]["dtype"] == "float32"
    assert {"torch", "faiss-cpu", "python"} <= set(record.provenance["versions"])
    assert record.arrays["planted"].shape == record.arrays["planted+wrong"].shape == record.arrays["planted+null"].shape
    assert list((run_folder(record.id) / "trec").rglob("*.trec.gz"))


@pytest.mark.slow
def test_compiled_training_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow: compiles. The backend `eager` needs no compiler, and its scores are close to those of a plain run."""
    plain, compiled = execute(CONTEXTUAL, progress=ignore), torch.compile
    monkeypatch.setenv("REPRO_HOME", str(home() / "other"))
    monkeypatch.setenv("REPRO_SWITCHES", "compile")
    monkeypatch.setattr(torch, "compile", lambda forward, **words: compiled(forward, **{**words, "backend": "eager"}))
    record = execute(CONTEXTUAL, progress=ignore)
    assert record.provenance["training"]["switches"] == ["compile"]
    speed = "train/pairs_per_second"
    assert {**record.metrics, speed: 0} == pytest.approx({**plain.metrics, speed: 0}, abs=1e-3, rel=1e-3)


def test_foreign_checkpoint_is_refused() -> None:
    with pytest.raises(Interrupted):
        execute(base("smoke"), should_stop=stop_after(2), progress=ignore)
    other = base("smoke", learning_rate=1e-3)
    run_folder(run_id(base("smoke"))).rename(run_folder(run_id(other)))
    with pytest.raises(ValueError, match=run_id(base("smoke"))):
        execute(other, progress=ignore)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 100_000}, "100000"),
        ({"sampler": "cluster", "cluster_size": 5000}, "cluster_size is 5000"),
        ({"num_warmup_steps": 99}, "num_warmup_steps=99"),
        ({"suite": "trivia"}, "unknown suite 'trivia'"),
    ],
)
def test_impossible_settings_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        execute(base("smoke", **changes), progress=ignore)
    assert not list(get_local_records().glob("*"))


@pytest.mark.parametrize("architecture", ["contextual", "surrogate"])
def test_killed_evaluation_resumes(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(CONTEXTUAL, seed=8) if architecture == "contextual" else base("smoke", architecture="surrogate")
    whole, searched, real = execute(run, progress=ignore), [], ModelSystem.search
    folder = run_folder(run_id(run))
    assert not (folder / "kept").exists(), "a run with a record needs no cached parts"
    for path in get_local_records().glob(f"{run_id(run)}*"):
        path.unlink()
    for path in (folder / "trec").rglob("*.gz"):
        path.unlink()
    limit = 4 if architecture == "contextual" else 2

    def search(self: ModelSystem, collection: Collection, kind: str) -> Any:
        searched.append((collection.retrieval.name, kind))
        if len(searched) == limit:
            raise KeyboardInterrupt
        return real(self, collection, kind)

    monkeypatch.setattr(ModelSystem, "search", search)
    with pytest.raises(KeyboardInterrupt):
        execute(run, progress=ignore)
    again = execute(run, progress=ignore)
    assert len(searched) == limit + len(set(searched)) - (limit - 1), "finished searches are not repeated"
    assert again.metrics == whole.metrics and again.provenance["suite"] == whole.provenance["suite"]
    assert_same_record(again, whole)


def test_cache_depends_on_weights(tmp_path: Path) -> None:
    model = build_model(make_model_config(CONTEXTUAL), start=CONTEXTUAL.start, seed=0)
    before, other_run = (open_cache(tmp_path, replace(CONTEXTUAL, seed=seed), model) for seed in (0, 1))
    assert before == open_cache(tmp_path, CONTEXTUAL, model) != other_run
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    assert open_cache(tmp_path, CONTEXTUAL, model) != before
    first, second = (open_cache(tmp_path, CONTEXTUAL, None, first_stage=name) for name in "ab")
    assert first != second


def test_evaluations_share_a_training() -> None:
    run = base("smoke", architecture="contextual", seed=5)
    trained = execute(run, progress=ignore)
    lines = []
    other = execute(replace(run, num_test_contexts=2, test_contexts="own"), progress=lines.append)
    assert not [line for line in lines if "step" in line], "the model was trained again"
    assert other.arrays["train/loss"].tolist() == trained.arrays["train/loss"].tolist()
    assert other.provenance["training"]["id"] == run_id(run)
    drawn = [(context["kind"], context["num_documents"]) for context in other.provenance["suite"]["contexts"]]
    assert set(drawn) == {("own", 2)}, "only the requested contexts are scored"


def test_empty_slots_hold_null_vector() -> None:
    run = base("smoke", architecture="contextual")
    model = build_model(make_model_config(run), start=run.start, seed=0)
    assert isinstance(model, ContextualModel)
    texts = ["a red apple", "the sky", "a tall tree", "rain"] * 2
    model.set_context(texts)
    full_CD = model.context_CE
    WithNulls(model).set_context(texts[:3])
    some_CD = model.context_CE
    assert full_CD is not None and some_CD is not None and some_CD.shape == full_CD.shape
    assert torch.allclose(some_CD[:3], full_CD[:3], atol=1e-6)
    assert torch.equal(some_CD[3:], model.second_stage_model.null_contexts()[3:])
    WithNulls(model).set_context(texts)
    assert model.context_CE is not None and torch.allclose(model.context_CE, full_CD, atol=1e-6)


def test_second_phase_starts_from_first() -> None:
    """The first phase is a run that others can share. The record lists stages and sessions of both phases."""
    alone = base(
        "smoke", seed=6, num_steps=3, num_hard_negatives=2, filter="surrogate", corpus="planted", num_pairs=400
    )
    run = replace(alone, pretraining_corpus="planted-tiny", num_pretraining_steps=8)
    plain, record = (execute(one, progress=ignore) for one in (alone, run))
    assert record.metrics["train/loss"] != plain.metrics["train/loss"]
    first_phase = base("smoke", seed=6, num_steps=8, filter="surrogate")
    assert get_first_phase(run) == first_phase and len(read_metrics(run_folder(run_id(first_phase)))) == 8
    stages = list_stages(run)
    assert len({stage.name for stage in stages}) < len(stages), "both phases have stages of one kind"
    recorded = {(title, stage["id"]) for title, stage in record.provenance["stages"].items()}
    assert recorded == {(stage.title, stage.path.name) for stage in stages}
    assert [one["from_step"] for one in record.provenance["training"]["first_phase_sittings"]] == [0]


@pytest.mark.parametrize(
    "changes",
    [
        {"num_steps": 3, "num_warmup_steps": 3, "num_pretraining_steps": 8},
        {"num_steps": None, "num_epochs": 1, "num_warmup_steps": 99, "num_pretraining_steps": 200},
        # The first phase is shorter than the warm-up of the scale.
        {"num_steps": 12, "num_pretraining_steps": 2},
    ],
)
def test_impossible_second_phase_trains_nothing(changes: dict) -> None:
    run = base("smoke", seed=6, num_hard_negatives=2, filter="surrogate", pretraining_corpus="planted-tiny", **changes)
    with pytest.raises(ValueError, match=r"num_warmup_steps=\d+: must be below num_steps="):
        execute(run, progress=ignore)
    assert not list(home().rglob("metrics.jsonl"))


def test_batch_difficulty_needs_no_training() -> None:
    run = base("smoke", measure="batches", architecture="none", sampler="cluster", cluster_size=8)
    record = execute(run, progress=ignore)
    assert record.provenance["training"] == {}
    values = record.arrays["batches/difficulty"]
    assert record.metrics["batches/difficulty"] == pytest.approx(values.mean())
    plain = execute(replace(run, sampler="random", cluster_size=None), progress=ignore)
    assert record.metrics["batches/difficulty"] > plain.metrics["batches/difficulty"], (
        "clusters are harder than random batches"
    )


def test_record_names_its_starting_code(monkeypatch: pytest.MonkeyPatch) -> None:
    code = {"commit": "at the start"}
    monkeypatch.setattr("repro.execute.get_code_identity", lambda: dict(code))

    def commit_meanwhile(*arguments: object) -> Measured:
        code["commit"] = "during the run"
        return Measured({})

    monkeypatch.setattr("repro.execute.measure_run", commit_meanwhile)
    record = execute(base("smoke", measure="batches", architecture="none"), progress=ignore)
    assert record.provenance["commit"] == "at the start"


def test_record_names_its_training_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    run = base("smoke", architecture="contextual", seed=7)
    codes = ({"commit": "first", "uncommitted_sha256": None}, {"commit": "second", "uncommitted_sha256": "d1"})
    monkeypatch.setenv("REPRO_SWITCHES", "checkpoint")
    monkeypatch.setattr("repro.train.checkpoint.get_code_identity", lambda: codes[0])
    with pytest.raises(Interrupted):
        execute(run, should_stop=stop_after(3), progress=ignore)
    monkeypatch.setattr("repro.train.checkpoint.get_code_identity", lambda: codes[1])
    first = execute(run, progress=ignore)
    monkeypatch.delenv("REPRO_SWITCHES")
    monkeypatch.setattr("repro.train.checkpoint.get_code_identity", lambda: {"commit": "third"})
    second = execute(replace(run, num_test_contexts=2, test_contexts="own"), progress=ignore)
    for training in (record.provenance["training"] for record in (first, second)):
        sessions = training["sittings"]
        assert [(one["from_step"], one["commit"]) for one in sessions] == [(0, "first"), (4, "second")]
        assert training["switches"] == ["checkpoint"] and {one["num_processes"] for one in sessions} == {1}
        assert {one["machine"]["dtype"] for one in sessions} == {"float32"}
        assert all(one["switches"] == ["checkpoint"] and one["versions"] for one in sessions)


def make_older_header(state: TrainState) -> dict[str, Any]:
    """Return the header of a checkpoint as older versions wrote it, without training sessions."""
    return {name: value for name, value in asdict(state).items() if name != "sittings"}


def test_older_training_is_resumed() -> None:
    """Sessions of older checkpoints are unknown, so the record lists only later ones."""
    run, other = base("smoke", seed=8), base("smoke", seed=9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("repro.train.checkpoint.asdict", make_older_header)
        with pytest.raises(Interrupted):
            execute(run, should_stop=stop_after(3), progress=ignore)
        trained_model(other, ignore)
    for one, from_steps in ((run, [4]), (other, [])):
        sessions = execute(one, progress=ignore).provenance["training"]["sittings"]
        assert [session["from_step"] for session in sessions] == from_steps

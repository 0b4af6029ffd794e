"""A run that was stopped and resumed ends with the same record as an undisturbed one, and changes no other run."""

import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from repro.analyses import Measured
from repro.analyses.caching import open_cache
from repro.analyses.retrieval import WithNulls
from repro.batches.surrogate import get_trained_folder
from repro.evaluate.collections import Collection
from repro.evaluate.suites import ModelSystem
from repro.execute import execute
from repro.model.biencoder import Biencoder
from repro.model.contextual import ContextualModel
from repro.model.encoding import WEIGHTS_FILE
from repro.model.start import build_model
from repro.pipeline.inputs import Inputs
from repro.pipeline.stages import list_stages
from repro.records.store import Record, has_record
from repro.spec import base, get_first_phase
from repro.spec.identity import RUN_ID, get_training_id, run_id
from repro.spec.registry import find_experiment
from repro.stopping import Interrupted
from repro.storage.digests import hash_file
from repro.storage.paths import get_home, get_local_records, run_folder
from repro.storage.stages import Stage
from repro.train.batch_view import BatchViewer
from repro.train.checkpoint import read_checkpoint_step, read_metrics
from repro.train.setup import make_model_config
from repro.train.trainer import trained_model
from slurm.job import Job, JobState
from slurm.signals import Stop
from tests.commands import ignore
from tests.train.fixtures import stop_after

CLUSTERS = base("smoke", sampler="cluster", cluster_size=8)
CONTEXTUAL = base("smoke", sampler="cluster", cluster_size=8, architecture="contextual", sequence_dropout=0.2)
SPEED = "train/pairs_per_second"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    """Fix the order of sums, since numbers are compared bit by bit."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def stage_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stages")


@pytest.fixture(autouse=True)
def shared_stages(own_home: Path, stage_folder: Path) -> None:
    """Build each stage once for all tests. Records and training runs stay in a home per test."""
    own_home.mkdir()
    (own_home / "stages").symlink_to(stage_folder)


def test_filter_is_trained_first() -> None:
    """A filter that is a run masks what its trained weights score higher, and its record names them."""
    declared = find_experiment("table1").runs("smoke")
    filter_run = next(run for run in declared if run.architecture == "biencoder" and run.sampler == "domain")
    record = execute(replace(CLUSTERS, filter="surrogate", filter_model=run_id(filter_run)), progress=ignore)
    weights = record.provenance["filter_model"]["weights"]
    saved = Biencoder.from_pretrained(get_trained_folder(run_id(filter_run)))
    assert weights == hash_file(get_trained_folder(run_id(filter_run)) / WEIGHTS_FILE)
    inputs = Inputs(replace(CLUSTERS, filter="surrogate", filter_model=run_id(filter_run)))
    inputs.build(ignore)
    built = [stage.read_build_metadata() for stage in inputs.graph.stages]
    assert {"made_with": {"weights": weights}} in built
    pairs = np.arange(24)
    texts = [inputs.pairs.texts(side, pairs) for side in ("query", "document")]
    queries, documents = (saved.encode(list(side)) for side in texts)
    np.testing.assert_allclose(BatchViewer(inputs)(pairs).filter_scores_BM, queries @ documents.T, atol=2e-3)
    contextual = next(run for run in declared if run.architecture == "contextual")
    with pytest.raises(ValueError, match="filter_model"):
        execute(replace(CLUSTERS, filter="random", filter_model=run_id(contextual)), progress=ignore)
    (get_trained_folder(run_id(filter_run)) / WEIGHTS_FILE).write_bytes(b"other")
    with pytest.raises(ValueError, match="trained again"):
        execute(replace(CLUSTERS, filter="surrogate", filter_model=run_id(filter_run), seed=1), progress=ignore)


def test_other_stages_need_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job trains the run of the filter only before a stage that needs its embeddings."""
    work: list[str] = []
    monkeypatch.setattr("repro.execute.train_filter_model", lambda *args, **options: work.append("filter"))
    monkeypatch.setattr(Stage, "build", lambda stage, progress: work.append(stage.name))
    run = replace(CLUSTERS, filter="surrogate", filter_model="0" * 12)
    assert RUN_ID.fullmatch(run.filter_model or "")
    for stage in list_stages(run):
        Job(run=asdict(run), stage=stage.title)(Stop(), where=JobState(state="running"))
    assert work.count("filter") == 1 and work[work.index("filter") + 1] == "embeddings"


def test_step_zero_scores_the_untrained_model() -> None:
    run = replace(CONTEXTUAL, num_steps=0)
    record = execute(run, progress=ignore)
    model = build_model(make_model_config(run), start=run.start, seed=run.seed, heads=run.heads)
    assert record.provenance["training"] == {"num_steps": 0}
    assert not any(name.startswith("train/") for name in record.metrics)
    vectors = {name: weight.clone() for name, weight in model.state_dict().items()}
    for name, weight in trained_model(run, ignore).state_dict().items():
        torch.testing.assert_close(weight, vectors[name], rtol=0, atol=0)


def assert_same_record(actual: Record, expected: Record) -> None:
    """Compare everything but the speed, bit by bit."""
    assert {**actual.metrics, SPEED: 0} == {**expected.metrics, SPEED: 0}
    assert actual.exhibits == expected.exhibits and actual.arrays.keys() == expected.arrays.keys()
    for name, values in expected.arrays.items():
        np.testing.assert_array_equal(actual.arrays[name], values)


@pytest.fixture(scope="module")
def undisturbed(stage_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The record of CONTEXTUAL, executed without a stop in a home of its own."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "stages").symlink_to(stage_folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_HOME", str(folder))
        return execute(CONTEXTUAL, progress=ignore)


def test_stopped_run_ends_the_same(undisturbed: Record) -> None:
    for calls in (3, 1, 5):
        with pytest.raises(Interrupted, match="the checkpoint is written"):
            execute(CONTEXTUAL, should_stop=stop_after(calls), progress=ignore)
        assert not has_record(get_local_records(), CONTEXTUAL)
    lines: list[str] = []
    resumed = execute(CONTEXTUAL, progress=lines.append)
    [line] = [line for line in lines if "resuming" in line]
    step, num_steps = map(int, re.findall(r"\d+", line))
    assert 0 < step < num_steps == CONTEXTUAL.num_steps
    actual, expected = (read_metrics(record.path.parents[1] / "runs" / record.id) for record in (resumed, undisturbed))
    for name in ("step", "batch", "loss", "accuracy", "masked_fraction", "learning_rate"):
        assert [row[name] for row in actual] == [row[name] for row in expected], name
    assert_same_record(resumed, undisturbed)


def test_recorded_run_is_not_repeated() -> None:
    """The second call returns the record, which states the parameters of BM25."""
    run = base("smoke", architecture="bm25")
    first = execute(run, progress=ignore)
    assert first.provenance["suite"]["bm25"]["k1"] == 0.9
    assert execute(run, progress=ignore).provenance == first.provenance


def test_record_names_hub_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has the commits of a tokenizer or encoder of a stage, and of the encoder that training starts from."""
    commit = {"model": "someone/encoder", "commit": "0123"}
    monkeypatch.setattr("repro.execute.find_commit", lambda name: commit)
    monkeypatch.setattr("repro.pipeline.stages.find_commit", lambda name: commit)
    provenance = execute(base("smoke", num_steps=2, num_warmup_steps=1, max_tokens=23), progress=ignore).provenance
    assert provenance["encoder"] == commit
    (tokens,) = [stage for title, stage in provenance["stages"].items() if title.startswith("tokens")]
    assert tokens["made_with"] == commit


def test_record_describes_its_evaluation(undisturbed: Record) -> None:
    record = undisturbed
    contexts = record.provenance["suite"]["contexts"]
    assert {context["kind"] for context in contexts} == {"own", "wrong", "null"}
    assert all(context["ids_sha256"] and context["seed"] == 0 for context in contexts if context["kind"] != "null")
    assert all(context["corpus"] == context["dataset"] for context in contexts if context["kind"] == "own")
    assert all(context["corpus"] != context["dataset"] for context in contexts if context["kind"] == "wrong")
    assert record.provenance["machine"]["dtype"] == "float32"
    assert {"torch", "faiss-cpu", "python"} <= set(record.provenance["versions"])
    assert record.arrays["planted"].shape == record.arrays["planted+wrong"].shape == record.arrays["planted+null"].shape
    assert list(record.path.parents[1].glob(f"runs/{record.id}/trec/**/*.trec.gz"))


def test_foreign_checkpoint_is_refused() -> None:
    with pytest.raises(Interrupted):
        execute(base("smoke"), should_stop=stop_after(3), progress=ignore)
    other = base("smoke", learning_rate=1e-3)
    run_folder(run_id(base("smoke"))).rename(run_folder(run_id(other)))
    with pytest.raises(ValueError, match=run_id(base("smoke"))):
        execute(other, progress=ignore)


SECOND_PHASE = {"num_hard_negatives": 2, "pretraining_corpus": "planted-tiny", "num_pretraining_steps": 200}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 100_000}, "100000"),
        ({"sampler": "cluster", "cluster_size": 5000}, "cluster_size is 5000"),
        ({"num_warmup_steps": 99}, "num_warmup_steps=99"),
        ({"suite": "trivia"}, "unknown suite 'trivia'"),
        (SECOND_PHASE | {"num_steps": 3, "num_warmup_steps": 3}, "num_warmup_steps=3: must"),
        (SECOND_PHASE | {"num_steps": None, "num_epochs": 1, "num_warmup_steps": 99}, "num_warmup_steps=99: must"),
    ],
)
def test_impossible_settings_train_nothing(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        execute(base("smoke", **changes), progress=ignore)
    assert not list(get_local_records().glob("*")) and not list(get_home().rglob("metrics.jsonl"))


def test_killed_evaluation_resumes(undisturbed: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation that is killed in one of its searches repeats this one, and none of those before."""
    searches, real_search = [], ModelSystem.search

    def search(self: ModelSystem, collection: Collection, kind: str) -> Any:
        searches.append((collection.retrieval.name, kind))
        if len(searches) == 4:
            raise KeyboardInterrupt
        return real_search(self, collection, kind)

    monkeypatch.setattr(ModelSystem, "search", search)
    with pytest.raises(KeyboardInterrupt):
        execute(CONTEXTUAL, progress=ignore)
    resumed = execute(CONTEXTUAL, progress=ignore)
    assert len(searches) == len(set(searches)) + 1, "finished searches are not repeated"
    assert not (run_folder(run_id(CONTEXTUAL)) / "kept").exists(), "a run with a record needs no cached parts"
    assert resumed.provenance["suite"] == undisturbed.provenance["suite"]
    assert_same_record(resumed, undisturbed)


def test_cache_depends_on_weights(tmp_path: Path) -> None:
    model = build_model(make_model_config(CONTEXTUAL), start=CONTEXTUAL.start, seed=0)
    before, other_run = (open_cache(tmp_path, replace(CONTEXTUAL, seed=seed), model) for seed in (0, 1))
    assert before == open_cache(tmp_path, CONTEXTUAL, model) != other_run
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    assert open_cache(tmp_path, CONTEXTUAL, model) != before
    first, second = (open_cache(tmp_path, CONTEXTUAL, None, first_stage=name) for name in "ab")
    assert first != second


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
    fields = {"num_hard_negatives": 2, "filter": "surrogate", "num_pairs": 96}
    alone = base("smoke", seed=6, num_steps=3, **fields)
    run = replace(alone, pretraining_corpus="planted-tiny", num_pretraining_steps=8)
    plain, record = (execute(each, progress=ignore) for each in (alone, run))
    assert record.metrics["train/loss"] != plain.metrics["train/loss"]
    first_phase = base("smoke", seed=6, num_steps=8, filter="surrogate")
    assert get_first_phase(run) == first_phase and len(read_metrics(run_folder(run_id(first_phase)))) == 8
    stages = list_stages(run)
    assert len({stage.name for stage in stages}) < len(stages), "both phases have stages of one kind"
    recorded = {(title, stage["id"]) for title, stage in record.provenance["stages"].items()}
    assert recorded == {(stage.title, stage.path.name) for stage in stages}
    assert [session["from_step"] for session in record.provenance["training"]["first_phase_sittings"]] == [0]


def test_checkpoint_needs_no_first_phase() -> None:
    """A second phase with a checkpoint resumes, or is loaded, without the weights of the first phase."""
    run = base("smoke", seed=8, num_steps=5, pretraining_corpus="planted-tiny", num_pretraining_steps=8)
    folder, first_phase = run_folder(run_id(run)), run_folder(get_training_id(get_first_phase(run)))
    expected = execute(run, progress=ignore)
    (get_local_records() / f"{run_id(run)}.json").unlink()
    shutil.rmtree(folder)
    with pytest.raises(Interrupted):
        execute(run, should_stop=stop_after(2), progress=ignore)
    shutil.rmtree(first_phase)
    assert read_checkpoint_step(folder) == 2
    assert_same_record(execute(run, progress=ignore), expected)
    (get_local_records() / f"{run_id(run)}.json").unlink()
    assert_same_record(execute(run, progress=ignore), expected)
    assert not first_phase.exists(), "the first phase was trained again"


def test_record_names_its_starting_code(monkeypatch: pytest.MonkeyPatch) -> None:
    code = {"commit": "at the start"}
    monkeypatch.setattr("repro.execute.get_code_identity", lambda: dict(code))

    def commit_meanwhile(*arguments: object) -> Measured:
        code["commit"] = "during the run"
        return Measured({})

    monkeypatch.setattr("repro.execute.measure_run", commit_meanwhile)
    record = execute(base("smoke", measure="batches", architecture="none"), progress=ignore)
    assert record.provenance["commit"] == "at the start" and record.provenance["training"] == {}


def test_evaluations_share_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two evaluations of a training run name its sessions, of which the second resumed the first."""
    run = base("smoke", architecture="contextual", seed=7)
    monkeypatch.setenv("REPRO_SWITCHES", "no-autocast")
    monkeypatch.setattr("repro.train.checkpoint.get_code_identity", lambda: {"commit": "first"})
    with pytest.raises(Interrupted):
        execute(run, should_stop=stop_after(4), progress=ignore)
    monkeypatch.setattr("repro.train.checkpoint.get_code_identity", lambda: {"commit": "second"})
    first = execute(run, progress=ignore)
    monkeypatch.delenv("REPRO_SWITCHES")
    monkeypatch.setattr("repro.train.checkpoint.get_code_identity", lambda: {"commit": "third"})
    lines: list[str] = []
    second = execute(replace(run, num_test_contexts=2, test_contexts="own"), progress=lines.append)
    assert not [line for line in lines if "step" in line], "the model was trained again"
    assert second.arrays["train/loss"].tolist() == first.arrays["train/loss"].tolist()
    contexts = {(context["kind"], context["num_documents"]) for context in second.provenance["suite"]["contexts"]}
    assert contexts == {("own", 2)}, "only the requested contexts are scored"
    for training in (record.provenance["training"] for record in (first, second)):
        sessions = training["sittings"]
        assert [(session["from_step"], session["commit"]) for session in sessions] == [(0, "first"), (4, "second")]
        assert training["id"] == run_id(run) and training["switches"] == ["no-autocast"]
        for session in sessions:
            assert session["switches"] == ["no-autocast"] and session["versions"]
            assert (session["num_processes"], session["machine"]["dtype"]) == (1, "float32")

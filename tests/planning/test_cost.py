"""Estimates of time and memory follow from arithmetic and from the most similar records."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from experiments.e04_batch_by_cluster import list_small_batches as list_runs_on_cpu
from repro.data.own.imported import import_source
from repro.data.pairs import read_pairs
from repro.pipeline.corpora import make_corpus_stage
from repro.planning import cost
from repro.planning.cost import Estimate, RecordedCosts, count_operations, list_missing_trainings, list_trainings
from repro.planning.pairs import MINED, count_pairs
from repro.planning.plan import make_plan
from repro.records.store import Record, list_records, read_records, write_record
from repro.spec import Run, base
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import get_published_records, run_folder
from repro.train.performance import estimate_first_stage_bytes, estimate_second_stage_bytes
from tests.data.files import write_rows
from tests.leases import take_lease

NO_RECORDS = [Path("/nowhere")]
PROVENANCE = {"machine": {"device": "x86_64"}, "training": {}, "evaluation_seconds": 1.0}
PLAIN = base("desk", num_steps=100)
CONTEXTUAL = replace(PLAIN, architecture="contextual")


def make_record(run: Run, seconds: float, *, device: str = "x86_64", evaluation_seconds: float = 5.0) -> Record:
    """Return a record of a training run and its evaluation that took this long."""
    measured = {"training": {"seconds": seconds}, "evaluation_seconds": evaluation_seconds}
    provenance = {"machine": {"device": device}, **measured}
    return Record("x", run, {}, provenance, Path("x.json"))


def estimate(run: Run, records: Iterable[Record], *, kind: str = "cpu", **options: Any) -> Estimate:
    """Return the cost of a run by these records."""
    return cost.estimate(run, RecordedCosts(records, kind), **options)


def test_biencoder_operations_match_arithmetic() -> None:
    sizes = {"num_layers": 1, "hidden_size": 10, "max_tokens": 10, "batch_size": 7, "num_steps": 3}
    run = replace(PLAIN, **sizes, filter="surrogate", num_hard_negatives=6)
    tokens = cost.TEXT_SHARE * 10
    # Two operations per weight, and two products in attention: queries by keys, weights by values.
    per_token = 2 * 12 * 10 * 10 + 4 * tokens * 10
    assert count_operations(run).flops == pytest.approx(3 * (3 * 7) * 8 * tokens * per_token)
    assert count_operations(run).num_pairs == 21


def test_processor_time_replaces_clock_time() -> None:
    """On a busy machine, 100 s of processor time per thread took 400 s. For a GPU, clock time counts."""
    busy = make_record(PLAIN, 400.0, evaluation_seconds=40.0)
    machine = {"device": "x86_64", "num_threads": 2}
    times = {"machine": machine, "training": {"seconds": 400.0, "cpu_seconds": 200.0}, "evaluation_seconds": 40.0}
    counted = replace(busy, provenance=times | {"evaluation_cpu_seconds": 20.0})
    assert estimate(PLAIN, [busy]).seconds == pytest.approx(440.0)
    assert estimate(PLAIN, [counted]).seconds == pytest.approx(110.0)
    on_gpu = replace(counted, provenance=counted.provenance | {"machine": machine | {"device": "NVIDIA H100"}})
    assert estimate(PLAIN, [on_gpu], kind="gpu").seconds == pytest.approx(440.0)


def test_time_comes_from_similar_records() -> None:
    """The median of the records with equal architecture and width. On a GPU only those of the same scale count."""
    wider = replace(PLAIN, hidden_size=PLAIN.hidden_size * 2)
    records = [
        *(make_record(replace(PLAIN, seed=seed), seconds) for seed, seconds in enumerate((90.0, 100.0, 120.0))),
        make_record(CONTEXTUAL, 50.0),
        make_record(wider, 7.0),
        make_record(PLAIN, 3.0, device="NVIDIA H100 80GB HBM3"),
    ]
    assert estimate(PLAIN, records).seconds == pytest.approx(105.0)
    assert estimate(replace(PLAIN, num_steps=200, seed=9), records).seconds == pytest.approx(205.0)
    assert estimate(CONTEXTUAL, records).seconds == pytest.approx(55.0)
    assert estimate(CONTEXTUAL, records[:3]).seconds is None, "no such model was evaluated"
    assert estimate(wider, records).seconds == pytest.approx(12.0)
    assert estimate(PLAIN, records, kind="gpu").seconds == pytest.approx(8.0)
    assert estimate(base("lab", num_steps=100), records, kind="gpu").seconds is None
    ended_early = make_record(PLAIN, 10.0)
    ended_early.provenance["training"]["num_steps"] = 50
    assert estimate(PLAIN, [ended_early]).seconds == pytest.approx(25.0)


def test_context_costs_tokens_and_first_stage() -> None:
    plain, contextual = count_operations(PLAIN).flops, count_operations(CONTEXTUAL).flops
    assert contextual > plain * (1 + PLAIN.num_contexts / (cost.TEXT_SHARE * PLAIN.max_tokens))
    assert count_operations(replace(PLAIN, architecture="bm25", sampler="random")).flops == 0


@pytest.mark.parametrize(
    ("run", "num_pairs"),
    [
        (base("small"), 3 * 238_998_494),
        (base("desk", num_pairs=4096, num_steps=None, num_epochs=8), 8 * 4096),
        (base("desk", num_pairs=2**30, num_steps=None, num_epochs=2), 2 * 168_464),
    ],
    ids=["paper", "selection", "all"],
)
def test_epochs_count_selected_pairs(run: Run, num_pairs: int) -> None:
    assert count_operations(run).num_pairs == pytest.approx(num_pairs, rel=0.001)


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_cpu_memory_grows_as_recorded(architecture: str) -> None:
    measured = defaultdict(list)
    runs = [run for run in list_runs_on_cpu("desk") if run.architecture == architecture]
    for record in list_records(get_published_records(), runs):
        measured[record.run.batch_size].append(record.provenance["training"]["memory_bytes"])
    planned = {size: estimate(base("desk", architecture=architecture, batch_size=size), []) for size in (128, 512)}
    growth = planned[512].memory_bytes - planned[128].memory_bytes
    assert growth == pytest.approx(median(measured[512]) - median(measured[128]), rel=0.15)


def test_plan_counts_distinct_runs() -> None:
    plan = make_plan([base("smoke"), base("smoke"), base("desk")], NO_RECORDS, num_at_once=2).as_dict()
    assert (plan["num_asked"], plan["num_unique"], len(plan["missing"]), plan["lacks"]) == (3, 2, 2, [])
    assert any(name.startswith("corpus/") for name in plan["stages"])
    assert plan["cost"]["hours"] <= plan["cost"]["hours_one_after_another"]


def test_missing_suite_hides_no_stage() -> None:
    run = replace(CONTEXTUAL, test_contexts="own", filter="surrogate")
    complete, without_suite = (make_plan([each], NO_RECORDS) for each in (run, replace(run, suite="beir")))
    assert {"tokens", "embeddings"} <= {stage.name for stage in without_suite.stages}
    assert [stage.path for stage in without_suite.stages] == [stage.path for stage in complete.stages]
    assert any(line.startswith("  stage tokens/") for line in without_suite.lines()) and without_suite.lacks


def test_shared_training_counts_once() -> None:
    run = base("desk", architecture="contextual")
    variants = [run, replace(run, num_test_contexts=4), replace(run, context_seed=1)]
    plan = make_plan(variants, NO_RECORDS)
    assert plan.totals["num_pairs"] == count_operations(run).num_pairs
    assert [planned.num_pairs > 0 for planned in plan.estimates] == [True, False, False]


def test_plan_counts_trainings_without_weights(tmp_path: Path) -> None:
    """A training run counts until it has ended with its weights on this machine, whether or not a run is recorded."""
    recorded = base("desk", num_steps=100, pretraining_corpus="desk", num_pretraining_steps=240)
    missing = replace(recorded, context_seed=1)
    write_record(tmp_path, recorded, metrics={"m": 1.0}, arrays={}, provenance=PROVENANCE)

    def count_planned_pairs() -> float:
        return make_plan([recorded, missing], [tmp_path]).totals["num_pairs"] / missing.batch_size

    assert count_planned_pairs() == 100 + 240, "its weights are not here"
    for training, expected in zip(reversed(list_trainings(missing)), (100, 0), strict=True):
        lease = take_lease(run_folder(training) / "training")
        (run_folder(training) / "checkpoint.safetensors").touch()
        assert count_planned_pairs() > expected, "a process still trains"
        lease.release()
        assert count_planned_pairs() == expected
    (run_folder(training) / "checkpoint.safetensors").unlink()
    assert count_planned_pairs() == 100, "its weights were pruned"


def test_unknown_times_are_none() -> None:
    """Without a similar record, and for epochs of a corpus of unknown size."""
    bm25, by_epochs = base("small", architecture="bm25", sampler="random"), base("small", corpus="bge-full-data")
    assert estimate(PLAIN, []).seconds is None
    assert estimate(base("small"), [make_record(PLAIN, 9.0)]).seconds is None, "no record is as wide"
    plan = make_plan([bm25, by_epochs, base("smoke")], NO_RECORDS)
    seconds = plan.as_dict()["seconds"]
    assert seconds[run_id(bm25)] is seconds[run_id(by_epochs)] is None and seconds[run_id(base("smoke"))] > 0
    assert plan.totals["num_unknown"] == 2 and plan.totals["hours"] is not None
    unknown = make_plan([bm25], NO_RECORDS, num_gpus=1)
    assert unknown.totals["hours"] is unknown.totals["gpu_hours"] is None and " 0 s" not in "".join(unknown.lines())


def test_evaluation_counts_by_context() -> None:
    single = replace(CONTEXTUAL, test_contexts="own")
    records = [make_record(replace(CONTEXTUAL, test_contexts="own+wrong+null"), 0.001, evaluation_seconds=30.0)]
    trained = {get_training_id(single), get_training_id(replace(single, seed=1))}
    assert estimate(single, records, trained=trained).seconds == pytest.approx(10.0)
    assert estimate(replace(single, measure="shape"), records, trained=trained).seconds is None


def test_imported_corpus_is_counted(tmp_path: Path) -> None:
    rows = [{"query": f"which thing is {n}", "document": f"the thing {n} itself"} for n in range(40)]
    corpus = import_source(write_rows(tmp_path / "mine.jsonl", rows), name="mine")
    run = base("desk", corpus=corpus.corpus, suite="mine", num_pairs=None, num_steps=None, num_epochs=3, batch_size=8)
    assert count_pairs(run) == 40 and estimate(run, []).num_pairs == 3 * 40
    assert count_pairs(replace(run, corpus="other@12345678")) is None


def test_built_corpora_have_counted_pairs() -> None:
    counts = {
        (record.run.corpus, record.metrics["train/total/num_pairs"])
        for record in read_records(get_published_records())
        if "train/total/num_pairs" in record.metrics
    }
    assert counts == {("desk", MINED["desk"])}
    path = make_corpus_stage("planted-tiny").build() / "train.arrow"
    assert len(read_pairs(path)) == MINED["planted-tiny"]


def test_checkpoint_replaces_first_phase() -> None:
    """A second phase that has started needs no first one. Only measure="steps" trains both from the start."""
    run = base("smoke", num_steps=10, pretraining_corpus="desk", num_pretraining_steps=30)
    steps, other = replace(run, measure="steps"), replace(run, learning_rate=0.001)
    own, first = list_trainings(run)
    assert list_missing_trainings(run) == list_missing_trainings(steps) == (own, first)
    folder = run_folder(own)
    folder.mkdir(parents=True)
    save_file(
        {"weight": np.zeros(1)}, folder / "checkpoint.safetensors", {"state": json.dumps({"run_id": "x", "step": 3})}
    )
    assert list_missing_trainings(run) == (own,) and list_missing_trainings(steps) == (own, first)
    plan = make_plan([run, other], NO_RECORDS)
    assert [planned.num_pairs // run.batch_size for planned in plan.estimates] == [10, 10 + 30]
    take_lease(folder / "training").release()
    assert list_missing_trainings(run) == () and list_missing_trainings(steps) == (first,)


def test_gpu_memory_follows_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without chunks, memory beyond the weights is that of 1/24 of texts and contexts, rounded up."""
    monkeypatch.setenv("REPRO_CHUNKS", "9999,9999")
    run = base("large", architecture="contextual")
    planned = estimate(run, [], kind="gpu", num_devices=24)
    texts = -(-1024 // 24) * estimate_second_stage_bytes(run, autocast=True)
    contexts = 22 * estimate_first_stage_bytes(run, autocast=True)
    weights = cost.BASE_MEMORY_BYTES + cost.BYTES_PER_WEIGHT * cost.count_weights(run)
    assert planned.memory_bytes == pytest.approx(weights + texts + contexts)

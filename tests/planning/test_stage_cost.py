"""Costs of stages at the paper's size: counted, and measured by the committed benchmark."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest

from benchmarks.generated_pairs import generate_blocks
from repro.data.own.imported import import_source
from repro.data.pairs import read_pairs
from repro.data.paper.hub import UNSUPERVISED
from repro.pipeline.corpora import make_corpus_stage
from repro.planning import stage_cost
from repro.planning.cost import RecordedCosts, estimate
from repro.planning.pairs import MINED, count_domain_sizes, count_pairs
from repro.planning.plan import make_plan
from repro.planning.stage_cost import ASSUMPTIONS, RATES, estimate_stage_costs
from repro.records.store import read_records
from repro.spec import base
from repro.spec.identity import run_id
from repro.storage.paths import CHECKOUT, get_published_records
from repro.text import GIB
from tests.commands import run_module
from tests.data.files import write_rows

CLUSTERED = base("small", sampler="cluster", cluster_size=512)


def test_disk_follows_number_of_pairs() -> None:
    costs = {cost.name: cost for cost in estimate_stage_costs([CLUSTERED])}
    num_pairs = count_pairs(CLUSTERED)
    assert costs["keys"].disk_bytes == 8 * num_pairs
    assert costs["embeddings by gtr-t5-base"].disk_bytes == 2 * num_pairs * 768 * 2
    assert costs["tokens of 64"].disk_bytes == pytest.approx(num_pairs * (2 * 8 + 2 * 4 * 0.6 * 64))


def test_cluster_memory_follows_largest_fit() -> None:
    """Reddit has 66 of 239 million pairs. K-means uses 64 per cluster, both sides, with two vectors of 768 numbers."""
    largest = max(count_domain_sizes("nomic-unsupervised", count_pairs(CLUSTERED)))
    fitted = 64 * -(-largest // 512)
    clusters = next(cost for cost in estimate_stage_costs([CLUSTERED]) if cost.name == "clusters of 512")
    assert clusters.memory_bytes == pytest.approx(2 * fitted * 2 * 768 * 4 + GIB + 20 * count_pairs(CLUSTERED))


def test_stages_cover_all_phases() -> None:
    """Both phases of a run are counted, and a run on part of a corpus is not counted as one on all of it."""
    corpora = {"corpus": "nomic-supervised", "pretraining_corpus": "nomic-unsupervised", "num_pretraining_steps": 10}
    two_phases = base("small", **corpora, num_hard_negatives=7, sampler="domain")
    part = base("small", architecture="none", measure="neighbours", num_pairs=2**20)
    two_sources = base("small", sampler="domain", sources="paq+gooaq")
    names = defaultdict(set)
    for cost in estimate_stage_costs([two_phases, part, two_sources, base("small", architecture="bm25")]):
        names[cost.pairs].add(cost.name)
    surrogates = {"embeddings by gtr-t5-base", "embeddings by nomic-embed-text-v1"}
    trained = {"corpus", "selection", "tokens of 64", "keys", "positives", "start of a training"}
    assert names.pop("nomic-supervised, 1,800,000 pairs") == {*trained, *surrogates, "negatives of 7"}
    assert {"corpus", "tokens of 64", "start of a training"} <= names.pop("nomic-unsupervised, 238,998,494 pairs")
    assert names.pop("nomic-unsupervised, 1,048,576 pairs") == {"selection", "keys", "positives", *surrogates}
    assert list(names) == [f"nomic-unsupervised, 2 of its sources, {count_pairs(two_sources):,} pairs"]
    printed = sum(UNSUPERVISED[name].num_rows for name in ("paq", "gooaq"))  # in Table 5
    assert count_pairs(two_sources) == pytest.approx(238_998_494 / 234_553_344 * printed)


def test_import_time_follows_bytes(tmp_path: Path) -> None:
    """The paper's pairs have 1255 bytes each, those of the benchmark 346. Time is scaled by bytes."""
    block = next(generate_blocks(20_000))
    sizes = [pc.sum(pc.binary_length(block[side])).as_py() / block.num_rows for side in ("query", "document")]
    assert pytest.approx(sum(sizes), rel=0.01) == stage_cost.GENERATED_BYTES
    corpus = next(cost for cost in estimate_stage_costs([CLUSTERED]) if cost.name == "corpus")
    assert corpus.hours == pytest.approx(
        38e-6 * 238_998_494 / 3600 * (300e9 / 238_998_494) / stage_cost.GENERATED_BYTES
    )
    plan = make_plan([CLUSTERED], [tmp_path], num_gpus=1, num_at_once=16)
    [line] = [line for line in plan.lines() if line.startswith("in addition: ")]
    assert "the download (279.4 GiB)" in line and "(683.8 GiB more)" in line


def test_unknown_size_is_a_dash(tmp_path: Path) -> None:
    by_epochs = base("small", corpus="bge-full-data")
    plan = make_plan([by_epochs, base("small")], [tmp_path])
    assert "bge-full-data: – pairs, because their number is unknown" in plan.lines()
    [line] = [line for line in plan.lines() if line.startswith(f"  {run_id(by_epochs)}")]
    assert line.split()[1] == "–"
    assert any(line.startswith("excluded: 1 training by epochs") for line in plan.lines())
    seconds = plan.as_dict()["seconds"]
    assert seconds[run_id(by_epochs)] is None and seconds[run_id(base("small"))] > 0
    assert not any("bge-full-data" in cost.pairs for cost in plan.stage_costs)
    selected = make_plan([base("small", corpus="bge-full-data", num_pairs=1_000_000)], [tmp_path])
    [corpus] = [cost for cost in selected.stage_costs if cost.name == "corpus"]
    assert corpus.disk_bytes == pytest.approx(15e9), "only the number of selected pairs is known"


def test_imported_corpus_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"query": f"which thing is {n}", "document": f"the thing {n} itself"} for n in range(40)]
    corpus = import_source(write_rows(tmp_path / "mine.jsonl", rows), name="mine")
    run = base("desk", corpus=corpus.corpus, suite="mine", num_pairs=None, num_steps=None, num_epochs=3, batch_size=8)
    assert count_pairs(run) == 40
    assert estimate(run, RecordedCosts([], "cpu")).arithmetic.num_pairs == 3 * 40
    monkeypatch.setattr("repro.planning.stage_cost.MIN_PAIRS", 40)
    costs = {cost.name: cost for cost in estimate_stage_costs([run])}
    assert costs["corpus"].pairs.endswith(", 40 pairs") and costs["corpus"].disk_bytes > 40 * 30
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


@pytest.mark.parametrize("scale", ["small", "large"])
def test_each_stage_cost_is_explained(scale: str, tmp_path: Path) -> None:
    plan = make_plan([base(scale, sampler="cluster", cluster_size=512), base(scale)], [tmp_path])
    names = [cost.name for cost in plan.stage_costs]
    assert len(names) == len(set(names)) and {"corpus", "selection", "keys", "clusters of 512"} < set(names)
    lines = plan.lines()
    for cost in plan.stage_costs:
        assert lines.index(cost.format_line()) < lines.index(ASSUMPTIONS)
    assert not make_plan([base("desk")], [tmp_path]).stage_costs


def read_benchmark(name: str) -> list[dict]:
    """Return the rows of a committed benchmark."""
    return json.loads((CHECKOUT / "benchmarks" / f"{name}.json").read_text())["rows"]


def test_rates_match_the_benchmark() -> None:
    rows = {(row["label"], row["step"], row["num_pairs"]): row for row in read_benchmark("paper_scale")}
    seconds = {step: rows["now", step, 10**6]["cpu_seconds"] for step in ("import", "corpus", "embeddings", "keys")}
    seconds["corpus"] += seconds.pop("import")
    seconds["selection"] = rows["now", "selection", 10**7]["cpu_seconds"] / 10
    for step, expected in seconds.items():
        assert RATES[step].microseconds_per_pair == pytest.approx(expected, rel=0.1), step
    assert all(cost.hours > 0 for cost in estimate_stage_costs([CLUSTERED])), "every stage takes time"
    tokenized = {(row["texts"], row["way"]): row for row in read_benchmark("tokenizing")}["desk-views", "by words"]
    microseconds = 1e6 * tokenized["median"] / tokenized["num_tokens"]
    assert pytest.approx(microseconds, rel=0.1) == stage_cost.MICROSECONDS_PER_TOKEN


def test_memory_matches_the_benchmark() -> None:
    for row in read_benchmark("paper_scale"):
        kind = row["step"]
        is_current = row["label"] in ("now", "blank") and row["num_pairs"] >= 10**6
        if is_current and kind in RATES and kind != "clusters":
            planned = RATES[kind].peak_gib * 1024 + RATES[kind].bytes_per_pair * row["num_pairs"] / 2**20
            assert 0.9 * row["peak_mebibytes"] <= planned, row


@pytest.mark.slow
def test_benchmark_measures_a_start(tmp_path: Path) -> None:
    """Slow: writes and reads stages of 40,000 pairs."""
    options = f"--num-pairs 40000 --blank --home {tmp_path} --write {tmp_path / 'rows.json'}"
    result = run_module("benchmarks.paper_scale", *options.split())
    assert result.returncode == 0, result.stdout + result.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {row["step"] for row in rows} == {"start", "sampler"}

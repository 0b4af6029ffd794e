"""What the stages of the paper's size take: counted, and measured as the committed bench has it."""

import json
from pathlib import Path

import pytest

from repro.data.paper.hub import UNSUPERVISED
from repro.planning.plan import make_plan
from repro.planning.stage_cost import (
    BYTES_A_PAIR,
    GIB,
    MICROSECONDS_A_PAIR,
    MICROSECONDS_A_TOKEN,
    PEAK_GIB,
    domain_sizes,
    pairs_of,
    stage_costs,
)
from repro.spec import base
from repro.storage.paths import CHECKOUT

CLUSTERED = base("small", sampler="cluster", cluster_size=512)


def test_disk_is_counted_from_the_number_of_pairs() -> None:
    costs = {cost.name: cost for cost in stage_costs([CLUSTERED])}
    num_pairs = pairs_of(CLUSTERED)
    assert costs["keys"].disk_bytes == 8 * num_pairs
    assert costs["embeddings by gtr-t5-base"].disk_bytes == 2 * num_pairs * 768 * 2
    assert costs["tokens of 64"].disk_bytes == pytest.approx(num_pairs * (2 * 8 + 2 * 4 * 0.6 * 64))


def test_clusters_hold_the_points_of_their_largest_fit() -> None:
    """Reddit has 65 of 235 million pairs: 64 of them for each of its clusters, both halves, two vectors of 768 each."""
    largest = max(domain_sizes("nomic-unsupervised", pairs_of(CLUSTERED)))
    fitted = 64 * -(-largest // 512)
    found = next(cost for cost in stage_costs([CLUSTERED]) if cost.name == "clusters of 512")
    assert found.memory_bytes == pytest.approx(2 * fitted * 2 * 768 * 4 + GIB + 20 * pairs_of(CLUSTERED))


def test_the_stages_are_those_of_the_graph_of_every_run_and_of_the_trainings_before_it() -> None:
    """A plan of two phases must not count one, nor that of a part of the corpus as the whole."""
    two_phases = base(
        "small",
        corpus="nomic-supervised",
        pretraining_corpus="nomic-unsupervised",
        num_pretraining_steps=10,
        num_hard_negatives=7,
        sampler="domain",
    )
    part = base("small", architecture="none", measure="neighbours", num_pairs=2**20)
    of_sources = base("small", sampler="domain", sources="paq+gooaq")
    every = stage_costs([two_phases, part, of_sources, base("small", architecture="bm25")])
    by_pairs = {cost.pairs: [] for cost in every}
    for cost in every:
        by_pairs[cost.pairs].append(cost.name)
    gooaq_and_paq = pairs_of(of_sources)
    assert list(by_pairs) == [
        "nomic-supervised, 1,800,000 pairs",
        "nomic-unsupervised, 235,000,000 pairs",
        "nomic-unsupervised, 1,048,576 pairs",
        f"nomic-unsupervised, 2 of its sources, {gooaq_and_paq:,} pairs",
    ]
    surrogates = {"embeddings by gtr-t5-base", "embeddings by nomic-embed-text-v1"}
    trained = {"corpus", "selection", "tokens of 64", "keys", "start of a training"}
    assert set(by_pairs["nomic-supervised, 1,800,000 pairs"]) == {*trained, *surrogates, "negatives of 7"}
    assert {"corpus", "tokens of 64", "start of a training"} <= set(by_pairs["nomic-unsupervised, 235,000,000 pairs"])
    assert set(by_pairs["nomic-unsupervised, 1,048,576 pairs"]) == {"selection", "keys", *surrogates}
    assert gooaq_and_paq == pytest.approx(235e6 / 234_553_344 * sum(domain_sizes_printed("paq", "gooaq")))


def domain_sizes_printed(*names: str) -> list[int]:
    """Rows of Table 5."""
    return [UNSUPERVISED[name].num_rows or 0 for name in names]


@pytest.mark.parametrize("scale", ["small", "large"])
def test_a_plan_of_the_papers_scales_says_what_each_stage_takes_and_how_that_is_known(
    scale: str, tmp_path: Path
) -> None:
    made = make_plan([base(scale, sampler="cluster", cluster_size=512), base(scale)], [tmp_path])
    names = [cost.name for cost in made.stage_costs]
    assert len(names) == len(set(names)) and {"corpus", "selection", "keys", "clusters of 512"} < set(names)
    lines = made.lines()
    for cost in made.stage_costs:
        assert lines.index(cost.line()) < lines.index(f"  {cost.kind}: {cost.how}")
    assert not make_plan([base("desk")], [tmp_path]).stage_costs


def test_the_rates_are_those_of_the_committed_bench() -> None:
    rows = json.loads((CHECKOUT / "benchmarks" / "paper_scale.json").read_text())["rows"]
    spent = {row["step"]: row["cpu_seconds"] for row in rows if row["label"] == "now" and row["num_pairs"] == 10**6}
    assert MICROSECONDS_A_PAIR["corpus"] == pytest.approx(spent["import"] + spent["corpus"], rel=0.1)
    for step in ("embeddings", "keys"):
        assert MICROSECONDS_A_PAIR[step] == pytest.approx(spent[step], rel=0.1), step
    texts = json.loads((CHECKOUT / "benchmarks" / "tokenizing.json").read_text())["rows"]
    mined = next(row for row in texts if row["texts"] == "desk-views" and row["way"] == "by words")
    assert pytest.approx(1e6 * mined["median"] / mined["num_tokens"], rel=0.1) == MICROSECONDS_A_TOKEN


def test_the_memory_is_that_of_the_committed_bench() -> None:
    rows = json.loads((CHECKOUT / "benchmarks" / "paper_scale.json").read_text())["rows"]
    for row in rows:
        kind = row["step"]
        if row["label"] in ("now", "blank") and kind in PEAK_GIB and row["num_pairs"] >= 10**6 and kind != "clusters":
            planned = PEAK_GIB[kind] * 1024 + BYTES_A_PAIR.get(kind, 0) * row["num_pairs"] / 2**20
            assert 0.9 * row["peak_mebibytes"] <= planned, row

"""What the stages of the paper's size take: counted, and measured as the committed bench has it."""

import json
from pathlib import Path

import pytest

from repro.planning.plan import make_plan
from repro.planning.stage_cost import GIB, MICROSECONDS_A_PAIR, domain_sizes, pairs_of, stage_costs
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
    assert found.memory_bytes == pytest.approx(2 * fitted * 2 * 768 * 4 + GIB)


@pytest.mark.parametrize("scale", ["small", "large"])
def test_a_plan_of_the_papers_scales_says_what_each_stage_takes_and_how_that_is_known(
    scale: str, tmp_path: Path
) -> None:
    made = make_plan([base(scale, sampler="cluster", cluster_size=512), base(scale)], [tmp_path])
    names = [cost.name for cost in made.stage_costs]
    assert len(names) == len(set(names)) and {"corpus", "selection", "keys", "clusters of 512"} < set(names)
    lines = "\n".join(made.lines())
    for cost in made.stage_costs:
        assert cost.how and cost.line() in lines
    assert not make_plan([base("desk")], [tmp_path]).stage_costs


def test_the_rates_are_those_of_the_committed_bench() -> None:
    rows = json.loads((CHECKOUT / "benchmarks" / "paper_scale.json").read_text())["rows"]
    spent = {row["step"]: row["cpu_seconds"] for row in rows if row["label"] == "now" and row["num_pairs"] == 10**6}
    assert MICROSECONDS_A_PAIR["corpus"] == pytest.approx(spent["import"] + spent["corpus"], rel=0.1)
    for step in ("embeddings", "keys"):
        assert MICROSECONDS_A_PAIR[step] == pytest.approx(spent[step], rel=0.1), step

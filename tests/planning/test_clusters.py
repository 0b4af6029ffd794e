"""Clusters that no domain can fill are told of by the plan, and refused before anything is started."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from repro.data.paper.hub import UNSUPERVISED
from repro.pipeline.inputs import Inputs
from repro.planning.clusters import check_clusters, count_largest_domain
from repro.planning.plan import make_plan
from repro.spec import base
from repro.spec.identity import run_id
from slurm.profiles import Profile
from slurm.start import LEFT_OUT, LaunchOptions, start

SMOKE = base("smoke", sampler="cluster", cluster_size=8)
LARGE = base("small", sampler="cluster", cluster_size=512)
TOO_LARGE = replace(SMOKE, cluster_size=241)


def test_a_plan_says_so_and_a_launch_leaves_it_out(tmp_path: Path) -> None:
    [line] = make_plan([SMOKE, TOO_LARGE], [tmp_path]).impossible
    assert "cluster_size is 241, and the largest domain has 240 pairs" in line
    assert f"impossible: {line}" in make_plan([TOO_LARGE], [tmp_path]).lines()
    profile = Profile(name="here", on="local", cpus_per_run=1)
    lines: list[str] = []
    ended = start([TOO_LARGE], profile, sweep="t", options=LaunchOptions(), progress=lines.append)
    assert ended == {run_id(TOO_LARGE): LEFT_OUT}
    assert f"left out: {line}" in lines
    with pytest.raises(ValueError, match="cluster_size is 241, and the largest domain has 240"):
        check_clusters([SMOKE, TOO_LARGE])


def test_domains_are_counted_where_the_pairs_are_there_and_printed_ones_are_those_of_the_paper() -> None:
    assert count_largest_domain(SMOKE) == 240, "at most: nobody has counted yet"
    inputs = Inputs(SMOKE)
    inputs.graph.selection.build()
    codes = inputs.pairs.source_codes if SMOKE.domain_column == "source" else inputs.pairs.domain_codes
    counted = int(np.unique(codes, return_counts=True)[1].max())
    assert count_largest_domain(SMOKE) == counted
    check_clusters([replace(SMOKE, cluster_size=counted)])
    if counted < 240:
        with pytest.raises(ValueError, match=f"largest domain has {counted} pairs"):
            check_clusters([replace(SMOKE, cluster_size=counted + 1)])
    reddit = UNSUPERVISED["reddit_title_body"].num_rows or 0
    assert count_largest_domain(LARGE) == pytest.approx(reddit, rel=0.02)
    assert count_largest_domain(replace(LARGE, num_pairs=1000)) == 1000
    assert count_largest_domain(replace(LARGE, sources="squad")) == pytest.approx(16_384, rel=0.02)
    assert count_largest_domain(replace(LARGE, corpus="bge-full-data")) is None
    check_clusters([replace(LARGE, corpus="bge-full-data")])

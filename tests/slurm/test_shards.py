"""Stages in shards, as jobs: one shard a task, a killed or failed one the only one done again, and every verb tells."""

import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from repro.pipeline.stages import StageGraph
from repro.planning.plan import SHARDED_KINDS, make_plan
from repro.spec import Run, base, get_first_phase
from repro.storage.lease import look
from repro.storage.shards import list_shards
from repro.storage.stages import Stage
from slurm.batches import order_batches
from slurm.profiles import Profile, load_profile
from slurm.prune import leftovers
from slurm.shards import count_shards, count_shards_by_stage
from slurm.start import LaunchOptions, scripts
from slurm.states import get_stage_item
from slurm.status import Snapshot, statuses, why
from slurm.sweep import build_tasks, read_submissions
from tests.slurm.launching import launch_runs, wait_until
from tests.slurm.stand_in import stages_of, traced

pytestmark = pytest.mark.usefixtures("stand_in")

HERE = Profile(name="here", on="local", cpus_per_run=1, num_at_once=2, num_shards=3)
launch = partial(launch_runs, profile=HERE)
SITE = Profile(name="site", num_at_once=4, num_shards=5)
RUN = base("smoke", num_steps=3, sampler="cluster", cluster_size=8)


def clusters() -> Stage:
    """The stage that is made in shards."""
    return stages_of(RUN)[1]


def test_each_shard_is_made_once() -> None:
    launch(RUN)
    assert [status.state for status in statuses([RUN])] == ["recorded"]
    told = traced()
    assert sorted(line for line in told if line.startswith("shard")) == [f"shard {n} of 3" for n in (1, 2, 3)]
    assert told.index("build corpus") < min(told.index(f"shard {n} of 3") for n in (1, 2, 3))
    assert told.index("join clusters") > max(told.index(f"shard {n} of 3") for n in (1, 2, 3))
    assert "build clusters" not in told
    assert (clusters().path / "content").read_text() == "clusters"
    assert not list(leftovers([]))


def test_failed_shard_is_retried_alone(own_home: Path) -> None:
    own_home.mkdir()
    (own_home / "break-shard-2").touch()
    launch(RUN)
    [status] = statuses([RUN])
    assert status.state == "failed"
    assert "shards/2-of-3 failed: OSError: no room for shard 2" in status.reason
    [line] = why(RUN)["stages"]
    assert line.startswith(f"{clusters().title}: 2 of 3 shards built; 2-of-3 failed: OSError: no room for shard 2")
    (own_home / "break-shard-2").unlink()
    before = traced()
    assert launch(RUN) == ["1 run requested, 0 to start, 1 failed or cancelled (--retry restarts them)"]
    launch(RUN, retry=True)
    assert traced()[len(before) :][:2] == ["shard 2 of 3", "join clusters"]
    assert [status.state for status in statuses([RUN])] == ["recorded"]


def test_shards_are_one_array(own_home: Path) -> None:
    tasks = build_tasks([RUN, replace(RUN, seed=1)], SITE, code={})
    made = order_batches(tasks, max_array_size=1000, num_at_once=4)
    title = clusters().title
    assert [(batch.name, len(batch.tasks), batch.num_at_once) for batch in made] == [
        (stages_of(RUN)[0].title, 1, 1), (f"shards 1 of 1 of {title}", 5, 4), (title, 1, 1), ("runs 1 of 1", 2, 2),
    ]  # fmt: skip
    cut = order_batches(tasks, max_array_size=2, num_at_once=2)
    shards = [batch for batch in cut if batch.name.startswith("shards")]
    assert [(len(batch.tasks), batch.num_at_once, batch.after) for batch in shards] == [
        (2, 1, ""), (2, 1, ""), (1, 1, f"shards 1 of 3 of {title}"),
    ]  # fmt: skip


def test_scripts_wait_in_order(own_home: Path) -> None:
    shown = list(scripts([RUN], SITE, sweep="test", options=LaunchOptions()))
    corpus, shards, whole, runs = (text for _, text in shown)
    names = [f"JOB-OF-{name.replace(' ', '-')}" for name, _ in shown]
    assert "--dependency" not in corpus
    assert "#SBATCH --array=0-4%4\n" in shards
    assert f"#SBATCH --dependency=afterok:{names[0]}\n" in shards
    assert f"#SBATCH --dependency=afterok:{names[0]}:{names[1]}\n" in whole
    assert "--array" not in whole
    assert names[2] in runs


def test_only_missing_shards_are_tasks() -> None:
    stages_of(RUN)[0].build()
    shards = list_shards(clusters(), 5)
    for number in (0, 3):
        shards[number].build()
    tasks = build_tasks([RUN], SITE, code={})
    assert [task.name for task in tasks[:-1]] == [shards[n].title for n in (1, 2, 4)] + [clusters().title]
    assert tasks[-2].needs == tuple(shards[n].title for n in (1, 2, 4))
    assert tasks[-2].job.num_shards == 5


def test_one_shard_is_the_default() -> None:
    assert count_shards(RUN, Profile(name="p")) == 1
    tasks = build_tasks([RUN], Profile(name="p"), code={})
    assert [task.name for task in tasks[:2]] == [stage.title for stage in stages_of(RUN)]
    assert all(task.job.num_shards == 1 for task in tasks)


@pytest.mark.parametrize(("pairs", "expected"), [(240, 1), (239, 2), (100, 3), (1, 240)])
def test_pairs_per_shard_set_the_number(pairs: int, expected: int) -> None:
    assert count_shards(RUN, Profile(name="p", pairs_per_shard=pairs)) == expected
    assert count_shards(replace(RUN, num_pairs=16), Profile(name="p", pairs_per_shard=8)) == 2


def test_first_phase_has_own_shards() -> None:
    """A second phase on few pairs goes on from a first one on many, alone or beside it, whatever comes first."""
    second = replace(RUN, num_pairs=16, pretraining_corpus=RUN.corpus, num_pretraining_steps=2)
    first = get_first_phase(second)
    assert first is not None and first.num_pairs != 16

    def stages(run: Run) -> tuple[Stage, ...]:
        names = ("tokens of few", "tokens of many") if run == second else ("tokens of many",)
        return tuple(Stage(name=name, key={}, make=lambda folder: None) for name in names)

    profile = Profile(name="p", pairs_per_shard=8)
    for runs in ([second], [second, first], [first, second]):
        few, many = (stage.title for stage in stages(second))
        assert count_shards_by_stage(runs, profile, stages) == {few: 2, many: count_shards(first, profile)}
    assert count_shards(first, profile) == 30


def test_ambiguous_profile_is_refused() -> None:
    with pytest.raises(ValueError, match="num_shards=2 and pairs_per_shard=5"):
        Profile(name="p", num_shards=2, pairs_per_shard=5)
    with pytest.raises(ValueError, match="num_shards=0; must be at least 1"):
        Profile(name="p", num_shards=0)


def test_too_many_shards_are_refused() -> None:
    assert count_shards(RUN, Profile(name="p", num_shards=240)) == 240
    with pytest.raises(ValueError, match="num_shards=241 is more than the 240 pairs of run"):
        count_shards(RUN, Profile(name="p", num_shards=241))
    with pytest.raises(ValueError, match="num_shards=1000000; must be at least 1 and at most 10000"):
        Profile(name="p", num_shards=1_000_000)
    paper = base("small")
    assert count_shards(paper, Profile(name="p", pairs_per_shard=10**7)) == 24
    with pytest.raises(ValueError, match="into 23899850 shards; at most 10000 are launched: put more pairs into each"):
        count_shards(paper, Profile(name="p", pairs_per_shard=10))


def test_plan_shows_number_of_shards() -> None:
    made = make_plan([replace(RUN, filter="surrogate")], [], num_shards=lambda run: 4)
    kinds = {title.split("/")[0] for title in made.num_shards}
    assert kinds == {"tokens", "embeddings", "keys"}
    assert sum(line.endswith(" in 4 shards") for line in made.lines()) == 3
    assert set(made.as_dict()["num_shards"].values()) == {4}


def test_plan_shows_shards_without_data() -> None:
    [line] = [
        line for line in make_plan([base("small")], [], num_shards=lambda run: 32).lines() if "in 32 shards" in line
    ]
    assert line.startswith("  tokens, embeddings, keys in 32 shards")
    kinds = {stage.name for stage in StageGraph(replace(RUN, filter="surrogate")).stages if stage.sharding}
    assert kinds == set(SHARDED_KINDS)


def test_leftover_shards_are_pruned(own_home: Path) -> None:
    stage = clusters()
    shards = [shard.build() for shard in list_shards(stage, 2)]
    assert not list(leftovers([]))
    stage.build()
    assert [path for path, _ in leftovers([])] == shards


@pytest.mark.slurm
def test_killed_shard_is_done_again(own_home: Path) -> None:
    profile = replace(load_profile("dev-cluster"), memory_gb=0.5, num_shards=3)
    own_home.mkdir()
    (own_home / "hold-2").touch()
    launch(RUN, profile=profile)
    shards = list_shards(clusters(), 3)
    wait_until(lambda: [shard.is_built for shard in shards] == [True, False, True] and "shard 2 of 3" in traced())
    says = Snapshot().list_unbuilt_stages([RUN])[clusters().title]
    assert says.startswith("2 of 3 shards built, 1 being built"), says
    owner = look(get_stage_item(shards[1]).lease_folder)
    assert owner is not None
    os.kill(owner.pid, signal.SIGKILL)
    wait_until(lambda: not statuses([RUN])[0].live_on)
    assert [shard.is_built for shard in shards] == [True, False, True]
    (own_home / "hold-2").unlink()
    launch(RUN, profile=profile)
    wait_until(lambda: statuses([RUN])[0].state == "recorded")
    told = traced()
    assert [told.count(f"shard {n} of 3") for n in (1, 2, 3)] == [1, 2, 1]
    assert told.count("join clusters") == 1
    arrays = [entry for entry in read_submissions() if any("shards/" in name for name in entry.jobs)]
    assert [len(entry.jobs) for entry in arrays] == [3, 1]
    jobs = {place["job_id"].partition("_")[0] for place in arrays[0].jobs.values()}
    assert len(jobs) == 1, "one array"

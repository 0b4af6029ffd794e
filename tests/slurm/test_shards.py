"""Jobs of stages in shards: one task per shard, only failed or killed shards are made again."""

import os
import signal
from dataclasses import replace
from functools import partial

import pytest

from repro.spec import Run, base
from repro.storage.shards import list_shards
from repro.storage.stages import Stage
from slurm.job import WorkItem
from slurm.launch import order_batches
from slurm.profiles import Profile, count_shards, load_profile
from slurm.prune import list_leftovers
from slurm.status import Snapshot, explain_run, get_statuses
from slurm.sweep import build_tasks, read_submissions
from tests.leases import find_owner
from tests.slurm.launching import get_states, launch_runs, wait_until
from tests.slurm.stand_in import clear_flag, read_trace, set_flag, stages_of

pytestmark = pytest.mark.usefixtures("stand_in")

HERE = Profile(name="here", on="local", num_at_once=2, pairs_per_shard=80, parameters={"cpus_per_task": 1})
launch = partial(launch_runs, profile=HERE)
SITE = Profile(name="site", num_at_once=4, pairs_per_shard=48)
RUN = base("smoke", num_steps=3, sampler="cluster", cluster_size=8)


def get_cluster_stage() -> Stage:
    """Return the stage that is made in shards."""
    return stages_of(RUN)[1]


def test_failed_shard_is_retried_alone() -> None:
    set_flag("break-shard-2")
    launch(RUN)
    failure = "2-of-3 failed: OSError: no room for shard 2"
    [status] = get_statuses([RUN])
    assert status.state == "failed" and f"shards/{failure}" in status.reason
    title = get_cluster_stage().title
    assert explain_run(RUN)["stages"][0].startswith(f"{title}: 2 of 3 shards built; {failure}")
    clear_flag("break-shard-2")
    trace = read_trace()
    assert "0 to start" in launch(RUN)[0]
    launch(RUN, retry=True)
    assert read_trace()[len(trace) :][:2] == ["shard 2 of 3", "join clusters"]
    assert get_states(RUN) == ["recorded"]
    assert (get_cluster_stage().path / "content").read_text() == "clusters"
    assert not list(list_leftovers([]))


def test_shards_are_one_array() -> None:
    tasks = build_tasks([RUN, replace(RUN, seed=1)], SITE)
    batches = order_batches(tasks, max_array_size=1000, num_at_once=4)
    title = get_cluster_stage().title
    names = [stages_of(RUN)[0].title, "shards 1 of 1", title, "runs 1 of 1"]
    summaries = [(batch.name, len(batch.tasks), batch.num_at_once) for batch in batches]
    assert summaries == list(zip(names, (1, 5, 1, 2), (1, 4, 1, 2), strict=True))
    cut = order_batches(tasks, max_array_size=2, num_at_once=2)
    summaries = [(len(batch.tasks), batch.num_at_once, batch.after) for batch in cut if batch.name.startswith("shards")]
    assert summaries == [(2, 1, ""), (2, 1, ""), (1, 1, "shards 1 of 3")]


@pytest.mark.parametrize(
    ("run", "settings", "expected"),
    [
        (RUN, {}, 1),
        (RUN, {"num_shards": 7, "pairs_per_shard": 1}, 7),
        (RUN, {"pairs_per_shard": 240}, 1),
        (RUN, {"pairs_per_shard": 239}, 2),
        (RUN, {"pairs_per_shard": 100}, 3),
        (replace(RUN, num_pairs=16), {"pairs_per_shard": 8}, 2),
        (base("small"), {"pairs_per_shard": 10**7}, 24),
    ],
)
def test_pairs_per_shard_set_the_number(run: Run, settings: dict[str, int], expected: int) -> None:
    assert count_shards(run, Profile(name="p", **settings)) == expected


def test_leftover_shards_are_pruned() -> None:
    stage = get_cluster_stage()
    shards = [shard.build() for shard in list_shards(stage, 2)]
    assert not list(list_leftovers([]))
    stage.build()
    assert [path for path, _ in list_leftovers([])] == shards


@pytest.mark.slurm
def test_killed_shard_is_done_again() -> None:
    profile = replace(load_profile("dev-cluster"), pairs_per_shard=80)
    set_flag("hold-2")
    launch(RUN, profile=profile)
    shards = list_shards(get_cluster_stage(), 3)
    wait_until(lambda: [shard.is_built for shard in shards] == [True, False, True] and "shard 2 of 3" in read_trace())
    description = Snapshot().list_unbuilt_stages(get_statuses([RUN]))[get_cluster_stage().title]
    assert description.startswith("2 of 3 shards built; 2-of-3 being built")
    os.kill(find_owner(WorkItem(shards[1].title).lease_folder).pid, signal.SIGKILL)
    wait_until(lambda: not get_statuses([RUN])[0].live_on)
    assert [shard.is_built for shard in shards] == [True, False, True]
    clear_flag("hold-2")
    launch(RUN, profile=profile)
    wait_until(lambda: get_statuses([RUN])[0].state == "recorded")
    trace = read_trace()
    assert [trace.count(f"shard {n} of 3") for n in (1, 2, 3)] == [1, 2, 1] and trace.count("join clusters") == 1
    arrays = [entry for entry in read_submissions() if any("shards/" in name for name in entry.jobs)]
    assert [len(entry.jobs) for entry in arrays] == [3, 1]
    assert len({location["job_id"].partition("_")[0] for location in arrays[0].jobs.values()}) == 1, "one array"

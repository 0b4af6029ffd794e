"""Submissions to Slurm: scripts, arrays and their limits, refusals, and interrupted jobs. Slurm itself is imitated."""

import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from submitit import AutoExecutor

from repro.records.provenance import compute_source_digest
from repro.records.store import read_records
from repro.spec import Run, base, grid
from repro.spec.identity import difference, run_id
from repro.storage.paths import CHECKOUT, get_local_records
from slurm.job import Job, JobState, get_run_item
from slurm.launch import order_batches
from slurm.profiles import Profile
from slurm.scheduler import Queued, fetch_queue
from slurm.signals import Stop
from slurm.start import cancel, scripts
from slurm.status import get_statuses
from slurm.sweep import add_run_dependencies, build_tasks, read_submissions
from tests.leases import find_owner, take_lease
from tests.slurm.launching import get_states, launch_runs, read_state, wait_until
from tests.slurm.stand_in import compute_undisturbed_metric, read_trace, stages_of
from tests.slurm.stand_in_job import StandInJob

pytestmark = pytest.mark.usefixtures("stand_in")

PROFILE = Profile(
    name="site",
    num_at_once=4,
    parameters={
        "slurm_partition": "gpu",
        "slurm_account": "lab7",
        "slurm_qos": "long",
        "slurm_gres": "gpu:a100:1",
        "cpus_per_task": 4,
        "mem_gb": 16,
        "timeout_min": 90,
        "slurm_setup": ["module load cuda/12.4"],
        "slurm_additional_parameters": {"mail-type": "FAIL"},
    },
    stage={"slurm_partition": "cpu", "timeout_min": 30, "slurm_gres": ""},
)
launch = partial(launch_runs, profile=PROFILE)
RUNS = grid(base("smoke", num_steps=3), seed=tuple(range(8)))

COMMANDS = {
    "sbatch": """
n=$(( $(cat "$fake/last" 2>/dev/null || echo 100) + 1 )); echo $n > "$fake/last"
[ -e "$fake/refuse-$n" ] && { echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; }
cp "$1" "$fake/$n.sh"; echo "Submitted batch job $n" """,
    "scontrol": """[ "$1 $2" = "show config" ] || exit 1; echo "MaxArraySize            = 3" """,
    "squeue": 'cat "$fake/queue"',
    "scancel": 'echo "$@" >> "$fake/cancelled"',
    "srun": "true",
}


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put commands named like Slurm's on the path, and return the folder where they store their input."""
    fake = tmp_path / "slurm"
    fake.mkdir()
    for name, body in COMMANDS.items():
        (fake / name).write_text(f"#!/bin/bash\nfake={fake}\n{body}\n")
        (fake / name).chmod(0o755)
    (fake / "queue").touch()
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    return fake


def read_scripts(fake: Path) -> dict[int, str]:
    """Return the submitted scripts by job number."""
    return {int(path.stem): path.read_text() for path in sorted(fake.glob("[0-9]*.sh"))}


def write_scripts(*runs: Run, profile: Profile = PROFILE) -> dict[str, str]:
    """Return the scripts that a launch would submit, by batch."""
    return dict(scripts(runs, profile, sweep="test"))


def set_queue(fake: Path, *lines: str) -> None:
    """Set the jobs that `squeue` lists, as id|state|reason."""
    rows = [line.split("|") for line in lines]
    (fake / "queue").write_text("".join(f"{id}|{state}|{reason}\n" for id, state, reason in rows))


def test_dry_run_shows_submitted_script(fake_slurm: Path) -> None:
    runs = [replace(run, sampler="cluster", cluster_size=8) for run in RUNS[:2]]
    named_scripts = write_scripts(*runs)
    assert read_scripts(fake_slurm) == {}
    launch(*runs)
    sent = read_scripts(fake_slurm)
    jobs = {f"JOB-OF-{name.replace(' ', '-')}": str(job) for name, job in zip(named_scripts, sent, strict=True)}
    for text, script in zip(named_scripts.values(), sent.values(), strict=True):
        for name, job in jobs.items():
            text = text.replace(name, job)
        assert text == script


def test_script_follows_the_profile(fake_slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DATA", "my-data")
    monkeypatch.setenv("HF_HOME", "/project/hub of all")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("REPRO_SWITCHES", "no-autocast")
    monkeypatch.setenv("REPRO_CHUNKS", "64,128")
    stage, array = write_scripts(*RUNS[:2]).values()
    for line in (
        "--partition=gpu", "--account=lab7", "--qos=long", "--gres=gpu:a100:1", "--cpus-per-task=4", "--mem=16GB",
        "--time=90", "--signal=USR2@90", "--array=0-1%2", "--requeue", "--mail-type=FAIL", "--kill-on-invalid-dep=yes",
    ):  # fmt: skip
        assert f"#SBATCH {line}\n" in array, line
    for line in (
        "module load cuda/12.4", "#SBATCH --ntasks-per-node=1",
        f"export REPRO_HOME={os.environ['REPRO_HOME']}", f"export REPRO_DATA={Path.cwd() / 'my-data'}",
        "export HF_HOME='/project/hub of all'", "export HF_HUB_OFFLINE=1", "export REPRO_SWITCHES=no-autocast",
        "export REPRO_CHUNKS=64,128",
    ):  # fmt: skip
        assert f"{line}\n" in array, line
    assert " --export=ALL --kill-on-bad-exit=1 --cpus-per-task=4 " in array.splitlines()[-1]
    assert "#SBATCH --partition=cpu\n" in stage and "#SBATCH --time=30\n" in stage and "gres" not in stage


def test_each_gpu_has_its_task(fake_slurm: Path) -> None:
    """A stage has one task, whatever a run uses, and the resources of its kind."""
    profile = Profile(name="p", parameters={"gpus_per_node": 8, "nodes": 2}, stage={"gpus_per_node": 1})
    stage, array = write_scripts(RUNS[0], profile=profile).values()
    options = ("gpus-per-node", "nodes", "ntasks-per-node")
    found = [[re.search(f"--{name}=(.*)", script)[1] for name in options] for script in (stage, array)]
    assert found == [["1", "1", "1"], ["8", "2", "8"]]
    kinds = {"corpus": {"gpus_per_node": 0, "slurm_use_srun": False}, "clusters": {"gpus_per_node": 3}}
    stage, array = write_scripts(RUNS[0], profile=replace(profile, kinds=kinds)).values()
    assert "gpus-per-node" not in stage
    assert "\nsrun" in array and "srun" not in stage, "false is a value, which removes nothing"


def test_job_starts_in_the_checkout(fake_slurm: Path) -> None:
    *_, script = write_scripts(*RUNS[:2]).values()
    assert f"#SBATCH --chdir={CHECKOUT}\n" in script and "wckey" not in script
    line = next(line for line in script.splitlines() if line.startswith("export PYTHONPATH"))
    for before, after in ({}, str(CHECKOUT)), ({"PYTHONPATH": "/x:/y"}, f"{CHECKOUT}:/x:/y"):
        command = ["bash", "-c", f'{line}; printf %s "$PYTHONPATH"']
        assert subprocess.run(command, env=before, capture_output=True, text=True, check=True).stdout == after


def test_container_wraps_python(fake_slurm: Path) -> None:
    """The shell expands the variables of the profile, and keeps their spaces."""
    site = replace(PROFILE, python='printf "%s|" --bind "$TMPDIR:/tmp" cde.sif python3')
    for runs in (RUNS[:1], RUNS[1:4]):  # one job, and an array
        *_, script = write_scripts(*runs, profile=site).values()
        [command] = [line for line in script.splitlines() if line.startswith("srun")]
        inner = command[command.index("printf") :]
        env = os.environ | {"TMPDIR": "/a b"}
        output = subprocess.run(["bash", "-c", inner], env=env, capture_output=True, text=True, check=True).stdout
        assert output.startswith("--bind|/a b:/tmp|cde.sif|python3|-u|-m|submitit")


ALIKE = grid(RUNS[0], context_seed=(0, 1, 2))


def list_dependencies(fake: Path) -> list[str]:
    """Return the dependency of each submitted script."""
    matches = [re.search("--dependency=(.*)", text) for text in read_scripts(fake).values()]
    return [match[1] if match else "" for match in matches]


def test_sharing_runs_wait_for_training(fake_slurm: Path) -> None:
    assert "afterany:JOB-OF-runs-1-of-2_0\n" in write_scripts(*ALIKE, RUNS[1])["runs 2 of 2"]
    launch(*ALIKE, RUNS[1])
    assert list_dependencies(fake_slurm) == ["", "afterok:101", "afterok:101,afterany:102_0"]
    assert read_submissions()[1].runs[run_id(RUNS[1])] == difference(RUNS[1]), "only what differs from the scale"
    assert [set(submission.runs) for submission in read_submissions()[1:]] == [
        {run_id(run) for run in runs} for runs in ((ALIKE[0], RUNS[1]), ALIKE[1:])
    ]


def test_runs_wait_for_missing_phase(fake_slurm: Path) -> None:
    phased = base("smoke", num_steps=3, pretraining_corpus="desk", num_pretraining_steps=3)
    longer = replace(phased, num_steps=4)
    same_training = replace(longer, context_seed=1)
    tasks = add_run_dependencies(build_tasks((phased, longer, same_training), PROFILE))
    names = [run_id(run) for run in (phased, longer, same_training)]
    assert [task.after for task in tasks if not task.item.is_stage] == [(), (names[0],), (names[1], names[0])]
    batches = order_batches(tasks, max_array_size=3, num_at_once=2)
    assert [[task.name for task in batch.tasks] for batch in batches if not batch.is_stage] == [
        [name] for name in names
    ]
    assert [batch.after for batch in batches if not batch.is_stage] == ["", "runs 1 of 3", "runs 2 of 3"]


@pytest.mark.parametrize("num_at_once", [1, 2, 3, 5, 8, 100])
def test_throttle_is_never_exceeded(num_at_once: int) -> None:
    runs = (*RUNS, *(replace(run, sampler="cluster", cluster_size=8) for run in RUNS), *ALIKE[1:])
    tasks = add_run_dependencies(build_tasks(runs, PROFILE))
    batches = order_batches(tasks, max_array_size=3, num_at_once=num_at_once)
    arrays = {batch.name: batch for batch in batches if not batch.is_stage}
    assert sorted(task.name for batch in arrays.values() for task in batch.tasks) == sorted(
        get_run_item(run).name for run in runs
    )
    free = [batch for batch in arrays.values() if not batch.after]
    assert sum(batch.num_at_once for batch in free) <= num_at_once
    assert all(batch.num_at_once <= arrays[batch.after].num_at_once for batch in arrays.values() if batch.after)


def test_refused_submission_is_explained(fake_slurm: Path) -> None:
    (fake_slurm / "refuse-103").touch()
    with pytest.raises(ValueError, match=r"refused runs 2 of 3.*QOSMaxSubmit"):
        launch(*RUNS)
    set_queue(fake_slurm, "101|PENDING|Priority", *(f"102_{n}|PENDING|x" for n in range(3)))
    assert sorted(get_states(*RUNS)) == ["missing"] * 5 + ["queued"] * 3
    assert launch(*RUNS)[0] == "8 runs requested, 5 to start"
    again = [text for job, text in read_scripts(fake_slurm).items() if job > 103]
    assert all("--dependency=afterok:101\n" in text for text in again), "the queued stage is not submitted again"


def test_refused_retry_keeps_failures(fake_slurm: Path) -> None:
    failed, cancelled = map(get_run_item, RUNS[:2])
    failed.write(JobState(state="failed", reason="a damaged file"))
    cancelled.cancel()
    (fake_slurm / "refuse-102").touch()
    with pytest.raises(ValueError, match="refused runs 1 of 3"):
        launch(*RUNS, retry=True)
    assert read_state(RUNS[0]).reason == "a damaged file" and cancelled.is_cancelled


def test_queue_distinguishes_queued_from_vanished(fake_slurm: Path) -> None:
    launch(*RUNS[:2])
    set_queue(fake_slurm, "102_0|PENDING|Dependency", "102_1|RUNNING|None")
    assert fetch_queue(["102_0", "102_1"])["102_0"] == Queued("PENDING", "Dependency")
    assert get_states(*RUNS[:2]) == ["queued", "queued"]
    assert "job 102_0 is PENDING (Dependency)" in get_statuses(RUNS)[0].reason
    set_queue(fake_slurm, "102_1|RUNNING|None")
    assert get_states(*RUNS[:2]) == ["missing", "queued"]
    status = get_statuses(RUNS)[0]
    assert status.reason.startswith("stage corpus/") and "has left Slurm's queue; launch again" in status.reason
    stages_of(RUNS[0])[0].build()
    Path(status.log).write_text("srun: error: no such file")
    assert f"see its log {status.log}" in get_statuses(RUNS)[0].reason


def test_silent_scheduler_loses_no_job(fake_slurm: Path) -> None:
    """If Slurm does not respond, submitted jobs count as queued, and are not submitted again."""
    launch(*RUNS[:2])
    (fake_slurm / "squeue").write_text("#!/bin/bash\nexit 1\n")
    assert fetch_queue(["102_0"]) is None
    assert get_states(*RUNS[:2]) == ["queued", "queued"]
    assert launch(*RUNS[:2]) == ["2 runs requested, 0 to start"]
    with take_lease(get_run_item(RUNS[0]).lease_folder):
        assert get_states(*RUNS[:2]) == ["running", "queued"]


def test_jobs_of_other_users_are_known(fake_slurm: Path) -> None:
    """Another user of the home submits them no second time. A cancelled one is marked, and stops by itself."""
    launch(*RUNS[:2])
    set_queue(fake_slurm, "102_0|PENDING|Dependency", "102_1|PENDING|Dependency")
    assert launch(*RUNS[:2]) == ["2 runs requested, 0 to start"]
    assert [status.state for status in cancel(RUNS[:1])] == ["queued"]
    assert (fake_slurm / "cancelled").read_text() == "102_0\n"
    assert get_states(*RUNS[:2]) == ["failed", "queued"]


def test_careful_scales_refuse_uncommitted_code(fake_slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm.sweep.get_code_identity", lambda: {"commit": "c0ffee", "uncommitted_sha256": "d1"})
    for check in ("check_available", "check_encoders"):
        monkeypatch.setattr(f"slurm.start.{check}", lambda runs: None)
    run = base("small")
    with pytest.raises(ValueError, match="commit first"):
        launch(run)
    launch(RUNS[0])


def test_changed_code_stops_the_job(execute_with: Callable[..., None]) -> None:
    execute_with(lambda run, **options: None)
    [*_, task] = build_tasks([RUNS[0]], PROFILE)
    Job(run=task.job.run, source=compute_source_digest())(Stop(), where=JobState(state="running"))
    with pytest.raises(RuntimeError, match="the code has changed since the launch"):
        Job(run=task.job.run, source="another")(Stop(), where=JobState(state="running"))
    assert get_states(RUNS[0]) == ["failed"]


def test_sigusr2_requeues_the_job(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.1")
    run = replace(RUNS[0], num_steps=30)
    executor = AutoExecutor(own_home / "jobs", cluster="local")
    executor.update_parameters(timeout_min=5)
    stages_of(run)[0].build()
    [task] = build_tasks([run], PROFILE)
    [job] = executor.submit_array([StandInJob(task.job)])
    wait_until(lambda: f"begin {run_id(run)} at 0" in read_trace())
    os.kill(find_owner(get_run_item(run).lease_folder).pid, signal.SIGUSR2)
    job.wait()
    state = read_state(run)
    assert (state.state, state.job_id, state.num_interruptions) == ("done", job.job_id, 1)
    [record] = read_records(get_local_records())
    assert record.metrics["value"] == compute_undisturbed_metric(run)
    begins = [int(line.split()[-1]) for line in read_trace() if line.startswith("begin")]
    assert len(begins) == 2 and begins[1] > 0

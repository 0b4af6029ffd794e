"""Submit jobs to Slurm through submitit. Only this module imports it.

Each stage is one job, and its shards are an array that this job waits for. Runs that wait for the same stages share an
array, which comes after them (afterok). If another run trains a model that it shares, the array waits for that run too
(afterany). No array exceeds the cluster's maximum size. The arrays of shards together respect the profile's `num_at_once`,
and so do the arrays of runs.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from submitit import AutoExecutor, JobEnvironment
from submitit.core.utils import DelayedSubmission, FailedJobError, FailedSubmissionError

from repro.stopping import Stopped, delay_stops
from repro.storage.paths import SOURCES, get_data_folder, get_home, get_sweeps_folder
from repro.storage.shards import find_parent_stage
from slurm.job import Job, JobState, describe_interruptions
from slurm.profiles import Profile
from slurm.ranks import THREADS, describe_rank, get_private_folder
from slurm.scheduler import hide_enclosing_job, is_preempted
from slurm.signals import EXIT_INTERRUPTED, Stop, handle_stop_signals
from slurm.sweep import Task, make_submission

Progress = Callable[[str], None]
MAX_REQUEUES_LIMIT = 10**6
"""Requeue limit given to submitit. The job counts its own interruptions, because only it knows about its progress."""
HUB_FOLDERS = ("HF_HOME", "HF_HUB_CACHE")
PASSED_VARIABLES = (
    *("REPRO_DEAD_AFTER_SECONDS", "REPRO_SWITCHES", "REPRO_CHUNKS", "REPRO_TENSORBOARD"),
    *(*HUB_FOLDERS, "HF_HUB_OFFLINE"),
)
"""Environment variables that jobs must share with the launcher, even if the site passes no environment to its jobs."""
DEFAULT_MINUTES = 60
FIRST_PORT, NUM_PORTS = 20_000, 12_000
"""Ports where nodes meet: below those that Linux gives to outgoing connections (32768)."""


@dataclass(frozen=True)
class SubmittedJob:
    """A job in the form that submitit pickles. It reports its location and requeues itself after an interruption."""

    job: Job

    def __call__(self) -> None:
        """Execute the job as one task. If interrupted, rank 0 requeues it once the checkpoint is written."""
        environment = JobEnvironment()
        os.environ.update(describe_task(environment))
        paths = environment.paths
        stop = Stop()
        state = JobState(
            state="running", job_id=environment.job_id, log=str(paths.stdout), script=str(paths.submission_file)
        )
        # submitit's handler: checkpoint(), pickle, scontrol requeue, exit.
        requeue = signal.getsignal(signal.SIGUSR2)
        with handle_stop_signals(stop):
            try:
                self.job(stop, where=state)
                return
            except Stopped as stopped:
                print(f"stopped: {stopped}", flush=True)
            except Exception as error:
                # The other ranks may have left before this one.
                if not (environment.global_rank and stop()):
                    raise
                print(f"stopped: {error}", flush=True)
        if environment.global_rank:
            # A nonzero exit status would end the first rank while it requeues the job.
            return
        if callable(requeue) and self._should_requeue(stop, environment.job_id):
            requeue(signal.SIGUSR2, None)
        sys.exit(EXIT_INTERRUPTED)

    def checkpoint(self) -> DelayedSubmission:
        """Return the same job again. The training run resumes from its own checkpoint."""
        return DelayedSubmission(self)

    def _should_requeue(self, stop: Stop, job_id: str) -> bool:
        item = self.job.item
        last = item.read()
        if last is None or last.state != "interrupted":
            return False
        # Counted since the last progress, so a long run that is preempted often is never given up.
        if last.num_without_progress > self.job.max_requeues:
            item.write(replace(last, state="failed", reason=describe_interruptions(last, self.job.max_requeues)))
            return False
        # Runs and K-means resume. Any other stage starts over, so it would reach its time limit again. After any other
        # SIGTERM the job was cancelled, or is already requeued.
        resumes = not self.job.stage or self.job.stage.startswith("clusters/")
        is_near_limit = stop.signal_number == signal.SIGUSR2 and resumes
        return is_near_limit or is_preempted(job_id)


def describe_task(environment: JobEnvironment) -> dict[str, str]:
    """Return the environment variables of the rank that this task of a job is. Empty if the job has one task."""
    if environment.num_tasks == 1:
        return {}
    # Each requeue starts a new attempt, which must not find the store of the last one.
    attempt = f"{environment.job_id}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"
    if environment.num_nodes == 1:
        store = f"file://{get_private_folder() / attempt}"
    else:
        # srun starts on the first node of the job.
        address = os.environ.get("SLURM_LAUNCH_NODE_IPADDR") or environment.hostnames[0]
        store = f"tcp://{address}:{FIRST_PORT + zlib.crc32(attempt.encode()) % NUM_PORTS}"
    num_local = environment.num_tasks // environment.num_nodes
    return describe_rank(environment.global_rank, num_local, environment.num_nodes, store)


@dataclass(frozen=True)
class Batch:
    """One sbatch submission: tasks that wait for the same stages, and possibly for an earlier array."""

    name: str
    tasks: tuple[Task, ...]
    num_at_once: int
    # Name of an array that must end first, which limits the number of jobs running in parallel.
    after: str = ""

    @property
    def is_stage(self) -> bool:
        """Whether this batch builds a stage."""
        return self.tasks[0].item.is_stage


def order_batches(tasks: Sequence[Task], *, max_array_size: int, num_at_once: int) -> list[Batch]:
    """Return the batches in submission order: first the stages, each after its shards, then the arrays of runs."""
    depth: dict[str, int] = {}  # of a run in the chain of runs that wait for each other
    stages: list[Batch] = []
    shards: dict[str, list[Task]] = {}  # by the name of the whole stage
    runs: dict[tuple[int, tuple[str, ...]], list[Task]] = {}  # by depth and needed stages
    for task in tasks:
        if not task.item.is_stage:
            depth[task.name] = max((depth.get(maker, 0) + 1 for maker in task.after), default=0)
            runs.setdefault((depth[task.name], tuple(sorted(task.needs))), []).append(task)
        elif parent := find_parent_stage(task.name):
            shards.setdefault(parent, []).append(task)
        else:
            stages.append(Batch(task.name, (task,), 1))
    stages += _make_arrays("shards", list(shards.values()), depth, max_array_size, num_at_once)
    position = {task.name: index for index, task in enumerate(tasks)}
    stages.sort(key=lambda batch: position[batch.tasks[0].name])
    return stages + _make_arrays("runs", [runs[key] for key in sorted(runs)], depth, max_array_size, num_at_once)


def _make_arrays(
    kind: str, groups: Sequence[Sequence[Task]], depth: Mapping[str, int], size: int, num_at_once: int
) -> list[Batch]:
    """Return arrays of at most `size` tasks that together run at most `num_at_once` jobs.

    Each array gets an equal share. If there are more arrays than slots, or if runs depend on other runs, later arrays wait
    for earlier ones to end.
    """
    arrays = [tuple(group[start : start + size]) for group in groups for start in range(0, len(group), size)]
    names = [f"{kind} {number} of {len(arrays)}" for number in range(1, len(arrays) + 1)]
    if sum(map(len, arrays)) <= num_at_once:
        return [Batch(name, array, len(array)) for name, array in zip(names, arrays, strict=True)]
    levels = [depth.get(array[0].name, 0) for array in arrays]
    # Each lane is a chain of arrays that run one after another, so at most one array of a lane is active.
    lanes = min(levels.count(levels[0]), num_at_once)
    # The first array of each lane waits for none, each later one for the array before it in its lane.
    predecessors = [*[""] * lanes, *names]
    return [
        Batch(name, array, num_at_once // lanes, predecessor)
        for name, array, predecessor in zip(names, arrays, predecessors, strict=False)
    ]


@dataclass
class Launch:
    """The state of one launch to Slurm."""

    profile: Profile
    sweep: str
    # item -> job id in the queue, including those of earlier launches
    job_ids: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, str] = field(default_factory=dict)  # batch name -> job id of its array
    submitted: dict[str, str] = field(default_factory=dict)  # item -> job id

    @property
    def folder(self) -> Path:
        """The folder of scripts, pickles and logs, shared by the whole sweep."""
        return get_sweeps_folder() / self.sweep / "jobs"

    def submit(self, batches: Sequence[Batch], progress: Progress, *, retry: bool = False) -> None:
        """Submit all batches. Raises ValueError with the reason for the first that Slurm refuses.

        With `retry`, failures of the submitted runs and stages are cleared. Those of a refused batch stay.
        """
        for batch in batches:
            # Everything that Slurm has accepted must be recorded.
            with delay_stops(), hide_enclosing_job():
                items = [task.item for task in batch.tasks] if retry else []
                failures = [(item, item.read(), item.is_cancelled) for item in items]
                # Before the submission, because a job may start at once.
                for item in items:
                    item.clear_failure()
                try:
                    jobs = self._submit(batch)
                except (FailedJobError, FailedSubmissionError) as error:
                    for item, state, was_cancelled in failures:
                        if state is not None and item.read() is None:
                            item.write(state)
                        if was_cancelled:
                            item.cancel()
                    lines = [line for line in str(error).splitlines() if "sbatch" in line or "error" in line.lower()]
                    reason = " ".join(lines) or error
                    raise ValueError(f"Slurm refused {batch.name}: {reason}; launch again for the rest") from error
            progress(f"submitted {batch.name}: job {', '.join(sorted({job.split('_')[0] for job in jobs}))}")

    def scripts(self, batches: Sequence[Batch]) -> Iterator[tuple[str, str]]:
        """Return the name of each batch and its exact script, with dependencies given by name."""
        for batch in batches:
            self._record_job(batch, f"JOB-OF-{batch.name.replace(' ', '-')}")
            writer: Any = self._make_executor(batch)._executor
            if len(batch.tasks) > 1:
                writer.parameters["map_count"] = len(batch.tasks)
            yield batch.name, writer._make_submission_file_text(writer._submitit_command_str, "dry-run")

    def _make_executor(self, batch: Batch) -> AutoExecutor:
        """Return an executor for one batch. A new one each time, because it keeps an earlier dependency."""
        python = self.profile.python or shlex.quote(sys.executable)
        executor = AutoExecutor(
            self.folder, cluster="slurm", slurm_max_num_timeout=MAX_REQUEUES_LIMIT, slurm_python=python
        )
        parameters = make_parameters(self.profile, batch, self.sweep)
        try:
            executor.update_parameters(**parameters, slurm_dependency=self._format_dependency(batch))
        except (NameError, TypeError, ValueError, AssertionError) as error:
            raise ValueError(f"profile {self.profile.name}: {error}") from error
        # submitit would set its own name as wckey, and AutoExecutor drops None.
        if "slurm_wckey" not in parameters:
            executor._executor.update_parameters(wckey=None)
        return executor

    def _submit(self, batch: Batch) -> list[str]:
        jobs = self._make_executor(batch).submit_array([SubmittedJob(task.job) for task in batch.tasks])
        locations = {
            task.name: {"job_id": job.job_id, "log": str(job.paths.stdout), "script": str(job.paths.submission_file)}
            for task, job in zip(batch.tasks, jobs, strict=True)
        }
        self.submitted |= {name: location["job_id"] for name, location in locations.items()}
        submission = make_submission(batch.tasks, locations, on="slurm", sweep=self.sweep)
        # Written immediately: if this launcher dies now, another one must not submit these jobs again.
        submission.write()
        self._record_job(batch, jobs[0].job_id.split("_")[0])
        return [job.job_id for job in jobs]

    def _record_job(self, batch: Batch, job_id: str) -> None:
        """Record the job id of a batch.

        Waiting for an array means waiting for all of its tasks, so for all shards of a stage.
        """
        self.arrays[batch.name] = job_id
        # A single task is submitted without an array, so its id has no suffix.
        has_one_id = batch.is_stage or len(batch.tasks) == 1
        for index, task in enumerate(batch.tasks):
            self.job_ids[task.name] = job_id if has_one_id else f"{job_id}_{index}"

    def _format_dependency(self, batch: Batch) -> str | None:
        stage_jobs = dict.fromkeys(self.job_ids[need] for need in batch.tasks[0].needs)
        earlier_jobs = dict.fromkeys(self.job_ids[owner] for task in batch.tasks for owner in task.after)
        if batch.after:
            earlier_jobs[self.arrays[batch.after]] = None
        conditions = []
        if stage_jobs:
            conditions.append(f"afterok:{':'.join(stage_jobs)}")
        if earlier_jobs:
            conditions.append(f"afterany:{':'.join(earlier_jobs)}")
        return ",".join(conditions) or None


def make_parameters(profile: Profile, batch: Batch, sweep: str) -> dict[str, Any]:
    """Return the submitit parameters of one batch: those of the profile, and what every job of ours needs."""
    given: dict[str, Any] = {"tasks_per_node": profile.num_processes, **profile.parameters}
    if batch.is_stage:
        # One process builds a stage, whatever a run uses.
        kind = batch.tasks[0].name.partition("/")[0]
        given |= {"nodes": 1, "tasks_per_node": 1, **profile.stage, **profile.kinds.get(kind, {})}
    # TOML has no null: an empty text or 0 removes an option that a table inherits.
    given = {name: value for name, value in given.items() if value is False or value not in ("", 0)}
    cpus = given.get("cpus_per_task")
    # If a site exports no environment to its jobs, srun would not pass on that of the script either. Since Slurm 22.05
    # srun no longer inherits the number of cores from sbatch. If one rank fails, the others would wait for it forever.
    srun = ["--export=ALL", "--kill-on-bad-exit=1", *([f"--cpus-per-task={cpus}"] if cpus else [])]
    additional = {"requeue": True, "kill-on-invalid-dep": "yes", "chdir": str(SOURCES)}
    return given | {
        "name": f"{sweep}-{'stage' if batch.is_stage else 'runs'}",
        "timeout_min": given.get("timeout_min", DEFAULT_MINUTES),
        "stderr_to_stdout": True,
        "slurm_array_parallelism": batch.num_at_once,
        "slurm_setup": [*_list_setup_lines(cpus), *given.get("slurm_setup", ())],
        "slurm_srun_args": [*srun, *given.get("slurm_srun_args", ())],
        "slurm_additional_parameters": additional | given.get("slurm_additional_parameters", {}),
    }


def _list_setup_lines(cpus: int | None) -> list[str]:
    lines = [
        f"export REPRO_HOME={shlex.quote(str(get_home()))}",
        # An empty entry would stand for the job's current folder.
        f"export PYTHONPATH={shlex.quote(str(SOURCES))}${{PYTHONPATH:+:$PYTHONPATH}}",
        # Ignore a folder named slurm in the job's start folder.
        "export PYTHONSAFEPATH=1",
        "export PYTHONUTF8=1",
    ]
    if "REPRO_DATA" in os.environ:
        lines.append(f"export REPRO_DATA={shlex.quote(str(get_data_folder()))}")
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    # jobs start in another folder
    passed |= {name: str(Path(passed[name]).expanduser().absolute()) for name in HUB_FOLDERS if passed.get(name)}
    lines += [f"export {name}={shlex.quote(value)}" for name, value in passed.items()]
    if cpus:
        lines.append("export " + " ".join(f"{name}={cpus}" for name in THREADS))
    return lines

"""Submit jobs to Slurm through submitit. Only this module imports it.

Stages go first, followed by the arrays of runs that need them. Each array waits for its stages (afterok). If another
run trains a model that it shares, the array waits for that run too (afterany).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from submitit import AutoExecutor, JobEnvironment
from submitit.core.utils import DelayedSubmission, FailedJobError, FailedSubmissionError
from submitit.slurm.slurm import SlurmExecutor

from repro.stopping import Stopped, delay_stops
from repro.storage.paths import SOURCES, get_data_folder, get_home, get_sweeps_folder
from slurm.batches import Batch
from slurm.job import Job, describe_interruptions
from slurm.nodes import lead_nodes, make_attempt_id
from slurm.profiles import Profile, check_lines
from slurm.ranks import THREADS, follow
from slurm.scheduler import explain_stop_signal, hide_enclosing_job
from slurm.signals import EXIT_INTERRUPTED, Stop, handle_stop_signals
from slurm.states import JobState
from slurm.sweep import make_submission

Progress = Callable[[str], None]
MAX_REQUEUES_LIMIT = 10**6
"""Requeue limit given to submitit. The job counts its own interruptions, because only it knows about its progress."""
HUB_FOLDERS = ("HF_HOME", "HF_HUB_CACHE")
PASSED_VARIABLES = (
    *("REPRO_DEAD_AFTER_SECONDS", "REPRO_SWITCHES", "REPRO_CHUNKS"),
    *(*HUB_FOLDERS, "HF_HUB_OFFLINE"),
)
"""Environment variables that jobs must share with the launcher, even if the site passes no environment to its jobs."""


@dataclass(frozen=True)
class SubmittedJob:
    """A job in the form that submitit pickles. It reports its location and requeues itself after an interruption."""

    job: Job

    def __call__(self) -> str:
        """Execute the job. If the time limit or preemption interrupts it, it writes a checkpoint and is requeued."""
        environment = JobEnvironment()
        paths = environment.paths
        stop = Stop()
        state = JobState(
            state="running", job_id=environment.job_id, log=str(paths.stdout), script=str(paths.submission_file)
        )
        # submitit's handler: checkpoint(), pickle, scontrol requeue, exit.
        requeue = signal.getsignal(signal.SIGUSR2)
        with handle_stop_signals(stop):
            try:
                return self._do(stop, state, environment.node)
            except Stopped as stopped:
                print(f"stopped: {stopped}", flush=True)
        if environment.node:
            # A nonzero exit status could end the first node while it writes the checkpoint.
            return "followed"
        if callable(requeue) and self._should_requeue(stop, environment.job_id):
            if "SLURM_JOB_ID" in os.environ and not shutil.which("scontrol"):
                # in a container, for example
                print("not requeued, because there is no scontrol here: launch again to resume", flush=True)
            else:
                requeue(signal.SIGUSR2, None)
        sys.exit(EXIT_INTERRUPTED)

    def _do(self, stop: Stop, state: JobState, node: int) -> str:
        """Execute the job. On nodes other than the first, execute the ranks of this node."""
        if self.job.num_nodes == 1:
            return self.job(stop, where=state)
        fields = asdict(self.job)
        if node == 0:
            with lead_nodes(fields, make_attempt_id(state.job_id)):
                return self.job(stop, where=state)
        with delay_stops():
            follow(fields, stop, state.job_id, node)
        return "followed"

    def checkpoint(self) -> DelayedSubmission:
        """Return the same job again. The training run resumes from its own checkpoint."""
        return DelayedSubmission(self)

    def _should_requeue(self, stop: Stop, job_id: str) -> bool:
        item = self.job.item
        last = item.read()
        if last is None or last.state != "interrupted":
            return False
        # Counted since the last progress, so a long run that is preempted often is never given up.
        if last.num_in_vain > self.job.max_requeues:
            reason = f"{describe_interruptions(last, self.job.max_requeues)}; {last.reason}"
            item.write(replace(last, state="failed", reason=reason))
            return False
        # After any other SIGTERM the job was cancelled, or is already requeued.
        return stop.signal_number == signal.SIGUSR2 or explain_stop_signal(job_id) == "preempted"


class ScriptWriter(SlurmExecutor):
    """Write the script that submitit would submit, even on machines without Slurm."""

    @classmethod
    def affinity(cls) -> int:
        """Return the affinity of a Slurm cluster. Without one, submitit would refuse to construct the executor."""
        return 2


@dataclass
class Launch:
    """The state of one launch to Slurm."""

    profile: Profile
    sweep: str
    # item -> job id in the queue, including those of earlier launches
    job_ids: dict[str, str] = field(default_factory=dict)
    cluster: str = "slurm"
    arrays: dict[str, str] = field(default_factory=dict)  # batch name -> job id of its array
    submitted: dict[str, str] = field(default_factory=dict)  # item -> job id

    @property
    def folder(self) -> Path:
        """The folder of scripts, pickles and logs, shared by the whole sweep."""
        return get_sweeps_folder() / self.sweep / "jobs"

    def submit(self, batches: Sequence[Batch], progress: Progress, *, retry: bool = False) -> None:
        """Submit all batches. Raises ValueError with the refused batch and a list of what was submitted before it.

        With `retry`, failures of the submitted runs and stages are cleared. Those of a refused batch stay.
        """
        enclosing_job = os.environ.get("SLURM_JOB_ID")
        for index, batch in enumerate(batches):
            # Everything that Slurm has accepted must be recorded.
            with delay_stops(), hide_enclosing_job() as num_hidden:
                # Before the submission, because a job may start at once.
                restores = [task.item.clear_failure() for task in batch.tasks] if retry else []
                try:
                    jobs = self._submit(batch)
                except BaseException as error:
                    if batch.tasks[0].name not in self.submitted:
                        for restore in restores:
                            restore()
                    if isinstance(error, FailedJobError | FailedSubmissionError):
                        raise ValueError(_describe_refusal(batches, index, error)) from error
                    raise
            if num_hidden and index == 0:
                progress(f"launched from inside job {enclosing_job}: its {num_hidden} variables are not passed on")
            progress(f"submitted {batch.name}: job {', '.join(sorted({job.split('_')[0] for job in jobs}))}")

    def scripts(self, batches: Sequence[Batch]) -> Iterator[tuple[str, str]]:
        """Return the name of each batch and its exact script, with dependencies given by name."""
        for batch in batches:
            self._record_job(batch, f"JOB-OF-{batch.name.replace(' ', '-')}")
            writer = ScriptWriter(
                self.folder, max_num_timeout=MAX_REQUEUES_LIMIT, python=make_python_command(self.profile)
            )
            # Dependencies hold the names of batches here, because nothing has a job id yet.
            slurm_parameters: dict[str, Any] = {"dependency": self._format_dependency(batch)}
            generic_parameters: dict[str, Any] = {}
            # AutoExecutor, which submits the jobs, divides parameters in the same way.
            for key, value in make_sbatch_parameters(self.profile, batch, self.sweep).items():
                if key.startswith("slurm_"):
                    slurm_parameters[key.removeprefix("slurm_")] = value
                elif value is not None:
                    generic_parameters[key] = value
            writer.update_parameters(**writer._convert_parameters(generic_parameters), **slurm_parameters)
            if len(batch.tasks) > 1:
                writer.parameters["map_count"] = len(batch.tasks)
            yield batch.name, writer._make_submission_file_text(writer._submitit_command_str, "dry-run")

    def _submit(self, batch: Batch) -> list[str]:
        slurm_options = {"slurm_max_num_timeout": MAX_REQUEUES_LIMIT, "slurm_python": make_python_command(self.profile)}
        executor = AutoExecutor(self.folder, cluster=self.cluster, **slurm_options)
        parameters = make_sbatch_parameters(self.profile, batch, self.sweep)
        executor.update_parameters(**parameters, slurm_dependency=self._format_dependency(batch))
        # submitit would set its own name as wckey, and AutoExecutor drops None.
        if not self.profile.wckey:
            executor._executor.update_parameters(wckey=None)
        jobs = executor.submit_array([SubmittedJob(task.job) for task in batch.tasks])
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


def make_sbatch_parameters(profile: Profile, batch: Batch, sweep: str) -> dict[str, Any]:
    """Return the submitit parameters of one batch. None selects the site's default."""
    cpus = profile.cpus_per_run
    gpus = profile.gpus_per_run
    gres = profile.gres or None
    memory_gb = profile.memory_gb
    minutes = profile.time_minutes
    partition = profile.partition
    if batch.is_stage:
        cpus = profile.stage_cpus or cpus
        gpus = profile.stage_gpus
        gres = _get_stage_gres(profile)
        memory_gb = profile.stage_memory_gb or memory_gb
        minutes = profile.stage_time_minutes or minutes
        partition = profile.stage_partition or partition
    chdir = profile.chdir or str(SOURCES)
    additional = {"requeue": True, "kill-on-invalid-dep": "yes", "chdir": chdir, **profile.sbatch}
    check_lines([sweep, str(get_home()), chdir], "sweep, REPRO_HOME or folder")
    for character in "%\\":
        if character in f"{get_home()}{sweep}":
            raise ValueError(f"REPRO_HOME={get_home()}, sweep {sweep}: logs of Slurm need paths without {character}")
    return {
        "name": f"{sweep}-{'stage' if batch.is_stage else 'runs'}",
        "timeout_min": minutes,
        "mem_gb": memory_gb,
        "cpus_per_task": cpus,
        "gpus_per_node": None if _names_gpus(gres) else gpus or None,
        "nodes": 1 if batch.is_stage else profile.num_nodes,
        "tasks_per_node": 1,
        "stderr_to_stdout": True,
        "slurm_partition": partition or None,
        "slurm_account": profile.account or None,
        "slurm_qos": profile.qos or None,
        "slurm_constraint": profile.constraint or None,
        "slurm_exclude": profile.exclude or None,
        "slurm_gres": gres,
        "slurm_wckey": profile.wckey or None,
        "slurm_signal_delay_s": profile.warning_seconds,
        "slurm_array_parallelism": batch.num_at_once,
        "slurm_setup": _list_setup_lines(profile, cpus),
        # If a site exports no environment to its jobs, srun would not pass on that of the script either. Since
        # Slurm 22.05 srun no longer inherits the number of cores from sbatch.
        "slurm_srun_args": ["--export=ALL", *([f"--cpus-per-task={cpus}"] if cpus else []), *profile.srun],
        "slurm_additional_parameters": additional,
    }


def _get_stage_gres(profile: Profile) -> str | None:
    """Return the request of a stage: that of a run with the number of GPUs of a stage. None if nothing is left."""
    parts = []
    for part in filter(None, profile.gres.split(",")):
        # "gpu:a100:8", or "gpu:a100" for one. "gpu:8" has no type.
        counted = re.fullmatch(r"(gpu(?::(?!\d+$)[^:,()]+)?)(:\d+)?", part)
        if not _names_gpus(part):
            parts.append(part)
        elif profile.stage_gpus:
            parts.append(f"{counted[1]}:{profile.stage_gpus}" if counted else part)
    return ",".join(parts) or None


def _names_gpus(gres: str | None) -> bool:
    """Return whether a request of --gres is, among others, for GPUs or parts of them."""
    return any(part.partition(":")[0] in ("gpu", "shard", "mps") for part in (gres or "").split(","))


def make_python_command(profile: Profile) -> str:
    """Return the shell words that start python in a job. $VARIABLES of the job are expanded."""
    command = [*profile.launcher, profile.python or sys.executable]
    return " ".join(_quote_expandable(word) for word in command)


def _quote_expandable(word: str) -> str:
    """Quote a word for the shell so that only $VARIABLE and ${VARIABLE} are expanded."""
    if "$" not in word:
        return shlex.quote(word)
    # Inside double quotes these characters are special. A dollar sign stays if it begins a variable.
    escaped = re.sub(r"""([\\"`]|\$(?![A-Za-z_{]))""", r"\\\1", word)
    return f'"{escaped}"'


def _list_setup_lines(profile: Profile, cpus: int | None) -> list[str]:
    lines = [f"module load {shlex.quote(module)}" for module in profile.modules]
    lines += [
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
    if profile.scratch:
        lines.append(f'export TMPDIR={_quote_expandable(profile.scratch)}; mkdir -p "$TMPDIR"')
    if cpus:
        lines.append("export " + " ".join(f"{name}={cpus}" for name in THREADS))
    return [*lines, *profile.setup]


def _describe_refusal(batches: Sequence[Batch], index: int, error: Exception) -> str:
    refused = batches[index]
    submitted = ", ".join(batch.name for batch in batches[:index]) or "nothing"
    not_submitted = ", ".join(task.name for batch in batches[index:] for task in batch.tasks)
    lines = [line for line in str(error).splitlines() if "sbatch" in line or "error" in line.lower()]
    reason = f"Slurm refused {refused.name}: {' '.join(lines) or error}. Submitted before it: {submitted}."
    return f"{reason} Not submitted: {not_submitted}. Fix the cause and launch again"

"""Local queue: run the jobs of a sweep on this machine, each in its own process, as many in parallel as fit.

Each run has a GPU, or its share of the cores. Children end with the queue. On Ctrl-C each child writes its checkpoint,
so that the same launch can resume later. Several queues over one folder share the work. A queue leaves a run to another
queue that is executing it, and checks again in case that owner dies. A run that shares a training run with a running
one occupies no slot until that has ended.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from repro.planning.cost import Work, count_operations, list_training_phases
from repro.planning.plan import make_plan
from repro.spec import run_from_fields
from repro.spec.identity import format_overrides
from repro.stopping import Stopped
from repro.storage.lease import EXIT_LOST, acquire, get_live_owner
from repro.storage.paths import get_local_records, get_sweeps_folder, import_environment, run_folder
from repro.storage.platform_info import NO_GPUS, count_usable_cores
from repro.text import count_noun, format_seconds
from slurm.profiles import Profile, check_processes_per_gpu
from slurm.ranks import THREADS
from slurm.signals import EXIT_INTERRUPTED, Stop, handle_stop_signals
from slurm.states import JobState
from slurm.sweep import Task, make_submission

GRACE_SECONDS = 90.0
"""Seconds that Ctrl-C waits for checkpoints before it kills the children."""

POLL_SECONDS = 1.0
"""Seconds between checks of the disk for the progress of other queues."""

CHILD_MODULE = "slurm.children"
"""The module that each child process runs."""

RESUMABLE_STATUSES = (EXIT_INTERRUPTED, EXIT_LOST)
"""Exit statuses of a child that another attempt may resume."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Slot:
    """One slot for a run: its GPU numbers (empty: CPU only) and its number of threads."""

    gpus: tuple[str, ...]
    num_threads: int

    def environment(self) -> dict[str, str]:
        """Return the environment variables that confine a child to its slot."""
        threads = str(self.num_threads)
        return {**dict.fromkeys(THREADS, threads), "CUDA_VISIBLE_DEVICES": ",".join(self.gpus)}


def list_visible_gpus() -> list[str]:
    """Return the numbers of the GPUs that this process may use, without importing torch."""
    # The build of torch for CPUs uses no GPU. Without torch, plans are made for all GPUs.
    with suppress(PackageNotFoundError):
        if version("torch").endswith("+cpu"):
            return []
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [gpu for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if gpu not in NO_GPUS]
    if shutil.which("nvidia-smi") is None:
        return []
    completed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False)
    return [str(index) for index, line in enumerate(completed.stdout.splitlines()) if line.startswith("GPU ")]


def count_gpus_per_run(profile: Profile, gpus: Sequence[str]) -> int:
    """Return the GPUs that this machine's queue gives each run: those of the profile, or one if there are any."""
    return profile.gpus_per_run or (1 if gpus else 0)


def make_slots(profile: Profile, *, gpus: Sequence[str], num_cores: int) -> list[Slot]:
    """Divide the GPUs and cores of a machine into slots.

    Raises ValueError if a run needs more GPUs than the machine has.
    """
    gpus_per_slot = count_gpus_per_run(profile, gpus)
    if gpus_per_slot > len(gpus):
        raise ValueError(f"profile {profile.name} gives each run {gpus_per_slot} GPUs, this machine shows {list(gpus)}")
    if gpus_per_slot:
        check_processes_per_gpu(profile.name, profile.num_processes, gpus_per_slot)
    if gpus_per_slot:
        max_slots = len(gpus) // gpus_per_slot
    else:
        cores_per_slot = profile.cpus_per_run or (1 if num_cores < 4 else 2)
        max_slots = max(1, num_cores // cores_per_slot)
    num_slots = min(max_slots, profile.num_at_once or max_slots)
    num_threads = profile.cpus_per_run or max(1, num_cores // num_slots)
    slots = []
    for index in range(num_slots):
        first_gpu = index * gpus_per_slot
        slots.append(Slot(tuple(gpus[first_gpu : first_gpu + gpus_per_slot]), num_threads))
    return slots


def make_local_slots(profile: Profile) -> list[Slot]:
    """Divide this machine into slots, as in `make_slots`."""
    return make_slots(profile, gpus=list_visible_gpus(), num_cores=count_usable_cores())


def advise_on_shared_gpus(slots: Sequence[Slot]) -> str:
    """Return how to make slots on the same GPU faster. Empty if none share one, or if CUDA's MPS already runs."""
    gpus = [gpu for slot in slots for gpu in slot.gpus]
    mps = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")) / "control"
    if len(gpus) == len(set(gpus)) or mps.exists():
        return ""
    return "runs that share a GPU take turns. After `nvidia-cuda-mps-control -d` they run at the same time"


@dataclass
class LocalQueue:
    """The jobs of one launch and the child processes that execute them."""

    tasks: list[Task]
    slots: list[Slot]
    folder: Path
    progress: Progress
    children: dict[str, tuple[subprocess.Popen[bytes], Slot]] = field(default_factory=dict)
    # item -> outcome: done, failed, cancelled or blocked
    ended: dict[str, str] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    # items that wait for the work of another process
    waiting_for: set[str] = field(default_factory=set)
    # running stages that were asked to stop
    stopping: set[str] = field(default_factory=set)
    # item -> number of log bytes already passed on
    logged_bytes: dict[str, int] = field(default_factory=dict)

    def run(self) -> dict[str, str]:
        """Work until every job has ended and return each outcome. Stopped is re-raised once the children have ended."""
        last_check = 0.0
        try:
            while len(self.ended) < len(self.tasks):
                if self._collect_ended() or time.monotonic() - last_check > POLL_SECONDS:
                    # The disk is read once per second, the children are polled twenty times per second.
                    last_check = time.monotonic()
                    self._pass_on_logs()
                    self._update_ended()
                    self._cancel_unneeded_stages()
                    self._fill_slots()
                time.sleep(0.05)
        finally:
            self._end_children()
        return self.ended

    def describe_stopped_children(self) -> str:
        """Describe how the children ended that were running when the queue was stopped."""
        if not self.children:
            return "no run was in progress; launch again to resume"
        num_resumable = sum(child.returncode in RESUMABLE_STATUSES for child, _ in self.children.values())
        jobs = count_noun(len(self.children), "running job")
        return f"{num_resumable} of {jobs} stopped in order, training with a checkpoint; launch again to resume"

    def get_log_path(self, task: Task) -> Path:
        """Return the log of a job: one file for all attempts."""
        return self.folder / "logs" / f"{task.name.replace('/', '-')}.log"

    def _collect_ended(self) -> bool:
        """Free the slots of children that have ended and return whether there were any."""
        running = [task for task in self.tasks if task.name in self.children]
        ended = [task for task in running if self.children[task.name][0].poll() is not None]
        # Pass on the last lines while the log still belongs to a child.
        if ended:
            self._pass_on_logs()
        for task in ended:
            child, slot = self.children.pop(task.name)
            self.slots.append(slot)
            if child.returncode != 0:
                self.progress(f"{task.name}: {_describe_exit(child.returncode)}")
            self._record_unexplained_failure(task, child.returncode)
        return bool(ended)

    def _pass_on_logs(self) -> None:
        """Pass on the complete lines that the children have added to their logs."""
        for task in self.tasks:
            if task.name not in self.children:
                continue
            with self.get_log_path(task).open("rb") as log:
                log.seek(self.logged_bytes[task.name])
                # An incomplete last line stays for the next time.
                lines, _, _ = log.read().rpartition(b"\n")
            if lines:
                # The line break that `rpartition` removed counts too.
                self.logged_bytes[task.name] += len(lines) + 1
                for line in lines.decode(errors="replace").splitlines():
                    self.progress(f"{task.name}: {line}")

    def _record_unexplained_failure(self, task: Task, status: int) -> None:
        """Record the failure of a child that could not report it, so that it is not restarted forever."""
        last = task.item.read() or JobState(state="done", log=str(self.get_log_path(task)))
        if last.state == "failed" or task.job.is_done:
            return
        # A killed child (negative status) may be the victim of a full memory, so it gets another attempt.
        may_retry = status in (0, *RESUMABLE_STATUSES) or status < 0
        if may_retry and self.attempts[task.name] <= task.job.max_requeues:
            return
        reason = f"{_describe_exit(status)}, attempt {self.attempts[task.name]}"
        # The state on disk, because other queues over this folder read it too.
        task.item.write(replace(last, state="failed", reason=reason, at=time.time()))

    def _update_ended(self) -> None:
        """Determine which jobs have ended, here or in another queue."""
        for task in self.tasks:
            if task.name in self.ended or task.name in self.children:
                continue
            last = task.item.read()
            if task.job.is_done:
                self._end(task, "done")
            elif task.item.is_cancelled:
                self._end(task, "cancelled")
            elif last is not None and last.state in ("failed", "cancelled"):
                self._end(task, last.state, last.reason)
            elif any(self.ended.get(need, "done") != "done" for need in task.needs):
                self._end(task, "blocked", f"needs {', '.join(task.needs)}")

    def _cancel_unneeded_stages(self) -> None:
        """Cancel the stages that no job needs any more because their runs were cancelled or are recorded.

        What a failed run needs is still built, so that a retry finds it.
        """
        needed: set[str] = set()
        # In reverse, because a stage comes before the jobs that need it.
        for task in reversed(self.tasks):
            outcome = self.ended.get(task.name)
            if outcome in ("done", "cancelled"):
                continue
            if task.item.kind == "run" or task.name in needed:
                needed.update(task.needs)
            elif outcome is None and task.name not in self.children:
                self._end(task, "cancelled", "no run needs it any more")
            elif outcome is None and task.name not in self.stopping:
                self.stopping.add(task.name)
                self.children[task.name][0].send_signal(signal.SIGTERM)

    def _end(self, task: Task, outcome: str, reason: str = "") -> None:
        self.ended[task.name] = outcome
        num_left = len(self.tasks) - len(self.ended)
        details = f" ({reason})" if reason else ""
        self.progress(f"{task.name}: {outcome}{details}; {count_noun(num_left, 'job')} left")

    def _fill_slots(self) -> None:
        if not self.slots:
            return
        # Training runs that a child executes now or later, each with the child's run.
        training_owners: dict[str, str] = {}
        for task in self.tasks:
            if task.name in self.children:
                training_owners |= dict.fromkeys(task.list_missing_trainings(), task.name)
        for task in self.tasks:
            if not self.slots:
                return
            if task.name in self.ended or task.name in self.children or not self._is_ready(task, training_owners):
                continue
            self._start(task, self.slots.pop(0))
            training_owners |= dict.fromkeys(task.list_missing_trainings(), task.name)

    def _is_ready(self, task: Task, training_owners: Mapping[str, str]) -> bool:
        if any(self.ended.get(need) != "done" for need in task.needs):
            return False
        reason = _explain_wait(task, training_owners)
        if not reason:
            self.waiting_for.discard(task.name)
            return True
        if task.name not in self.waiting_for:
            self.waiting_for.add(task.name)
            self.progress(f"{task.name}: {reason}")
        return False

    def _start(self, task: Task, slot: Slot) -> None:
        log = self.get_log_path(task)
        log.parent.mkdir(parents=True, exist_ok=True)
        job_file = self.folder / "jobs" / f"{os.getpid()}-{task.name.replace('/', '-')}.json"
        job_file.parent.mkdir(parents=True, exist_ok=True)
        state = JobState(state="running", log=str(log), script=str(job_file))
        job_file.write_text(json.dumps({"job": asdict(task.job), "where": asdict(state), "parent": os.getpid()}))
        with log.open("ab") as output:
            # Lines of earlier attempts have been passed on already.
            log_position = output.tell()
            child = subprocess.Popen(
                [sys.executable, "-u", "-m", CHILD_MODULE, str(job_file)],
                env=os.environ | slot.environment() | import_environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches the queue alone, which then signals the children.
                start_new_session=True,
            )
        self.children[task.name] = (child, slot)
        self.attempts[task.name] += 1
        self.logged_bytes[task.name] = log_position
        device = f" on GPU {','.join(slot.gpus)}" if slot.gpus else ""
        overrides = f" ({format_overrides(run_from_fields(task.job.run))})" if task.item.kind == "run" else ""
        self.progress(f"{task.name}: started{device}{overrides}, threads: {slot.num_threads}, log {log}")

    def _end_children(self) -> None:
        """Request a checkpoint from each child. Kill slow children, or all of them on a second Ctrl-C."""
        # Signal all children before waiting for one, so that they write their checkpoints in parallel.
        for child, _ in self.children.values():
            child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        try:
            for child, _ in self.children.values():
                child.wait(max(0.1, deadline - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt, Stopped):
            for child, _ in self.children.values():
                child.kill()
                child.wait()
        self._pass_on_logs()


def sort_longest_first(tasks: Sequence[Task]) -> list[Task]:
    """Return the stages in their order, then the runs from longest to shortest, so that no long run remains at the end.

    Run length is estimated by the number of operations of all training phases. Runs of unknown length come first.
    """
    runs = [task for task in tasks if task.item.kind == "run"]
    stages = [task for task in tasks if task.item.kind != "run"]
    work = {}
    for task in runs:
        phases = list_training_phases(run_from_fields(task.job.run))
        work[task.name] = sum(map(count_operations, phases), Work())
    # False sorts before True, so runs of unknown length come first.
    return [*stages, *sorted(runs, key=lambda task: (work[task.name].is_known, -work[task.name].flops))]


def _explain_wait(task: Task, training_owners: Mapping[str, str]) -> str:
    """Return why a job cannot start yet, or "" if it can.

    Another process may be executing it or a training run it needs.
    """
    if owner := get_live_owner(task.item.lease_folder):
        return f"already in progress: {owner}"
    for training in task.list_missing_trainings():
        if training in training_owners:
            return f"waits for {training_owners[training]}, which executes training run {training} for both"
        if owner := get_live_owner(run_folder(training) / "training"):
            return f"waits for {owner}, which executes its training run {training}"
    return ""


def _describe_expected_time(tasks: Sequence[Task], slots: Sequence[Slot]) -> str:
    """Return the time that all runs are expected to take, or "" if it is unknown for one of them."""
    runs = [run_from_fields(task.job.run) for task in tasks if task.item.kind == "run"]
    if not runs:
        return ""
    plan = make_plan(runs, [get_local_records()], num_gpus=len(slots[0].gpus), num_at_once=len(slots))
    if plan.totals["num_unknown"]:
        return ""
    stages = f", after {count_noun(len(plan.stages), 'stage')}" if plan.stages else ""
    return f"expected time: {format_seconds(3600 * plan.totals['hours'])}, {len(slots)} in parallel{stages}"


def _describe_exit(status: int) -> str:
    if status < 0:
        return f"its process was killed ({signal.Signals(-status).name})"
    descriptions = {
        0: "its process has ended",
        EXIT_INTERRUPTED: "stopped",
        EXIT_LOST: "taken over by another",
    }
    return descriptions.get(status, f"its process ended with status {status}")


def run_locally(tasks: Sequence[Task], slots: list[Slot], *, sweep: str, progress: Progress) -> dict[str, str]:
    """Run these jobs on this machine and return the outcome of each item."""
    folder = get_sweeps_folder() / sweep
    queue = LocalQueue(sort_longest_first(tasks), slots, folder, progress)
    queue_folder = folder / "queues" / f"{time.time():.3f}-{os.getpid()}"
    lease = acquire(queue_folder)
    assert lease is not None, "a queue's folder has its own name"
    with lease, handle_stop_signals(Stop()):
        # The submission names the lease of this queue. `status` sees by it whether the queue is alive.
        jobs = {task.name: {"log": str(queue.get_log_path(task))} for task in tasks}
        submission = make_submission(tasks, jobs, on="local", sweep=sweep, queue=str(queue_folder))
        submission.write()
        for line in filter(None, (_describe_expected_time(tasks, slots), advise_on_shared_gpus(slots))):
            progress(line)
        try:
            outcomes = queue.run()
        except Stopped as stopped:
            raise stopped.add_advice(queue.describe_stopped_children()) from stopped
        progress(_summarize([outcomes[task.name] for task in tasks if task.item.kind == "run"]))
        return outcomes


def _summarize(outcomes: Sequence[str]) -> str:
    """Return the last line of a launch: how many runs are recorded, and what happened to the others."""
    counts = Counter(outcomes)
    num_recorded = counts.pop("done", 0)
    line = f"{num_recorded} of {count_noun(len(outcomes), 'run')} recorded"
    if not counts:
        return line
    others = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return f"{line}, {others}; `repro status` names the reasons, `launch` with --retry resumes them"

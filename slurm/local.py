"""Local queue: run the jobs of a sweep on this machine, each in processes of its own, as many in parallel as fit.

Each run has its GPUs, one process per GPU, or its share of the cores. Children end with the queue. On Ctrl-C each child
writes its checkpoint, so that the same launch can resume later.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import SimpleQueue

from repro.spec.identity import format_overrides
from repro.stopping import Stopped
from repro.storage.lease import EXIT_LOST, acquire, get_live_owner
from repro.storage.paths import get_sweeps_folder, import_environment, run_folder
from repro.storage.platform_info import NO_GPUS, count_usable_cores
from repro.text import count_noun
from slurm.job import JobState
from slurm.profiles import Profile
from slurm.ranks import THREADS, describe_rank
from slurm.signals import EXIT_INTERRUPTED, Stop, handle_stop_signals
from slurm.sweep import Task, make_submission

GRACE_SECONDS = 90.0
"""Seconds that Ctrl-C waits for checkpoints before it kills the children."""
SECONDS_TO_END = 30.0
"""Seconds that the processes of a run may take to end once one of them has failed."""
POLL_SECONDS = 1.0
"""Seconds between checks of the disk for the progress of other queues."""
CHILD_MODULE = "slurm.job"
"""The module that each child process runs."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Slot:
    """One slot for a run: its GPU numbers (empty: CPU only) and the threads of each of its processes."""

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
    """Divide the GPUs and cores of a machine into slots. Raises ValueError if a run needs more GPUs than there are."""
    num_gpus = count_gpus_per_run(profile, gpus)
    if num_gpus > len(gpus) or 0 < num_gpus < profile.num_processes:
        needed = f"{profile.num_processes} processes of each run on {num_gpus} GPUs"
        raise ValueError(f"profile {profile.name} puts {needed}, this machine shows {list(gpus)}")
    cores_per_run = (profile.cpus_per_process or 0) * profile.num_processes or (1 if num_cores < 4 else 2)
    max_slots = len(gpus) // num_gpus if num_gpus else max(1, num_cores // cores_per_run)
    num_slots = min(max_slots, profile.num_at_once or max_slots)
    num_threads = profile.cpus_per_process or max(1, num_cores // num_slots // profile.num_processes)
    return [Slot(tuple(gpus[index * num_gpus : (index + 1) * num_gpus]), num_threads) for index in range(num_slots)]


class LocalQueue:
    """The jobs of one launch, and the child processes that execute them: one thread per slot follows them."""

    def __init__(self, tasks: Sequence[Task], profile: Profile, *, sweep: str, progress: Progress) -> None:
        """Divide this machine into slots, and record the submission, so that no other launch starts the same jobs."""
        self.tasks, self.print_line = tasks, progress
        self.slots = make_slots(profile, gpus=list_visible_gpus(), num_cores=count_usable_cores())
        self.folder = get_sweeps_folder() / sweep
        self.children: dict[str, list[subprocess.Popen[bytes]]] = {}
        self.ended: dict[str, str] = {}  # item -> outcome: done, failed, unneeded or blocked
        self.is_stopping = False
        self.lock = threading.Lock()
        lease_folder = self.folder / "queues" / f"{time.time():.3f}-{os.getpid()}"
        lease = acquire(lease_folder)
        assert lease is not None, "a queue's folder has its own name"
        self.lease = lease
        # The submission names this lease. `status` sees by it whether the queue is alive.
        jobs = {task.name: {"log": str(self.get_log_path(task))} for task in tasks}
        make_submission(tasks, jobs, on="local", sweep=sweep, queue=str(lease_folder)).write()

    def progress(self, line: str) -> None:
        """Print a line. The threads of several jobs print whole lines."""
        with self.lock:
            self.print_line(line)

    def run(self) -> dict[str, str]:
        """Work until every job has ended and return each outcome. Stopped is re-raised once the children have ended."""
        with self.lease, handle_stop_signals(Stop()):
            try:
                self._work_off()
            except Stopped as stopped:
                raise stopped.add_advice("launch again to resume") from stopped
        counts = Counter(self.ended[task.name] for task in self.tasks if not task.item.is_stage)
        others = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if outcome != "done")
        advice = f", {others}; `repro status` names the reasons, `launch` with --retry resumes them" if others else ""
        self.progress(f"{counts['done']} of {count_noun(counts.total(), 'run')} recorded{advice}")
        return self.ended

    def _work_off(self) -> None:
        free: SimpleQueue[Slot] = SimpleQueue()
        for slot in self.slots:
            free.put(slot)
        running: dict[Future[None], str] = {}
        with ThreadPoolExecutor(len(self.slots)) as pool:
            try:
                while True:
                    for task in self.tasks:
                        if task.name in self.ended or task.name in running.values() or self._has_ended(task):
                            continue
                        if len(running) < len(self.slots) and self._is_ready(task):
                            running[pool.submit(self._work, task, free)] = task.name
                    if len(self.ended) == len(self.tasks):
                        return
                    finished, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                    for future in finished:
                        del running[future]
                        future.result()
                    if not running:
                        time.sleep(POLL_SECONDS / 10)
            finally:
                self._end_children()

    def get_log_path(self, task: Task) -> Path:
        """Return the log of a job: one file for all attempts and processes."""
        return self.folder / "logs" / f"{task.name.replace('/', '-')}.log"

    def _has_ended(self, task: Task) -> bool:
        """Return whether a job has ended, or cannot or need not start any more."""
        last = task.item.read()
        if task.job.is_done:
            return self._end(task, "done")
        if task.item.is_cancelled:
            return self._end(task, "failed", "it was cancelled")
        if last is not None and last.state == "failed":
            return self._end(task, "failed", last.reason)
        if any(self.ended.get(need, "done") != "done" for need in task.needs):
            return self._end(task, "blocked", f"needs {', '.join(task.needs)}")
        waiting = [other for other in self.tasks if other.name not in self.ended]
        if task.item.is_stage and not any(task.name in other.needs for other in waiting):
            return self._end(task, "unneeded")
        return False

    def _end(self, task: Task, outcome: str, reason: str = "") -> bool:
        self.ended[task.name] = outcome
        num_left = len(self.tasks) - len(self.ended)
        details = f" ({reason})" if reason else ""
        self.progress(f"{task.name}: {outcome}{details}; {count_noun(num_left, 'job')} left")
        return True

    def _is_ready(self, task: Task) -> bool:
        """Return whether a job can start now. If it has to wait for others, it occupies no slot."""
        waiting = {other.name for other in self.tasks if other.name not in self.ended}
        # The runs in `after` execute a training run that it shares.
        if not waiting.isdisjoint((*task.needs, *task.after)):
            return False
        trainings = [run_folder(training) / "training" for training in task.list_missing_trainings()]
        return not any(map(get_live_owner, [task.item.lease_folder, *trainings]))

    def _work(self, task: Task, free: SimpleQueue[Slot]) -> None:
        """Execute a job once, and record a failure that its processes could not report."""
        slot, before = free.get(), task.item.read()
        try:
            status = self._follow_children(task, slot)
        finally:
            free.put(slot)
        if status:
            self.progress(f"{task.name}: {_describe_exit(status)}")
        last = task.item.read() or JobState(state="done", log=str(self.get_log_path(task)))
        if last.state == "failed" or self.is_stopping or task.job.is_done:
            return
        # A killed child (negative status) may be the victim of a full memory. The job itself counts its interruptions,
        # but only if it has begun: otherwise the child would be started and killed forever.
        was_counted = status < 0 and task.item.read() != before
        if not was_counted and status not in (EXIT_INTERRUPTED, EXIT_LOST):
            task.item.write(replace(last, state="failed", reason=_describe_exit(status)))

    def _follow_children(self, task: Task, slot: Slot) -> int:
        """Execute a job in its processes, and return the first nonzero exit status. Passes on the lines of their log."""
        log = self.get_log_path(task)
        job_file = log.with_suffix(f".{os.getpid()}.json")
        log.parent.mkdir(parents=True, exist_ok=True)
        where = JobState(state="running", log=str(log), script=str(job_file))
        job_file.write_text(json.dumps({"job": asdict(task.job), "where": asdict(where), "parent": os.getpid()}))
        device = f" on GPU {','.join(slot.gpus)}" if slot.gpus else ""
        overrides = f" ({format_overrides(task.run)})" if not task.item.is_stage else ""
        self.progress(f"{task.name}: started{device}{overrides}, threads: {slot.num_threads}, log {log}")
        num = task.job.num_processes
        with tempfile.TemporaryDirectory(prefix="repro-ranks-") as private_folder, log.open("ab") as output:
            # Lines of earlier attempts have been passed on already.
            position = output.tell()
            children = self.children[task.name] = []
            for rank in range(num):
                ranks = describe_rank(rank, num, 1, f"file://{private_folder}/store") if num > 1 else {}
                child = subprocess.Popen(
                    [sys.executable, "-u", "-m", CHILD_MODULE, str(job_file)],
                    env=os.environ | slot.environment() | import_environment() | ranks,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C reaches the queue alone, which then signals the children.
                    start_new_session=True,
                )
                children.append(child)
                if self.is_stopping:
                    child.terminate()
            deadline = float("inf")
            while any(child.poll() is None for child in children):
                position = self._pass_on_log(task, position)
                # The others would wait forever for a process that failed.
                if any(child.returncode for child in children):
                    deadline = min(deadline, time.monotonic() + SECONDS_TO_END)
                if time.monotonic() > deadline:
                    for child in children:
                        child.kill()
                time.sleep(0.05)
        self._pass_on_log(task, position)
        if not self.is_stopping:
            del self.children[task.name]
        return next((child.returncode for child in children if child.returncode), 0)

    def _pass_on_log(self, task: Task, position: int) -> int:
        """Pass on the complete lines of a log after a position, and return the new one."""
        with self.get_log_path(task).open("rb") as log:
            log.seek(position)
            # An incomplete last line stays for the next time.
            lines, newline, _ = log.read().rpartition(b"\n")
        for line in lines.decode(errors="replace").splitlines():
            self.progress(f"{task.name}: {line}")
        return position + len(lines) + len(newline)

    def _end_children(self) -> None:
        """Request a checkpoint from each child. Kill slow children, or all of them on a second Ctrl-C."""
        self.is_stopping = True
        children = [child for group in self.children.values() for child in group]
        # Signal all children before waiting for one, so that they write their checkpoints in parallel.
        for child in children:
            child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        try:
            while any(child.poll() is None for child in children) and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            for child in children:
                child.kill()


def _describe_exit(status: int) -> str:
    if status < 0:
        return f"its process was killed ({signal.Signals(-status).name})"
    descriptions = {
        0: "its process has ended without a result",
        EXIT_INTERRUPTED: "stopped",
        EXIT_LOST: "taken over by another",
    }
    return descriptions.get(status, f"its process ended with status {status}")

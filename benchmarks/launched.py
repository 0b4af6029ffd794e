"""Launch all stages and a training run of a generated corpus on the development cluster, with three kills.

    eval "$(slurm/dev-cluster.sh up)"
    python -m benchmarks.launched --num-pairs 200000 --keep FOLDER --write benchmarks/launched.json

1. Import the corpus.
2. Launch Slurm jobs for selection, tokens, embeddings (word vectors) and keys, the last three as arrays of shards, then
   for clusters, and for twenty steps of the contextual model on two nodes with their evaluation.
3. Meanwhile kill a shard of the tokens, then the clusters, then the training run halfway (SIGKILL). If Slurm's queue is
   empty, the same command is repeated.

After an interruption of the benchmark or the machine, start the cluster and repeat the command with the same folder. It
resumes. The record has the seconds, the number of starts and the peak memory of the largest process of each job
(ru_maxrss, including mapped pages). The peak of a killed process is read before the kill. `--num-at-once 1` needs the
least memory and the fewest cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.generated_pairs import NAME, NUM_STEPS, make_generated_run, write_in_child
from benchmarks.harness import describe_machine, make_parser, measure_process
from slurm.signals import request_parent_death_signal

PROFILE = "launched-bench"
POLL_SECONDS, MAX_SECONDS_TO_END = 2.0, 600.0


def main() -> None:
    """Execute all steps and write the rows to the record."""
    parser = make_parser(__doc__, num_pairs=200_000, cluster_size=4096, num_shards=4, num_nodes=2, num_at_once=2)
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path("/tmp/launched"),
        help="folder of all files, of which only the source is removed",
    )
    options = parser.parse_args()
    set_up(options)
    import_row = measure_import(options)
    run = make_generated_run(options.cluster_size)
    (options.keep / "runs.json").write_text(json.dumps([asdict(run)]))
    kill_three_times(run, options)
    launch_until_recorded(run, options)
    result = summarise_launch(run, options) | {"rows": [import_row, *list_job_rows(run)]}
    print(json.dumps({name: value for name, value in result.items() if name != "rows"}, indent=1))
    if options.write:
        write_result(result, options.write)


def set_up(options: argparse.Namespace) -> None:
    """Create the folder and the profile, and point the environment of this process and its children to them."""
    options.keep.mkdir(parents=True, exist_ok=True)
    count_session(options)
    profiles = options.keep / "profiles.toml"
    profiles.write_text(
        f'[{PROFILE}]\nextends = "dev-cluster"\ntime_minutes = 1440\nmemory_gb = 0.5\n'
        f"num_at_once = {options.num_at_once}\nnum_shards = {options.num_shards}\nnum_nodes = {options.num_nodes}\n"
        'setup = ["export GLOO_SOCKET_IFNAME=lo"]\n'
    )
    os.environ |= {"REPRO_HOME": str(options.keep / f"home-{options.num_pairs}"), "REPRO_PROFILES": str(profiles)}
    if subprocess.run(["scontrol", "ping"], capture_output=True, check=False).returncode:
        raise SystemExit('Slurm does not respond; eval "$(slurm/dev-cluster.sh up)" starts one')


def count_session(options: argparse.Namespace) -> None:
    """Add one to the number of sessions that this result has needed."""
    note = get_note_path(options, "sittings")
    note.write_text(json.dumps(1 + (json.loads(note.read_text()) if note.is_file() else 0)))


def make_source_path(options: argparse.Namespace) -> Path:
    """Return the path of the generated file."""
    return options.keep / f"pairs-{options.num_pairs}.parquet"


def measure_import(options: argparse.Namespace) -> dict[str, Any]:
    """Write and import a file if necessary, and return the row.

    An import without a note was interrupted, or its time is unknown, so it is repeated.
    """
    from repro.storage.paths import get_corpora_folder, is_imported

    note = get_note_path(options, "import")
    if note.is_file() and is_imported(NAME):
        return dict(json.loads(note.read_text()))
    shutil.rmtree(get_corpora_folder() / NAME, ignore_errors=True)
    if not make_source_path(options).is_file():
        write_in_child(make_source_path(options), options.num_pairs)
    command = [sys.executable, "-m", "repro", "data", "import", str(make_source_path(options)), "--name", NAME]
    # preexec_fn: the import must not outlive an interrupted benchmark.
    cost = measure_process(command, preexec_fn=partial(request_parent_death_signal, signal.SIGTERM))
    if cost.exit_code:
        raise SystemExit(f"the import ended with exit code {cost.exit_code}")
    note.write_text(json.dumps(make_row("import", cost.seconds, cost.peak_bytes, 1)))
    make_source_path(options).unlink()
    return dict(json.loads(note.read_text()))


def get_note_path(options: argparse.Namespace, name: str) -> Path:
    """Return the path of a note, from which the benchmark resumes after an interruption."""
    return options.keep / f"{name}-{options.num_pairs}.json"


def launch(options: argparse.Namespace) -> None:
    """Execute the launch command."""
    command = [sys.executable, "-m", "repro", "launch", str(options.keep / "runs.json"), "--scale", "desk"]
    subprocess.run([*command, "--profile", PROFILE], check=True)


def kill_three_times(run: Any, options: argparse.Namespace) -> None:
    """Launch, kill each of three targets once it is in progress, and note the kills."""
    from repro.pipeline.stages import StageGraph
    from repro.spec.identity import get_training_id
    from repro.storage.paths import run_folder
    from repro.storage.shards import list_shards
    from slurm.states import get_run_item, get_stage_item

    graph = StageGraph(run)
    first_shards = [get_stage_item(shard) for shard in list_shards(graph.tokens, options.num_shards)]
    log, note = run_folder(get_training_id(run)) / "metrics.jsonl", get_note_path(options, "killed")
    killed = json.loads(note.read_text()) if note.is_file() else []

    def is_half_trained() -> bool:
        return log.is_file() and len(log.read_text().splitlines()) >= NUM_STEPS // 2

    targets: list[tuple[list[Any], Callable[[], bool]]] = [
        (first_shards[1:], lambda: True),
        ([get_stage_item(graph.clusters)], lambda: True),
        ([get_run_item(run)], is_half_trained),
    ]
    for items, is_due in targets[len(killed) :]:
        kill = kill_one(items, is_due, run, options)
        if kill is not None:
            print(f"killed: {kill}", flush=True)
            killed.append(kill)
            note.write_text(json.dumps(killed))


def kill_one(
    items: list[Any], is_due: Callable[[], bool], run: Any, options: argparse.Namespace
) -> dict[str, Any] | None:
    """Wait until one of the items is in progress and due, then kill it. Return None if the run ends before that."""
    from repro.storage.lease import get_live_owner

    for _ in poll_until_recorded(run, options):
        for item in items:
            owner = get_live_owner(item.lease_folder)
            if owner is not None and is_due():
                time.sleep(1.0)  # let it start its work
                peak = read_peak_memory(owner.pid)
                os.kill(owner.pid, signal.SIGKILL)
                return {"item": item.name, "peak_mebibytes": peak}
    return None


def poll_until_recorded(run: Any, options: argparse.Namespace) -> Iterator[Any]:
    """Yield the run's status every two seconds until it is recorded. Relaunch whenever the queue is empty."""
    from slurm.scheduler import fetch_queue
    from slurm.status import get_statuses

    while (status := get_statuses([run])[0]).state != "recorded":
        yield status
        if not fetch_queue():
            launch(options)
        time.sleep(POLL_SECONDS)


def read_peak_memory(pid: int) -> int | None:
    """Return the peak memory of a process in MiB, or None if it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), None)


def launch_until_recorded(run: Any, options: argparse.Namespace) -> None:
    """Wait for the record. Exit with the reason of a failure."""
    from slurm.status import explain_run

    for status in poll_until_recorded(run, options):
        if status.state in ("failed", "cancelled"):
            raise SystemExit(json.dumps(explain_run(run), indent=1, default=str))


def list_job_rows(run: Any) -> Iterator[dict[str, Any]]:
    """Yield a row for every stage, shard and run, in order of their start."""
    from repro.pipeline.stages import list_stages
    from repro.storage.lease import list_owners
    from slurm.states import get_run_item, get_stage_item
    from slurm.status import find_stage_item

    items = [get_run_item(run)]
    for stage in list_stages(run):
        shards = sorted(stage.path.with_name(f"{stage.path.name}.shards").glob("*.building"))
        items += [find_stage_item(f"{stage.title}.shards/{path.stem}") for path in shards]
        items.append(get_stage_item(stage))
    histories = [(list_owners(item.lease_folder), item) for item in items]
    begun = [(history, item) for history, item in histories if history]
    for history, item in sorted(begun, key=lambda entry: entry[0][0].since):
        last = await_end(item)
        if last is None:  # the import built the corpus
            continue
        assert last.state == "done", f"{item.name} is {last}"
        yield make_row(item.name, last.at - history[-1].since, last.peak_bytes, len(history))


def await_end(item: Any) -> Any:
    """Return the last state of a job once it has ended, or None if it never started."""
    deadline = time.monotonic() + MAX_SECONDS_TO_END
    while (last := item.read()) is not None and last.state == "running" and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return last


def make_row(item: str, seconds: float, peak_bytes: int, times_begun: int) -> dict[str, Any]:
    """Return one row of the record, with the seconds of the last start."""
    peak = round(peak_bytes / 2**20)
    return {"item": item, "seconds": round(seconds, 1), "peak_mebibytes": peak, "times_begun": times_begun}


def summarise_launch(run: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings, the kills and the outcome. Raises AssertionError if a step is missing or repeated."""
    from repro.records.store import read_record
    from repro.spec.identity import get_training_id, run_id
    from repro.storage.paths import get_local_records, run_folder
    from repro.train.checkpoint import read_metrics

    steps = [line["step"] for line in read_metrics(run_folder(get_training_id(run)))]
    assert steps == list(range(1, NUM_STEPS + 1)), f"steps {steps}"
    record = read_record(get_local_records() / f"{run_id(run)}.json")
    settings = {name: getattr(options, name) for name in ("num_pairs", "cluster_size", "num_shards", "num_nodes")}
    training = record.provenance["training"]
    return settings | {
        "num_sittings": json.loads(get_note_path(options, "sittings").read_text()),
        "num_pairs_trained_on": training["num_pairs"],
        "killed": json.loads(get_note_path(options, "killed").read_text()),
        "ndcg_at_10": record.metrics[f"{NAME}/mean/ndcg_at_10"],
        "train_loss": record.metrics["train/loss"],
        **describe_machine(),
    }


def write_result(result: dict[str, Any], path: Path) -> None:
    """Write the result to a record, in place of one with the same number of pairs."""
    old_results = json.loads(path.read_text())["results"] if path.is_file() else []
    others = [other for other in old_results if other["num_pairs"] != result["num_pairs"]]
    results = sorted([*others, result], key=lambda row: row["num_pairs"])
    path.write_text(json.dumps({"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

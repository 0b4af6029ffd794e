"""Send a generated corpus through `repro launch` on the development cluster, with three kills on the way.

    eval "$(slurm/dev-cluster.sh up)"
    python -m benchmarks.launched --num-pairs 200000 --keep FOLDER --write benchmarks/launched.json

First the import. Then Slurm jobs for selection, tokens, embeddings (word vectors) and keys, the last three as arrays of
shards. Then clusters, twenty training steps of the contextual model on two nodes, and its evaluation. SIGKILL ends a
shard of the tokens, then the clusters, then the training run halfway. Whenever Slurm's queue is empty, the same command
is repeated. After an interruption of this script or the machine it resumes: start the cluster again, and repeat the
command with the same folder. The record has the peak memory of the largest process of each job (ru_maxrss, including
mapped pages), its seconds, and its number of starts. The peak of a killed process is read before the kill. Running one
job at a time needs the least memory and the fewest cores: `--num-at-once 1`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.generated_pairs import write_generated_apart
from slurm.signals import request_parent_death_signal

NAME, PROFILE, NUM_STEPS = "generated", "launched-bench", 20
LOOK_EVERY_SECONDS, ENDING_SECONDS = 2.0, 600.0


def main() -> None:
    """Execute all steps and write the rows to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-pairs", type=int, default=200_000)
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path("/tmp/launched"),
        help="where all goes; only the generated file is removed, once it is imported",
    )
    parser.add_argument("--cluster-size", type=int, default=4096)
    parser.add_argument("--num-shards", type=int, default=4)
    parser.add_argument("--num-nodes", type=int, default=2, help="of the training")
    parser.add_argument("--num-at-once", type=int, default=2, help="jobs at one time")
    parser.add_argument("--write", type=Path, help="the record to put the rows into")
    asked = parser.parse_args()
    set_up(asked)
    import_row = measure_import(asked)
    run = run_of(asked)
    (asked.keep / "runs.json").write_text(json.dumps([asdict(run)]))
    kill_three_times(run, asked)
    launch_until_recorded(run, asked)
    told = summarise_launch(run, asked) | {"rows": [import_row, *list_job_rows(run)]}
    print(json.dumps({name: value for name, value in told.items() if name != "rows"}, indent=1))
    if asked.write:
        keep(told, asked.write)


def set_up(asked: argparse.Namespace) -> None:
    """Create the folder and the profile, and make them visible to this process and its children."""
    asked.keep.mkdir(parents=True, exist_ok=True)
    note_sitting(asked)
    profiles = asked.keep / "profiles.toml"
    profiles.write_text(
        f'[{PROFILE}]\nextends = "dev-cluster"\ntime_minutes = 1440\nmemory_gb = 0.5\n'
        f"num_at_once = {asked.num_at_once}\nnum_shards = {asked.num_shards}\nnum_nodes = {asked.num_nodes}\n"
        'setup = ["export GLOO_SOCKET_IFNAME=lo"]\n'
    )
    os.environ |= {"REPRO_HOME": str(asked.keep / f"home-{asked.num_pairs}"), "REPRO_PROFILES": str(profiles)}
    if subprocess.run(["scontrol", "ping"], capture_output=True, check=False).returncode:
        raise SystemExit('Slurm does not answer; eval "$(slurm/dev-cluster.sh up)" starts one')


def note_sitting(asked: argparse.Namespace) -> None:
    """Record another start."""
    note = get_note_path(asked, "sittings")
    note.write_text(json.dumps(1 + (json.loads(note.read_text()) if note.is_file() else 0)))


def source_of(asked: argparse.Namespace) -> Path:
    """Return the path of the generated file."""
    return asked.keep / f"pairs-{asked.num_pairs}.parquet"


def measure_import(asked: argparse.Namespace) -> dict[str, Any]:
    """Write and import a file unless that is done, and return the row. An unrecorded import is repeated."""
    from repro.data.own.imported import is_imported
    from repro.storage.paths import get_corpora_folder

    note = get_note_path(asked, "import")
    if note.is_file() and is_imported(NAME):
        return dict(json.loads(note.read_text()))
    shutil.rmtree(get_corpora_folder() / NAME, ignore_errors=True)
    if not source_of(asked).is_file():
        write_generated_apart(source_of(asked), asked.num_pairs)
    started = time.monotonic()
    words = [sys.executable, "-m", "repro", "data", "import", str(source_of(asked)), "--name", NAME]
    child = subprocess.Popen(words, preexec_fn=partial(request_parent_death_signal, signal.SIGTERM))
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"the import ended with status {status}")
    note.write_text(json.dumps(row("import", time.monotonic() - started, used.ru_maxrss * 1024, 1)))
    source_of(asked).unlink()
    return dict(json.loads(note.read_text()))


def get_note_path(asked: argparse.Namespace, what: str) -> Path:
    """Return the file that records progress before an interruption."""
    return asked.keep / f"{what}-{asked.num_pairs}.json"


def run_of(asked: argparse.Namespace) -> Any:
    """Return a contextual run on the corpus, including clusters and filter."""
    from repro.data.own.imported import find_imported
    from repro.spec import base

    corpus = find_imported(NAME).corpus
    wanted = base("desk", corpus=corpus, suite=NAME, num_pairs=None, architecture="contextual", batch_size=512)
    clustered = replace(wanted, sampler="cluster", packing="greedy", cluster_size=asked.cluster_size)
    return replace(clustered, filter="surrogate", num_steps=NUM_STEPS, num_warmup_steps=2)


def launch(asked: argparse.Namespace) -> None:
    """Execute the launch command."""
    words = [sys.executable, "-m", "repro", "launch", str(asked.keep / "runs.json"), "--scale", "desk"]
    subprocess.run([*words, "--profile", PROFILE], check=True)


def kill_three_times(run: Any, asked: argparse.Namespace) -> None:
    """Launch, kill each target once it appears (three times), and record the kills."""
    from repro.pipeline.stages import StageGraph
    from repro.spec.identity import get_training_id
    from repro.storage.paths import run_folder
    from repro.storage.shards import list_shards
    from slurm.states import get_run_item, get_stage_item

    graph = StageGraph(run)
    first_shards = [get_stage_item(shard) for shard in list_shards(graph.tokens, asked.num_shards)]
    log, note = run_folder(get_training_id(run)) / "metrics.jsonl", get_note_path(asked, "killed")
    killed = json.loads(note.read_text()) if note.is_file() else []

    def is_half_trained() -> bool:
        return log.is_file() and len(log.read_text().splitlines()) >= NUM_STEPS // 2

    victims: list[tuple[list[Any], Callable[[], bool]]] = [
        (first_shards[1:], lambda: True),
        ([get_stage_item(graph.clusters)], lambda: True),
        ([get_run_item(run)], is_half_trained),
    ]
    for items, is_time in victims[len(killed) :]:
        if one := kill_one_of(items, is_time, run, asked):
            print(f"killed: {one}", flush=True)
            note.write_text(json.dumps(killed := [*killed, one]))


def kill_one_of(
    items: list[Any], is_time: Callable[[], bool], run: Any, asked: argparse.Namespace
) -> dict[str, Any] | None:
    """Wait until one of the items is in progress and it is time, then kill it. None if all ended before."""
    from repro.storage.lease import look
    from slurm.scheduler import queue
    from slurm.status import statuses

    while statuses([run])[0].state != "recorded":
        for item in items:
            owner = look(item.lease_folder)
            if owner is not None and owner.is_alive and is_time():
                time.sleep(1.0)  # let it get to work
                peak = read_peak_memory(owner.pid)
                os.kill(owner.pid, signal.SIGKILL)
                return {"item": item.name, "peak_mebibytes": peak}
        if not queue():
            launch(asked)
        time.sleep(LOOK_EVERY_SECONDS)
    return None


def read_peak_memory(pid: int) -> int | None:
    """Return the peak memory of a process in MiB, or None if it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), None)


def launch_until_recorded(run: Any, asked: argparse.Namespace) -> None:
    """Relaunch if the queue is empty, and wait for the record. Exits with the reason of a failure."""
    from slurm.scheduler import queue
    from slurm.status import statuses, why

    while (status := statuses([run])[0]).state != "recorded":
        if status.state in ("failed", "cancelled"):
            raise SystemExit(json.dumps(why(run), indent=1, default=str))
        if not queue():
            launch(asked)
        time.sleep(LOOK_EVERY_SECONDS)


def list_job_rows(run: Any) -> Iterator[dict[str, Any]]:
    """Return a row for every stage, shard and run, in order of their start."""
    from repro.pipeline.stages import list_stages
    from repro.storage.lease import owners
    from slurm.states import get_run_item, get_stage_item
    from slurm.status import find_stage_item

    items = [get_run_item(run)]
    for stage in list_stages(run):
        shards = sorted(stage.path.with_name(f"{stage.path.name}.shards").glob("*.building"))
        items += [find_stage_item(f"{stage.title}.shards/{path.stem}") for path in shards]
        items.append(get_stage_item(stage))
    begun = [(owners(item.lease_folder), item) for item in items]
    for history, item in sorted((each for each in begun if each[0]), key=lambda each: each[0][0].since):
        last = ended(item)
        if last is None:  # the import already built the corpus
            continue
        assert last.state == "done", f"{item.name} is {last}"
        yield row(item.name, last.at - history[-1].since, last.peak_bytes, len(history))


def ended(item: Any) -> Any:
    """Return the last state of a job, after waiting if it is just ending, or None if there is none."""
    deadline = time.monotonic() + ENDING_SECONDS
    while (last := item.read()) is not None and last.state == "running" and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_SECONDS)
    return last


def row(item: str, seconds: float, peak_bytes: int, times_begun: int) -> dict[str, Any]:
    """Return one row of the record. Seconds are those of the last start."""
    peak = round(peak_bytes / 2**20)
    return {"item": item, "seconds": round(seconds, 1), "peak_mebibytes": peak, "times_begun": times_begun}


def summarise_launch(run: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """Return the summary of the record: setup, kills and outcome."""
    from repro.records.store import read_record
    from repro.spec.identity import get_training_id, run_id
    from repro.storage.paths import get_local_records, run_folder
    from repro.train.checkpoint import read_metrics

    steps = [line["step"] for line in read_metrics(run_folder(get_training_id(run)))]
    assert steps == list(range(1, NUM_STEPS + 1)), f"steps {steps}"
    record = read_record(get_local_records() / f"{run_id(run)}.json")
    asked_for = {name: getattr(asked, name) for name in ("num_pairs", "cluster_size", "num_shards", "num_nodes")}
    training = record.provenance["training"]
    return asked_for | {
        "num_sittings": json.loads(get_note_path(asked, "sittings").read_text()),
        "num_pairs_trained_on": training["num_pairs"],
        "killed": json.loads(get_note_path(asked, "killed").read_text()),
        "ndcg_at_10": record.metrics[f"{NAME}/mean/ndcg_at_10"],
        "train_loss": record.metrics["train/loss"],
        "load_average": round(os.getloadavg()[0], 1),
        "processor": platform.processor() or platform.machine(),
        "num_cores": os.cpu_count(),
    }


def keep(told: dict[str, Any], path: Path) -> None:
    """Write the result to a record, replacing one with the same number of pairs."""
    before = json.loads(path.read_text())["results"] if path.is_file() else []
    kept = [one for one in before if one["num_pairs"] != told["num_pairs"]]
    results = sorted([*kept, told], key=lambda one: one["num_pairs"])
    path.write_text(json.dumps({"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

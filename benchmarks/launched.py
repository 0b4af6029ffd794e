"""A generated corpus goes through `repro launch` on the development cluster, killed three times on the way.

    eval "$(slurm/dev-cluster.sh up)"
    python -m benchmarks.launched --num-pairs 200000 --keep FOLDER --write benchmarks/launched.json

Import; then jobs of Slurm for selection, tokens, embeddings (word vectors), keys (those three as arrays of shards),
clusters, twenty training steps of the contextual model on two nodes, and its evaluation. SIGKILL ends a shard of the
tokens, then the clusters, then the training at half of its steps; whenever Slurm's queue is empty, the same command is
typed again. Broken off itself, or with the machine, it goes on where it was, as often as need be: start the cluster
again, and type the same with the same kept folder. The record has, of every job, the peak memory of its largest process
(ru_maxrss, pages of mapped files included), its seconds, and how often it was begun; killed processes are asked for
their peak before. One job at a time needs the least memory and the fewest cores: `--num-at-once 1`.
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
from slurm.signals import ask_for_signal

NAME, PROFILE, NUM_STEPS = "generated", "launched-bench", 20
LOOK_EVERY_SECONDS, ENDING_SECONDS = 2.0, 600.0


def main() -> None:
    """Do it, and put the rows into the record."""
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
    import_row = measured_import(asked)
    run = run_of(asked)
    (asked.keep / "runs.json").write_text(json.dumps([asdict(run)]))
    kill_three_times(run, asked)
    launch_until_recorded(run, asked)
    told = told_of(run, asked) | {"rows": [import_row, *rows_of(run)]}
    print(json.dumps({name: value for name, value in told.items() if name != "rows"}, indent=1))
    if asked.write:
        keep(told, asked.write)


def set_up(asked: argparse.Namespace) -> None:
    """Make the folder and the profile; let this process and its children find them."""
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
    """Note that it was begun once more."""
    note = noted(asked, "sittings")
    note.write_text(json.dumps(1 + (json.loads(note.read_text()) if note.is_file() else 0)))


def source_of(asked: argparse.Namespace) -> Path:
    """Return where the generated file lies."""
    return asked.keep / f"pairs-{asked.num_pairs}.parquet"


def measured_import(asked: argparse.Namespace) -> dict[str, Any]:
    """Write a file and import it, unless it is; return the row. An import that ended unseen is made again."""
    from repro.data.own.imported import is_imported
    from repro.storage.paths import get_corpora_folder

    note = noted(asked, "import")
    if note.is_file() and is_imported(NAME):
        return dict(json.loads(note.read_text()))
    shutil.rmtree(get_corpora_folder() / NAME, ignore_errors=True)
    if not source_of(asked).is_file():
        write_generated_apart(source_of(asked), asked.num_pairs)
    started = time.monotonic()
    words = [sys.executable, "-m", "repro", "data", "import", str(source_of(asked)), "--name", NAME]
    child = subprocess.Popen(words, preexec_fn=partial(ask_for_signal, signal.SIGTERM))
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"the import ended with status {status}")
    note.write_text(json.dumps(row("import", time.monotonic() - started, used.ru_maxrss * 1024, 1)))
    source_of(asked).unlink()
    return dict(json.loads(note.read_text()))


def noted(asked: argparse.Namespace, what: str) -> Path:
    """Return the file in which is noted what was done before this was broken off."""
    return asked.keep / f"{what}-{asked.num_pairs}.json"


def run_of(asked: argparse.Namespace) -> Any:
    """Return a contextual run on the corpus, clusters and filter included."""
    from repro.data.own.imported import find_imported
    from repro.spec import base

    corpus = find_imported(NAME).corpus
    wanted = base("desk", corpus=corpus, suite=NAME, num_pairs=None, architecture="contextual", batch_size=512)
    clustered = replace(wanted, sampler="cluster", packing="greedy", cluster_size=asked.cluster_size)
    return replace(clustered, filter="surrogate", num_steps=NUM_STEPS, num_warmup_steps=2)


def launch(asked: argparse.Namespace) -> None:
    """Type the command."""
    words = [sys.executable, "-m", "repro", "launch", str(asked.keep / "runs.json"), "--scale", "desk"]
    subprocess.run([*words, "--profile", PROFILE], check=True)


def kill_three_times(run: Any, asked: argparse.Namespace) -> None:
    """Launch, and kill what is to be killed once it is there, three times; note what was killed."""
    from repro.pipeline.stages import StageGraph
    from repro.spec.identity import get_training_id
    from repro.storage.paths import run_folder
    from repro.storage.shards import list_shards
    from slurm.states import item_of_run, item_of_stage

    graph = StageGraph(run)
    first_shards = [item_of_stage(shard) for shard in list_shards(graph.tokens, asked.num_shards)]
    log, note = run_folder(get_training_id(run)) / "metrics.jsonl", noted(asked, "killed")
    killed = json.loads(note.read_text()) if note.is_file() else []

    def is_half_trained() -> bool:
        return log.is_file() and len(log.read_text().splitlines()) >= NUM_STEPS // 2

    victims: list[tuple[list[Any], Callable[[], bool]]] = [
        (first_shards[1:], lambda: True),
        ([item_of_stage(graph.clusters)], lambda: True),
        ([item_of_run(run)], is_half_trained),
    ]
    for items, is_time in victims[len(killed) :]:
        if one := kill_one_of(items, is_time, run, asked):
            print(f"killed: {one}", flush=True)
            note.write_text(json.dumps(killed := [*killed, one]))


def kill_one_of(
    items: list[Any], is_time: Callable[[], bool], run: Any, asked: argparse.Namespace
) -> dict[str, Any] | None:
    """Wait until one of the items is being worked on and it is time, and kill it; None when all ended before."""
    from repro.storage.lease import look
    from slurm.scheduler import queue
    from slurm.status import statuses

    while statuses([run])[0].state != "recorded":
        for item in items:
            owner = look(item.lease_folder)
            if owner is not None and owner.is_alive and is_time():
                time.sleep(1.0)  # into its work
                peak = peak_of(owner.pid)
                os.kill(owner.pid, signal.SIGKILL)
                return {"item": item.name, "peak_mebibytes": peak}
        if not queue():
            launch(asked)
        time.sleep(LOOK_EVERY_SECONDS)
    return None


def peak_of(pid: int) -> int | None:
    """Return the most memory that a process has had so far, MiB; None when it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), None)


def launch_until_recorded(run: Any, asked: argparse.Namespace) -> None:
    """Launch again when the queue is empty, and wait for the record; a failure ends this with its reason."""
    from slurm.scheduler import queue
    from slurm.status import statuses, why

    while (status := statuses([run])[0]).state != "recorded":
        if status.state in ("failed", "cancelled"):
            raise SystemExit(json.dumps(why(run), indent=1, default=str))
        if not queue():
            launch(asked)
        time.sleep(LOOK_EVERY_SECONDS)


def rows_of(run: Any) -> Iterator[dict[str, Any]]:
    """Return a row for every stage, shard and run, in the order in which they were begun."""
    from repro.pipeline.stages import list_stages
    from repro.storage.lease import owners
    from slurm.states import item_of_run, item_of_stage
    from slurm.status import find_stage_item

    items = [item_of_run(run)]
    for stage in list_stages(run):
        shards = sorted(stage.path.with_name(f"{stage.path.name}.shards").glob("*.building"))
        items += [find_stage_item(f"{stage.title}.shards/{path.stem}") for path in shards]
        items.append(item_of_stage(stage))
    begun = [(owners(item.lease_folder), item) for item in items]
    for history, item in sorted((each for each in begun if each[0]), key=lambda each: each[0][0].since):
        last = ended(item)
        if last is None:  # the import has made the corpus already
            continue
        assert last.state == "done", f"{item.name} is {last}"
        yield row(item.name, last.at - history[-1].since, last.peak_bytes, len(history))


def ended(item: Any) -> Any:
    """Return the last state of a job, of one that is just ending when it has; None where there was none."""
    deadline = time.monotonic() + ENDING_SECONDS
    while (last := item.read()) is not None and last.state == "running" and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_SECONDS)
    return last


def row(item: str, seconds: float, peak_bytes: int, times_begun: int) -> dict[str, Any]:
    """Return one line of the record; seconds are those of the last time it was begun."""
    peak = round(peak_bytes / 2**20)
    return {"item": item, "seconds": round(seconds, 1), "peak_mebibytes": peak, "times_begun": times_begun}


def told_of(run: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """Return what the record says of the whole: how it was done, what was killed, and what came out."""
    from repro.records.store import read_record
    from repro.spec.identity import get_training_id, run_id
    from repro.storage.paths import get_local_records, run_folder
    from repro.train.metrics import read_metrics

    steps = [line["step"] for line in read_metrics(run_folder(get_training_id(run)))]
    assert steps == list(range(1, NUM_STEPS + 1)), f"steps {steps}"
    record = read_record(get_local_records() / f"{run_id(run)}.json")
    asked_for = {name: getattr(asked, name) for name in ("num_pairs", "cluster_size", "num_shards", "num_nodes")}
    training = record.provenance["training"]
    return asked_for | {
        "num_sittings": json.loads(noted(asked, "sittings").read_text()),
        "num_pairs_trained_on": training["num_pairs"],
        "killed": json.loads(noted(asked, "killed").read_text()),
        "ndcg_at_10": record.metrics[f"{NAME}/mean/ndcg_at_10"],
        "train_loss": record.metrics["train/loss"],
        "load_average": round(os.getloadavg()[0], 1),
        "processor": platform.processor() or platform.machine(),
        "num_cores": os.cpu_count(),
    }


def keep(told: dict[str, Any], path: Path) -> None:
    """Put the result into a record, in place of one of the same number of pairs."""
    before = json.loads(path.read_text())["results"] if path.is_file() else []
    kept = [one for one in before if one["num_pairs"] != told["num_pairs"]]
    results = sorted([*kept, told], key=lambda one: one["num_pairs"])
    path.write_text(json.dumps({"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Time evaluations under three and four contexts against one under in-corpus context, alternating in one process.

    python -m benchmarks.three_contexts --num-datasets 4 --write benchmarks/three_contexts.json

Contexts share tokens and the first layer's projections of the text. The null context is one vector that counts as often
as there are slots. Everything else is computed once per context. The shared part of an evaluation (reading and
tokenising) is also measured. `--size mini` has MiniLM in both stages. The model is contextual and untrained. Seconds
are processor time.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.kept_rows import keep_rows
from benchmarks.sizes import run_of
from repro.data.beir import Suite
from repro.evaluate.suites import Setting, evaluate_setting, read_collections
from repro.model.start import build_model
from repro.pipeline.corpora import load_run_suite, make_searched_stage
from repro.train.trainer import make_model_config

CONTEXTS = {"one": ("own",), "three": ("own", "wrong", "null"), "four": ("own", "wrong", "random", "null")}
MINI = {"backbone": "bert", "start": "minilm", "num_layers": 6, "num_first_stage_layers": 6, "hidden_size": 384}


def once_only(model: Any, suite: Suite) -> None:
    """Read and tokenise the evaluation data, which happens once for any number of contexts."""
    for collection in read_collections(suite).values():
        model.tokenize(collection.retrieval.queries, "query")
        model.tokenize(collection.retrieval.documents, collection.document_role)


def main() -> None:
    """Measure, print, and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="desk", choices=("desk", "mini"))
    parser.add_argument("--num-datasets", type=int, default=4, help="of the suite, the first by name")
    parser.add_argument("--num-rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="the record to put the row into")
    asked = parser.parse_args()
    run = run_of("desk", architecture="contextual", **(MINI if asked.size == "mini" else {}))
    make_searched_stage(run).build(print)
    whole = load_run_suite(run)
    suite = Suite(whole.name, whole.datasets[: asked.num_datasets])
    model = build_model(make_model_config(run), start=run.start, heads=run.heads).eval()
    first = read_collections(suite)[suite.datasets[0].name].retrieval
    pool = replace(first, name="pool", documents=first.documents[::-1], document_ids=first.document_ids[::-1])

    def evaluate(contexts: tuple[str, ...]) -> None:
        evaluate_setting(model, suite, Setting(contexts=contexts, num_contexts=run.num_contexts, pool=pool))

    actions: dict[str, Callable[[], None]] = {name: partial(evaluate, contexts) for name, contexts in CONTEXTS.items()}
    actions["once"] = lambda: once_only(model, suite)
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(asked.num_rounds):
        for name, action in actions.items():
            started = time.process_time()
            action()
            seconds[name].append(round(time.process_time() - started, 2))
    median = {name: statistics.median(each) for name, each in seconds.items()}
    share = median["once"] / median["one"]
    row = {"size": asked.size, "num_datasets": len(suite.datasets), "cpu_seconds": seconds}
    row |= {f"ratio_{name}": round(median[name] / median["one"], 3) for name in ("three", "four")}
    row |= {"share_done_once": round(share, 3), "num_threads": torch.get_num_threads()}
    row |= {"processor": platform.processor() or platform.machine(), "load_average": round(os.getloadavg()[0], 1)}
    print(row, flush=True)
    if asked.write:
        keep_rows(asked.write, [row], ("size", "num_datasets"))


if __name__ == "__main__":
    main()

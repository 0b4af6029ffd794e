"""Time evaluations under three and four contexts against one under in-corpus context.

    python -m benchmarks.several_contexts --size mini --write benchmarks/several_contexts.json

Contexts share tokens and the first layer's projections of the text. The null context is one vector that counts as often
as there are slots. Everything else is computed once per context. The model is contextual and untrained.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from benchmarks.harness import describe_machine, make_parser, time_in_turns, write_rows
from repro.data.beir import Suite
from repro.evaluate.collections import read_collections
from repro.evaluate.suites import Setting, evaluate_setting
from repro.model.start import build_model
from repro.pipeline.corpora import load_run_suite, make_searched_stage
from repro.spec import base
from repro.train.setup import make_model_config

CONTEXTS = {"one": ("own",), "three": ("own", "wrong", "null"), "four": ("own", "wrong", "random", "null")}


def main() -> None:
    """Measure, print and store."""
    parser = make_parser(__doc__, num_datasets=4, num_rounds=3)
    parser.add_argument("--size", default="desk", choices=("desk", "mini"))
    options = parser.parse_args()
    run = base(options.size, architecture="contextual")
    make_searched_stage(run).build(print)
    full_suite = load_run_suite(run)
    suite = Suite(full_suite.name, full_suite.datasets[: options.num_datasets])
    model = build_model(make_model_config(run), start=run.start, heads=run.heads).eval()
    first_collection = read_collections(suite)[suite.datasets[0].name].retrieval
    pool = replace(
        first_collection,
        name="pool",
        documents=first_collection.documents[::-1],
        document_ids=first_collection.document_ids[::-1],
    )

    def evaluate(contexts: tuple[str, ...]) -> None:
        evaluate_setting(model, suite, Setting(contexts=contexts, num_contexts=run.num_contexts, pool=pool))

    actions = {name: partial(evaluate, contexts) for name, contexts in CONTEXTS.items()}
    timings = time_in_turns(actions, options.num_rounds)
    seconds = {name: [round(value, 2) for value in values] for name, values in timings.seconds.items()}
    row = {"size": options.size, "num_datasets": len(suite.datasets), "cpu_seconds": seconds}
    row |= {
        f"ratio_{name}": round(timings.medians[name] / timings.medians["one"], 3) for name in CONTEXTS if name != "one"
    }
    row |= {"num_threads": torch.get_num_threads(), **describe_machine()}
    print(row, flush=True)
    write_rows(options.write, [row], ("size", "num_datasets"))


if __name__ == "__main__":
    main()

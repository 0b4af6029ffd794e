"""Time a training step with and without context, alternating, and compare their ratio with the token counts.

    python -m benchmarks.context_cost --size desk

By token count, a text of T tokens after C contexts and P soft prompts costs (T + C + P) / T of the text alone, and the
first stage adds its documents. A contextual model and a biencoder of the size process the same real texts, in the
size's batch or `--batch-size`, with their own prompts. Forward and backward are timed, in seconds of processor time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.kept_rows import keep_rows
from benchmarks.sizes import SIZES, load_pairs, run_of
from repro.model.backbone import Backbone
from repro.model.start import build_model
from repro.model.texts import Texts, texts_from
from repro.train.chunks import ChunkSizes
from repro.train.gradcache import Stages, StepTexts, add_gradients
from repro.train.loss import info_nce
from repro.train.trainer import make_model_config


def list_model_stages(model: Any) -> Stages:
    """Return the stages of a step of either architecture, with a plain loss."""
    is_contextual = hasattr(model, "first_stage")
    return Stages(
        model.second_stage if is_contextual else lambda texts, contexts: model.embed_texts(texts),
        lambda queries_QD, documents_MD: info_nce(queries_QD, documents_MD, temperature=0.02),
        model.first_stage if is_contextual else None,
    )


def main() -> None:
    """Measure, print, and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="desk", choices=SIZES)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--num-rounds", type=int, default=5)
    parser.add_argument("--unpacked", action="store_true", help="also over transformers' own forward")
    parser.add_argument("--write", type=Path, help="the record to put the row into")
    asked = parser.parse_args()
    run = run_of(asked.size)
    pairs, batch_size = load_pairs(run), asked.batch_size or run.batch_size
    rows = np.random.default_rng(0).permutation(len(pairs))[:batch_size]
    texts: dict[str, Texts] = {}
    models = {}
    for architecture in ("biencoder", "contextual"):
        config = make_model_config(run_of(asked.size, architecture=architecture))
        models[architecture] = build_model(config, start=run.start, heads=run.heads).train()
    for side in ("query", "document"):
        texts[side] = texts_from(*models["biencoder"].tokenize(pairs.texts(side, rows), side).pad(range(batch_size)))
    config = models["contextual"].config
    contexts = texts["document"].rows(torch.arange(config.num_contexts) % batch_size)
    steps = {
        "biencoder": StepTexts(texts["query"], texts["document"]),
        "contextual": StepTexts(texts["query"], texts["document"], contexts),
    }
    ways = (True, False) if asked.unpacked else (True,)
    seconds = timed(models, steps, ways, asked.num_rounds)
    for packs in ways:
        keep(asked, batch_size, packs, seconds, compute_token_ratio(steps["contextual"], config))


def timed(models: dict, steps: dict, ways: tuple[bool, ...], num_rounds: int) -> dict[tuple[str, bool], float]:
    """Return the median seconds per step of each model and mode. All alternate, after a warm-up round."""
    seconds: dict[tuple[str, bool], list[float]] = {(name, packs): [] for packs in ways for name in models}
    for _ in range(num_rounds + 1):
        for (name, packs), each in seconds.items():
            Backbone.packs = packs
            models[name].zero_grad()
            started = time.process_time()
            add_gradients(list_model_stages(models[name]), steps[name], ChunkSizes())
            each.append(time.process_time() - started)
    return {key: statistics.median(each[1:]) for key, each in seconds.items()}


def compute_token_ratio(step: StepTexts, config: Any) -> float:
    """Return the cost of context by token count: tokens of both stages over those of the texts alone."""
    assert step.contexts is not None, "a contextual model's step has context documents"
    num_texts = step.queries.num_texts + step.documents.num_texts
    num_tokens = float(step.queries.mask_NS.sum() + step.documents.mask_NS.sum())
    prefix = config.num_context_vectors + config.num_soft_prompts
    return (num_tokens + num_texts * prefix + float(step.contexts.mask_NS.sum())) / num_tokens


def keep(asked: Any, batch_size: int, packs: bool, seconds: dict, count: float) -> None:
    """Print a row and store it in the record, replacing the same one."""
    each = {name: round(seconds[name, packs], 4) for name in ("biencoder", "contextual")}
    ratio = each["contextual"] / each["biencoder"]
    key = {"size": asked.size, "batch_size": batch_size, "packed": packs}
    row = {**key, **each, "ratio": round(ratio, 3), "by_count": round(count, 3), "over_count": round(ratio / count, 3)}
    print(row, flush=True)
    if asked.write:
        machine = {"num_threads": torch.get_num_threads(), "load_average": round(os.getloadavg()[0], 1)}
        keep_rows(asked.write, [row | machine], tuple(key))


if __name__ == "__main__":
    main()

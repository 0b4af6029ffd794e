"""Times a training step and encoding beside sentence-transformers on the same weights, pairs and texts, in one process.

    python benchmarks/training_and_encoding.py --scale desk

The model is the scale's untrained biencoder; the pairs are real text (the planted corpus at smoke). Of a step, forward
and backward are timed: ours by the direct path and by GradCache, theirs by `MultipleNegativesRankingLoss` and by its
cached form. All take turns, and the median of the rounds is told; losses and vectors must agree, else it fails.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)

from repro.inputs.inputs import Inputs
from repro.inputs.stages import stages_of
from repro.interop.sentence_transformers_folder import as_sentence_transformer
from repro.model.start import build_model
from repro.model.texts import texts_from
from repro.spec import base
from repro.train.gradcache import ChunkSizes, Stages, StepTexts, add_gradients
from repro.train.loss import info_nce
from repro.train.trainer import config_of

TEMPERATURE = 0.02
MINI_BATCH = 64


def turns(actions: Mapping[str, Callable[[], Any]], num_rounds: int) -> dict[str, Any]:
    """Return what each action gives, having let them take turns, and prints the median seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    given = {}
    for _ in range(num_rounds + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            given[name] = action()
            seconds[name].append(time.perf_counter() - started)
    first = statistics.median(next(iter(seconds.values()))[1:])
    for name, each in seconds.items():
        median = statistics.median(each[1:])  # the first round warms up
        print(f"{name:<58} {1000 * median:9.1f} ms {median / first:7.2f} x", flush=True)
    return given


def main() -> None:
    """Times steps, then encoding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="desk")
    parser.add_argument("--num-texts", type=int, default=2000)
    parser.add_argument("--num-rounds", type=int, default=5)
    asked = parser.parse_args()
    run = base(asked.scale)
    for stage in stages_of(run):
        stage.build(print)
    inputs = Inputs(run)
    model = build_model(config_of(run), start=run.start, seed=0, heads=run.heads)
    theirs = as_sentence_transformer(model)
    rows = np.random.default_rng(0).permutation(len(inputs.pairs))[: asked.num_texts]
    queries, documents = inputs.pairs.texts("query", rows), inputs.pairs.texts("document", rows)
    print(f"scale {run.scale}, batch {run.batch_size}, {torch.get_num_threads()} threads")
    compare_steps(run, inputs, model, theirs, (queries, documents, rows), asked.num_rounds)
    compare_encoding(model, theirs, documents, asked.num_rounds)


def compare_steps(run: Any, inputs: Inputs, model: Any, theirs: Any, chosen: Any, num_rounds: int) -> None:
    """Times forward and backward of one batch."""
    queries, documents, rows = chosen
    batch = np.asarray(rows[: run.batch_size])
    step = StepTexts(*(texts_from(*inputs.tokens(side).pad(batch)) for side in ("query", "document")))
    stages = Stages(
        lambda texts, contexts: model.embed_texts(texts),
        lambda queries_QD, documents_MD: info_nce(queries_QD, documents_MD, temperature=TEMPERATURE),
    )
    sides = [queries[: run.batch_size], documents[: run.batch_size]]

    def ours(sizes: ChunkSizes) -> float:
        model.zero_grad()
        return float(add_gradients(stages, step, sizes).loss)

    def other(loss: Any) -> float:
        theirs.zero_grad()
        features = [theirs.preprocess(side) for side in sides]
        value = loss(features, torch.arange(len(sides[0])))
        value.backward()
        return value.item()

    plain = MultipleNegativesRankingLoss(theirs, scale=1 / TEMPERATURE)
    cached = CachedMultipleNegativesRankingLoss(theirs, scale=1 / TEMPERATURE, mini_batch_size=MINI_BATCH)
    losses = turns(
        {
            "step, ours, direct": lambda: ours(ChunkSizes()),
            "step, sentence-transformers": lambda: other(plain),
            f"step, ours, GradCache by {MINI_BATCH}": lambda: ours(ChunkSizes(texts=MINI_BATCH)),
            f"step, sentence-transformers, GradCache by {MINI_BATCH}": lambda: other(cached),
        },
        num_rounds,
    )
    print("  losses", {name.partition(", ")[2]: round(value, 4) for name, value in losses.items()})
    assert np.ptp(list(losses.values())) < 1e-3, "the losses are not the same"


def compare_encoding(model: Any, theirs: Any, texts: list[str], num_rounds: int) -> None:
    """Times texts to vectors."""
    vectors = turns(
        {
            f"encode {len(texts)} texts, ours": lambda: model.encode(texts),
            f"encode {len(texts)} texts, sentence-transformers": lambda: theirs.encode(texts, batch_size=64),
        },
        num_rounds,
    )
    apart = float(np.abs(np.subtract(*vectors.values())).max())
    print(f"  vectors differ by at most {apart:.1e}")
    assert apart < 1e-4, "the vectors are not the same"


if __name__ == "__main__":
    main()

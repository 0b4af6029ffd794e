"""Time training steps and encoding against sentence-transformers on the same weights, pairs and texts, in one process.

    python -m benchmarks.training_and_encoding --size minilm --batch-size 128 --write RECORD.json
    python -m benchmarks.training_and_encoding --size minilm --batch-size 512 --paths gradcache --write RECORD.json

The model is the size's untrained biencoder (`minilm`: full MiniLM, 64 tokens, prompts). The pairs are real text (the
planted corpus at smoke). Forward and backward of a step are timed: ours directly and with GradCache, theirs with
`MultipleNegativesRankingLoss` and its cached form. All alternate. The result is the median over rounds, in processor
seconds. Fails if losses or vectors differ. `--unpacked` adds ours on transformers' own forward pass. Without GradCache,
a padded batch of 512 at MiniLM's size needs up to 24 GiB for its backward pass, as `plan` computes. If that is not
available, `--paths gradcache` skips the direct paths.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)

from benchmarks.kept_rows import keep_rows
from benchmarks.sizes import SIZES, load_pairs, run_of
from repro.data.prompts import with_prompt
from repro.interop.sentence_transformers_folder import as_sentence_transformer
from repro.model.backbone import Backbone
from repro.model.linear import has_onednn
from repro.model.start import build_model
from repro.model.texts import Texts, texts_from
from repro.train.chunks import ChunkSizes
from repro.train.gradcache import Stages, StepTexts, add_gradients
from repro.train.loss import info_nce
from repro.train.trainer import make_model_config

TEMPERATURE = 0.02
MINI_BATCH = 64
PATHS = ("direct", "gradcache")
ROWS: list[dict[str, Any]] = []


def turns(actions: Mapping[str, Callable[[], Any]], num_rounds: int, **told: Any) -> dict[str, Any]:
    """Return the result of each action after alternating between them. Print and store the median seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    given = {}
    for _ in range(num_rounds + 1):
        for name, action in actions.items():
            started = time.process_time()
            given[name] = action()
            seconds[name].append(time.process_time() - started)
    first = statistics.median(next(iter(seconds.values()))[1:])
    for name, each in seconds.items():
        median = statistics.median(each[1:])  # the first round is a warm-up
        print(f"{name:<58} {1000 * median:9.1f} ms {median / first:7.2f} x", flush=True)
        ROWS.append(
            {**told, "what": name, "cpu_seconds": [round(one, 4) for one in each[1:]], "median": round(median, 4)}
        )
    return given


def main() -> None:
    """Time steps, then encoding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="desk", choices=SIZES)
    parser.add_argument("--batch-size", type=int, help="pairs of a step; default: the size's")
    parser.add_argument("--num-texts", type=int, default=2000)
    parser.add_argument("--num-rounds", type=int, default=5)
    parser.add_argument("--paths", nargs="+", default=list(PATHS), choices=PATHS, help="of a step")
    parser.add_argument("--only", choices=("steps", "encoding"), help="one of the two")
    parser.add_argument("--unpacked", action="store_true", help="ours without packing and its linear layers, too")
    parser.add_argument("--write", type=Path, help="the record to put the rows into")
    asked = parser.parse_args()
    run = run_of(asked.size)
    pairs = load_pairs(run)
    model = build_model(make_model_config(run), start=run.start, seed=0, heads=run.heads)
    theirs = as_sentence_transformer(model)
    batch_size = asked.batch_size or run.batch_size
    if len(pairs) < batch_size:
        raise SystemExit(f"batch size {batch_size}: the size {asked.size} has {len(pairs)} pairs")
    rows = np.random.default_rng(0).permutation(len(pairs))[: max(asked.num_texts, batch_size)]
    sides = {side: pairs.texts(side, rows) for side in ("query", "document")}
    print(f"size {asked.size}, batch {batch_size}, {torch.get_num_threads()} threads, oneDNN {has_onednn()}")
    if asked.only != "encoding":
        compare_steps(run, batch_size, model, theirs, sides, asked)
    if asked.only != "steps":
        compare_encoding(run, model, theirs, sides["document"][: asked.num_texts], asked)
    if asked.write:
        keep(asked.write)


def keep(path: Path) -> None:
    """Write the rows to a record, replacing those with the same size, batch and settings."""
    machine = {
        "processor": platform.processor() or platform.machine(),
        "num_threads": torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 1),
        "torch": torch.__version__,
    }
    keep_rows(path, [{**row, **machine} for row in ROWS], ("size", "batch_size", "what"))


def make_step(
    run: Any, batch_size: int, model: Any, sides: Mapping[str, list[str]]
) -> tuple[StepTexts, list[list[str]]]:
    """Return one batch in our form and, with its prompts, as text: queries, documents."""
    texts: dict[str, Texts] = {}
    plain: list[list[str]] = []
    for side, every in sides.items():
        own = every[:batch_size]
        texts[side] = texts_from(*model.tokenize(own, side).pad(np.arange(len(own))))
        plain.append(with_prompt(own, run.prompts, side))
    return StepTexts(texts["query"], texts["document"]), plain


def compare_steps(
    run: Any, batch_size: int, model: Any, theirs: Any, sides: Mapping[str, list[str]], asked: Any
) -> None:
    """Time forward and backward of one batch."""
    step, plain = make_step(run, batch_size, model, sides)
    stages = Stages(
        lambda texts, contexts: model.embed_texts(texts),
        lambda queries_QD, documents_MD: info_nce(queries_QD, documents_MD, temperature=TEMPERATURE),
    )

    def ours(sizes: ChunkSizes, *, packs: bool = True) -> float:
        Backbone.packs = packs
        model.zero_grad()
        return float(add_gradients(stages, step, sizes).loss)

    def other(loss: Any) -> float:
        theirs.zero_grad()
        features = [theirs.preprocess(side) for side in plain]
        value = loss(features, torch.arange(batch_size))
        value.backward()
        return value.item()

    whole = MultipleNegativesRankingLoss(theirs, scale=1 / TEMPERATURE)
    cached = CachedMultipleNegativesRankingLoss(theirs, scale=1 / TEMPERATURE, mini_batch_size=MINI_BATCH)
    actions = {
        "step, ours, direct": lambda: ours(ChunkSizes()),
        "step, sentence-transformers": lambda: other(whole),
        f"step, ours, GradCache by {MINI_BATCH}": lambda: ours(ChunkSizes(texts=MINI_BATCH)),
        f"step, sentence-transformers, GradCache by {MINI_BATCH}": lambda: other(cached),
    }
    if asked.unpacked:
        actions["step, ours unpacked, direct"] = lambda: ours(ChunkSizes(), packs=False)
    actions = {name: action for name, action in actions.items() if get_step_path(name) in asked.paths}
    losses = turns(actions, asked.num_rounds, size=asked.size, batch_size=batch_size)
    Backbone.packs = True
    print("  losses", {name.partition(", ")[2]: round(value, 4) for name, value in losses.items()})
    assert np.ptp(list(losses.values())) < 1e-3, "the losses are not the same"


def get_step_path(name: str) -> str:
    """Return the path by which an action with this name executes its step."""
    return "gradcache" if "GradCache" in name else "direct"


def compare_encoding(run: Any, model: Any, theirs: Any, texts: list[str], asked: Any) -> None:
    """Time encoding of texts."""
    prompted = with_prompt(texts, run.prompts, "document")

    def ours(*, packs: bool = True) -> np.ndarray:
        Backbone.packs = packs
        vectors: np.ndarray = model.encode(texts)
        return vectors

    actions = {
        f"encode {len(texts)} texts, ours": ours,
        f"encode {len(texts)} texts, sentence-transformers": lambda: theirs.encode(prompted, batch_size=64),
    }
    if asked.unpacked:
        actions[f"encode {len(texts)} texts, ours unpacked"] = lambda: ours(packs=False)
    vectors = turns(actions, asked.num_rounds, size=asked.size, batch_size=64)
    Backbone.packs = True
    apart = max(float(np.abs(one - vectors[f"encode {len(texts)} texts, ours"]).max()) for one in vectors.values())
    print(f"  vectors differ by at most {apart:.1e}")
    assert apart < 1e-4, "the vectors are not the same"


if __name__ == "__main__":
    main()

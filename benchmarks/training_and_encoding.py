"""Compare training steps and encoding with sentence-transformers on the same weights, pairs and texts.

    python -m benchmarks.training_and_encoding --size minilm --batch-size 128 --write RECORD.json
    python -m benchmarks.training_and_encoding --size minilm --batch-size 512 --paths gradcache --write RECORD.json

The model is the untrained biencoder of the size. `minilm` is the full MiniLM with 64 tokens and prompts. The pairs are
real text, except at smoke. A step is a forward and a backward pass: ours directly and with GradCache, theirs with
`MultipleNegativesRankingLoss` and its cached form. All alternate in one process. The benchmark fails if losses or
vectors differ.

Without GradCache, a padded batch of 512 at MiniLM's size needs up to 24 GiB for its backward pass, as `plan` computes.
`--paths gradcache` skips the direct path.

On a CPU, processor seconds are compared. With `--device cuda`, all models compute in float32 on the GPU, and wall-clock
seconds are compared.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import batch_to_device

from benchmarks.harness import (
    SIZES,
    Timings,
    describe_machine,
    load_pairs,
    make_parser,
    make_run,
    time_in_turns,
    write_rows,
)
from repro.data.prompts import with_prompt
from repro.interop.sentence_transformers_folder import as_sentence_transformer
from repro.model.backbone import Backbone
from repro.model.biencoder import Biencoder
from repro.model.packed import has_onednn
from repro.model.start import build_model
from repro.model.texts import Texts, make_texts
from repro.spec import Run
from repro.train.gradcache import Stages, StepTexts, add_gradients
from repro.train.loss import info_nce
from repro.train.performance import ChunkSizes
from repro.train.setup import make_model_config

TEMPERATURE = 0.02
MINI_BATCH = 64
ENCODING_BATCH = 64
PATHS = ("direct", "gradcache")
Actions = dict[str, Callable[[], Any]]


def make_batch(run: Run, model: Any, sides: Mapping[str, list[str]]) -> tuple[StepTexts, list[list[str]]]:
    """Return one batch as token ids on the model's device, and as texts with prompts (queries, documents)."""
    texts: dict[str, Texts] = {}
    prompted: list[list[str]] = []
    for side, side_texts in sides.items():
        texts[side] = make_texts(*model.tokenize(side_texts, side).pad(np.arange(len(side_texts))))
        prompted.append(with_prompt(side_texts, run.prompts, side))
    return StepTexts(texts["query"], texts["document"]).to(model.device), prompted


def make_step_actions(
    run: Run, model: Any, theirs: Any, sides: Mapping[str, list[str]], options: argparse.Namespace
) -> Actions:
    """Return the steps to time. Each returns its loss."""
    batch, prompted = make_batch(run, model, sides)
    stages = Stages(
        lambda texts, contexts: model.embed_texts(texts),
        lambda queries_QD, documents_MD: info_nce(queries_QD, documents_MD, temperature=TEMPERATURE),
    )

    def step_ours(sizes: ChunkSizes, *, packs: bool = True) -> float:
        Backbone.packs = packs
        model.zero_grad()
        return float(add_gradients(stages, batch, sizes).loss)

    def step_theirs(loss: Any) -> float:
        theirs.zero_grad()
        features = [batch_to_device(theirs.preprocess(texts), theirs.device) for texts in prompted]
        value = loss(features, torch.arange(len(prompted[0]), device=theirs.device))
        value.backward()
        return float(value.item())

    # Their scale is the inverse of our temperature.
    whole = MultipleNegativesRankingLoss(theirs, scale=1 / TEMPERATURE)
    cached = CachedMultipleNegativesRankingLoss(theirs, scale=1 / TEMPERATURE, mini_batch_size=MINI_BATCH)
    direct: Actions = {
        "step, ours, direct": partial(step_ours, ChunkSizes()),
        "step, sentence-transformers": partial(step_theirs, whole),
    }
    if options.unpacked:
        direct["step, ours unpacked, direct"] = partial(step_ours, ChunkSizes(), packs=False)
    gradcache: Actions = {
        f"step, ours, GradCache by {MINI_BATCH}": partial(step_ours, ChunkSizes(texts=MINI_BATCH)),
        f"step, sentence-transformers, GradCache by {MINI_BATCH}": partial(step_theirs, cached),
    }
    return (direct if "direct" in options.paths else {}) | (gradcache if "gradcache" in options.paths else {})


def make_encoding_actions(run: Run, model: Any, theirs: Any, texts: list[str], options: argparse.Namespace) -> Actions:
    """Return the ways to encode documents. Each returns the vectors."""
    prompted = with_prompt(texts, run.prompts, "document")

    def encode_ours(*, packs: bool = True) -> np.ndarray:
        Backbone.packs = packs
        vectors: np.ndarray = model.encode(texts)
        return vectors

    actions: Actions = {
        f"encode {len(texts)} texts, ours": encode_ours,
        f"encode {len(texts)} texts, sentence-transformers": lambda: theirs.encode(prompted, batch_size=ENCODING_BATCH),
    }
    if options.unpacked:
        actions[f"encode {len(texts)} texts, ours unpacked"] = partial(encode_ours, packs=False)
    return actions


def report(timings: Timings, batch_size: int, options: argparse.Namespace) -> None:
    """Print the median of each action, compared with the first one, and update the record."""
    medians = timings.medians
    first = next(iter(medians.values()))
    machine = describe_machine() | {"num_threads": torch.get_num_threads(), "torch": torch.__version__}
    if options.device != "cpu":
        machine["processor"] = torch.cuda.get_device_name()
    unit = "cpu_seconds" if options.device == "cpu" else "seconds"
    rows = []
    for name, median in medians.items():
        print(f"{name:<58} {1000 * median:9.1f} ms {median / first:7.2f} x", flush=True)
        row = {"size": options.size, "batch_size": batch_size, "what": name, "median": round(median, 4)}
        rows.append(row | {unit: [round(value, 4) for value in timings.seconds[name]]} | machine)
    write_rows(options.write, rows, ("size", "batch_size", "what"))


def main() -> None:
    """Time steps, then encoding, and compare their results."""
    parser = make_parser(__doc__, batch_size=None, num_texts=2000, num_rounds=5)
    parser.add_argument("--size", default="desk", choices=SIZES, help="default: desk")
    parser.add_argument("--paths", nargs="+", default=list(PATHS), choices=PATHS, help="kinds of steps, default: both")
    parser.add_argument("--only", choices=("steps", "encoding"), help="time only one of the two")
    parser.add_argument("--device", default="cpu", help="cpu or cuda, default: cpu")
    parser.add_argument("--unpacked", action="store_true", help="also time our model with padding and plain layers")
    options = parser.parse_args()
    run = make_run(options.size)
    pairs = load_pairs(run)
    model = build_model(make_model_config(run), start=run.start, seed=0, heads=run.heads)
    assert isinstance(model, Biencoder), "the compared run is a biencoder"
    model.to(options.device)
    theirs = as_sentence_transformer(model).to(options.device)
    clock = time.process_time if options.device == "cpu" else time.perf_counter
    batch_size = options.batch_size or run.batch_size
    if len(pairs) < batch_size:
        raise SystemExit(f"batch size {batch_size}: the size {options.size} has only {len(pairs)} pairs")
    rows = np.random.default_rng(0).permutation(len(pairs))[: max(options.num_texts, batch_size)]
    sides = {side: pairs.texts(side, rows) for side in ("query", "document")}
    print(f"size {options.size}, batch {batch_size}, {torch.get_num_threads()} threads, oneDNN {has_onednn()}")
    if options.only != "encoding":
        batch = {side: texts[:batch_size] for side, texts in sides.items()}
        actions = make_step_actions(run, model, theirs, batch, options)
        timings = time_in_turns(actions, options.num_rounds, num_warmups=1, clock=clock)
        report(timings, batch_size, options)
        print("  losses", {name.partition(", ")[2]: round(loss, 4) for name, loss in timings.results.items()})
        assert np.ptp(list(timings.results.values())) < 1e-3, "the losses differ"
    Backbone.packs = True
    if options.only != "steps":
        actions = make_encoding_actions(run, model, theirs, sides["document"][: options.num_texts], options)
        timings = time_in_turns(actions, options.num_rounds, num_warmups=1, clock=clock)
        report(timings, ENCODING_BATCH, options)
        ours, *others = timings.results.values()
        difference = max(float(np.abs(ours - other).max()) for other in others)
        print(f"  vectors differ by at most {difference:.1e}")
        assert difference < 1e-4, "the vectors differ"


if __name__ == "__main__":
    main()

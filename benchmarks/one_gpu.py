"""Measure what only a GPU can show about the paper's scale, in ten minutes on one of them.

    python -m benchmarks.one_gpu --write benchmarks/one_gpu.json

    step        ten steps at the shapes of `small` and `large`, and their peak memory against the estimate of the chunks
    kmeans      ten iterations of FAISS on 2 × 128 and 2 × 768 dimensions
    encode      texts per second of encoders with the shapes of GTR and nomic-embed, one and two blocks at a time

Weights and texts are random, so nothing is downloaded. Each part is a row of the record as soon as it has ended, and a
part that fails does not stop the others. `benchmarks.phases` reads the record. `--tiny` tries everything on a CPU.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import describe_machine, make_parser, write_rows
from repro.batches import cluster, surrogate
from repro.batches.sentence_encoder import SentenceEncoder
from repro.data.pairs import Indices, TextColumn
from repro.data.tokens import get_minilm_folder
from repro.model.start import build_model
from repro.model.texts import Texts
from repro.spec import base
from repro.train.feed import Feed
from repro.train.gradcache import StepTexts
from repro.train.performance import choose_chunks, estimate_graph_bytes
from repro.train.setup import TrainSettings, device, make_base_config, measure_gpu_bytes, measure_memory_bytes
from repro.train.trainer import make_optimizer, take_step

NUM_STEPS = 10
GTR: dict[str, Any] = {
    "d_model": 768,
    "d_kv": 64,
    "d_ff": 3072,
    "num_layers": 12,
    "num_heads": 12,
    "vocab_size": 32_128,
}
NOMIC: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
TINY_GTR: dict[str, Any] = {
    "d_model": 64,
    "d_kv": 64,
    "d_ff": 64,
    "num_layers": 1,
    "num_heads": 1,
    "vocab_size": 32_128,
}
TINY_NOMIC: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 64,
}
NUM_TEXTS, CHARACTERS = 65_536, 1_000
"""Texts for the encoders, of about half the length of the paper's pairs."""


def measure_step(scale: str, architecture: str, batch_size: int, *, is_tiny: bool) -> dict[str, Any]:
    """Take steps of random tokens of full length, and return speed and memory."""
    run = base(scale, architecture=architecture, batch_size=batch_size)
    if is_tiny:
        run = replace(run, num_layers=1, num_first_stage_layers=1, hidden_size=64, num_contexts=8, max_tokens=16)
    config, gpu = make_base_config(run), device()
    if gpu.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    generator = torch.Generator().manual_seed(0)
    model = build_model(config).to(gpu).train()

    def draw(num_texts: int) -> Texts:
        ids_NS = torch.randint(1, config.vocab_size, (num_texts, run.max_tokens), generator=generator)
        return Texts(ids_NS, torch.ones_like(ids_NS)).to(gpu)

    num_contexts = config.num_contexts if architecture == "contextual" else 0
    texts = StepTexts(draw(batch_size), draw(batch_size), draw(num_contexts) if num_contexts else None)
    chunks = choose_chunks(config, autocast=True, num_texts=2 * batch_size, gpu_bytes=measure_gpu_bytes(gpu))
    options: dict[str, Any] = {"num_steps": NUM_STEPS, "learning_rate": 1e-5, "num_warmup_steps": 0}
    settings = TrainSettings(run_id="gpu", chunks=chunks, seed=0, **options)
    optimizer, seconds = make_optimizer(model, settings), []
    for step in range(1, NUM_STEPS + 1):
        started = time.monotonic()
        # reading the loss waits for the device
        take_step(model, optimizer, [Feed(texts, batch_size, None, None)], settings, step=step)
        seconds.append(time.monotonic() - started)
    graphs = estimate_graph_bytes(config, chunks, autocast=True, num_texts=2 * batch_size, num_contexts=num_contexts)
    return {
        "step_milliseconds": round(1000 * float(np.median(seconds[2:])), 1),
        "pairs_per_second": round(batch_size / float(np.median(seconds[2:]))),
        "chunks": chunks.words,
        "fits_at_once": chunks.hold(2 * batch_size, num_contexts),
        "peak_gibibytes": round(measure_memory_bytes(gpu) / 2**30, 2),
        "estimated_graph_gibibytes": round(graphs / 2**30, 2),
    }


def measure_kmeans(num_pairs: int, num_clusters: int, width: int) -> dict[str, Any]:
    """Run ten iterations on all GPUs, or on the CPU without any, and return operations per second."""
    import faiss

    cluster.NUM_ATTEMPTS, cluster.NUM_ITERATIONS = 1, cluster.ITERATIONS_PER_CALL
    points_PW = np.random.default_rng(0).standard_normal((2 * num_pairs, width), dtype=np.float32)
    started = time.monotonic()
    cluster.best_attempt(points_PW, num_clusters, 0, on_gpus=faiss.get_num_gpus() > 0)
    seconds = time.monotonic() - started
    operations = 2 * len(points_PW) * num_clusters * width * cluster.NUM_ITERATIONS
    return {
        "num_gpus": faiss.get_num_gpus(),
        "seconds": round(seconds, 1),
        "teraflops": round(operations / seconds / 1e12, 2),
    }


def save_encoder(name: str, folder: Path, *, is_tiny: bool) -> None:
    """Save an encoder with random weights and MiniLM's tokenizer in the format of sentence-transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import AutoTokenizer, NomicBertConfig, NomicBertModel, T5Config, T5EncoderModel

    if name == "gtr":
        sizes = TINY_GTR if is_tiny else GTR
        model: Any = T5EncoderModel(T5Config(**sizes))
    else:
        sizes = TINY_NOMIC if is_tiny else NOMIC
        model = NomicBertModel(NomicBertConfig(**sizes))
    model.save_pretrained(folder / "transformer")
    AutoTokenizer.from_pretrained(get_minilm_folder()).save_pretrained(folder / "transformer")
    transformer = Transformer(str(folder / "transformer"))
    pooling = Pooling(transformer.get_embedding_dimension())
    SentenceTransformer(modules=[transformer, pooling]).save(str(folder / "encoder"))


class RandomTexts(TextColumn):
    """Texts of random letters in words of five, which a tokenizer cuts into several tokens."""

    def __init__(self, num_texts: int) -> None:
        letters = np.random.default_rng(0).integers(97, 123, (num_texts, CHARACTERS), dtype=np.uint8)
        letters[:, ::6] = ord(" ")
        self._texts = [bytes(row).decode() for row in letters]

    def __len__(self) -> int:
        return len(self._texts)

    def texts(self, rows: Indices) -> list[str]:
        """Return the texts of these rows."""
        return [self._texts[row] for row in rows]

    def release_pages(self) -> None:
        """Do nothing, because the texts are in memory."""


def measure_encoding(name: str, max_tokens: int, num_threads: int, *, is_tiny: bool) -> dict[str, Any]:
    """Embed random texts as the embedding stage does, and return texts per second."""
    texts = RandomTexts(256 if is_tiny else NUM_TEXTS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_encoder(name, folder, is_tiny=is_tiny)
        encoder = SentenceEncoder(str(folder / "encoder"))
        encoder.num_threads = num_threads
        # the first call allocates memory and compiles
        surrogate.embed_texts(encoder, RandomTexts(256), folder / "warm.npy", max_tokens=max_tokens)
        started = time.monotonic()
        surrogate.embed_texts(encoder, texts, folder / "vectors.npy", max_tokens=max_tokens)
        return {"texts_per_second": round(len(texts) / (time.monotonic() - started))}


def list_parts(is_tiny: bool) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
    """Yield each part: its name in the record, and the function that measures it. The most useful ones come first."""
    for scale, architecture, size in (
        ("small", "contextual", 512),
        ("small", "biencoder", 512),
        ("small", "contextual", 16_384),
        ("small", "biencoder", 16_384),
        ("large", "contextual", 512),
    ):
        name = {"part": "step", "shape": scale, "architecture": architecture, "batch_size": size}
        size = min(size, 16) if is_tiny else size
        yield name, partial(measure_step, scale, architecture, size, is_tiny=is_tiny)
    for width, num_clusters in ((256, 32_768), (1536, 8_192)):
        num_pairs = 2_000 if is_tiny else 2**19
        num_clusters = num_clusters // 1024 if is_tiny else num_clusters
        name = {"part": "kmeans", "width": width, "num_points": 2 * num_pairs, "num_clusters": num_clusters}
        yield name, partial(measure_kmeans, num_pairs, num_clusters, width)
    for encoder, max_tokens in (("gtr", 64), ("nomic", 64), ("gtr", 512)):
        for num_threads in (1, 2):
            name = {"part": "encode", "encoder": encoder, "max_tokens": max_tokens, "num_threads": num_threads}
            yield name, partial(measure_encoding, encoder, max_tokens, num_threads, is_tiny=is_tiny)


def main() -> None:
    """Measure all parts, print a line for each and update the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, also without a GPU, and no record")
    options: argparse.Namespace = parser.parse_args()
    if not options.tiny and not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU here; --tiny tries the script on a CPU")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    started = time.monotonic()
    for name, measure in list_parts(options.tiny):
        try:
            result = measure()
        # out of memory, or an operation that this device lacks
        except (RuntimeError, ValueError, TypeError, AttributeError, OSError):
            traceback.print_exc()
            result = {"failed": traceback.format_exc(limit=1).splitlines()[-1]}
        row = {**name, **result}
        print(
            f"{time.monotonic() - started:5.0f} s", " ".join(f"{key}={value}" for key, value in row.items()), flush=True
        )
        if torch.cuda.is_available() and not options.tiny:
            machine = {"gpu": torch.cuda.get_device_name(0), **describe_machine()}
            write_rows(options.write, [row | machine], [*name])


if __name__ == "__main__":
    main()

"""Write stages of any size with random content, to time their readers if building them would take hours.

Sizes, types and files are those of real stages: one-letter texts, 10 and 36 tokens, vectors of 128 zeros in sparse
files, distinct keys, and clusters of the requested size. Digests are omitted, as in stages that never had any.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from repro.data.tokens import BOUNDS_FILE
from repro.pipeline.stages import KEYS_FILE, SIDES, StageGraph
from repro.storage.arrays import ArrayWriter, iter_blocks
from repro.storage.paths import get_corpora_folder
from repro.storage.stages import STAGE_FILE, Stage

NUM_DOMAINS, WIDTH, NUM_WORDS = 64, 128, 30_000
NUM_TOKENS = {"query": 10, "document": 36}
BLOCK = 65_536


def write_blank_import(name: str, num_pairs: int) -> None:
    """Write the metadata of a corpus without its pairs."""
    folder = get_corpora_folder() / name
    (folder / "import").mkdir(parents=True, exist_ok=True)
    told = {"name": name, "digest": f"{num_pairs:064d}", "held_out_domains": []}
    (folder / "corpus.json").write_text(json.dumps(told))


def write_blank_pairs(path: Path, codes_N: np.ndarray) -> None:
    """Write pairs of one-letter texts with the domains given by the codes, int32 (N,)."""
    names = pa.array([f"domain-{number:02d}" for number in range(NUM_DOMAINS)])
    schema = pa.schema([pa.field(n, pa.string(), False) for n in ("id", "query", "document", "domain", "source")])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for part in iter_blocks(len(codes_N), BLOCK):
            letters = pa.array(["a"] * (part.stop - part.start))
            columns = [letters, letters, letters, names.take(pa.array(codes_N[part])), letters]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def write_blank_stages(run: Any, num_pairs: int) -> None:
    """Write corpus, selection, tokens, embeddings, keys and clusters of a run with this number of pairs."""
    graph, rng = StageGraph(run), np.random.default_rng(0)
    shares = 1 / np.sqrt(np.arange(1, NUM_DOMAINS + 1))
    codes_N = rng.choice(NUM_DOMAINS, num_pairs, p=shares / shares.sum()).astype(np.int32)

    def tokens(folder: Path) -> None:
        for side in SIDES:
            count = NUM_TOKENS[side]
            with ArrayWriter(folder / side / "ids.npy", "int32") as ids:
                for part in iter_blocks(num_pairs, BLOCK):
                    ids.append(rng.integers(1, NUM_WORDS, count * (part.stop - part.start)))
            np.save(folder / side / "offsets.npy", np.arange(0, count * (num_pairs + 1), count))
            (folder / side / BOUNDS_FILE).write_text(json.dumps({"largest_id": NUM_WORDS - 1}))

    def embeddings(folder: Path) -> None:
        for side in SIDES:
            shape = (num_pairs, WIDTH)
            np.lib.format.open_memmap(folder / f"{side}.npy", mode="w+", dtype=np.float16, shape=shape)

    def clusters(folder: Path) -> None:
        sizes = np.bincount(codes_N, minlength=NUM_DOMAINS)
        num_K = -(-sizes // run.cluster_size)
        firsts = np.cumsum(num_K) - num_K
        drawn_N = (rng.random(num_pairs) * num_K[codes_N]).astype(np.int64) + firsts[codes_N]
        np.save(folder / "assignment_N.npy", drawn_N.astype(np.int32))
        np.save(folder / "centroids_KD.npy", rng.normal(size=(num_K.sum(), 2 * WIDTH)).astype(np.float32))
        np.save(folder / "domain_of_cluster_K.npy", np.repeat(np.arange(NUM_DOMAINS, dtype=np.int32), num_K))

    fill(graph.corpus, lambda folder: write_blank_pairs(folder / "train.arrow", codes_N))
    fill(graph.selection, lambda folder: np.save(folder / "rows.npy", np.arange(num_pairs)))
    fill(graph.tokens, tokens)
    fill(graph.embeddings, embeddings)
    fill(graph.keys, lambda folder: np.save(folder / KEYS_FILE, np.arange(num_pairs)))
    fill(graph.clusters, clusters)


def fill(stage: Stage, make: Callable[[Path], None]) -> None:
    """Write a stage with another builder if it is missing."""
    if not stage.is_built:
        stage.path.mkdir(parents=True)
        make(stage.path)
        (stage.path / STAGE_FILE).write_text(json.dumps({"name": stage.name, "key": stage.key}))

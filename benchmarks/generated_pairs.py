"""Generate any number of text pairs from mined words by Zipf's law, to measure sizes without real text.

    python -m benchmarks.generated_pairs --num-pairs 1000000 pairs.parquet

Words come from the discovery documents of Google's API client and are drawn in proportion to 1/rank. A third of the
words of a pair come from its topic, so that clusters exist. A query and its document have 40 words on average. Domain
sizes are proportional to 1/sqrt(rank). The file depends only on the number of pairs and the seed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.harness import make_parser
from repro.data.mined.sources.apis import mine_cloud
from repro.storage.files import atomic_file

if TYPE_CHECKING:
    from repro.spec import Run

NAME = "generated"
"""Name of the imported corpus."""
NUM_STEPS = 20
NUM_WORDS = 30_000
NUM_DOMAINS = 64
TOPICS_PER_DOMAIN, WORDS_PER_TOPIC = 50, 100
TOPIC_SHARE = 1 / 3
QUERY_WORDS, DOCUMENT_WORDS = (4, 12), (16, 48)  # uniform, both ends included
PAIRS_PER_BLOCK = 65_536


def list_mined_words() -> pa.Array:
    """Return the most frequent mined words by decreasing frequency, with ties in alphabetical order."""
    counts: Counter[str] = Counter()
    for row in mine_cloud():
        counts.update(row.document.split())
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return pa.array(ranked[:NUM_WORDS])


def generate_blocks(num_pairs: int, seed: int = 0) -> Iterator[pa.Table]:
    """Yield tables of `query`, `document` and `domain`, one block at a time."""
    words = list_mined_words()
    cumulative = np.cumsum(1 / np.arange(1, len(words) + 1))
    topics = np.random.default_rng(seed).integers(0, len(words), (NUM_DOMAINS * TOPICS_PER_DOMAIN, WORDS_PER_TOPIC))
    shares = 1 / np.sqrt(np.arange(1, NUM_DOMAINS + 1))
    for start in range(0, num_pairs, PAIRS_PER_BLOCK):
        size = min(PAIRS_PER_BLOCK, num_pairs - start)
        # Each block has its own random stream, so that a block does not depend on those before it.
        rng = np.random.default_rng([seed, start])
        domains = rng.choice(NUM_DOMAINS, size, p=shares / shares.sum())
        topics_of_pairs = domains * TOPICS_PER_DOMAIN + rng.integers(0, TOPICS_PER_DOMAIN, size)
        sides = []
        for min_words, max_words in (QUERY_WORDS, DOCUMENT_WORDS):
            lengths = rng.integers(min_words, max_words + 1, size)
            word_ids = np.searchsorted(cumulative, rng.random(lengths.sum()) * cumulative[-1])
            is_topical = rng.random(len(word_ids)) < TOPIC_SHARE
            topic_words = rng.integers(0, WORDS_PER_TOPIC, is_topical.sum())
            word_ids[is_topical] = topics[np.repeat(topics_of_pairs, lengths)[is_topical], topic_words]
            sides.append(_join_words(words, word_ids, lengths))
        names = pa.array([f"domain-{index:02d}" for index in range(NUM_DOMAINS)]).take(pa.array(domains))
        yield pa.table({"query": sides[0], "document": sides[1], "domain": names})


def _join_words(words: pa.Array, word_ids: np.ndarray, lengths: np.ndarray) -> pa.Array:
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, words.take(pa.array(word_ids))), " ")


def write_generated(path: Path, num_pairs: int, seed: int = 0) -> None:
    """Write pairs as parquet, jsonl or csv, depending on the path's suffix. A partial file never has the final name."""
    blocks = generate_blocks(num_pairs, seed)
    with atomic_file(path) as part:
        if path.suffix == ".jsonl":
            with part.open("w", encoding="utf-8") as file:
                for block in blocks:
                    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in block.to_pylist())
            return
        first = next(blocks)
        writer_class = {".parquet": pq.ParquetWriter, ".csv": pyarrow.csv.CSVWriter}[path.suffix]
        with writer_class(part, first.schema) as writer:
            for block in chain((first,), blocks):
                writer.write_table(block)


def write_in_child(path: Path, num_pairs: int) -> None:
    """Write pairs in a separate process. Otherwise its memory would count in every later measurement."""
    command = [sys.executable, "-m", "benchmarks.generated_pairs", str(path), "--num-pairs", str(num_pairs)]
    subprocess.run(command, check=True)


def make_generated_run(cluster_size: int) -> Run:
    """Return a contextual run of twenty steps on the imported pairs, with clusters and filter."""
    # Imported here, because a benchmark that measures memory must stay small itself.
    from repro.data.own.imported import find_imported
    from repro.spec import base

    run = base("desk", corpus=find_imported(NAME).corpus, suite=NAME, num_pairs=None, architecture="contextual")
    run = replace(run, batch_size=512, sampler="cluster", packing="greedy", cluster_size=cluster_size)
    return replace(run, filter="surrogate", num_steps=NUM_STEPS, num_warmup_steps=2)


def main() -> None:
    """Write a file of pairs."""
    parser = make_parser(__doc__, has_record=False, num_pairs=100_000, seed=0)
    parser.add_argument("path", type=Path, help="ends in .parquet, .jsonl or .csv")
    options = parser.parse_args()
    write_generated(options.path, options.num_pairs, options.seed)


if __name__ == "__main__":
    main()

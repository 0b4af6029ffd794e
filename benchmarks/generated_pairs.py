"""Generate any number of pairs from mined words by Zipf's law, to test sizes without real text.

    python -m benchmarks.generated_pairs --num-pairs 1000000 pairs.parquet

Words come from Google's discovery documents in the wheel, drawn in proportion to 1/rank. A third of the words of a pair
come from its topic, so that clusters exist. Query and document together average 40 words. Domain sizes are proportional
to 1/sqrt(rank). The file depends only on the number of pairs and the seed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from repro.data.mined.sources.cloud import mine_cloud
from repro.storage.atomic import whole_file

NUM_WORDS = 30_000
NUM_DOMAINS = 64
TOPICS_A_DOMAIN, WORDS_A_TOPIC = 50, 100
TOPIC_SHARE = 1 / 3
QUERY_WORDS, DOCUMENT_WORDS = (4, 12), (16, 48)  # uniform, both ends included
PAIRS_A_BLOCK = 65_536


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
    heights = np.cumsum(1 / np.arange(1, len(words) + 1))
    topics = np.random.default_rng(seed).integers(0, len(words), (NUM_DOMAINS * TOPICS_A_DOMAIN, WORDS_A_TOPIC))
    shares = 1 / np.sqrt(np.arange(1, NUM_DOMAINS + 1))
    for start in range(0, num_pairs, PAIRS_A_BLOCK):
        size = min(PAIRS_A_BLOCK, num_pairs - start)
        rng = np.random.default_rng([seed, start])
        domains = rng.choice(NUM_DOMAINS, size, p=shares / shares.sum())
        topic_of = domains * TOPICS_A_DOMAIN + rng.integers(0, TOPICS_A_DOMAIN, size)
        sides = []
        for least, most in (QUERY_WORDS, DOCUMENT_WORDS):
            lengths = rng.integers(least, most + 1, size)
            chosen = np.searchsorted(heights, rng.random(lengths.sum()) * heights[-1])
            of_topic = rng.random(len(chosen)) < TOPIC_SHARE
            own = topics[np.repeat(topic_of, lengths)[of_topic], rng.integers(0, WORDS_A_TOPIC, of_topic.sum())]
            chosen[of_topic] = own
            sides.append(_join_words(words, chosen, lengths))
        names = pa.array([f"domain-{number:02d}" for number in range(NUM_DOMAINS)]).take(pa.array(domains))
        yield pa.table({"query": sides[0], "document": sides[1], "domain": names})


def _join_words(words: pa.Array, chosen: np.ndarray, lengths: np.ndarray) -> pa.Array:
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, words.take(pa.array(chosen))), " ")


def write_generated(path: Path, num_pairs: int, seed: int = 0) -> None:
    """Write pairs to a parquet, jsonl or csv file, by its ending. The file gets its name once it is complete."""
    blocks = generate_blocks(num_pairs, seed)
    with whole_file(path) as part:
        if path.suffix == ".jsonl":
            with part.open("w", encoding="utf-8") as file:
                for block in blocks:
                    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in block.to_pylist())
            return
        first = next(blocks)
        opened = {".parquet": pq.ParquetWriter, ".csv": pyarrow.csv.CSVWriter}[path.suffix]
        with opened(part, first.schema) as writer:
            for block in chain((first,), blocks):
                writer.write_table(block)


def write_generated_apart(path: Path, num_pairs: int) -> None:
    """Write pairs in a separate process. Otherwise its memory would count for every later measurement."""
    words = [sys.executable, "-m", "benchmarks.generated_pairs", str(path), "--num-pairs", str(num_pairs)]
    subprocess.run(words, check=True)


def main() -> None:
    """Write a file of pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="ends in .parquet, .jsonl or .csv")
    parser.add_argument("--num-pairs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    write_generated(asked.path, asked.num_pairs, asked.seed)


if __name__ == "__main__":
    main()

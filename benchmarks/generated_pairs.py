"""Generate any number of text pairs from mined words by Zipf's law, to measure sizes without real text.

    python -m benchmarks.generated_pairs --num-pairs 1000000 pairs.parquet
    python -m benchmarks.generated_pairs --num-pairs 1000000 --layout contrastors data/nomic-unsupervised

The second command writes a copy of the paper's unsupervised data in one of its public layouts: "nomic" (parquet with
query, document, dataset, shard), "jxm" (965 parquet files) or "contrastors" (a folder of jsonl.gz with counts per data
set). Domains have the shares of Table 5.

Words come from the discovery documents of Google's API client and are drawn in proportion to 1/rank. A third of the
words of a pair come from its topic, so that clusters exist. A query and its document have 40 words on average. Domain
sizes are proportional to 1/sqrt(rank). The file depends only on the number of pairs, the lengths and the seed. Never
commit it.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.harness import make_parser
from repro.data.mined.sources.apis import mine_cloud
from repro.data.paper.hub import CONTRASTORS_COLUMNS, CONTRASTORS_FOLDERS, COUNTS, SOURCES
from repro.storage.files import atomic_file

LAYOUTS = {"nomic": 64, "jxm": 965, "contrastors": 4}
"""Number of files by layout. Those of contrastors are per data set."""
NUM_WORDS = 30_000
NUM_DOMAINS = 64
TOPICS_PER_DOMAIN, WORDS_PER_TOPIC = 50, 100
TOPIC_SHARE = 1 / 3
QUERY_WORDS, DOCUMENT_WORDS = (4, 12), 32  # uniform, both ends included; the mean, between half and three halves
PAIRS_PER_BLOCK = 65_536


def list_mined_words() -> pa.Array:
    """Return the most frequent mined words by decreasing frequency, with ties in alphabetical order."""
    counts: Counter[str] = Counter()
    for row in mine_cloud():
        counts.update(row.document.split())
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return pa.array(ranked[:NUM_WORDS])


def generate_blocks(
    num_pairs: int, seed: int = 0, shares: Mapping[str, float] | None = None, document_words: int = DOCUMENT_WORDS
) -> Iterator[pa.Table]:
    """Yield tables of `query`, `document` and `domain`, one block at a time. `shares` are those of the domains."""
    words = list_mined_words()
    cumulative = np.cumsum(1 / np.arange(1, len(words) + 1))
    shares = shares or {f"domain-{index:02d}": (index + 1) ** -0.5 for index in range(NUM_DOMAINS)}
    names, sizes = pa.array([*shares]), np.array([*shares.values()], float)
    topics = np.random.default_rng(seed).integers(0, len(words), (len(shares) * TOPICS_PER_DOMAIN, WORDS_PER_TOPIC))
    for start in range(0, num_pairs, PAIRS_PER_BLOCK):
        size = min(PAIRS_PER_BLOCK, num_pairs - start)
        # Each block has its own random stream, so that a block does not depend on those before it.
        rng = np.random.default_rng([seed, start])
        domains = rng.choice(len(shares), size, p=sizes / sizes.sum())
        topics_of_pairs = domains * TOPICS_PER_DOMAIN + rng.integers(0, TOPICS_PER_DOMAIN, size)
        sides = []
        for min_words, max_words in (QUERY_WORDS, (document_words // 2, document_words * 3 // 2)):
            lengths = rng.integers(min_words, max_words + 1, size)
            word_ids = np.searchsorted(cumulative, rng.random(lengths.sum()) * cumulative[-1])
            is_topical = rng.random(len(word_ids)) < TOPIC_SHARE
            topic_words = rng.integers(0, WORDS_PER_TOPIC, is_topical.sum())
            word_ids[is_topical] = topics[np.repeat(topics_of_pairs, lengths)[is_topical], topic_words]
            sides.append(_join_words(words, word_ids, lengths))
        yield pa.table({"query": sides[0], "document": sides[1], "domain": names.take(pa.array(domains))})


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


def write_copy(folder: Path, layout: str, num_pairs: int, document_words: int = DOCUMENT_WORDS) -> None:
    """Write a copy of the paper's unsupervised data in one of its public layouts. Its files are written side by side."""
    shares = {name: float(domain.num_rows or 0) for name, domain in SOURCES["nomic-unsupervised"].domains.items()}
    num_files = LAYOUTS[layout]
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        counts: dict[str, dict[str, int]] = {}
        for number, block in enumerate(generate_blocks(num_pairs, 0, shares, document_words)):
            if layout == "contrastors":
                for row in block.to_pylist():
                    name = f"{find_contrastors_folder(row['domain'])}/shard-{number % num_files:05d}.jsonl.gz"
                    if name not in files:
                        (folder / name).parent.mkdir(parents=True, exist_ok=True)
                        files[name] = stack.enter_context(gzip.open(folder / name, "wt", compresslevel=1))
                    of_folder = counts.setdefault(name.partition("/")[0], {})
                    of_folder[name] = of_folder.get(name, 0) + 1
                    columns = CONTRASTORS_COLUMNS.get(row["domain"], ("query", "document"))
                    line = dict(zip(columns, (row["query"], row["document"]), strict=True))
                    files[name].write(json.dumps(line) + "\n")
                continue
            block = block.rename_columns(["query", "document", "dataset"])
            if layout == "nomic":
                block = block.append_column("shard", pa.array(np.full(len(block), number)))
            # a block has rows of many files, as those of a data set follow each other on the hub
            size = -(-len(block) // max(1, num_files * PAIRS_PER_BLOCK // num_pairs))
            for start in range(0, len(block), size):
                path = folder / "data" / f"train-{len(files):05d}-of-{num_files:05d}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(block[start : start + size], path)
                files[path.name] = None
    for name, of_folder in counts.items():
        (folder / name / COUNTS).write_text(json.dumps({"count_per_file": of_folder}))


def find_contrastors_folder(domain: str) -> str:
    """Return the folder of a domain in contrastors' layout."""
    return next((folder for folder, name in CONTRASTORS_FOLDERS.items() if name == domain), f"{domain}_full")


def write_in_child(path: Path, num_pairs: int, *options: str) -> None:
    """Write pairs in a separate process. Otherwise its memory would count in every later measurement."""
    command = [sys.executable, "-m", "benchmarks.generated_pairs", str(path), "--num-pairs", str(num_pairs), *options]
    subprocess.run(command, check=True)


def main() -> None:
    """Write a file of pairs, or a folder in a public layout."""
    parser = make_parser(__doc__, has_record=False, num_pairs=100_000, seed=0, document_words=DOCUMENT_WORDS)
    parser.add_argument("path", type=Path, help="ends in .parquet, .jsonl or .csv, or a folder with --layout")
    parser.add_argument("--layout", choices=LAYOUTS, help="a public layout of the paper's data")
    options = parser.parse_args()
    if options.layout:
        write_copy(options.path, options.layout, options.num_pairs, options.document_words)
    else:
        write_generated(options.path, options.num_pairs, options.seed)


if __name__ == "__main__":
    main()

"""Time tokenising many texts word by word against the tokenizer on whole texts, alternating in one process.

    python -m benchmarks.tokenizing --texts desk-views --write benchmarks/tokenizing.json

Texts are the queries and documents of one block of pairs, either `generated` or from a mined corpus (`desk`,
`desk-views`, or `functions`: code, in which words repeat least). Fails if the ids differ. The result is the median over
rounds, in processor seconds, because others may use the machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.generated_pairs import write_generated
from benchmarks.kept_rows import keep_rows
from repro.data import tokens
from repro.data.pairs import ROWS_PER_BATCH, read_pairs
from repro.data.tokens import Tokens, load_tokenizer, tokenize
from repro.pipeline.corpora import make_corpus_stage
from repro.storage.paths import home

WAYS = {"whole texts": 2**62, "by words": tokens.LEAST_TEXTS_BY_WORDS}
SIDES = ("query", "document")


def load_texts(name: str) -> list[list[str]]:
    """Return the queries and documents of a block of pairs. Mined ones are sampled from all pairs."""
    if name == "generated":
        path = home() / "tokenizing.parquet"
        write_generated(path, ROWS_PER_BATCH)
        table = pq.read_table(path)
        return [table.column(side).to_pylist() for side in SIDES]
    pairs = read_pairs(make_corpus_stage(name).build(print) / "train.arrow")
    rows = np.random.default_rng(0).permutation(len(pairs))[:ROWS_PER_BATCH]
    return [pairs.texts("query", rows), pairs.texts("document", rows)]


def timed(sides: Sequence[Sequence[str]], max_tokens: int, least_texts: int) -> tuple[float, list[Tokens]]:
    """Return the processor seconds of tokenising, and the tokens of each side."""
    tokenizer, tokens.LEAST_TEXTS_BY_WORDS = load_tokenizer("minilm"), least_texts
    started = time.process_time()
    found = [tokenize(texts, tokenizer, max_tokens) for texts in sides]
    return time.process_time() - started, found


def main() -> None:
    """Measure, print, and write the rows to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", default="generated", choices=("generated", "desk", "desk-views", "functions"))
    parser.add_argument("--max-tokens", type=int, default=40)
    parser.add_argument("--num-rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="the record to put the rows into")
    asked = parser.parse_args()
    home().mkdir(parents=True, exist_ok=True)
    sides, seconds, given = load_texts(asked.texts), {way: list[float]() for way in WAYS}, {}
    for _ in range(asked.num_rounds):
        for way, least_texts in WAYS.items():
            spent, given[way] = timed(sides, asked.max_tokens, least_texts)
            seconds[way].append(round(spent, 3))
    whole, by_words = given.values()
    for one, other in zip(whole, by_words, strict=True):
        assert np.array_equal(one.ids, other.ids) and np.array_equal(one.offsets, other.offsets), "the ids differ"
    told = {"texts": asked.texts, "max_tokens": asked.max_tokens, "num_pairs": len(sides[0])}
    told["num_tokens"] = sum(len(side.ids) for side in whole)
    machine = {"processor": platform.processor() or platform.machine(), "load_average": round(os.getloadavg()[0], 1)}
    rows = [
        {**told, "way": way, "cpu_seconds": each, "median": statistics.median(each)} for way, each in seconds.items()
    ]
    for row in rows:
        microseconds = row["median"] / row["num_tokens"] * 1e6
        print(f"{asked.texts:<10} {row['way']:<12} {row['median']:8.2f} s {microseconds:6.3f} µs a token")
    if asked.write:
        keep_rows(asked.write, [row | machine for row in rows], ("texts", "max_tokens", "way"))


if __name__ == "__main__":
    main()

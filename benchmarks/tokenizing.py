"""Compare our word-level tokenising with the plain tokenizer on whole texts: processor time per token.

    python -m benchmarks.tokenizing --texts desk-views --write benchmarks/tokenizing.json

The texts are the queries and documents of one block of pairs. They are `generated` or come from a mined corpus: `desk`,
`desk-views` or `functions` (code, in which words repeat least). Both ways alternate in one process. The benchmark fails
if their token ids differ.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow.parquet as pq

from benchmarks.generated_pairs import write_generated
from benchmarks.harness import describe_machine, make_parser, time_in_turns, write_rows
from repro.data import tokens
from repro.data.pairs import ROWS_PER_BATCH, Side, read_pairs
from repro.data.tokens import Tokens, load_tokenizer, tokenize
from repro.pipeline.corpora import make_corpus_stage
from repro.storage.paths import get_home

# Smallest number of texts that are tokenised by words. A huge number selects the plain tokenizer.
MIN_TEXTS_PER_CHUNK = {"whole texts": 2**62, "by words": tokens.MIN_TEXTS_FOR_WORD_CACHE}
SIDES: tuple[Side, Side] = ("query", "document")


def load_texts(name: str) -> list[list[str]]:
    """Return the queries and documents of a block of pairs. Mined pairs are sampled from the whole corpus."""
    if name == "generated":
        path = get_home() / "tokenizing.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_generated(path, ROWS_PER_BATCH)
        table = pq.read_table(path)
        return [table.column(side).to_pylist() for side in SIDES]
    pairs = read_pairs(make_corpus_stage(name).build(print) / "train.arrow")
    rows = np.random.default_rng(0).permutation(len(pairs))[:ROWS_PER_BATCH]
    return [pairs.texts(side, rows) for side in SIDES]


def main() -> None:
    """Time both ways, print a line for each and update the record."""
    parser = make_parser(__doc__, max_tokens=40, num_rounds=3)
    parser.add_argument("--texts", default="generated", choices=("generated", "desk", "desk-views", "functions"))
    options = parser.parse_args()
    sides, tokenizer = load_texts(options.texts), load_tokenizer("minilm")

    def tokenize_sides(min_texts: int) -> list[Tokens]:
        tokens.MIN_TEXTS_FOR_WORD_CACHE = min_texts
        return [tokenize(texts, tokenizer, options.max_tokens) for texts in sides]

    actions = {method: partial(tokenize_sides, min_texts) for method, min_texts in MIN_TEXTS_PER_CHUNK.items()}
    timings = time_in_turns(actions, options.num_rounds)
    whole, by_words = timings.results.values()
    for expected, actual in zip(whole, by_words, strict=True):
        assert np.array_equal(expected.ids, actual.ids), "the ids differ"
        assert np.array_equal(expected.offsets, actual.offsets), "the offsets differ"
    num_tokens = sum(len(side.ids) for side in whole)
    for method, median in timings.medians.items():
        row = {"texts": options.texts, "max_tokens": options.max_tokens, "num_pairs": len(sides[0])}
        row |= {"num_tokens": num_tokens, "way": method, "median": round(median, 3)}
        row |= {"cpu_seconds": [round(seconds, 3) for seconds in timings.seconds[method]]}
        print(f"{options.texts:<10} {method:<12} {median:8.2f} s {median / num_tokens * 1e6:6.3f} µs per token")
        write_rows(options.write, [row | describe_machine()], ("texts", "max_tokens", "way"))


if __name__ == "__main__":
    main()

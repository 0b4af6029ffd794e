"""Views of mined rows: further pairs from the same text, such as sentences and crops."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from repro.data.pairs import Row
from repro.data.wording import has_fair_length, split_identifier
from repro.seeds import make_rng

MIN_CROP_WORDS = 4
MAX_CROP_WORDS = 10
WORDS_PER_CROP = 5
MAX_CROPS = 12

_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")


def iter_views(rows: Iterable[Row], *, max_document_words: int, seed: int) -> Iterator[Row]:
    """Yield all rows and their views. Ids of views end in `@view`. Documents are cut to `max_document_words`.

    Views:

    - query with the name of its domain → document
    - query → first sentence
    - each sentence → the other sentences
    - random spans of words → the text around them

    Crops are drawn from one random stream, so the order of rows matters.
    """
    rng = make_rng(seed, "views")
    for row in rows:
        for view, query, document in (*_iter_sentence_views(row), *_iter_crops(row, rng)):
            truncated = " ".join(document.split()[:max_document_words])
            if has_fair_length(query, truncated):
                yield row._replace(id=f"{row.id}{view}", query=query, document=truncated)


def _iter_sentence_views(row: Row) -> Iterator[tuple[str, str, str]]:
    yield "", row.query, row.document
    yield "@named", f"{split_identifier(row.domain)} {row.query}", row.document
    sentences = _SENTENCE_END.split(row.document)
    if len(sentences) < 2:
        return
    yield "@first", row.query, sentences[0]
    for number, sentence in enumerate(sentences[:MAX_CROPS]):
        yield f"@sentence{number}", sentence, " ".join(sentences[:number] + sentences[number + 1 :])


def _iter_crops(row: Row, rng: np.random.Generator) -> Iterator[tuple[str, str, str]]:
    words = row.document.split()
    num_crops = min(len(words) // WORDS_PER_CROP, MAX_CROPS) if len(words) >= 3 * MIN_CROP_WORDS else 0
    lengths = rng.integers(MIN_CROP_WORDS, MAX_CROP_WORDS + 1, num_crops)
    # positions as fractions of the range of possible starts
    positions = rng.random(num_crops)
    for number, (length, position) in enumerate(zip(lengths.tolist(), positions.tolist(), strict=True)):
        length = min(length, len(words) // 2)
        start = int(position * (len(words) - length + 1))
        rest = words[:start] + words[start + length :]
        yield f"@crop{number}", " ".join(words[start : start + length]), " ".join(rest)

"""Zero-shot polarity: a text belongs to the label whose words have the nearest vector (GTE §4.1, Table 4).

Nothing is fitted. A label is written as its word alone ("plain"), or within a sentence ("prompted"), in the words of
the paper. The texts are sentences of film reviews (Pang and Lee 2005, of which SST-2 is made), a sample in gensim.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

LABELS = ("negative", "positive")
VERBALISERS = {"plain": "{}", "prompted": "this is an example of {} movie review"}
_LABEL_OF = {"__label__neg": 0, "__label__pos": 1}

Encode = Callable[[Sequence[str]], np.ndarray]
"""Of N texts returns unit vectors, float32 (N, D)."""


def list_gensim_texts() -> Path:
    """Return the folder of texts that gensim's wheel carries; ValueError when it is not installed."""
    spec = importlib.util.find_spec("gensim")
    if spec is None or spec.origin is None:
        raise ValueError("gensim is not installed: its wheel carries word pairs and texts that people have judged")
    return Path(spec.origin).parent / "test" / "test_data"


def film_reviews() -> tuple[list[str], list[str]]:
    """Return sentences of film reviews and the label that each has in the file; ValueError when gensim is not here."""
    lines = (list_gensim_texts() / "pang_lee_polarity.cor").read_text(encoding="latin-1").split("\n")
    labels, texts = zip(*(line.split(" ", 1) for line in lines if line.strip()), strict=True)
    return list(texts), list(labels)


def label_numbers(labels: Sequence[str]) -> np.ndarray:
    """Return the place of each label in LABELS, int64 (N,)."""
    return np.array([_LABEL_OF[label] for label in labels])


def classify(texts_ND: np.ndarray, encode: Encode, verbaliser: str) -> np.ndarray:
    """Return the place in LABELS of the label nearest to each text by inner product, int64 (N,); the first of equals.

    ValueError names an unknown verbaliser.
    """
    if verbaliser not in VERBALISERS:
        raise ValueError(f"unknown verbaliser {verbaliser!r}; choose one of {list(VERBALISERS)}")
    labels_LD = encode([VERBALISERS[verbaliser].format(label) for label in LABELS])
    chosen_N: np.ndarray = (texts_ND @ labels_LD.T).argmax(axis=1)
    return chosen_N

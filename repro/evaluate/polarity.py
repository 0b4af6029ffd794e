"""Zero-shot polarity: a text gets the label whose words have the nearest vector (GTE §4.1, Table 4).

Nothing is fitted. A label is its bare word ("plain") or a sentence around it ("prompted"), as in the paper. The texts
are sentences of film reviews from a sample in gensim (Pang and Lee 2005, the source of SST-2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from repro.data.wording import get_package_folder

LABELS = ("negative", "positive")
VERBALISERS = {"plain": "{}", "prompted": "this is an example of {} movie review"}
_LABEL_INDEX = {"__label__neg": 0, "__label__pos": 1}

Encode = Callable[[Sequence[str]], np.ndarray]
"""Embeds N texts as unit vectors, float32 (N, D)."""


def list_gensim_texts() -> Path:
    """Return the folder of texts in the gensim wheel. Raises ValueError if gensim is not installed."""
    return get_package_folder("gensim") / "test" / "test_data"


def load_film_reviews() -> tuple[list[str], list[str]]:
    """Return sentences of film reviews and their labels as in the file. Raises ValueError if gensim is not installed."""
    lines = (list_gensim_texts() / "pang_lee_polarity.cor").read_text(encoding="latin-1").split("\n")
    labels, texts = zip(*(line.split(" ", 1) for line in lines if line.strip()), strict=True)
    return list(texts), list(labels)


def encode_labels(labels: Sequence[str]) -> np.ndarray:
    """Return the index of each label in LABELS, int64 (N,)."""
    return np.array([_LABEL_INDEX[label] for label in labels])


def classify(texts_ND: np.ndarray, encode: Encode, verbaliser: str) -> np.ndarray:
    """Return the index in LABELS of the label nearest to each text by inner product, int64 (N,).

    Ties go to the first label.
    """
    labels_LD = encode([VERBALISERS[verbaliser].format(label) for label in LABELS])
    nearest_N: np.ndarray = (texts_ND @ labels_LD.T).argmax(axis=1)
    return nearest_N

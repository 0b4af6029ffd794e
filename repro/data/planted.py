"""A synthetic corpus in which only the other documents of a domain reveal which words are noise.

Each domain draws a set of noise words from one vocabulary. The topics of the domain use the other words. A document
consists of words of its topic, shuffled among noise words. Its query has some of the same topic words among other
random noise words. Noise in one domain is signal in another, so a model that reads a single text cannot weight words
correctly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from repro.data.beir import Retrieval, write_beir_folder, write_suite
from repro.data.pairs import Row, write_pairs
from repro.data.tokens import get_minilm_folder
from repro.seeds import make_rng


@dataclass(frozen=True)
class PlantedText:
    """Parameters of planted texts. All counts are words, and each word is one WordPiece token."""

    num_vocabulary_words: int = 200
    num_noise_words: int = 32
    num_topics: int = 8
    words_per_topic: int = 20
    topic_words_per_document: int = 6
    noise_words_per_document: int = 12
    topic_words_per_query: int = 4
    noise_words_per_query: int = 10


SMALL_TEXT = PlantedText(
    num_vocabulary_words=64,
    num_noise_words=16,
    words_per_topic=12,
    topic_words_per_document=4,
    noise_words_per_document=8,
    topic_words_per_query=3,
    noise_words_per_query=6,
)
"""A vocabulary small enough for vectors of width 64. A model can learn to use its context in a few minutes."""

TEXTS = {"wide": PlantedText(), "small": SMALL_TEXT}


def build_planted_corpus(
    folder: Path,
    *,
    num_domains: int,
    pairs_per_domain: int,
    num_heldout_domains: int,
    text: str,
    seed: int = 0,
) -> None:
    """Write train.arrow with `num_domains` domains, and suites/planted and suites/planted-validation with others.

    Each held-out domain is one dataset with `pairs_per_domain` queries and documents. `text` is a name in `TEXTS`.
    """
    parameters = TEXTS[text]
    words = list_vocabulary_words(parameters.num_vocabulary_words, seed)
    write_pairs(folder / "train.arrow", _iter_train_rows(words, parameters, num_domains, pairs_per_domain, seed))
    for suite in ("planted", "planted-validation"):
        names = [f"{suite}-{number:03d}" for number in range(num_heldout_domains)]
        for name in names:
            domain = make_domain(name, words, parameters, num_pairs=pairs_per_domain, seed=seed)
            write_beir_folder(folder / "suites" / suite / name, domain)
        write_suite(folder / "suites" / suite, suite, [(name, "planted") for name in names])


def make_domain(name: str, words: np.ndarray, text: PlantedText, *, num_pairs: int, seed: int) -> Retrieval:
    """Generate the domain `name`: pair n is query n and document n. The result depends on the arguments only."""
    rng = make_rng(seed, "planted domain", name)
    shuffled = rng.permutation(words)
    noise, signal = shuffled[: text.num_noise_words], shuffled[text.num_noise_words :]
    topics = [rng.choice(signal, text.words_per_topic, replace=False) for _ in range(text.num_topics)]
    queries, documents = [], []
    for index in range(num_pairs):
        topic_words = rng.choice(topics[index % text.num_topics], text.topic_words_per_document, replace=False)
        # Query and document share topic words, and draw their noise words independently.
        documents.append(_mix(rng, topic_words, noise, text.noise_words_per_document))
        queries.append(_mix(rng, topic_words[: text.topic_words_per_query], noise, text.noise_words_per_query))
    document_ids, query_ids = (tuple(f"{letter}{index}" for index in range(num_pairs)) for letter in "dq")
    judgements = {query_id: {document_id: 1} for query_id, document_id in zip(query_ids, document_ids, strict=True)}
    return Retrieval(name, document_ids, tuple(documents), query_ids, tuple(queries), judgements)


def list_vocabulary_words(num_words: int, seed: int) -> np.ndarray:
    """Draw `num_words` lower-case words that are single tokens of MiniLM's WordPiece. Return them sorted."""
    vocabulary = (get_minilm_folder() / "vocab.txt").read_text(encoding="utf-8").split("\n")
    candidates = sorted(
        word for word in vocabulary if word.isascii() and word.isalpha() and word.islower() and 3 <= len(word) <= 9
    )
    return np.sort(make_rng(seed, "planted vocabulary").choice(candidates, num_words, replace=False))


def _mix(rng: np.random.Generator, signal: np.ndarray, noise: np.ndarray, num_noise: int) -> str:
    return " ".join(rng.permutation(np.concatenate([signal, rng.choice(noise, num_noise, replace=False)])))


def _iter_train_rows(
    words: np.ndarray, text: PlantedText, num_domains: int, num_pairs: int, seed: int
) -> Iterator[Row]:
    for number in range(num_domains):
        name = f"planted-train-{number:04d}"
        domain = make_domain(name, words, text, num_pairs=num_pairs, seed=seed)
        for index, (query, document) in enumerate(zip(domain.queries, domain.documents, strict=True)):
            yield Row(f"{name}-{index}", query, document, name, "planted")

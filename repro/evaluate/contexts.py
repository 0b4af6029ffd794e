"""Draw the documents that a contextual model is conditioned on in evaluation.

Kinds of context:

- `own`: a seeded sample of the searched corpus, never of its queries (§9.12).
- `wrong`: the same of another corpus, from another family if possible. Each corpus serves once.
- `random`: a seeded sample of general text, such as training documents.
- `null`: the null vector of the model in every slot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from repro.data.beir import DOCUMENT, Retrieval, SuiteDataset, read_texts
from repro.seeds import make_rng


@dataclass(frozen=True)
class Context:
    """Context documents (None: the null context) and their provenance for the record."""

    texts: list[str] | None
    provenance: dict[str, Any]


def draw_context(kind: str, source: Retrieval | None, *, num_contexts: int, seed: int) -> Context:
    """Draw up to `num_contexts` documents from `source`, without repeats. `kind` is one of `CONTEXTS`."""
    if kind == "null":
        return Context(None, {"kind": kind})
    assert source is not None, f"the context {kind!r} needs a source corpus"
    generator = make_rng(seed, "evaluation context", source.name)
    # A prefix of one permutation: a smaller context is part of a larger one with the same seed.
    sample = generator.permutation(len(source.documents))[:num_contexts]
    ids = [source.document_ids[row] for row in sample]
    digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]
    provenance = {"kind": kind, "corpus": source.name, "seed": seed, "num_documents": len(ids), "ids_sha256": digest}
    return Context([source.documents[row] for row in sample], provenance)


MAX_SEARCHED_SHARE = 0.5
"""Largest share of searched documents among the documents of a wrong corpus."""


def are_mostly_searched(documents: Iterable[Any], searched: Iterable[Any]) -> bool:
    """Return whether most documents of a corpus are searched, so that it would be the right one, not a wrong one."""
    distinct = {*documents}
    return len(distinct.intersection(searched)) > MAX_SEARCHED_SHARE * len(distinct)


def have_wrong_corpora(datasets: Sequence[SuiteDataset]) -> bool:
    """Return whether the datasets of a suite can be wrong corpora of each other.

    A single dataset has no other one. A dataset that is mostly searched itself is no wrong corpus, for example if both
    have the same documents, as the held-out domains of an imported corpus have.
    """
    if len(datasets) < 2:
        return False
    paths = {dataset.name: dataset.path / "corpus.jsonl" for dataset in datasets}

    @cache
    def read_documents(name: str) -> frozenset[int]:
        # hashes, because the texts of a whole suite may not fit into memory
        return frozenset(map(hash, read_texts(paths[name], DOCUMENT).values()))

    return not any(
        are_mostly_searched(read_documents(other), read_documents(name))
        for name, other in wrong_corpora(datasets).items()
    )


def wrong_corpora(datasets: Sequence[SuiteDataset]) -> dict[str, str]:
    """Return the wrong corpus of each dataset. Each dataset serves once. Raises ValueError for a single dataset.

    Datasets form a ring, ordered by family and name, and each one maps to the dataset `shift` positions further. The
    shift is the one with the fewest pairs of the same family. Ties go to the shift nearest to half the ring.
    """
    if len(datasets) < 2:
        raise ValueError("a suite with one dataset has no wrong corpus: drop the context 'wrong'")
    ring = sorted(datasets, key=lambda dataset: (dataset.family, dataset.name))

    def rank_shift(shift: int) -> tuple[int, int]:
        others = ring[shift:] + ring[:shift]
        num_same_family = sum(dataset.family == other.family for dataset, other in zip(ring, others, strict=True))
        return num_same_family, abs(2 * shift - len(ring))

    best = min(range(1, len(ring)), key=rank_shift)
    return {dataset.name: other.name for dataset, other in zip(ring, ring[best:] + ring[:best], strict=True)}

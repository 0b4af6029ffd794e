"""Which documents a contextual model is conditioned on when it is scored, and how they were drawn, for the record.

`own`: a seeded sample of the searched corpus, never its queries (§5). `wrong`: the same of another corpus, of another
family as far as there are enough, each corpus serving once. `random`: a seeded sample of general text, such as the
training documents. `null`: the model's null vector in every place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repro.data.beir import Retrieval, SuiteDataset
from repro.seeds import generator_for

KINDS = ("own", "wrong", "random", "null")


@dataclass(frozen=True)
class Context:
    """Context documents (None: the null context) and what the record keeps of them."""

    texts: list[str] | None
    provenance: dict[str, Any]


def draw_context(kind: str, source: Retrieval | None, *, num_contexts: int, seed: int) -> Context:
    """Draw the context from `source` without repeats while its documents last; ValueError for an unknown kind."""
    if kind not in KINDS:
        raise ValueError(f"unknown context {kind!r}; choose one of {list(KINDS)}")
    if kind == "null":
        return Context(None, {"kind": kind})
    assert source is not None, f"context {kind!r} is drawn from a corpus"
    generator = generator_for(seed, "evaluation context", source.name)
    places = generator.permutation(len(source.documents))[:num_contexts]
    ids = [source.document_ids[place] for place in places]
    digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]
    found = {"kind": kind, "corpus": source.name, "seed": seed, "num_documents": len(ids), "ids_sha256": digest}
    return Context([source.documents[place] for place in places], found)


def wrong_corpora(datasets: Sequence[SuiteDataset]) -> dict[str, str]:
    """Return for each dataset another one; each serves once. ValueError when there is only one.

    Datasets are laid in a ring, family after family, and each takes the one some places on: the number of places that
    gives the fewest datasets one of their own family, and of such numbers the one nearest to half the ring.
    """
    if len(datasets) < 2:
        raise ValueError("a suite of one dataset has no wrong corpus: leave out the context 'wrong', or name one")
    ring = sorted(datasets, key=lambda dataset: (dataset.family, dataset.name))

    def badness(shift: int) -> tuple[int, int]:
        others = ring[shift:] + ring[:shift]
        num_kin = sum(one.family == other.family for one, other in zip(ring, others, strict=True))
        return num_kin, abs(2 * shift - len(ring))

    best = min(range(1, len(ring)), key=badness)
    return {one.name: other.name for one, other in zip(ring, ring[best:] + ring[:best], strict=True)}

"""Whitened vectors in an evaluation: options, training text to whiten by, and what is printed about the gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from repro.data.beir import Retrieval
from repro.data.pairs import read_pairs
from repro.evaluate.adaptation import SOURCES, WHITENED
from repro.interop.beside import Difference
from repro.pipeline.corpora import make_corpus_stage
from repro.seeds import generator_for

AS_IT_IS = "as it is"


def check_whitening(sources: Sequence[str], shrinkage: float | None) -> None:
    """Raise ValueError for an unknown source, and for a shrinkage without one or outside 0 to 1."""
    if unknown := sorted(set(sources) - set(SOURCES)):
        raise ValueError(f"--whiten {' '.join(unknown)} is unknown; choose one of {list(SOURCES)}")
    if shrinkage is not None and not sources:
        raise ValueError(f"--shrinkage {shrinkage}: nothing is whitened; add --whiten own")
    if shrinkage is not None and not 0.0 <= shrinkage <= 1.0:
        raise ValueError(f"--shrinkage {shrinkage}: must be from 0 to 1")


def sample_training_text(corpus: str, count: int, seed: int, progress: Callable[[str], None]) -> Retrieval:
    """Return distinct training documents of a corpus, drawn by the seed, as a collection without queries."""
    pairs = read_pairs(make_corpus_stage(corpus).build(progress) / "train.arrow")
    drawn = generator_for(seed, "adaptation", "drawn pairs").permutation(len(pairs))[: 2 * count]
    texts = list(dict.fromkeys(pairs.texts("document", np.asarray(drawn))))[:count]
    progress(f"whitened by random text: {len(texts)} training documents of {corpus}")
    return Retrieval(f"training text of {corpus}", tuple(map(str, range(len(texts)))), tuple(texts), (), (), {})


def format_whitening_lines(found: Sequence[Difference]) -> list[str]:
    """Return a line per whitened column: its gain over the vectors as they are, and whether it is above zero."""
    lines = []
    for one in found:
        if one.other.split()[-1].startswith(WHITENED):
            low, high = -one.high, -one.low
            verdict = "" if low > 0 else ": not above zero, so do not deploy it on this evidence"
            lines.append(
                f"{one.other} − {one.first}: {-one.points:+.1f} points (95 %: {low:+.1f} to {high:+.1f}){verdict}"
            )
    return lines

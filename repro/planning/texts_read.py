"""How much of a corpus a run's tokenizer knows, and how many documents are longer than the run reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from repro.data.pairs import Pairs
from repro.data.tokens import load_tokenizer, tokenize, unknown_tokens
from repro.pipeline.wanted import get_tokenizer_name
from repro.spec import Run
from repro.spec.values import count_noun

LOOKED_AT = 20_000
"""Pairs, evenly spaced, in which tokens are counted: a few seconds."""
MUCH_UNKNOWN, MOST_UNKNOWN = 0.05, 0.5


@dataclass(frozen=True)
class TextsRead:
    """Counts of tokens in the pairs of a corpus.

    Attributes:
        num_looked_at: Pairs that were counted, of all those of the corpus.
        num_cut: How many of their documents have more tokens than `max_tokens`.
        max_tokens: What a run reads of a text.
        unknown_share: The share of unknown tokens in queries and documents.
    """

    num_looked_at: int
    num_cut: int
    max_tokens: int
    unknown_share: float

    def lines(self) -> list[str]:
        """Return one line on length, and one on the vocabulary."""
        documents = count_noun(self.num_looked_at, "document")
        unknown = f"unknown tokens: {self.unknown_share:.1%}"
        if self.unknown_share > MUCH_UNKNOWN:
            unknown = f"look at this: {unknown}: the vocabulary lacks words of these texts, choose another tokenizer"
        cut = f"{self.num_cut} of {documents} ({self.num_cut / self.num_looked_at:.0%}) are longer than the"
        return [f"  {cut} {self.max_tokens} tokens that a model reads", f"  {unknown}"]


def count_tokens(pairs: Pairs, run: Run) -> TextsRead:
    """Tokenise pairs, evenly spaced, as a run does, and count unknown tokens and documents that are cut."""
    tokenizer = load_tokenizer(get_tokenizer_name(run))
    places = np.unique(np.linspace(0, len(pairs) - 1, LOOKED_AT).astype(int))
    documents = tokenize(pairs.texts("document", places), tokenizer, run.max_tokens + 1)
    queries = tokenize(pairs.texts("query", places), tokenizer, run.max_tokens + 1)
    sizes = np.array([len(documents.ids), len(queries.ids)])
    shares = [unknown_tokens(one, tokenizer)[0] for one in (documents, queries)]
    num_cut = int((documents.lengths > run.max_tokens).sum())
    return TextsRead(len(places), num_cut, run.max_tokens, float(np.average(shares, weights=sizes)))


def check_known(found: TextsRead, name: str) -> None:
    """ValueError for a corpus of which most tokens are unknown."""
    if found.unknown_share > MOST_UNKNOWN:
        raise ValueError(
            f"{found.unknown_share:.0%} of the tokens of {name} are unknown to the tokenizer, so nothing can "
            "be learned from them: choose a scale with another tokenizer, or --allow-unknown to import it all the same"
        )

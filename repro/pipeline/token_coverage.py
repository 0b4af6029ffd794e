"""Count unknown tokens and truncated documents in the training pairs of a run."""

from __future__ import annotations

from dataclasses import dataclass

from repro.data.pairs import SIDES, Pairs
from repro.data.tokens import count_unread, load_tokenizer
from repro.pipeline.needs import get_tokenizer_name
from repro.pipeline.prompting import PromptedTexts
from repro.spec import Run
from repro.storage.arrays import sample_evenly
from repro.text import count_noun

AT_IMPORT, AT_TRAINING = 20_000, 2_000
"""Numbers of evenly spaced pairs to count in. They take a few seconds, and a fraction of one."""
HIGH_UNKNOWN_SHARE, MAX_UNKNOWN_SHARE = 0.05, 0.5


@dataclass(frozen=True)
class TextsRead:
    """Counts of tokens in the pairs of a corpus.

    Attributes:
        num_looked_at: Number of counted pairs.
        num_cut: Number of their documents with more than `max_tokens` tokens.
        max_tokens: Tokens that a run reads of a text, including its prompt.
        unknown_share: Share of unknown tokens in queries and documents.
    """

    num_looked_at: int
    num_cut: int
    max_tokens: int
    unknown_share: float

    def lines(self) -> list[str]:
        """Return one line about length, and one about the vocabulary."""
        documents = count_noun(self.num_looked_at, "document")
        share = self.num_cut / max(1, self.num_looked_at)
        cut = f"  {self.num_cut} of {documents} ({share:.0%}) are cut after {self.max_tokens} tokens"
        return [cut, f"  {unknown_words(self.unknown_share)}"]


def unknown_words(share: float) -> str:
    """Format the share of unknown tokens, with advice if it is large."""
    message = f"unknown tokens: {share:.1%}"
    if share <= HIGH_UNKNOWN_SHARE:
        return message
    return f"warning: {message}: the vocabulary lacks words of these texts; set 'start' to an encoder of their language"


def count_tokens(pairs: Pairs, run: Run, num_pairs: int = AT_TRAINING) -> TextsRead:
    """Tokenise evenly spaced pairs as a run does, and count unknown tokens and truncated documents."""
    tokenizer = load_tokenizer(get_tokenizer_name(run))
    rows = sample_evenly(len(pairs), num_pairs)
    queries, documents = (PromptedTexts(pairs, side, run.prompts, run.corpus).texts(rows) for side in SIDES)
    num_cut, unknown_share = count_unread(documents, queries, tokenizer, run.max_tokens)
    pairs.release_pages()
    return TextsRead(len(rows), num_cut, run.max_tokens, unknown_share)


def check_vocabulary(counts: TextsRead, name: str) -> None:
    """Raise ValueError if most tokens of a corpus are unknown."""
    if counts.unknown_share > MAX_UNKNOWN_SHARE:
        remedy = "give --allow-unknown, then set 'start' to an encoder of their language"
        raise ValueError(f"{counts.unknown_share:.0%} of the tokens of {name} are unknown: {remedy}")

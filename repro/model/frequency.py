"""Pooling by how many context documents hold a word: an extension of ours, which the paper does not have.

1. A context document gives, beside its vector, which words of the vocabulary it holds. 2. A word's share of the context
documents picks one of the learned weights, between two of them in proportion; a context that is null picks a weight of
its own. 3. A text's vector is the mean of its states under these weights instead of the plain mean, which it is at the
start of training, all weights being one. 4. In training a text's context is taken for null with probability
`DROPPED`, so that the weight without a context is learned as well.

It tells how much a model gains that is handed what the second stage would have to find out by attention.

Shapes: N texts, S tokens, C context vectors, V words, K weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from repro.model.texts import Texts

DROPPED = 0.1
RATE = 10.0
"""How much faster than other weights these few learn; Adam moves every weight by about the learning rate a step."""


def words_held(texts: Texts, num_words: int) -> Tensor:
    """Return 1 where a text holds a word and 0 elsewhere, (N, V); padding is no word."""
    held_NV = torch.zeros(texts.num_texts, num_words, device=texts.ids_NS.device)
    return held_NV.scatter_reduce_(1, texts.ids_NS, texts.mask_NS.to(held_NV.dtype), "amax")


def make_no_words(num_contexts: int, num_words: int, device: torch.device) -> Tensor:
    """Return what null vectors hold, (C, V): −1 marks a row as no document."""
    return torch.full((num_contexts, num_words), -1.0, device=device)


class FrequencyWeights(nn.Module):
    """A weight for each share of the context documents that hold a word, and one for a context that is null."""

    def __init__(self, num_contexts: int) -> None:
        super().__init__()
        self.logits_K = nn.Parameter(torch.zeros(num_contexts + 2))

    def forward(self, texts: Texts, words_CV: Tensor) -> Tensor:
        """Return the weights of the tokens of texts, (N, S), zero on padding."""
        last = len(self.logits_K) - 2
        is_document_C = words_CV[:, 0] >= 0
        by_share = self._by_share(words_CV[is_document_C].detach().float(), last)
        unknown = self.logits_K[-1].expand(texts.ids_NS.shape)
        logits_NS = unknown if by_share is None else by_share[texts.ids_NS]
        if self.training:
            dropped_N1 = torch.rand(texts.num_texts, 1, device=unknown.device) < DROPPED
            logits_NS = torch.where(dropped_N1, unknown, logits_NS)
        return torch.exp(RATE * logits_NS) * texts.mask_NS

    def _by_share(self, words_CV: Tensor, last: int) -> Tensor | None:
        if not len(words_CV):
            return None
        place_V = words_CV.mean(0) * last
        below_V = place_V.floor().long().clamp(max=last - 1)
        part_V = place_V - below_V
        return self.logits_K[below_V] * (1 - part_V) + self.logits_K[below_V + 1] * part_V

"""Pool tokens by word frequency in the context. This extension is not in the paper.

1. Besides its vector, a context document contributes the set of its vocabulary words.
2. The share of context documents that contain a word selects a learned weight, by linear interpolation. The null
   context has its own weight.
3. A text's vector is the weighted mean of its states. All weights start at one, which gives the plain mean.
4. In training, a text's context is replaced by the null context with probability `DROPPED`, so that this weight is
   trained as well.

The extension measures the gain if the model receives word–document frequencies directly. Otherwise attention would have
to find them.

Shapes: N texts, S tokens, C context vectors, V words, K weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from repro.model.texts import Texts

DROPPED = 0.1
RATE = 10.0
"""Factor on the learning rate of these few weights. Adam changes every weight by about the learning rate per step."""


def mark_words(texts: Texts, num_words: int) -> Tensor:
    """Return 1 if a text contains a word and 0 otherwise, (N, V). Padding does not count."""
    held_NV = torch.zeros(texts.num_texts, num_words, device=texts.ids_NS.device)
    return held_NV.scatter_reduce_(1, texts.ids_NS, texts.mask_NS.to(held_NV.dtype), "amax")


def make_no_words(num_contexts: int, num_words: int, device: torch.device) -> Tensor:
    """Return the word columns of null vectors, (C, V). The value −1 marks a row that is not a document."""
    return torch.full((num_contexts, num_words), -1.0, device=device)


class FrequencyWeights(nn.Module):
    """Learned token weights: one per share of context documents, and one for the null context."""

    def __init__(self, num_contexts: int) -> None:
        super().__init__()
        self.logits_K = nn.Parameter(torch.zeros(num_contexts + 2))

    def forward(self, texts: Texts, words_CV: Tensor) -> Tensor:
        """Return the weights of the tokens, (N, S). They are zero on padding."""
        last = len(self.logits_K) - 2
        is_document_C = words_CV[:, 0] >= 0
        by_share = self._interpolate(words_CV[is_document_C].detach().float(), last)
        unknown = self.logits_K[-1].expand(texts.ids_NS.shape)
        logits_NS = unknown if by_share is None else by_share[texts.ids_NS]
        # trains the weight of the null context too
        if self.training:
            dropped_N1 = torch.rand(texts.num_texts, 1, device=unknown.device) < DROPPED
            logits_NS = torch.where(dropped_N1, unknown, logits_NS)
        return torch.exp(RATE * logits_NS) * texts.mask_NS

    def _interpolate(self, words_CV: Tensor, last: int) -> Tensor | None:
        """Return the interpolated logit of each word, (V,). None without documents."""
        if not len(words_CV):
            return None
        place_V = words_CV.mean(0) * last
        # Interpolate linearly between the two nearest of the learned weights.
        below_V = place_V.floor().long().clamp(max=last - 1)
        part_V = place_V - below_V
        return self.logits_K[below_V] * (1 - part_V) + self.logits_K[below_V + 1] * part_V

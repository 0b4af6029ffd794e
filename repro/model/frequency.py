"""Pool tokens by word frequency in the context. This extension is not in the paper.

1. Besides its vector, a context document contributes the set of its vocabulary words.
2. The share of context documents that contain a word selects a learned weight, by linear interpolation. The null
   context has its own weight.
3. A text's vector is the weighted mean of its states. All weights start at one, which gives the plain mean.
4. In training, a text's context is replaced by the null context with probability `DROPOUT`, so that this weight is
   trained as well.

The extension measures the gain if the model receives word–document frequencies directly. Otherwise attention would have
to find them.

Shapes: N texts, S tokens, C context vectors, V words, K weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from repro.model.texts import Texts

DROPOUT = 0.1
LOGIT_SCALE = 10.0
"""Factor on the logits, which acts as a factor on their learning rate: Adam changes every weight by about the learning
rate per step, whatever the size of its gradient.
"""


def mark_words(texts: Texts, num_words: int) -> Tensor:
    """Return 1 if a text contains a word and 0 otherwise, (N, V). Padding does not count."""
    contains_NV = torch.zeros(texts.num_texts, num_words, device=texts.ids_NS.device)
    # The maximum, because a word may occur several times and padding repeats an id with mask 0.
    return contains_NV.scatter_reduce_(1, texts.ids_NS, texts.mask_NS.to(contains_NV.dtype), "amax")


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
        null_logits_NS = self.logits_K[-1].expand(texts.ids_NS.shape)
        logits_NS = null_logits_NS
        is_document_C = words_CV[:, 0] >= 0
        documents_CV = words_CV[is_document_C].detach().float()
        if len(documents_CV):
            logits_NS = self._interpolate(documents_CV.mean(0))[texts.ids_NS]
        # trains the weight of the null context too
        if self.training:
            dropped_N1 = torch.rand(texts.num_texts, 1, device=null_logits_NS.device) < DROPOUT
            logits_NS = torch.where(dropped_N1, null_logits_NS, logits_NS)
        return torch.exp(LOGIT_SCALE * logits_NS) * texts.mask_NS

    def _interpolate(self, shares_V: Tensor) -> Tensor:
        """Return the logit of each word, (V,), given its share of the context documents."""
        # The last learned weight is that of the null context, so shares map to the others.
        max_index = len(self.logits_K) - 2
        positions_V = shares_V * max_index
        # Interpolate linearly between the two nearest of the learned weights.
        lower_V = positions_V.floor().long().clamp(max=max_index - 1)
        fraction_V = positions_V - lower_V
        return self.logits_K[lower_V] * (1 - fraction_V) + self.logits_K[lower_V + 1] * fraction_V

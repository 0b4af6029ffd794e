"""The backbone of training and evaluation: that of the exported code, without padding on a CPU.

`repro.model.packed` replaces the forward pass where it can.

Shapes: N texts, S tokens, C contexts, P soft prompts, L = C + P + S, D hidden size.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from repro.model import modeling_cde
from repro.model.packed import can_pack, compute_packed_states, look_up_words
from repro.model.texts import Texts


class Backbone(modeling_cde.Backbone):
    """Backbone that computes the same states faster, and accumulates the gradient of word vectors in place."""

    packs: ClassVar[bool] = True  # whether `repro.model.packed` may replace the forward pass

    def look_up(self, ids_NS: Tensor) -> Tensor:
        """Return word vectors, (N, S, D)."""
        return look_up_words(ids_NS, self.model.get_input_embeddings().weight)

    def forward(self, ids_NS: Tensor, mask_NS: Tensor) -> Tensor:
        """Return the states of texts alone, (N, S, D). States of padding are undefined."""
        texts = Texts(ids_NS, mask_NS)
        if not self._can_pack(texts):
            return super().forward(ids_NS, mask_NS)
        positions_1S = self.build_positions(0, 0, ids_NS.shape[1], ids_NS.device)
        return compute_packed_states(self.model, self.kind, texts, positions_1S[0])

    def read_after(
        self, contexts_NCD: Tensor, prompts_PD: Tensor, ids_NS: Tensor, mask_NS: Tensor, *, with_prefix: bool = False
    ) -> Tensor:
        """Return the states of the texts after a prefix, (N, S, D), or all states `with_prefix`, (N, L, D)."""
        texts = Texts(ids_NS, mask_NS)
        # The packed implementation returns no states of the prefix.
        if with_prefix or not self._can_pack(texts):
            return super().read_after(contexts_NCD, prompts_PD, ids_NS, mask_NS, with_prefix=with_prefix)
        num_contexts, first_counts = contexts_NCD.shape[1], 1
        positions_L = self.build_positions(num_contexts, len(prompts_PD), ids_NS.shape[1], ids_NS.device)[0]
        if _are_equal(contexts_NCD):
            # n equal vectors at one position are equivalent to one vector with weight n in the attention. The null
            # context therefore needs one slot only. Its gradient is then that of all slots.
            contexts_NCD, first_counts = contexts_NCD[:, :1], num_contexts
            positions_L = torch.cat([positions_L[:1], positions_L[num_contexts:]])
        prefix_NPD = self.build_prefix(contexts_NCD, prompts_PD, len(contexts_NCD))
        return compute_packed_states(self.model, self.kind, texts, positions_L, prefix_NPD, first_counts)

    def _can_pack(self, texts: Texts) -> bool:
        """Return whether the packed implementation may compute these texts."""
        return self.packs and not self.text_normalised_twice and can_pack(self.model, self.kind, texts)


def _are_equal(contexts_NCD: Tensor) -> bool:
    """Return whether all slots of all texts hold one vector and no gradient is needed per slot."""
    if len(contexts_NCD) > 1 or contexts_NCD.shape[1] == 1:
        return False
    if contexts_NCD.stride(1) == 0:  # all slots are the same memory
        return True
    # Equal copies may be vectors of documents, each with a gradient.
    return not torch.is_grad_enabled() and bool((contexts_NCD == contexts_NCD[:, :1]).all())

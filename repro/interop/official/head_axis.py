"""The published code of the first release ("h1"), for comparison only. Its weights were trained with other code.

It differs from our NomicBERT in two places:

1. Rotary embeddings rotate queries and keys of soft prompts and text by the index of their *head* instead of their
   position, and do not rotate those of contexts. So the order of the tokens has no effect.
2. If there are contexts, the token-type vector is added twice to text, and once to contexts and soft prompts.

Shapes: N texts, S tokens, C contexts, P soft prompts, L = C + P + S, D hidden size, H heads, E size of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from repro.model.backbone import Backbone
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.texts import Texts


class HeadAxisBackbone(Backbone):
    """NomicBERT with these two differences. The names of the weights stay the same."""

    packs = False

    def forward(self, texts: Texts) -> Tensor:
        """Return the states of texts alone, (N, S, D)."""
        return self._apply_layers(self._embed_words(texts) + self._get_type_vector(), texts.mask_NS, num_contexts=0)

    def forward_after(self, contexts_NCD: Tensor, prompts_PD: Tensor, texts: Texts) -> Tensor:
        """Return all states, (N, C + P + S, D)."""
        num_texts, num_prefix = texts.num_texts, contexts_NCD.shape[1] + len(prompts_PD)
        prefix_NKD = torch.cat([contexts_NCD.expand(num_texts, -1, -1), prompts_PD.expand(num_texts, -1, -1)], dim=1)
        text_NSD = self._embed_words(texts) + self._get_type_vector()
        embeds_NLD = torch.cat([prefix_NKD, text_NSD], dim=1) + self._get_type_vector()
        mask_NL = torch.cat([texts.mask_NS.new_ones(num_texts, num_prefix), texts.mask_NS], dim=1)
        return self._apply_layers(embeds_NLD, mask_NL, num_contexts=contexts_NCD.shape[1])

    def _embed_words(self, texts: Texts) -> Tensor:
        return nn.functional.embedding(texts.ids_NS, self.model.embeddings.word_embeddings.weight)

    def _get_type_vector(self) -> Tensor:
        return self.model.embeddings.token_type_embeddings.weight[0]

    def _apply_layers(self, embeds_NLD: Tensor, mask_NL: Tensor, num_contexts: int) -> Tensor:
        states_NLD = self.model.embeddings.LayerNorm(embeds_NLD)
        for layer in self.model.layers:
            attended_NLD = self._attend(layer.self_attn, states_NLD, mask_NL, num_contexts)
            states_NLD = layer.post_attention_layernorm(states_NLD + attended_NLD)
            states_NLD = layer.post_mlp_layernorm(states_NLD + layer.mlp(states_NLD))
        return states_NLD

    def _attend(self, attention: Any, states_NLD: Tensor, mask_NL: Tensor, num_contexts: int) -> Tensor:
        num_heads = self.model.config.num_attention_heads
        queries, keys, values = (
            project(states_NLD).unflatten(-1, (num_heads, -1)).transpose(1, 2)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        attended_NHLE = nn.functional.scaled_dot_product_attention(
            self._rotate(queries, num_contexts), self._rotate(keys, num_contexts), values, mask_NL[:, None, None].bool()
        )
        return attention.o_proj(attended_NHLE.transpose(1, 2).flatten(2))

    def _rotate(self, vectors_NHLE: Tensor, num_contexts: int) -> Tensor:
        num_heads = vectors_NHLE.shape[1]
        # the index of the head is used where the position belongs
        heads_1H = torch.arange(num_heads, device=vectors_NHLE.device)[None]
        cos_1HE, sin_1HE = self.model.rotary_emb(vectors_NHLE, heads_1H)
        first, second = vectors_NHLE.chunk(2, dim=-1)
        swapped_NHLE = torch.cat([-second, first], dim=-1)
        rotated_NHLE = vectors_NHLE * cos_1HE[:, :, None] + swapped_NHLE * sin_1HE[:, :, None]
        is_context_L1 = (torch.arange(vectors_NHLE.shape[2], device=vectors_NHLE.device) < num_contexts)[:, None]
        return torch.where(is_context_L1, vectors_NHLE, rotated_NHLE)


class HeadAxisModel(ContextualModel):
    """A contextual model with such backbones. It cannot be saved, because our formats imply another forward pass."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        stages: tuple[tuple[nn.Module, str], ...] = (
            (self.first_stage_model, "embedder"),
            (self.second_stage_model, "backbone"),
        )
        for stage, name in stages:
            setattr(stage, name, HeadAxisBackbone(getattr(stage, name).model, config.backbone))

    def check_can_be_saved(self) -> None:
        """Raise ValueError, since every format would load these weights with another forward pass."""
        raise ValueError("forward='h1' is for comparison only and cannot be saved: load the weights as 't1'")

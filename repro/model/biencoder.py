"""Biencoder: a model without context, whose layers are also the first stage of the contextual model (§4.2, M1).

1. The backbone reads the text.
2. Its states are averaged over the tokens.
3. The head is Linear – GELU – Linear.
Queries and documents share all weights.

Shapes: N texts, D hidden size.
"""

from __future__ import annotations

from torch import Tensor

from repro.model.backbone import Backbone
from repro.model.config import ModelConfig
from repro.model.encoding import TextEncoder
from repro.model.modeling_cde import FirstStage, mean_pool
from repro.model.texts import Texts


class Biencoder(TextEncoder):
    """Text encoder without context."""

    architecture = "biencoder"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        layers = FirstStage(config, config.num_layers, config.first_position, Backbone)
        self.embedder, self.mlp = layers.embedder, layers.mlp

    def forward(self, texts: Texts) -> Tensor:
        """Return one vector per text, (N, D), not normalised."""
        vectors_ND: Tensor = self.mlp(mean_pool(self.embedder(*texts), texts.mask_NS))
        return vectors_ND

    def embed_texts(self, texts: Texts, context_CE: Tensor | None = None) -> Tensor:
        """Return one vector per text, (N, D), not normalised. There is no context."""
        assert context_CE is None, "this model has no context"
        return self(texts)

"""Biencoder: a model without context, which is also the first stage of the contextual model (§4.2, M1).

1. The backbone reads the text.
2. Its states are averaged over the tokens.
3. The head is Linear – GELU – Linear.
Queries and documents share all weights.

Shapes: N texts, S tokens, D hidden size, T vectors per text.
"""

from __future__ import annotations

from torch import Tensor, nn

from repro.model.backbone import build_backbone
from repro.model.config import ModelConfig
from repro.model.encoding import TextEncoder
from repro.model.pooling import mean_pool, segment_pool
from repro.model.texts import Texts


class Biencoder(TextEncoder):
    """Text encoder without context. `num_layers` overrides the config's depth, for use as a first stage."""

    architecture = "biencoder"

    def __init__(self, config: ModelConfig, num_layers: int | None = None) -> None:
        super().__init__(config)
        # The text of a first stage always begins at position 0.
        first_position = config.first_position if config.architecture == self.architecture else None
        self.embedder = build_backbone(config, num_layers or config.num_layers, first_position=first_position)
        width = config.hidden_size
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, texts: Texts) -> Tensor:
        """Return one vector per text, (N, D), not normalised."""
        return self.mlp(mean_pool(self.embedder(texts), texts.mask_NS))

    def segments(self, texts: Texts, num_segments: int) -> Tensor:
        """Return T vectors per text, (N, T, D), as context for the second stage."""
        return self.mlp(segment_pool(self.embedder(texts), texts.mask_NS, num_segments))

    def embed_texts(self, texts: Texts, context_CE: Tensor | None = None) -> Tensor:
        """Return one vector per text, (N, D), not normalised. There is no context."""
        assert context_CE is None, "this model has no context"
        return self(texts)

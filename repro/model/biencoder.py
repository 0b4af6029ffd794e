"""The biencoder: backbone, mean over the tokens, a small head; a model of its own, and the first stage of the other.

1. The backbone reads the text alone. 2. Its states are averaged over the tokens. 3. Linear – GELU – Linear.
Queries and documents share all weights. Paper: §4.2, M1.

Shapes: N texts, S tokens, D hidden size, T vectors a text.
"""

from __future__ import annotations

from torch import Tensor, nn

from repro.model.backbone import build_backbone
from repro.model.config import ModelConfig
from repro.model.encoding import TextEncoder
from repro.model.pooling import mean_pool, segment_pool
from repro.model.texts import Texts


class Biencoder(TextEncoder):
    """Texts to vectors, without context; `num_layers` other than the config's makes it a first stage."""

    architecture = "biencoder"

    def __init__(self, config: ModelConfig, num_layers: int | None = None) -> None:
        super().__init__(config)
        self.embedder = build_backbone(config, num_layers or config.num_layers)
        width = config.hidden_size
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, texts: Texts) -> Tensor:
        """Return one vector a text, (N, D), not normalised."""
        return self.mlp(mean_pool(self.embedder(texts), texts.mask_NS))

    def segments(self, texts: Texts, num_segments: int) -> Tensor:
        """Return `num_segments` vectors a text, (N, T, D): what the second stage takes as context."""
        return self.mlp(segment_pool(self.embedder(texts), texts.mask_NS, num_segments))

    def embed_texts(self, texts: Texts) -> Tensor:
        """Return vectors, (N, D), not normalised."""
        return self(texts)

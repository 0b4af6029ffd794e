"""An untrained surrogate as a model that mteb evaluates, so that it takes its place in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction

from repro.batches.surrogate import load_surrogate

if TYPE_CHECKING:
    from mteb.types import Array, BatchedInput
    from torch.utils.data import DataLoader


class SurrogateForMteb(AbsEncoder):
    """Implements mteb's encoder protocol around a surrogate: no prompt, no context."""

    def __init__(self, name: str, max_tokens: int) -> None:
        self.model, self._surrogate, self._max_tokens = name, load_surrogate(name), max_tokens
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": f"surrogate/{name.rpartition('/')[2]}",
                "revision": "untrained",
                "max_tokens": max_tokens,
                "similarity_fn_name": ScoringFunction.COSINE,
            }
        )

    def encode(self, inputs: DataLoader[BatchedInput], **options: Any) -> Array:
        """Return L2-normalised vectors, float32 (N, D)."""
        return self._surrogate.embed([text for batch in inputs for text in batch["text"]], self._max_tokens)

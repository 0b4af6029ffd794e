"""An untrained surrogate as a model that mteb evaluates, so that it takes its place in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction

from repro.batches.fixed_encoder import FixedEncoder
from repro.evaluate.mteb.model import get_task_prompt

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import Array, BatchedInput
    from torch.utils.data import DataLoader


class SurrogateForMteb(AbsEncoder):
    """Implements mteb's encoder protocol around a surrogate: its prompts, no context."""

    def __init__(self, encoder: FixedEncoder) -> None:
        self.model, self._encoder = encoder.name, encoder
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": f"surrogate/{encoder.name.rpartition('/')[2]}",
                "revision": "untrained",
                "max_tokens": encoder.max_tokens,
                "similarity_fn_name": ScoringFunction.COSINE,
            }
        )

    def encode(self, inputs: DataLoader[BatchedInput], *, task_metadata: TaskMetadata, **options: Any) -> Array:
        """Return L2-normalised vectors, float32 (N, D)."""
        prompt = get_task_prompt(self._encoder.prompts, task_metadata, options.get("prompt_type"))
        texts = [prompt + text for batch in inputs for text in batch["text"]]
        return self._encoder.embed(texts)

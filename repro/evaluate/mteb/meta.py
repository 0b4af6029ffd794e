"""What mteb asks to know about a model, filled in from the model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mteb.models.model_meta import ModelMeta, ScoringFunction

from repro.evaluate.digests import compute_model_digest
from repro.model.contextual import Model
from repro.model.start import get_backbones

MEBIBYTE = 2**20


def model_meta(
    model: Model,
    *,
    name: str,
    experiment: Mapping[str, Any],
    revision: str | None = None,
    loader: Callable[..., Any] | None = None,
) -> ModelMeta:
    """Return a complete description; without a revision it is the model's digest, so other weights are another model"""
    config = model.config
    count = sum(weight.numel() for weight in model.parameters())
    embeddings = sum(backbone.model.get_input_embeddings().weight.numel() for backbone in get_backbones(model))
    return ModelMeta(
        loader=loader,
        loader_kwargs={},
        name=name,
        revision=revision or compute_model_digest(model),
        release_date=None,
        languages=["eng-Latn"],
        n_parameters=count,
        n_embedding_parameters=embeddings,
        memory_usage_mb=round(sum(w.numel() * w.element_size() for w in model.parameters()) / MEBIBYTE, 1),
        max_tokens=config.max_tokens,
        embed_dim=config.hidden_size,
        license=None,
        open_weights=True,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch", "Transformers", "safetensors"],
        reference=None,
        similarity_fn_name=ScoringFunction.COSINE,
        use_instructions=config.prompts != "none",
        training_datasets=None,
        model_type=["dense"],
        modalities=["text"],
        experiment_kwargs=dict(experiment) or None,
    )

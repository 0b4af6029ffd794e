"""Conversion of the authors' config.json to our `ModelConfig`.

Their file holds all options of the training command. Only the fields below are read. `base_model` is our addition, for
models of other sizes than the two releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from repro.model.config import ModelConfig

NUM_SOFT_PROMPTS = 8
SEQUENCE_DROPOUT = 0.005
"""The paper's probability, for weights with a null vector whose config.json does not have it."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """A pretrained model that both stages are initialised from."""

    backbone: str
    num_layers: int = 12
    hidden_size: int = 768
    num_heads: int = 12
    intermediate_size: int = 3072
    vocab_size: int
    settings: Mapping[str, Any] = field(default_factory=dict)


BASES: Mapping[str, Base] = {
    "nomic-ai/nomic-bert-2048": Base(
        backbone="nomic",
        vocab_size=30528,
        settings={
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 2048,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
            "type_vocab_size": 2,
        },
    ),
    "answerdotai/ModernBERT-base": Base(
        backbone="modernbert",
        num_layers=22,
        intermediate_size=1152,
        vocab_size=50368,
        settings={
            "local_attention": 128,
            "max_position_embeddings": 8192,
            "norm_eps": 1e-5,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 160_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        },
    ),
}
REQUIRED_VALUES: Mapping[str, tuple[Any, ...]] = {
    "architecture": ("transductive", "contextual", None),
    "autoregressive_backbone": (False, None),
    "embedding_output_dim": (None, 768),
    "pooling_strategy": ("mean", None),
    "transductive_tie_token_embeddings": (False, None),
    "transductive_tokens_per_document": (1, None),
}
"""Fields of which only these values are supported."""


def read_official_config(
    values: Mapping[str, Any],
    *,
    has_null_vector: bool,
    tokenizer: str,
    instruction_end: int | None,
) -> ModelConfig:
    """Convert their config.json to ours, for a forward pass. Raises ValueError for unsupported values."""
    _check_values(values)
    base, is_second = get_base_model(values), is_second_release(values)
    dropout = values.get("transductive_sequence_dropout_prob") or SEQUENCE_DROPOUT
    return ModelConfig(
        architecture="contextual",
        backbone=base.backbone,
        num_layers=values.get("limit_layers") or base.num_layers,
        num_first_stage_layers=values.get("limit_layers_first_stage") or base.num_layers,
        hidden_size=base.hidden_size,
        num_heads=base.num_heads,
        intermediate_size=base.intermediate_size,
        vocab_size=base.vocab_size,
        backbone_settings=base.settings,
        num_contexts=values.get("transductive_corpus_size") or 1,
        num_soft_prompts=NUM_SOFT_PROMPTS,
        sequence_dropout=dropout if has_null_vector else 0.0,
        residual=is_second,
        text_normalised_twice=is_second,
        instruction_end=instruction_end if drops_instruction(values) else None,
        prefix_is_pooled=is_second and values.get("pool_ignore_contextual_tokens") is False,
        tokenizer=tokenizer,
        max_tokens=values.get("max_seq_length") or 512,
        prompts="task",
    )


def get_base_model(values: Mapping[str, Any]) -> Base:
    """Return the pretrained model that a config.json names. ValueError if it is unknown."""
    if "base_model" in values:
        try:
            return Base(**values["base_model"])
        except TypeError as error:
            raise ValueError(f"base_model={values['base_model']!r} in config.json is malformed: {error}") from error
    name = str(values.get("embedder"))
    if name not in BASES:
        raise ValueError(f"embedder={name!r} in config.json is unknown; known are {list(BASES)}")
    return BASES[name]


def drops_instruction(values: Mapping[str, Any]) -> bool:
    """Return whether pooling excludes the instruction. Default, from the model card: only the second release does."""
    drops = values.get("pool_ignore_instruction_tokens")
    return is_second_release(values) and (drops is None or bool(drops))


def is_second_release(values: Mapping[str, Any]) -> bool:
    """Return whether the forward pass is that of the second release, whose backbone is ModernBERT.

    It adds the pooled vector to the output, and its config chooses what the mean includes.
    """
    return get_base_model(values).backbone == "modernbert"


def _check_values(values: Mapping[str, Any]) -> None:
    unsupported = {
        name: values[name] for name, valid in REQUIRED_VALUES.items() if name in values and values[name] not in valid
    }
    if values.get("dataset_backbone") not in (None, values.get("embedder")):
        unsupported["dataset_backbone"] = values["dataset_backbone"]
    is_nomic = get_base_model(values).backbone == "nomic"
    if is_nomic and values.get("disable_transductive_rotary_embedding") is False:
        unsupported["disable_transductive_rotary_embedding"] = False
    if unsupported:
        raise ValueError(f"config.json has {unsupported}, which is not supported")

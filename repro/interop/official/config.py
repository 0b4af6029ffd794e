"""Conversion between the authors' config.json and our `ModelConfig`.

Their file holds all options of the training command. Only the fields below are read. `base_model` and `forward` are our
additions, for models whose sizes or forward pass differ from those of the two releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from repro.model.config import ModelConfig

FORWARDS = ("t1", "t2", "h1")
NUM_SOFT_PROMPTS = 8
OTHER_FORMATS = "use --to transformers or --to sentence-transformers"
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
    forward: str | None,
    tokenizer: str,
    instruction_end: int | None,
) -> ModelConfig:
    """Convert their config.json to ours, for a forward pass. Raises ValueError for unsupported values."""
    _check_values(values)
    base, forward_pass = get_base_model(values), choose_forward(values, forward)
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
        residual=forward_pass == "t2",
        text_normalised_twice=base.backbone == "modernbert",
        instruction_end=instruction_end if drops_instruction(values, forward) else None,
        prefix_is_pooled=forward_pass == "t2" and values.get("pool_ignore_contextual_tokens") is False,
        tokenizer=tokenizer,
        max_tokens=values.get("max_seq_length") or 512,
        prompts=values.get("prompts") or "task",
    )


def list_corrections(config: ModelConfig) -> list[str]:
    """Return a correction for each field that has another value than the one the authors' format fixes."""
    required: dict[str, Any] = {
        "architecture": "contextual",
        "num_soft_prompts": NUM_SOFT_PROMPTS,
        "tokens_per_document": 1,
        "pooling": "mean",
    }
    backbones = {base.backbone for base in BASES.values()}
    if config.backbone not in backbones or config.text_normalised_twice != (config.backbone == "modernbert"):
        # a run cannot set text_normalised_twice, which the second release has
        required |= {"backbone": "nomic", "text_normalised_twice": False}
    if not config.residual:
        required |= {"prefix_is_pooled": False, "instruction_end": None}
    corrections = []
    for name, value in required.items():
        actual = getattr(config, name)
        if actual != value:
            corrections.append(f"set {name}={value!r} (it is {actual!r})")
    return corrections


def write_official_config(config: ModelConfig) -> dict[str, Any]:
    """Convert the config of one of our models to theirs. Raises ValueError if their format cannot express it."""
    corrections = list_corrections(config)
    if corrections:
        raise ValueError(
            f"the authors' format cannot hold this model: {'; '.join(corrections)}. Train a model with these fields, or "
            f"keep this one: {OTHER_FORMATS}"
        )
    names = {base.backbone: name for name, base in BASES.items()}
    base = Base(
        backbone=config.backbone,
        num_layers=max(config.num_layers, config.num_first_stage_layers),
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        settings=config.backbone_settings,
    )
    values = _make_their_fields(config, names[config.backbone])
    if base != BASES[names[config.backbone]]:
        values["base_model"] = asdict(base)
    # their models always have the prompts "task"
    if config.prompts != "task":
        values["prompts"] = config.prompts
    return values


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


def choose_forward(values: Mapping[str, Any], forward: str | None) -> str:
    """Return `forward`, or that of the file, or the one that the release was trained with.

    Raises:
        ValueError: if it is unknown or not defined for this backbone.
    """
    backbone = get_base_model(values).backbone
    forward_pass = forward or values.get("forward") or ("t1" if backbone == "nomic" else "t2")
    if forward_pass not in FORWARDS:
        raise ValueError(f"forward={forward_pass!r} is unknown; choose one of {list(FORWARDS)}")
    if backbone == "modernbert" and forward_pass != "t2":
        raise ValueError(f"forward={forward_pass!r} is only defined for NomicBERT; ModernBERT checkpoints have 't2'")
    return forward_pass


def drops_instruction(values: Mapping[str, Any], forward: str | None) -> bool:
    """Return whether pooling excludes the instruction. Default, from the model cards: only for ModernBERT."""
    drops = values.get("pool_ignore_instruction_tokens")
    if drops is None:
        drops = get_base_model(values).backbone == "modernbert"
    return choose_forward(values, forward) == "t2" and bool(drops)


def _make_their_fields(config: ModelConfig, embedder: str) -> dict[str, Any]:
    depth = max(config.num_layers, config.num_first_stage_layers)
    return {
        "architectures": ["ContextualDocumentEmbeddingTransformer"],
        "architecture": "transductive",
        "disable_dropout": True,
        "disable_transductive_rotary_embedding": config.backbone == "nomic",
        "embedder": embedder,
        "forward": "t2" if config.residual else "t1",
        "limit_layers": config.num_layers if config.num_layers != depth else None,
        "limit_layers_first_stage": config.num_first_stage_layers if config.num_first_stage_layers != depth else None,
        "logit_scale": 50,
        "max_seq_length": config.max_tokens,
        "pool_ignore_contextual_tokens": not config.prefix_is_pooled,
        "pool_ignore_instruction_tokens": config.instruction_end is not None,
        "pooling_strategy": "mean",
        "transductive_corpus_size": config.num_contexts,
        "transductive_sequence_dropout_prob": config.sequence_dropout,
        "transductive_tokens_per_document": 1,
    }


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

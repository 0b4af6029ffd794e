"""Model configuration, a frozen dataclass that is saved with the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from repro.data.prompts import PROMPTS
from repro.storage.files import atomic_file, json_object, name_in_errors

CONFIG_FILE = "config.json"
ARCHITECTURES = ("biencoder", "contextual")
BACKBONES = ("nomic", "bert", "modernbert")
FLAGS = ("residual", "text_normalised_twice", "prefix_is_pooled")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Architecture, sizes and tokenizer of a model. `Run` limits their ranges and combinations."""

    architecture: str
    # backbone, equal in both stages except for its depth
    backbone: str = "nomic"
    num_layers: int = 2
    num_first_stage_layers: int = 2  # only for "contextual"
    hidden_size: int = 128
    num_heads: int = 4
    intermediate_size: int = 512
    vocab_size: int = 30522
    # further fields of transformers' configuration
    backbone_settings: Mapping[str, Any] = field(default_factory=dict)
    # second stage (§4.2)
    num_contexts: int = 32  # context documents
    tokens_per_document: int = 1  # context vectors per document
    num_soft_prompts: int = 8
    # learned position of the first text token in a BERT (None: after the prefix); not of the first stage
    first_position: int | None = None
    sequence_dropout: float = 0.005  # 0: no null vector, 1: context-blind
    # or "frequency": weighted by how many context documents hold a word (ours)
    pooling: str = "mean"
    residual: bool = False  # add the pooled vector to the output projection
    text_normalised_twice: bool = False  # ModernBERT as the second release was trained
    instruction_end: int | None = None  # token id that ends the instruction, which pooling skips
    prefix_is_pooled: bool = False  # the mean includes the prefix, as in some public training code
    # text
    tokenizer: str = "minilm"
    max_tokens: int = 40
    prompts: str = "none"

    def __post_init__(self) -> None:
        choices = {
            "architecture": ARCHITECTURES,
            "backbone": BACKBONES,
            "prompts": tuple(PROMPTS),
        }
        for name, valid in choices.items():
            if getattr(self, name) not in valid:
                raise ValueError(f"{name}={getattr(self, name)!r} is unknown; choose one of {list(valid)}")
        # A text such as "false" would count as true.
        if not all(isinstance(getattr(self, name), bool) for name in FLAGS):
            raise ValueError(f"{', '.join(FLAGS)} must be true or false")
        if min(self.num_layers, self.num_first_stage_layers, self.num_contexts, self.max_tokens - 2) < 1:
            raise ValueError(f"layers and contexts must be at least 1, and max_tokens at least 3: {self}")
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size={self.hidden_size} is not a multiple of num_heads={self.num_heads}")

    @property
    def is_blind(self) -> bool:
        """Whether all context slots always hold the null vector, so that the first stage is never computed."""
        return self.architecture == "contextual" and self.sequence_dropout == 1

    @property
    def num_context_vectors(self) -> int:
        """Maximum number of context vectors of the second stage."""
        return self.num_contexts * self.tokens_per_document

    def save(self, folder: Path) -> None:
        """Write config.json."""
        with atomic_file(folder / CONFIG_FILE) as part:
            part.write_text(json.dumps(asdict(self), indent=2, sort_keys=True) + "\n", encoding="utf-8")


def load_config(folder: Path) -> ModelConfig:
    """Load config.json. Errors name the file."""
    return make_config(json_object(folder / CONFIG_FILE), str(folder / CONFIG_FILE))


def make_config(values: Mapping[str, Any], source: str) -> ModelConfig:
    """Build a config from these values. Raises TypeError for unknown fields and ValueError for invalid values."""
    with name_in_errors(source):
        return ModelConfig(**values)

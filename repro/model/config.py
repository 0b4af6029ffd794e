"""Model configuration, a frozen dataclass that is saved with the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from repro.data.prompts import PROMPTS
from repro.storage.files import atomic_file, json_object
from repro.text import shorten

CONFIG_FILE = "config.json"
ARCHITECTURES = ("biencoder", "contextual")
BACKBONES = ("nomic", "bert", "modernbert")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Architecture, sizes and tokenizer of a model. Raises ValueError for invalid values."""

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
        for name, (minimum, maximum) in LIMITS.items():
            value = getattr(self, name)
            if value is not None and not minimum <= value <= maximum:
                raise ValueError(f"{name}={shorten(value)}: must be at least {minimum} and at most {maximum}")
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size={self.hidden_size} is not a multiple of num_heads={self.num_heads}")
        if self.pooling != "mean" and (self.architecture != "contextual" or self.prefix_is_pooled):
            raise ValueError(f"pooling={self.pooling!r}: only for a contextual model whose texts alone are averaged")
        if self.is_blind and self.pooling != "mean":
            raise ValueError(f"sequence_dropout=1 with pooling={self.pooling!r}: its weights would show the documents")

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
    """Load config.json. Raises ValueError if it is missing, or names the unknown or invalid fields."""
    return make_config(json_object(folder / CONFIG_FILE), str(folder / CONFIG_FILE))


def make_config(values: Mapping[str, Any], source: str) -> ModelConfig:
    """Build a config from these values. Raises ValueError for unknown or invalid fields."""
    names = [field.name for field in fields(ModelConfig)]
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ValueError(f"{source} has unknown fields {shorten(unknown, 200)}; a model has {names}")
    if "architecture" not in values:
        raise ValueError(f"{source} has no architecture; choose one of {list(ARCHITECTURES)}")
    for name, value in values.items():
        kind, _, optional = str(ModelConfig.__annotations__[name]).partition(" | ")
        is_valid = isinstance(value, KINDS[kind.partition("[")[0]]) and (kind == "bool") == isinstance(value, bool)
        if not is_valid and not (optional and value is None):
            raise ValueError(f"{source}: {name} is {shorten(repr(value))}, expected {kind}")
    return ModelConfig(**values)


KINDS: Mapping[str, Any] = {"str": str, "int": int, "float": (int, float), "bool": bool, "Mapping": dict}
LIMITS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("num_layers", "num_first_stage_layers"), (1, 1000)),
    **dict.fromkeys(("hidden_size", "num_heads", "intermediate_size", "vocab_size", "num_contexts"), (1, 10**6)),
    **dict.fromkeys(("num_soft_prompts", "first_position"), (0, 10**6)),
    "tokens_per_document": (1, 10**6),
    "sequence_dropout": (0, 1),
    "max_tokens": (3, 10**6),
}
"""Limits that no real model exceeds. They protect against typing errors and forged files that would exhaust the memory.
"""

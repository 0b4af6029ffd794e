"""Small models with weights that make mistakes visible, and right-padded batches of unequal lengths."""

from __future__ import annotations

import torch

from repro.model.config import ModelConfig
from repro.model.contextual import Model
from repro.model.start import build_model
from repro.model.texts import Texts

WORDS = 120
KINDS = ("nomic", "bert", "modernbert")


def make_small_config(**changes: object) -> ModelConfig:
    """Return the configuration of a model with a few thousand weights."""
    values: dict = dict(  # noqa: C408
        architecture="contextual",
        hidden_size=16,
        num_heads=2,
        intermediate_size=24,
        vocab_size=WORDS,
        num_contexts=6,
        num_soft_prompts=3,
        sequence_dropout=0.25,
    )
    return ModelConfig(**(values | changes))


def build_small_model(seed: int = 0, **changes: object) -> Model:
    """Build the small model and add noise to all weights. A zero bias or tiny token types would hide mistakes."""
    model = build_model(make_small_config(**changes), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model


def draw_texts(num_texts: int, seed: int = 0, longest: int = 9) -> Texts:
    """Return texts of 1 to `longest` tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (num_texts,), generator=generator)
    lengths[0] = longest
    mask = (torch.arange(longest)[None] < lengths[:, None]).long()
    return Texts(torch.randint(1, WORDS, mask.shape, generator=generator) * mask, mask)

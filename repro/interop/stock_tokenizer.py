"""A model's tokenizer as transformers wraps it."""

from __future__ import annotations

from transformers import PreTrainedTokenizerFast

from repro.data.tokens import whole_tokenizer
from repro.model.config import ModelConfig


def fast_tokenizer(config: ModelConfig) -> PreTrainedTokenizerFast:
    """Return the tokenizer, cutting at the model's length."""
    inner = whole_tokenizer(config.tokenizer)
    usual = {
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
    }
    special = {name: word for name, word in usual.items() if inner.token_to_id(word) is not None}
    special.setdefault("pad_token", str(inner.id_to_token(0)))  # padding is masked, so any word will do
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=config.max_tokens, **special)

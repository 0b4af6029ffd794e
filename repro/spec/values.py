"""Which values a field of a run may have: its type as `Run` declares it, and its range; checked for every run made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any

from repro.storage.json_files import short

MANY = 10**12
RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "seed": (0, 2**32 - 1),
        "num_pairs": (1, MANY),
        "mixing_alpha": (0, 1),  # 0: every source alike; 1: by size
        "batch_size": (1, 10**7),
        "cluster_size": (1, MANY),
        "filter_margin": (-2, 2),  # of a difference of cosines
        "num_hard_negatives": (0, 10_000),
        "num_layers": (1, 512),
        "num_first_stage_layers": (1, 512),
        "hidden_size": (1, 2**16),
        "num_contexts": (1, 10**6),
        "tokens_per_document": (1, 10**4),
        "num_soft_prompts": (0, 10**4),
        "sequence_dropout": (0, 1),
        "max_tokens": (1, 10**6),
        "batches_a_step": (1, 10**4),
        "num_steps": (1, MANY),
        "num_epochs": (1, 10**6),
        "learning_rate": (0, 1000),
        "first_stage_rate": (0, 1000),
        "num_warmup_steps": (0, MANY),
        "weight_decay": (0, 1000),
        "temperature": (1e-6, 1000),
        "max_grad_norm": (1e-9, 1e9),
        "num_pretraining_steps": (1, MANY),
        "num_pretraining_epochs": (1, 10**6),
        "pretraining_batch_size": (1, 10**7),
        "pretraining_cluster_size": (1, MANY),
        "rerank_depth": (1, 10**9),
        "context_seed": (0, 2**32 - 1),
        "num_test_contexts": (1, 10**6),
    }
)
"""The least and the most that a number may be; what no machine could carry out is a slip of the pen."""

NAMES = ("corpus", "suite", "pretraining_corpus")
"""Fields that name a folder of ours."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
LONGEST_TEXT = 300
KINDS: Mapping[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "str": str, "bool": bool}
WORDS = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false"}


def checked_value(name: str, value: Any, declared: str) -> Any:
    """Return a field's value as its declared type ("float | None") writes it: 1 and -0.0 as 1.0 and 0.0, which are one
    number and must be one id. ValueError when it is not of that type, or out of its range.
    """
    kind, may_be_none = _parse_annotation(declared)
    if value is None and may_be_none:
        return value
    allowed: Any = KINDS[kind]
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind != "bool"):
        expected = WORDS[kind] + (" or null" if may_be_none else "")
        raise ValueError(f"{name}={short(repr(value))}: expected {expected}")
    if isinstance(value, str):
        _check_text(name, value)
    elif not isinstance(value, bool):
        _check_number(name, value)
    return float(value) + 0.0 if kind == "float" and (type(value) is not float or not value) else value


@cache
def _parse_annotation(declared: str) -> tuple[str, bool]:
    """Return the kind of a declared type, and whether it may be None."""
    kind, *others = declared.split(" | ")
    return kind, "None" in others


def _check_number(name: str, value: Any) -> None:
    if name not in RANGES:
        raise ValueError(f"{name}={short(value)}: say in RANGES of {__name__} the least and the most that it may be")
    least, most = RANGES[name]
    if not (math.isfinite(value) and least <= value <= most):
        raise ValueError(f"{name}={short(value)}: must be at least {least} and at most {most}")


@lru_cache(maxsize=4096)  # the runs of a sweep say the same few words
def _check_text(name: str, value: str) -> None:
    if not value or len(value) > LONGEST_TEXT or not value.isprintable():
        raise ValueError(f"{name}={short(repr(value))}: expected a text of 1 to {LONGEST_TEXT} printable characters")
    if name in NAMES and not NAME.fullmatch(value):
        raise ValueError(f"{name}={short(repr(value))}: a name has a-z, A-Z, 0-9, '.', '_', '@', '+' and '-' only")


def check_warmup(num_warmup_steps: int, num_steps: int) -> None:
    """Raise ValueError for a warm-up that is as long as its training: the rate would never fall."""
    if not 0 <= num_warmup_steps < num_steps:
        raise ValueError(f"num_warmup_steps={num_warmup_steps}: must be below num_steps={num_steps}; set both")


def suggestion(word: str, known: Iterable[str], *, likeness: float = 0.8) -> str:
    """Return ", did you mean X?" for a word that is spelt nearly as a known one; nothing where none is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=likeness)
    return f", did you mean {near[0]!r}?" if near else ""


def count_noun(number: int, one: str, more: str | None = None) -> str:
    """Return a number with its word, "1 run" or "2 runs"; `more` where that is not the word of one and an s."""
    return f"{number} {one if number == 1 else more or one + 's'}"

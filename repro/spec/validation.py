"""Validate the fields of a run: the declared type, the range of numbers, names, and widths of vector prefixes."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any

from repro.text import shorten

MAX_COUNT = 10**12
RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "seed": (0, 2**32 - 1),
        "num_pairs": (1, MAX_COUNT),
        "mixing_alpha": (0, 1),  # 0: all sources equally, 1: by size
        "batch_size": (1, 10**7),
        "cluster_size": (1, MAX_COUNT),
        "cluster_dimensions": (1, 2**16),
        "filter_margin": (-2, 2),  # a difference of two cosines
        "num_hard_negatives": (0, 10_000),
        "num_layers": (1, 512),
        "num_first_stage_layers": (1, 512),
        "hidden_size": (1, 2**16),
        "num_contexts": (1, 10**6),
        "tokens_per_document": (1, 10**4),
        "num_soft_prompts": (0, 10**4),
        "first_position": (0, 10**6),
        "sequence_dropout": (0, 1),
        "max_tokens": (1, 10**6),
        "batches_a_step": (1, 10**4),
        "num_steps": (0, MAX_COUNT),  # 0: the untrained model
        "num_epochs": (1, 10**6),
        "learning_rate": (0, 1000),
        "first_stage_rate": (0, 1000),
        "num_warmup_steps": (0, MAX_COUNT),
        "weight_decay": (0, 1000),
        "temperature": (1e-6, 1000),
        "max_grad_norm": (1e-9, 1e9),
        "num_pretraining_steps": (1, MAX_COUNT),
        "num_pretraining_epochs": (1, 10**6),
        "pretraining_batch_size": (1, 10**7),
        "pretraining_cluster_size": (1, MAX_COUNT),
        "rerank_depth": (1, 10**9),
        "context_seed": (0, 2**32 - 1),
        "num_test_contexts": (1, 10**6),
    }
)
"""The smallest and the largest value of each number. A value outside is a typing error that no machine could run."""

FOLDER_FIELDS = ("corpus", "suite", "pretraining_corpus")
"""Fields whose value is the name of a folder."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
MAX_TEXT_LENGTH = 300
KINDS: Mapping[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "str": str, "bool": bool}
KIND_NAMES = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false"}

MIN_WIDTH = 8
"""The narrowest prefix in the default list of widths, as in Matryoshka Representation Learning (8, 16, … 2048)."""


def validate_value(name: str, value: Any, declared: str) -> Any:
    """Return a field's value in the form of its declared type, such as "float | None".

    A float field turns 1 into 1.0 and -0.0 into 0.0. Equal numbers must give the same run id.

    Raises:
        ValueError: if the value has another type or is out of range.
    """
    kind, may_be_none = _parse_annotation(declared)
    if value is None and may_be_none:
        return value
    allowed: Any = KINDS[kind]
    # bool is a subclass of int, so it is excluded explicitly
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind != "bool"):
        expected = KIND_NAMES[kind] + (" or null" if may_be_none else "")
        raise ValueError(f"{name}={shorten(reprlib.repr(value))}: expected {expected}")
    if isinstance(value, str):
        _check_text(name, value)
    elif not isinstance(value, bool):
        _check_number(name, value)
    if kind == "float" and (type(value) is not float or not value):
        # adding zero turns -0.0 into 0.0
        return float(value) + 0.0
    return value


@cache
def _parse_annotation(declared: str) -> tuple[str, bool]:
    """Return the type name of an annotation, and whether None is allowed."""
    kind, *others = declared.split(" | ")
    return kind, "None" in others


def _check_number(name: str, value: Any) -> None:
    if name not in RANGES:
        raise ValueError(f"{name}={shorten(value)}: add the smallest and largest value to RANGES in {__name__}")
    minimum, maximum = RANGES[name]
    if not (math.isfinite(value) and minimum <= value <= maximum):
        raise ValueError(f"{name}={shorten(value)}: must be at least {minimum} and at most {maximum}")


# the runs of a sweep share a few texts
@lru_cache(maxsize=4096)
def _check_text(name: str, value: str) -> None:
    if not value or len(value) > MAX_TEXT_LENGTH or not value.isprintable():
        raise ValueError(
            f"{name}={shorten(repr(value))}: expected a text of 1 to {MAX_TEXT_LENGTH} printable characters"
        )
    if name in FOLDER_FIELDS and not NAME.fullmatch(value):
        raise ValueError(f"{name}={shorten(repr(value))}: a name has a-z, A-Z, 0-9, '.', '_', '@', '+' and '-' only")


def check_warmup(num_warmup_steps: int, num_steps: int) -> None:
    """Raise ValueError if the warm-up is as long as the training run. The learning rate would never decay."""
    if not 0 <= num_warmup_steps < num_steps:
        raise ValueError(f"num_warmup_steps={num_warmup_steps}: must be below num_steps={num_steps}; set both")


def widths_in(text: str, full_width: int) -> tuple[int, ...]:
    """Return the widths that `nested_sizes` lists, for example "8+16+full". "full" is the width of the whole vector.

    Raises ValueError unless every width divides `full_width` and the widths increase.
    """
    parts = [str(full_width) if part == "full" else part for part in text.split("+")]
    # isdigit alone accepts superscripts and digits of other scripts
    widths = [int(part) if part.isascii() and part.isdigit() else 0 for part in parts]
    if any(not 1 <= width <= full_width or full_width % width for width in widths):
        raise ValueError(
            f"nested_sizes={shorten(repr(text))}: join whole numbers that divide {full_width}, the width of the vectors, by '+'"
        )
    if widths != sorted(set(widths)):
        raise ValueError(f"nested_sizes={shorten(repr(text))}: list each width once, from the narrowest to the widest")
    return tuple(widths)


def list_standard_widths(full_width: int) -> tuple[int, ...]:
    """Return the default prefix widths: the powers of two from 8 that divide `full_width`, and `full_width` itself."""
    powers = (MIN_WIDTH * 2**exponent for exponent in range(full_width.bit_length()))
    return (*(width for width in powers if width < full_width and full_width % width == 0), full_width)


def format_widths(widths: tuple[int, ...]) -> str:
    """Return widths in the notation of a run, for example "8+16+32"."""
    return "+".join(map(str, widths))

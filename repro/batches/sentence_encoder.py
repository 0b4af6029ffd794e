"""Use a sentence-transformers model as a surrogate.

The model computes in float32 on a CPU. On a GPU it computes in bfloat16, in batches with a token budget.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from repro.data.tokens import TOKENIZER_LOCK, cut_unread_ends, iter_token_batches
from repro.storage.files import json_object, read_json
from repro.storage.hub import find_model
from repro.storage.paths import check_model_name
from repro.text import shorten

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

GPU_TOKENS_PER_BATCH = 131_072
NUM_SPECIAL_TOKENS = 4
"""Upper bound of the special tokens per text."""
SETTINGS_FILE = "config_sentence_transformers.json"
DENSE = "SentenceTransformer"
"""The model type with one vector per text. Others are cross-encoders and sparse encoders."""
TYPES_WITH_RESERVED_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet")
"""Types of models that reserve the positions up to that of padding, so that a text has fewer."""


class SentenceEncoder:
    """Model from a local folder or the hub, with its own prompts, pooling and normalisation."""

    depends_on_batch = True

    def __init__(self, name: str) -> None:
        from sentence_transformers import SentenceTransformer

        check_model_name(name)
        # transformers implements the paper's filter model itself, so remote code is never needed.
        self._model = SentenceTransformer(name, trust_remote_code=False)
        # a hub model is in the cache now
        if (folder := find_model(name)) is not None:
            check_kind(folder)
            check_weights(self._model, folder)
        self.stored_prompts = sorted({text for text in self._model.prompts.values() if text})
        self.num_dimensions = self._model.encode(["a"], show_progress_bar=False).shape[1]
        self._max_tokens = _find_token_limit(self._model)
        self._is_narrow = self._model.device.type == "cuda"
        self.num_threads = 2 if self._is_narrow else 1
        if self._is_narrow:
            self._model.bfloat16()
        # The library sets the length of its tokenizer in each call, which fails while another thread uses it.
        preprocess = self._model.preprocess

        def preprocess_alone(*inputs: Any, **options: Any) -> dict[str, Any]:
            with TOKENIZER_LOCK:
                return preprocess(*inputs, **options)

        self._model.preprocess = preprocess_alone  # type: ignore[method-assign]

    def embed(self, texts: Sequence[str], max_tokens: int) -> np.ndarray:
        """Return unit vectors, float32 (N, D)."""
        max_tokens = min(max_tokens, self._max_tokens)
        self._model.max_seq_length = max_tokens
        if self._is_narrow:
            return self._embed_narrow(texts, max_tokens)
        return self._model.encode(
            list(texts), normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        ).astype(np.float32)

    def _embed_narrow(self, texts: Sequence[str], max_tokens: int) -> np.ndarray:
        """Return unit vectors, float32 (N, D), computed with bfloat16 weights.

        A text has at most one token per byte, plus special tokens. This bound limits the batch size without tokenizing.
        """
        tokenizer = getattr(self._model.tokenizer, "backend_tokenizer", None)
        if tokenizer is not None:
            # The library tokenises whole texts before it cuts them.
            texts = cut_unread_ends(texts, tokenizer, max_tokens)
        max_lengths_N = np.array([min(max_tokens, len(text.encode()) + NUM_SPECIAL_TOKENS) for text in texts])
        vectors_ND = np.empty((len(texts), self.num_dimensions), np.float32)
        for rows in iter_token_batches(max_lengths_N, GPU_TOKENS_PER_BATCH):
            batch = [texts[row] for row in rows]
            vectors = self._model.encode(batch, batch_size=len(batch), convert_to_tensor=True, show_progress_bar=False)
            vectors_ND[rows] = vectors.float().cpu().numpy()
        return vectors_ND / np.linalg.norm(vectors_ND, axis=1, keepdims=True)


def _find_token_limit(model: SentenceTransformer) -> int:
    """Return the largest number of tokens that an encoder can read. An unknown limit is a very large number.

    The tokenizer's `model_max_length` is no limit: the library sets it to the default length of the model.
    """
    first: Any = model[0]
    config: Any = getattr(getattr(first, "auto_model", None), "config", None)
    num_positions: int | None = getattr(config, "max_position_embeddings", None)
    if not num_positions:
        return sys.maxsize
    has_reserved = config.model_type in TYPES_WITH_RESERVED_POSITIONS
    return num_positions - (config.pad_token_id + 1 if has_reserved else 0)


def check_kind(folder: Path) -> None:
    """Raise ValueError if a folder has another model type. Old folders without a type are SentenceTransformers."""
    path = folder / SETTINGS_FILE
    kind = json_object(path).get("model_type") if path.is_file() else None
    if kind not in (None, DENSE):
        raise ValueError(f"{folder} is a {shorten(kind)} of sentence-transformers, expected a {DENSE}")


def check_weights(model: SentenceTransformer, folder: Path) -> None:
    """Raise ValueError if a file lacks weights of a transformer, which transformers would draw at random.

    Such a file is damaged, or the model needs code of its own that is never run.
    """
    path = folder / "modules.json"
    # without it, the folder is that of a transformer, and the library adds a pooling
    entries = read_json(path) if path.is_file() else [{"path": ""}]
    for entry, module in zip(entries, model, strict=False):
        transformer: Any = getattr(module, "auto_model", None)
        if transformer is None:
            continue
        files = folder / str(entry["path"])
        # a second reading, because the first one reports missing weights in the log only
        _, report = type(transformer).from_pretrained(str(files), config=transformer.config, output_loading_info=True)
        # Pooling of sentence-transformers never reads the pooler of a BERT.
        missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
        if missing:
            code = getattr(transformer.config, "auto_map", None)
            raise ValueError(
                f"{files} lacks {len(missing)} weights, the first is {missing[0]!r}: "
                + ("it needs the code of its authors, which is never run" if code else "export or download it again")
            )

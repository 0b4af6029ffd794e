"""Models of sentence-transformers as something to be scored: prompts, similarity, what decides their vectors"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

OF_THE_FILES = ("_name_or_path", "transformers_version", "architectures")
"""Settings that say where a model was found and who wrote it, not what it computes."""
ROLES = ("query", "document")
OF_DOCUMENTS = ("document", "passage", "corpus")
"""What the prompt of documents may be called: the first that is there and not empty."""
DOT = "dot"
SIMILARITIES = ("cosine", DOT)


def check_similarity(theirs: SentenceTransformer, folder: Path) -> None:
    """ValueError for a model whose vectors are not compared by what is searched by: inner products."""
    name = theirs.similarity_fn_name
    if name not in SIMILARITIES:
        raise ValueError(
            f"{folder} compares its vectors by {name!r} (similarity_fn_name), which is not searched by here; choose a "
            f"model with one of {list(SIMILARITIES)}"
        )


@dataclass(frozen=True)
class StockEncoder:
    """A model of sentence-transformers as something to be scored; it has no context."""

    theirs: SentenceTransformer

    @property
    def similarity(self) -> str:
        """What its vectors are compared by: "cosine", or "dot", which reads their lengths, too."""
        return str(self.theirs.similarity_fn_name)

    @property
    def keeps_lengths(self) -> bool:
        """Whether vectors, and their prefixes, are searched as they are, not brought to length 1."""
        return self.similarity == DOT

    @property
    def longest(self) -> int | None:
        """Tokens a text is cut to; None where it is never cut, or nobody knows."""
        found = self.theirs.max_seq_length
        return int(found) if found and math.isfinite(found) else None

    @property
    def prompts_used(self) -> dict[str, str]:
        """What stands before the texts of each role."""
        prompts, default = self.theirs.prompts, self.theirs.default_prompt_name
        return {role: prompts.get(self._prompt_name(role) or default or "") or "" for role in ROLES}

    @property
    def unused_prompts(self) -> list[str]:
        """Names of its prompts that are not empty, and stand before the texts of no role."""
        used = self.prompts_used.values()
        return [name for name, text in self.theirs.prompts.items() if text and text not in used]

    @property
    def decides(self) -> dict[str, Any]:
        """What decides its vectors beside its weights, as plain values: modules, how they are set, the tokenizer."""
        inner = getattr(self.theirs[0], "auto_model", None)
        words = getattr(self.theirs.tokenizer, "backend_tokenizer", None)
        modules = [[type(one).__name__, _plain(getattr(one, "get_config_dict", dict)())] for one in self.theirs]
        config = {} if inner is None else inner.config.to_dict()
        told = {name: value for name, value in config.items() if name not in OF_THE_FILES}
        tokenizer = repr(self.theirs.tokenizer) if words is None else words.to_str()
        cut = self.theirs.truncate_dim
        return {"modules": modules, "config": _plain(told), "tokenizer": tokenizer, "truncated_to": cut}

    @property
    def settings(self) -> Mapping[str, Any]:
        """What a score keeps of it, as plain values; these decide its scores, too."""
        told = {"prompts": dict(self.theirs.prompts), "prompts_used": self.prompts_used}
        return told | {"max_tokens": self.longest, "similarity": self.similarity}

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Take and ignores a context."""

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return vectors, float32 (N, D), of unit length unless their lengths count.

        A model with a route for each role takes that of the prompt.
        """
        how: dict[str, Any] = {"prompt_name": self._prompt_name(prompt), "task": prompt}
        vectors_ND: np.ndarray = self.theirs.encode(list(texts), **how, normalize_embeddings=not self.keeps_lengths)
        return vectors_ND.astype(np.float32)

    def to(self, device: str) -> None:
        """Put the weights on a device."""
        self.theirs.to(device)

    def _prompt_name(self, role: str) -> str | None:
        """Return which of its prompts stands before the texts of a role; None: its default one, or none."""
        prompts = self.theirs.prompts
        names = OF_DOCUMENTS if role == "document" else (role,)
        return next((name for name in names if prompts.get(name)), role if role in prompts else None)


def _plain(values: Any) -> Any:
    return json.loads(json.dumps(values, sort_keys=True, default=str))

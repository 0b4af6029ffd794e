"""Our contextual model as one module of a sentence-transformers model.

1. `encode(texts, context=documents)` runs both stages. The context vectors are computed once and cached. If there are
   more documents than the model takes, a sample is drawn with `context_seed=`.
2. `encode(documents, without_context="first_stage")` runs the first stage alone. Its vectors can be passed as
   `dataset_embeddings=`, as in the authors' releases. They are not normalised, because the second stage reads their
   lengths. Without this option, a missing context is an error: first-stage vectors would be used as embeddings of
   texts, and rank badly.
3. A stock `Normalize` module normalises vectors of the second stage only.

Shapes: N texts, S tokens, D hidden size, T vectors per context document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from sentence_transformers.base.modules import InputModule, Normalize
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from repro.data.tokens import load_whole_tokenizer, tokenize, write_tokenizer
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel, as_context_rows, fill_context
from repro.model.encoding import as_texts, check_vocabulary
from repro.model.start import load_model
from repro.model.texts import Texts, make_texts, pad_right
from repro.text import shorten

MODULE_FOLDER = "0_ContextualModule"
MIN_TOKENS = 3
"""Two special tokens and one of text."""
CONTEXTUAL_EMBEDDING = "contextual_embedding"
"""The feature with vectors of the second stage. Only these are normalised."""
FIRST_STAGE = "first_stage"
NO_CONTEXT = (
    "no context is set: give encode context=[documents of the corpus that is searched] or dataset_embeddings=; "
    f"without_context={FIRST_STAGE!r} gives the vectors of context documents themselves"
)


def make_normalize_module() -> Normalize:
    """Return the module that follows ours. It normalises vectors of texts and leaves context vectors unchanged."""
    return Normalize(module_input_name=CONTEXTUAL_EMBEDDING, module_output_name="sentence_embedding")


class ContextualModule(InputModule):
    """Tokenise texts and run both stages. `config.transductive_corpus_size` is the number of context documents."""

    forward_kwargs = {"context", "context_seed", "dataset_embeddings", "without_context"}  # noqa: RUF012 - a plain set in the base class
    save_in_root = False

    def __init__(self, model: ContextualModel) -> None:
        super().__init__()
        self.model = model
        self.tokenizer: Any = make_fast_tokenizer(model.config)
        self.config = SimpleNamespace(transductive_corpus_size=model.config.num_contexts)
        # the last context vectors, with the key of their documents and model
        self._cached_context: tuple[Any, Tensor] | None = None

    @property
    def max_seq_length(self) -> int:
        """Maximal number of tokens of a text, and of a context document."""
        return self.model.config.max_tokens

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        """Set the maximal number of tokens."""
        if isinstance(value, bool) or not isinstance(value, int) or value < MIN_TOKENS:
            raise ValueError(f"max_seq_length={value!r}: it must be a whole number of at least {MIN_TOKENS}")
        self.model.config = replace(self.model.config, max_tokens=value)
        self.tokenizer.model_max_length = value

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return token ids and their mask, both int64 (N, S)."""
        tokenizer = getattr(self.tokenizer, "backend_tokenizer", self.tokenizer)
        tokens = tokenize([(prompt or "") + text for text in as_texts(inputs)], tokenizer, self.max_seq_length)
        check_vocabulary(tokens.ids, self.model.config)
        texts = make_texts(*tokens.pad(range(len(tokens))))
        return {"input_ids": texts.ids_NS, "attention_mask": texts.mask_NS}

    def forward(
        self,
        features: dict[str, Any],
        context: Sequence[str] | None = None,
        dataset_embeddings: Tensor | None = None,
        context_seed: int = 0,
        without_context: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Add `sentence_embedding`: vectors under a context, (N, D), or the context vectors of each text, (N, T × D).

        Args:
            features: Token ids and their mask, both (N, S).
            context: Documents of the searched corpus.
            dataset_embeddings: Context vectors, instead of `context`.
            context_seed: Seed for drawing from `context`.
            without_context: "first_stage" returns context vectors if neither kind of context is given.

        Raises:
            ValueError: if both kinds of context are given, or neither and `without_context` is not set.
        """
        if without_context not in (None, FIRST_STAGE):
            raise ValueError(f"without_context={without_context!r} is unknown; the only one is {FIRST_STAGE!r}")
        texts = pad_right(Texts(features["input_ids"], features["attention_mask"]))
        if context is None and dataset_embeddings is None:
            if without_context is None:
                raise ValueError(NO_CONTEXT)
            # sentence-transformers expects one row per text, so the T vectors of a document are joined to one.
            vectors = self.model.first_stage(texts).reshape(texts.num_texts, -1)
            return features | {"sentence_embedding": vectors}
        if context is not None and dataset_embeddings is not None:
            raise ValueError("context= and dataset_embeddings= are two ways to give the same: give one of them")
        if context is not None:
            context_CD = self._embed_context(context, context_seed)
        else:
            # float32, because numpy vectors or lists of a caller may be float64.
            given = torch.as_tensor(dataset_embeddings, device=self.model.device, dtype=torch.float32)
            context_CD = as_context_rows(given, self.model.config)
        vectors = self.model.second_stage(texts, context_CD)
        # The second name marks vectors to normalise. Context vectors lack it, so `Normalize` passes them on.
        return features | {"sentence_embedding": vectors, CONTEXTUAL_EMBEDDING: vectors}

    def drawn_from(self, corpus: Sequence[str], seed: int = 0) -> list[str]:
        """Return the documents of a corpus that `context=` draws with this `context_seed`. ValueError if it is empty."""
        corpus = as_texts(corpus)
        return [corpus[row] for row in fill_context(len(corpus), self.model.config.num_contexts, seed)]

    def _embed_context(self, context: Sequence[str], seed: int) -> Tensor:
        """Return context vectors. sentence-transformers calls this for every batch, so the last ones are cached."""
        model, texts = self.model, tuple(as_texts(context))
        # torch counts in-place changes of a weight, so the cache is invalid after a training step
        version = sum(weight._version for weight in model.parameters())
        dtype = next(model.parameters()).dtype
        key = (texts, seed, model.device, dtype, model.config.max_tokens, version)
        # read once, since another thread may replace it at any time
        cached = self._cached_context
        if cached is None or cached[0] != key:
            cached = (key, model.context_from(texts, seed))
            self._cached_context = cached
        return cached[1]

    def get_embedding_dimension(self) -> int:
        """Return D."""
        return self.model.config.hidden_size

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that `print` shows."""
        return {"num_contexts": self.model.config.num_contexts, "max_seq_length": self.max_seq_length}

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write our own config.json and model.safetensors, and the tokenizer. Raises ValueError for a pickle."""
        if not safe_serialization:
            raise ValueError("safe_serialization=False would write a pickle: only safetensors are written")
        self.model.save_pretrained(output_path)
        write_tokenizer(self.model.config.tokenizer, Path(output_path))

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any
    ) -> ContextualModule:
        """Read a folder or hub id that `save` wrote. `model_kwargs` may contain a `dtype`.

        Raises:
            ValueError: for options that would have no effect.
        """
        dtype = _parse_dtype(kwargs)
        options = {name: kwargs.get(name) for name in ("token", "cache_folder", "revision")}
        is_local = bool(kwargs.get("local_files_only"))
        path = cls.load_dir_path(model_name_or_path, subfolder=subfolder, local_files_only=is_local, **options)
        folder = Path(path or model_name_or_path)
        model = load_model(folder)
        if not isinstance(model, ContextualModel):
            raise ValueError(f"{folder} holds a {model.architecture} model: it opens with stock modules, not this one")
        return cls(model if dtype is None else model.to(dtype))


def _parse_dtype(options: dict[str, Any]) -> torch.dtype | None:
    """Return the dtype in the options of sentence-transformers. ValueError for options that have no effect here."""
    model_kwargs = dict(options.get("model_kwargs") or {})
    requested = [model_kwargs.pop(name) for name in ("dtype", "torch_dtype") if name in model_kwargs]
    # An option that is ignored silently would give other vectors than its user expects.
    unused: dict[str, Any] = {}
    for name in ("model_kwargs", "processor_kwargs", "tokenizer_kwargs", "config_kwargs"):
        values = model_kwargs if name == "model_kwargs" else options.get(name) or {}
        set_values = {key: value for key, value in values.items() if value not in (None, False)}
        if set_values:
            unused[name] = set_values
    if options.get("backend") not in (None, "torch"):
        unused["backend"] = options["backend"]
    if unused:
        raise ValueError(f"a contextual export takes no {shorten(unused)}: leave it out; model_kwargs may hold a dtype")
    value = next((value for value in requested if value is not None), None)
    if value is None or value == "auto":
        return None
    dtype = getattr(torch, value.removeprefix("torch."), None) if isinstance(value, str) else value
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(
            f"dtype={shorten(repr(value))} is not a floating-point dtype; choose float32, bfloat16 or float16"
        )
    return dtype


def make_fast_tokenizer(config: ModelConfig) -> PreTrainedTokenizerFast:
    """Return a model's tokenizer as one of transformers, which truncates at the model's maximal length."""
    tokenizer = load_whole_tokenizer(config.tokenizer)
    candidates = {
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
    }
    special = {name: token for name, token in candidates.items() if tokenizer.token_to_id(token) is not None}
    # padding is masked, so any token will do
    special.setdefault("pad_token", str(tokenizer.id_to_token(0)))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=config.max_tokens, **special)

"""Our contextual model as one module of a sentence-transformers model.

1. `encode(texts, context=documents)` runs both stages: the context's own vectors are made once and kept. Of more
documents than the model takes so many are drawn, with `context_seed=`.
2. `encode(documents, without_context="first_stage")` runs the first stage alone; what it gives is taken back as
`dataset_embeddings=`, as in the authors' releases. Its vectors keep their lengths, which the second stage reads.
Without that word, no context is an error: first-stage vectors would pass for a text's own, and rank badly.
3. A text's vector under a context is handed to a stock `Normalize` module, which the other two pass untouched.

Shapes: N texts, S tokens, D hidden size, T vectors a context document.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from sentence_transformers.base.modules import InputModule, Normalize
from tokenizers import Tokenizer
from torch import Tensor

from repro.data.tokens import TOKENIZER_FILE, load_tokenizer, tokenize
from repro.model.contextual import ContextualModel, fill_context
from repro.model.start import load_model
from repro.model.texts import Texts, texts_from

MODULE_FOLDER = "0_ContextualModule"
UNDER_A_CONTEXT = "contextual_embedding"
"""The feature that holds vectors of the second stage: these are normalised, those of the first are not."""
FIRST_STAGE = "first_stage"
NO_CONTEXT = (
    "no context is set: give encode context=[documents of the corpus that is searched] or dataset_embeddings=; "
    f"without_context={FIRST_STAGE!r} gives the vectors of context documents themselves"
)


def normalize() -> Normalize:
    """Return the module that follows ours: unit vectors for texts, nothing done to context vectors."""
    return Normalize(module_input_name=UNDER_A_CONTEXT, module_output_name="sentence_embedding")


class ContextualModule(InputModule):
    """Tokenises and runs both stages; `config.transductive_corpus_size` is the number of context documents."""

    forward_kwargs = {"context", "context_seed", "dataset_embeddings", "without_context"}  # noqa: RUF012 - a plain set in the base class
    save_in_root = False

    def __init__(self, model: ContextualModel) -> None:
        super().__init__()
        self.model = model
        self.tokenizer: Tokenizer = load_tokenizer(model.config.tokenizer)
        self.config = SimpleNamespace(transductive_corpus_size=model.config.num_contexts)
        self._kept: tuple[Any, Tensor] | None = None

    @property
    def max_seq_length(self) -> int:
        """Tokens a text is cut to."""
        return self.model.config.max_tokens

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return token ids and their mask, both int64 (N, S)."""
        tokens = tokenize([(prompt or "") + text for text in inputs], self.tokenizer, self.max_seq_length)
        texts = texts_from(*tokens.pad(range(len(tokens))))
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
        """Add `sentence_embedding`: (N, D) under a context, or the context vectors of each text, (N, T × D).

        `context`, `context_seed`: documents of the corpus that is searched, as `ContextualModel.set_context` takes
        them. `without_context`: "first_stage" asks for the context vectors where no context is given. ValueError for
        a context given in both ways, or in none and not asked for that.
        """
        if without_context not in (None, FIRST_STAGE):
            raise ValueError(f"without_context={without_context!r} is unknown; the only one is {FIRST_STAGE!r}")
        texts = Texts(features["input_ids"], features["attention_mask"])
        if context is None and dataset_embeddings is None:
            if without_context is None:
                raise ValueError(NO_CONTEXT)
            vectors = self.model.first_stage(texts).reshape(texts.num_texts, -1)
            return features | {"sentence_embedding": vectors}
        if context is not None and dataset_embeddings is not None:
            raise ValueError("context= and dataset_embeddings= are two ways to give the same: give one of them")
        if context is not None:
            given_CD = self._vectors_of(context, context_seed)
        else:
            given_CD = self._as_vectors(dataset_embeddings)
        vectors = self.model.second_stage(texts, given_CD)
        return features | {"sentence_embedding": vectors, UNDER_A_CONTEXT: vectors}

    def drawn_from(self, corpus: Sequence[str], seed: int = 0) -> list[str]:
        """Return the documents of a corpus that `context=` takes with this `context_seed`; ValueError for none."""
        return [corpus[place] for place in fill_context(len(corpus), self.model.config.num_contexts, seed)]

    def _vectors_of(self, context: Sequence[str], seed: int) -> Tensor:
        """Return the context vectors of some documents; sentence-transformers asks again for every batch."""
        if isinstance(context, str):
            raise ValueError("context= is one text: give a list of documents")
        model = self.model
        # torch counts the changes of a weight in place: a context is made anew after a step of training
        asked = (tuple(context), seed, model.device, sum(weight._version for weight in model.parameters()))
        if self._kept is None or self._kept[0] != asked:
            before = model.context_CE
            model.set_context(asked[0], seed)
            assert model.context_CE is not None, "a context was just set"
            self._kept, model.context_CE = (asked, model.context_CE), before
        return self._kept[1]

    def _as_vectors(self, dataset_embeddings: Any) -> Tensor:
        given = torch.as_tensor(dataset_embeddings, device=self.model.device, dtype=torch.float32)
        return given.reshape(-1, self.model.config.context_width)

    def get_embedding_dimension(self) -> int:
        """D."""
        return self.model.config.hidden_size

    def get_config_dict(self) -> dict[str, Any]:
        """What `print` shows."""
        return {"num_contexts": self.model.config.num_contexts, "max_seq_length": self.max_seq_length}

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write our own config.json and model.safetensors, and the tokenizer; ValueError for an unsafe format."""
        if not safe_serialization:
            raise ValueError("safe_serialization=False would write a pickle: only safetensors are written")
        self.model.save_pretrained(output_path)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.tokenizer.save(str(Path(output_path) / TOKENIZER_FILE))

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any
    ) -> ContextualModule:
        """Read what `save` wrote, from a folder or a hub id."""
        options = {name: kwargs.get(name) for name in ("token", "cache_folder", "revision")}
        local = bool(kwargs.get("local_files_only"))
        found = cls.load_dir_path(model_name_or_path, subfolder=subfolder, local_files_only=local, **options)
        folder = Path(found or model_name_or_path)
        model = load_model(folder)
        if not isinstance(model, ContextualModel):
            raise ValueError(f"{folder} holds a {model.architecture} model: it opens with stock modules, not this one")
        return cls(model)

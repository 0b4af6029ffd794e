"""`CdeModel` as the module of a SentenceTransformer, and its training with the stock trainer.

This file is copied next to exported weights, with `modeling_cde.py`. It is a file of its own because the import of
sentence-transformers takes more than a second.

Training: a batch's context is drawn from the documents of the batch, by `ContextualCollator`.

Shapes: N texts, S tokens, C context vectors, T vectors per context document, D hidden size, E = D, or D + words if the
mean is weighted by word frequency.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

# Version 5.7 has these modules, but never calls `on_model_ready`, so the model would have no `set_context`.
if int(version("sentence-transformers").partition(".")[0]) < 6:
    raise ImportError('this model needs other versions: pip install "sentence-transformers>=6" "transformers>=5.17"')

from sentence_transformers.base.modules import InputModule
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

# relative, because both files are copied into one folder
from .modeling_cde import CdeConfig, CdeModel, as_context_rows, as_texts, draw_batch_context

FIRST_STAGE = "first_stage"
UNIT_LENGTH = 1e-3


class ContextualModule(InputModule):
    """`CdeModel` as the only module of a SentenceTransformer. Vectors have unit length."""

    forward_kwargs = {"context", "context_seed", "dataset_embeddings", "without_context"}  # noqa: RUF012
    save_in_root = True

    def __init__(self, model: CdeModel) -> None:
        super().__init__()
        self.model = model
        self.max_seq_length = int(model.sizes.max_tokens)
        self.tokenizer = model.tokenizer
        self._cached: tuple[Any, Tensor] | None = None

    @property
    def config(self) -> CdeConfig:
        """The configuration, with `transductive_corpus_size`, the number of context documents."""
        config = self.model.config
        assert isinstance(config, CdeConfig), "it was built from one"
        return config

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer that lies next to the weights."""
        return self.model.tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Replace the tokenizer."""
        self.model.tokenizer = tokenizer

    def on_model_ready(self, model: Any) -> None:
        """Give the SentenceTransformer a method `set_context`. The library calls this once all modules are loaded."""
        # The library has no other hook that adds a method to the whole model.
        model.set_context = self.set_context

    def set_context(
        self,
        documents: Sequence[str] | Mapping[Any, str] | None,
        seed: int = 0,
        name: str | None = None,
        prompt_name: str = "document",
    ) -> None:
        """Embed documents of the corpus that is searched as context. See `CdeModel.set_context`."""
        self.model.set_context(documents, seed, name, prompt_name, self.max_seq_length)

    def drawn_from(
        self, corpus: Sequence[str] | Mapping[Any, str], seed: int = 0, name: str | None = None
    ) -> list[str]:
        """Return the documents that `set_context` embeds."""
        return self.model.draw_context(corpus, seed, name)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return token ids and their mask, both int64 (N, S)."""
        return self.model.tokenize(as_texts(inputs), prompt or "", self.max_seq_length)

    def forward(
        self,
        features: dict[str, Any],
        context: Sequence[str] | None = None,
        dataset_embeddings: Any = None,
        context_seed: int = 0,
        without_context: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Add `sentence_embedding`, (N, D).

        Args:
            features: Token ids, their mask, and in training `context`, the documents of the batch.
            context: Documents for this call alone, instead of those that were set.
            dataset_embeddings: Context vectors for this call alone.
            context_seed: Seed for drawing from `context`.
            without_context: "first_stage" returns the context vectors of each text, (N, T × D), not normalised.
        """
        # Replicas of nn.DataParallel, which transformers uses by default on several GPUs, have no parameters.
        if next(self.parameters(), None) is None:
            raise ValueError("nn.DataParallel is not supported: start with torchrun, or set CUDA_VISIBLE_DEVICES=0")
        if without_context not in (None, FIRST_STAGE):
            raise ValueError(f"without_context={without_context!r} is unknown; the only one is {FIRST_STAGE!r}")
        ids_NS, mask_NS, batch = features["input_ids"], features["attention_mask"], features.get("context")
        if without_context == FIRST_STAGE and context is None and dataset_embeddings is None:
            vectors = self.model.first_stage(ids_NS, mask_NS).reshape(len(ids_NS), -1)
            return features | {"sentence_embedding": vectors}
        if context is not None and dataset_embeddings is not None:
            raise ValueError("context= and dataset_embeddings= are two ways to give the same: give one of them")
        # The collator's documents come first: in training, a context that was set must not replace that of the batch.
        if batch is not None:
            dataset_embeddings = batch.embed(self.model)
        elif self.training and not self.model.is_blind:
            raise ValueError(
                "training needs a context for each batch: give SentenceTransformerTrainer "
                "data_collator=model[0].make_collator(prompts=…)"
            )
        elif context is not None:
            dataset_embeddings = self._embed_context(context, context_seed)
        elif dataset_embeddings is not None:
            dataset_embeddings = self._check_vectors(dataset_embeddings)
        output = self.model(ids_NS, mask_NS, dataset_embeddings=dataset_embeddings).pooler_output
        # a half-precision length would be off by up to 1 %
        output = output.to(torch.promote_types(output.dtype, torch.float32))
        return features | {"sentence_embedding": nn.functional.normalize(output, dim=-1)}

    def make_collator(self, prompts: Any = None, seed: int = 0) -> ContextualCollator:
        """Return what `SentenceTransformerTrainer(data_collator=…)` takes.

        `prompts` is as in SentenceTransformerTrainingArguments. By default the first column has the prompt of queries
        and all other columns that of documents.
        """
        return ContextualCollator(
            preprocess_fn=self.preprocess,
            prompts=prompts,
            num_contexts=0 if self.model.is_blind else self.model.sizes.num_contexts,
            prompts_by_role=dict(self.config.prompts),
            seed=seed,
        )

    def get_embedding_dimension(self) -> int:
        """Return D."""
        return int(self.model.sizes.hidden_size)

    def get_config_dict(self) -> dict[str, Any]:
        """Return what `print` shows."""
        shown = {"num_contexts": self.model.sizes.num_contexts, "max_tokens": self.max_seq_length}
        return shown | {"has_context": self.config.context is not None}

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write a complete folder. ValueError for another format than safetensors."""
        if not safe_serialization:
            raise ValueError("safe_serialization=False would write a pickle: only safetensors are written")
        self.config.repro = {**self.config.repro, "max_tokens": int(self.max_seq_length or self.model.sizes.max_tokens)}
        self.model.save_pretrained(output_path)
        code = Path(__file__)
        if (target := Path(output_path) / code.name).resolve() != code.resolve():
            shutil.copyfile(code, target)

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any
    ) -> ContextualModule:
        """Read a folder or hub id."""
        names = {"token": "token", "cache_folder": "cache_dir", "revision": "revision"}
        options = {theirs: kwargs[name] for name, theirs in names.items() if kwargs.get(name)}
        model_kwargs = dict(kwargs.get("model_kwargs") or {})
        # transformers 5 renamed this option. Both names are in use.
        dtype = model_kwargs.pop("dtype", None) or model_kwargs.pop("torch_dtype", None) or "auto"
        unused = {name: value for name, value in model_kwargs.items() if value not in (None, False)}
        kind = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
        if unused or not (dtype == "auto" or (isinstance(kind, torch.dtype) and kind.is_floating_point)):
            raise ValueError(f"model_kwargs takes a floating-point dtype alone; leave out {unused or dtype!r}")
        options |= {"local_files_only": bool(kwargs.get("local_files_only")), "dtype": "auto" if kind is None else kind}
        return cls(CdeModel.from_pretrained(model_name_or_path, **options))

    def _check_vectors(self, dataset_embeddings: Any) -> Tensor:
        """Return context vectors. ValueError if they have unit length, as vectors of the second stage have."""
        first, width = next(self.model.parameters()), int(self.model.sizes.hidden_size)
        vectors = torch.as_tensor(dataset_embeddings, device=first.device, dtype=first.dtype)
        vectors_CE = as_context_rows(vectors, self.model.sizes)
        # Vectors of texts fit in shape. Their unit length is the only sign of the mistake.
        if bool(((vectors_CE[:, :width].norm(dim=1) - 1).abs() < UNIT_LENGTH).all()):
            raise ValueError(
                "dataset_embeddings have unit length, so they are not context vectors: encode the context documents with "
                f"without_context={FIRST_STAGE!r}, or call set_context(documents)"
            )
        return vectors_CE

    def _embed_context(self, context: Sequence[str], seed: int) -> Tensor:
        """Return context vectors. sentence-transformers asks again for every batch, so the last ones are cached."""
        weights = (
            self.model.device,
            self.model.dtype,
            self.max_seq_length,
            # torch counts in-place changes of a weight. After an optimiser step the cached vectors are outdated.
            sum(weight._version for weight in self.model.parameters()),
        )
        # another thread may replace it
        key, cached = (tuple(as_texts(context)), seed, weights), self._cached
        if cached is None or cached[0] != key:
            tokens = self.model.tokenize(
                self.drawn_from(context, seed), self.config.prompts["document"], self.max_seq_length
            )
            with torch.no_grad():
                vectors = self.model.first_stage(**{name: ids.to(self.model.device) for name, ids in tokens.items()})
            cached = self._cached = (key, vectors)
        return cached[1]


class BatchContext:
    """Documents of a training batch that are its context. All columns of the batch share one such object."""

    def __init__(self, tokens: Mapping[str, Tensor]) -> None:
        self.tokens = dict(tokens)
        self._without_gradient: Tensor | None = None

    def embed(self, model: CdeModel) -> Tensor:
        """Return their vectors, (C, E). A pass without gradient computes them once for all columns and chunks."""
        tokens = {name: ids.to(model.device) for name, ids in self.tokens.items()}
        # With a gradient, every column needs a graph of its own.
        if torch.is_grad_enabled():
            return model.first_stage(**tokens)
        if self._without_gradient is None:
            self._without_gradient = model.first_stage(**tokens)
        return self._without_gradient


@dataclass
class ContextualCollator(SentenceTransformerDataCollator):
    """Adds the context of each batch: documents drawn from all columns but the first.

    The seed and the texts of the batch determine the draw, so it is the same in a resumed run and in every worker.
    """

    num_contexts: int = 0
    prompts_by_role: dict[str, str] | None = None
    seed: int = 0

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Return tokens of all columns, and with each column the same context."""
        skipped = {"dataset_name", *self.valid_label_columns}
        columns = [name for name in features[0] if name not in skipped]
        if not self.prompts and self.prompts_by_role:
            roles = ["query"] + ["document"] * (len(columns) - 1)
            # In a copy, because the next batch may come from a dataset with other columns.
            collator = copy(self)
            collator.prompts = {name: self.prompts_by_role[role] for name, role in zip(columns, roles, strict=True)}
            collator.prompts_by_role = None
            return collator(features)
        batch = super().__call__(features)
        if not self.num_contexts:
            return batch
        prompts = self._resolve_prompts(batch) or {}
        # The first column holds the queries, which are never context.
        texts = [
            (self._get_prompt_for_column(prompts, name) or "") + row[name] for name in columns[1:] for row in features
        ]
        # A counter would miss the batches that a resumed run skips and those of other workers.
        number = int.from_bytes(hashlib.sha256("\0".join(texts).encode()).digest()[:8], "big")
        positions = draw_batch_context(len(texts), self.num_contexts, self.seed, number)
        context = BatchContext(self.preprocess_fn([texts[position] for position in positions]))
        return batch | {f"{name}_context": context for name in columns}

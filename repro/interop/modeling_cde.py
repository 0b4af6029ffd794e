"""Contextual document embeddings (Morris & Rush, ICLR 2025) for transformers and sentence-transformers.

This file is copied next to exported weights and needs nothing but these two libraries:

    model = SentenceTransformer(folder, trust_remote_code=True)
    model.set_context(documents, seed=0)          # documents of the corpus that is searched
    vectors = model.encode_document(documents)

1. The first stage turns each of `num_contexts` documents of a corpus into T vectors: the context.
2. The second stage reads [context vectors | soft prompts | text] and averages the states of the text.
3. Without a context, each slot holds one learned null vector.

Training: a batch's context is drawn from the documents of the batch, by `ContextualCollator`.

Shapes: N texts, S tokens, C context vectors, P soft prompts, L = C + P + S, D hidden size, V words, T vectors per
context document, E = D, or D + V if the mean is weighted by word frequency.
"""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    NomicBertConfig,
    NomicBertModel,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling

# AutoModel works without sentence-transformers
try:
    from sentence_transformers.base.modules import InputModule
    from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
except ImportError:
    InputModule = nn.Module  # type: ignore[misc, assignment]
    SentenceTransformerDataCollator = object  # type: ignore[misc, assignment]

FIRST_STAGE = "first_stage"
TRAINED_ON_FILE = "trained_on.json"
NO_CONTEXT = (
    "no context is set: texts are embedded under the null context. Call set_context(documents) with documents of the "
    "corpus that is searched, or set_context(None) to use the null context without this warning"
)
UNIT_LENGTH = 1e-3
POOLINGS = ("mean", "frequency")
FREQUENCY_RATE = 10.0
FREQUENCY_DROPPED = 0.1
NULL_STD = 0.01


class CdeConfig(PreTrainedConfig):
    """`repro` has the sizes of the model, `prompts` the text put in front of queries and of documents.

    `context` describes the context that is stored with the weights. None if there is no context.
    """

    model_type = "cde"

    def __init__(
        self,
        repro: Mapping[str, Any] | None = None,
        prompts: Mapping[str, str] | None = None,
        context: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.repro = dict(repro or {})
        self.prompts = dict(prompts or {})
        self.context = None if context is None else dict(context)
        # the authors' releases have this name for the number of context documents
        self.transductive_corpus_size = self.repro.get("num_contexts", 0)
        super().__init__(**kwargs)


class CdeBiencoderConfig(CdeConfig):
    """The same for a biencoder. AutoModel chooses the class of a model by the class of its configuration."""

    model_type = "cde_biencoder"


class Backbone(nn.Module):
    """BERT, NomicBERT or ModernBERT that reads a text alone, or a text after context vectors and soft prompts."""

    def __init__(self, sizes: SimpleNamespace, num_layers: int, first_position: int | None) -> None:
        super().__init__()
        self.kind, self.text_normalised_twice = sizes.backbone, sizes.text_normalised_twice
        self.first_position = first_position if self.kind == "bert" else None
        settings = dict(sizes.backbone_settings)
        if "layer_types" in settings:
            settings["layer_types"] = settings["layer_types"][:num_layers]
        values = {
            "vocab_size": sizes.vocab_size,
            "hidden_size": sizes.hidden_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": sizes.num_heads,
            "intermediate_size": sizes.intermediate_size,
            "attn_implementation": "sdpa",
        }
        if self.kind == "bert":
            no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
            self.model: Any = BertModel(BertConfig(**(values | settings | no_dropout)), add_pooling_layer=False)
        elif self.kind == "nomic":
            self.model = NomicBertModel(NomicBertConfig(**(values | settings)))
        else:
            # The defaults of the class are ids of its own vocabulary, which a smaller vocabulary does not have.
            absent = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
            self.model = ModernBertModel(ModernBertConfig(**(values | {"pad_token_id": 0} | absent | settings)))

    def forward(self, ids_NS: Tensor, mask_NS: Tensor) -> Tensor:
        """Return the states of texts alone, (N, S, D)."""
        shifted = {}
        if self.first_position:
            positions_S = torch.arange(self.first_position, self.first_position + ids_NS.shape[1], device=ids_NS.device)
            shifted = {"position_ids": positions_S[None]}
        return self._run(mask_NS, inputs_embeds=self.model.get_input_embeddings()(ids_NS), **shifted)

    def read_after(self, contexts_NCD: Tensor, prompts_PD: Tensor, ids_NS: Tensor, mask_NS: Tensor) -> Tensor:
        """Return all states, (N, L, D). Contexts are (1, C, D) if all texts share them.

        The class adds token types and learned positions to all that it is given. Contexts and soft prompts must carry
        none, so what the class will add is subtracted first. Contexts have position 0, except in ModernBERT.
        """
        num_texts, num_contexts, num_prefix = (
            len(ids_NS),
            contexts_NCD.shape[1],
            contexts_NCD.shape[1] + len(prompts_PD),
        )
        type_D: Tensor | int = 0
        position_D: Tensor | int = 0
        if self.kind != "modernbert":
            type_D = self.model.embeddings.token_type_embeddings.weight[0]
        if self.kind == "bert":
            position_D = self.model.embeddings.position_embeddings.weight[0]
        words_NSD = self.model.get_input_embeddings()(ids_NS)
        if self.text_normalised_twice:
            words_NSD = self.model.embeddings(inputs_embeds=words_NSD)
        parts = [contexts_NCD - type_D - position_D, (prompts_PD - type_D)[None]]
        embeds_NLD = torch.cat([*(part.expand(num_texts, -1, -1) for part in parts), words_NSD], dim=1)
        mask_NL = torch.cat([mask_NS.new_ones(num_texts, num_prefix), mask_NS], dim=1)
        positions_L = torch.arange(embeds_NLD.shape[1], device=ids_NS.device)
        if self.kind != "modernbert":
            positions_L[:num_contexts] = 0
        if self.first_position is not None:
            positions_L[num_contexts:num_prefix] = 0
            positions_L[num_prefix:] += self.first_position - num_prefix
        return self._run(mask_NL, inputs_embeds=embeds_NLD, position_ids=positions_L[None])

    def _run(self, mask_NL: Tensor, **inputs: Any) -> Tensor:
        if self.kind != "modernbert":
            inputs["token_type_ids"] = mask_NL.new_zeros(1, 1)
        states_NLD: Tensor = self.model(attention_mask=mask_NL, **inputs).last_hidden_state
        return states_NLD


class Biencoder(nn.Module):
    """Backbone, mean, Linear – GELU – Linear: a model of its own, or the first stage of a contextual model."""

    def __init__(self, sizes: SimpleNamespace, num_layers: int) -> None:
        super().__init__()
        width = sizes.hidden_size
        # The text of a first stage always begins at position 0.
        is_alone = sizes.architecture == "biencoder"
        self.embedder = Backbone(sizes, num_layers, sizes.first_position if is_alone else None)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, ids_NS: Tensor, mask_NS: Tensor, num_segments: int = 1) -> Tensor:
        """Return one vector for each of the equal segments of a text, (N, T, D), not normalised."""
        states_NSD = self.embedder(ids_NS, mask_NS)
        # Segments share one pass through the backbone. Only the means differ.
        means = [mean_states(states_NSD, part_NS) for part_NS in split_mask(mask_NS, num_segments)]
        vectors_NTD: Tensor = self.mlp(torch.stack(means, dim=1))
        return vectors_NTD


class SecondStage(nn.Module):
    """A text after context vectors and soft prompts."""

    def __init__(self, sizes: SimpleNamespace) -> None:
        super().__init__()
        self.sizes, width = sizes, sizes.hidden_size
        self.backbone = Backbone(sizes, sizes.num_layers, sizes.first_position)
        if sizes.num_soft_prompts:
            output_width = width * sizes.num_soft_prompts
            self.prompt_projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, output_width))
        self.output_projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        if sizes.sequence_dropout > 0:
            self.sequence_dropout_null_embedding = nn.Parameter(torch.randn(width) * NULL_STD)
        if sizes.pooling not in POOLINGS:
            raise ValueError(f"pooling={sizes.pooling!r} is unknown; this file computes {list(POOLINGS)}")
        self.frequency_weights = FrequencyWeights(sizes.num_contexts) if sizes.pooling == "frequency" else None

    def forward(self, ids_NS: Tensor, mask_NS: Tensor, contexts_CE: Tensor) -> Tensor:
        """Return vectors, (N, D), not normalised."""
        sizes, num_texts = self.sizes, len(ids_NS)
        # Frequency pooling appends the word columns to the context vectors, so both travel as one tensor.
        contexts_CE = contexts_CE[: sizes.num_contexts * sizes.tokens_per_document]
        contexts_NCD, words_CV = contexts_CE[None, :, : sizes.hidden_size], contexts_CE[:, sizes.hidden_size :]
        if self.training and sizes.sequence_dropout > 0:
            # Each text draws its own slots, so the texts of a batch no longer share all contexts.
            dropped_NC1 = torch.rand(num_texts, len(contexts_CE), 1, device=ids_NS.device) < sizes.sequence_dropout
            null_D = self.sequence_dropout_null_embedding.to(contexts_NCD.dtype)
            contexts_NCD = torch.where(dropped_NC1, null_D, contexts_NCD)
        prompts_PD = self.soft_prompts()
        states_NLD = self.backbone.read_after(contexts_NCD, prompts_PD, ids_NS, mask_NS)
        weights_NS = mask_NS if self.frequency_weights is None else self.frequency_weights(ids_NS, mask_NS, words_CV)
        if sizes.instruction_end is not None:
            weights_NS = weights_NS * mask_instruction(ids_NS, mask_NS, sizes.instruction_end)
        num_prefix = states_NLD.shape[1] - ids_NS.shape[1]
        if sizes.prefix_is_pooled:
            weights_NS = torch.cat([weights_NS.new_ones(num_texts, num_prefix), weights_NS], dim=1)
        else:
            states_NLD = states_NLD[:, num_prefix:]
        pooled_ND = mean_states(states_NLD, weights_NS)
        output_ND: Tensor = self.output_projection(pooled_ND)
        return output_ND + pooled_ND if sizes.residual else output_ND

    def soft_prompts(self) -> Tensor:
        """Return the learned vectors between context and text, (P, D)."""
        width, weight = self.sizes.hidden_size, next(self.output_projection.parameters())
        if not self.sizes.num_soft_prompts:
            return weight.new_zeros(0, width)
        # A function of a constant input: the prompts are the same for every text.
        prompts_F: Tensor = self.prompt_projection(weight.new_ones(width))
        return prompts_F.view(-1, width)

    def null_contexts(self) -> Tensor:
        """Return the null vector in every slot, (C, E). ValueError if the model was trained without one."""
        sizes = self.sizes
        if sizes.sequence_dropout == 0:
            raise ValueError("no context is set, and this model has no null context: call set_context(documents)")
        nulls_CD = self.sequence_dropout_null_embedding.expand(sizes.num_contexts * sizes.tokens_per_document, -1)
        if self.frequency_weights is None:
            return nulls_CD
        # -1 marks a row that is not a document
        return torch.cat([nulls_CD, nulls_CD.new_full((len(nulls_CD), sizes.vocab_size), -1.0)], dim=1)


class FrequencyWeights(nn.Module):
    """A weight for each share of context documents that hold a word, and one for the null context."""

    def __init__(self, num_contexts: int) -> None:
        super().__init__()
        self.logits_K = nn.Parameter(torch.zeros(num_contexts + 2))

    def forward(self, ids_NS: Tensor, mask_NS: Tensor, words_CV: Tensor) -> Tensor:
        """Return the weights of the tokens of texts, (N, S), zero on padding."""
        last = len(self.logits_K) - 2
        # Rows of the null context are marked by −1. They are not documents, so they do not count.
        documents_CV = words_CV[words_CV[:, 0] >= 0].detach().float()
        null_NS = self.logits_K[-1].expand(ids_NS.shape)
        logits_NS = null_NS
        if len(documents_CV):
            # The share of documents that hold a word lies between two of the learned weights. Interpolate between their
            # logits.
            position_V = documents_CV.mean(0) * last
            lower_V = position_V.floor().long().clamp(max=last - 1)
            fraction_V = position_V - lower_V
            logits_V = self.logits_K[lower_V] * (1 - fraction_V) + self.logits_K[lower_V + 1] * fraction_V
            logits_NS = logits_V[ids_NS]
        if self.training:
            dropped_N1 = torch.rand(len(ids_NS), 1, device=ids_NS.device) < FREQUENCY_DROPPED
            logits_NS = torch.where(dropped_N1, null_NS, logits_NS)
        return torch.exp(FREQUENCY_RATE * logits_NS) * mask_NS


class CdePreTrainedModel(PreTrainedModel):
    """What both architectures share: tokens from texts, vectors from texts, and folders that are complete."""

    config_class: type[CdeConfig] = CdeConfig
    base_model_prefix = "cde"
    main_input_name = "input_ids"

    def __init__(self, config: CdeConfig) -> None:
        super().__init__(config)
        # folders written before the field existed have no first_position
        self.sizes = SimpleNamespace(**({"first_position": None} | config.repro))
        self._tokenizer: PreTrainedTokenizerFast | None = None

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **kwargs: Any) -> Any:
        """Read a folder or hub id. ValueError if a weight is missing.

        The base class would draw it at random and only log a table.
        """
        loaded: Any = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        model, info = loaded
        access = {name: kwargs[name] for name in ("token", "cache_dir", "local_files_only") if kwargs.get(name)}
        if access:
            # now, because the model does not store a token
            model.tokenizer = model.load_tokenizer(**access)
        if missing := sorted(info["missing_keys"]):
            raise ValueError(f"{model.name_or_path} lacks {len(missing)} weights, first {missing[0]!r}: copy it again")
        return (model, info) if output_loading_info else model

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer that lies next to the weights."""
        if self._tokenizer is None:
            self._tokenizer = self.load_tokenizer()
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Replace the tokenizer."""
        self._tokenizer = tokenizer

    def load_tokenizer(self, **access: Any) -> PreTrainedTokenizerFast:
        """Load the tokenizer. `access` are options of the hub."""
        # It comes from the same commit as the weights, also after the hub was updated.
        if commit := getattr(self.config, "_commit_hash", None):
            access["revision"] = commit
        return PreTrainedTokenizerFast.from_pretrained(str(self.name_or_path), **access)

    def tokenize(self, texts: Sequence[str], prompt: str = "", max_tokens: int | None = None) -> dict[str, Tensor]:
        """Return token ids of the texts after a prompt, and their mask, both int64 (N, S)."""
        if max_tokens is None:
            max_tokens = int(self.sizes.max_tokens)
        if max_tokens < 3:
            raise ValueError(f"max_seq_length is {max_tokens}: at least 3, because two tokens of each text are special")
        tokens = self.tokenizer(
            [prompt + text for text in texts],
            padding=True,
            truncation=True,
            max_length=max_tokens,
            padding_side="right",
            return_token_type_ids=False,
            return_tensors="pt",
        )
        return {name: tokens[name].long() for name in ("input_ids", "attention_mask")}

    @torch.no_grad()
    def encode(self, texts: Sequence[str], prompt: str = "document", batch_size: int = 32) -> np.ndarray:
        """Return vectors of unit length, float32 (N, D). `prompt` is "query" or "document"."""
        texts, prompt_text = as_texts(texts), self.get_prompt(prompt)
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: it must be at least 1")
        vectors = [np.zeros((0, self.sizes.hidden_size), dtype=np.float32)]
        with evaluation_mode(self):
            # read once: another thread may set a new context between two batches
            options = self.get_call_options()
            for start in range(0, len(texts), batch_size):
                tokens = self.tokenize(texts[start : start + batch_size], prompt_text)
                output = self(**{name: ids.to(self.device) for name, ids in tokens.items()}, **options).pooler_output
                # In float32, because a half-precision length would be off by up to 1 %.
                vectors.append(nn.functional.normalize(output.float(), dim=-1).cpu().numpy())
        return np.concatenate(vectors)

    def get_prompt(self, name: str) -> str:
        """Return the text in front of queries or of documents. Raises ValueError for another name."""
        if name not in self.config.prompts:
            raise ValueError(f"unknown prompt {name!r}; choose one of {list(self.config.prompts)}")
        return str(self.config.prompts[name])

    def get_call_options(self) -> dict[str, Tensor]:
        """Return the arguments of `forward` that all batches of one call of `encode` share."""
        return {}

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | Path, *args: Any, **kwargs: Any
    ) -> None:
        """Write a complete folder: weights, configuration, tokenizer, this file, and which run trained the model."""
        if kwargs.get("push_to_hub"):
            raise ValueError(
                "push_to_hub=True would upload the folder before it is complete: call model.push_to_hub(NAME)"
            )
        classes = {"AutoConfig": type(self.config), "AutoModel": type(self)}
        self.config.auto_map = {auto: f"modeling_cde.{kind.__name__}" for auto, kind in classes.items()}
        super().save_pretrained(save_directory, *args, **kwargs)
        self.tokenizer.save_pretrained(save_directory)
        sources = [Path(__file__)]
        if self.name_or_path:
            sources.append(Path(self.name_or_path) / TRAINED_ON_FILE)
        for source in sources:
            # A model that was opened from its own folder may be saved into that folder.
            target = Path(save_directory) / source.name
            if source.is_file() and target.resolve() != source.resolve():
                shutil.copyfile(source, target)


class CdeBiencoder(CdePreTrainedModel):
    """Texts to vectors, without context."""

    config_class = CdeBiencoderConfig

    def __init__(self, config: CdeConfig) -> None:
        super().__init__(config)
        layers = Biencoder(self.sizes, self.sizes.num_layers)
        self.embedder, self.mlp = layers.embedder, layers.mlp
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, return_dict: bool | None = None
    ) -> BaseModelOutputWithPooling | tuple[Tensor]:
        """Return `pooler_output`, (N, D), not normalised."""
        ids_NS, mask_NS = pad_right(input_ids, attention_mask)
        vectors_ND = self.mlp(mean_states(self.embedder(ids_NS, mask_NS), mask_NS))
        return (vectors_ND,) if return_dict is False else BaseModelOutputWithPooling(pooler_output=vectors_ND)


class CdeModel(CdePreTrainedModel):
    """Both stages. Call `set_context`, then `encode`."""

    context_embeddings: Tensor | None
    context_input_ids: Tensor | None
    context_attention_mask: Tensor | None

    def __init__(self, config: CdeConfig) -> None:
        super().__init__(config)
        sizes = self.sizes
        self.first_stage_model = Biencoder(sizes, sizes.num_first_stage_layers)
        self.second_stage_model = SecondStage(sizes)
        # Buffers, so that a context is saved with the weights. Token ids are saved too: after a training step the
        # vectors are outdated and are computed again.
        for name in ("context_embeddings", "context_input_ids", "context_attention_mask"):
            self.register_buffer(name, None)
        if config.context is not None and config.context["num_documents"]:
            # A context is stored with the weights. These are filled when the weights are loaded.
            shape = (sizes.num_contexts, config.context["num_tokens"])
            width = sizes.hidden_size + (sizes.vocab_size if sizes.pooling == "frequency" else 0)
            self.context_embeddings = torch.zeros(sizes.num_contexts * sizes.tokens_per_document, width)
            self.context_input_ids = torch.zeros(shape, dtype=torch.long)
            self.context_attention_mask = torch.zeros(shape, dtype=torch.long)
        self._context_is_stale = self._has_warned = False
        self.post_init()

    @property
    def is_blind(self) -> bool:
        """Whether the model was trained without any document. It has the null context alone."""
        return bool(self.sizes.sequence_dropout == 1)

    def set_context(
        self,
        documents: Sequence[str] | Mapping[Any, str] | None,
        seed: int = 0,
        name: str | None = None,
        prompt_name: str = "document",
        max_tokens: int | None = None,
    ) -> None:
        """Embed documents of the corpus that is searched as context. None sets the null context.

        If there are more than `num_contexts` documents, a sample is drawn with the seed. Fewer are repeated, with a
        warning. With the name of a collection, the sample is the one that `repro evaluate` draws for it: there the draw
        depends on the name, too. If the documents are questions, as in Quora, `repro evaluate` gives them the prompt
        "query". They are truncated to `max_tokens`, by default those of the model.
        Vectors are comparable only under the same context: encode queries and documents again after a change.
        """
        if documents is None:
            # Raises an error if the model has no null vector, before anything is changed.
            self.second_stage_model.null_contexts()
            # in this order, because another thread that finds token ids expects vectors, too
            self.context_input_ids = self.context_attention_mask = self.context_embeddings = None
            self.config.context = {"num_documents": 0}
            return
        self._check_reads_documents()
        context = self.draw_context(documents, seed, name)
        tokens = self.tokenize(context, self.get_prompt(prompt_name), max_tokens)
        ids, mask = (tokens[name].to(self.device) for name in ("input_ids", "attention_mask"))
        vectors = self._embed_context(ids, mask)
        # Only now, so that an error keeps the earlier context. The ids are last, because another thread that finds them
        # expects vectors.
        self.context_embeddings, self.context_attention_mask, self.context_input_ids = vectors, mask, ids
        self._context_is_stale = False
        self.config.context = {
            "num_documents": len(as_texts(documents)),
            "num_tokens": ids.shape[1],
            "seed": seed,
            "name": name,
            "prompt_name": prompt_name,
            "sha256": hashlib.sha256("\0".join(context).encode()).hexdigest(),
        }

    def _check_reads_documents(self) -> None:
        if self.is_blind:
            raise ValueError("this model was trained without documents: call set_context(None), the null context")

    def draw_context(
        self, documents: Sequence[str] | Mapping[Any, str], seed: int = 0, name: str | None = None
    ) -> list[str]:
        """Return the `num_contexts` documents of a corpus that `set_context` embeds."""
        texts = as_texts(documents)
        if name is not None:
            # As in `repro.evaluate.contexts`, which also draws before it fills.
            order = make_generator(seed, "evaluation context", name).permutation(len(texts))
            texts = [texts[position] for position in order[: self.sizes.num_contexts]]
        return [texts[position] for position in fill_context(len(texts), self.sizes.num_contexts, seed)]

    def first_stage(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the context vectors of documents, (documents × T, E)."""
        input_ids, mask_NS = pad_right(input_ids, attention_mask)
        vectors_NTD = self.first_stage_model(input_ids, mask_NS, self.sizes.tokens_per_document)
        if self.sizes.pooling == "frequency":
            words_NV = vectors_NTD.new_zeros(len(input_ids), self.sizes.vocab_size)
            # "amax" marks a word once, however often a document has it. Padding adds a zero.
            words_NV.scatter_reduce_(1, input_ids, mask_NS.to(words_NV.dtype), "amax")
            vectors_NTD = torch.cat([vectors_NTD, words_NV[:, None].expand(-1, vectors_NTD.shape[1], -1)], dim=2)
        return vectors_NTD.flatten(0, 1)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        dataset_input_ids: Tensor | None = None,
        dataset_attention_mask: Tensor | None = None,
        dataset_embeddings: Tensor | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutputWithPooling | tuple[Tensor]:
        """Return `pooler_output`, (N, D), not normalised.

        The context is given here, as token ids of documents or as their vectors from `first_stage`, or it is the one
        that was set. Without either it is the null context. Raises ValueError for a context that is given to a model
        trained without documents.
        """
        if dataset_input_ids is not None or dataset_embeddings is not None:
            self._check_reads_documents()
        ids_NS, mask_NS = pad_right(input_ids, attention_mask)
        if dataset_embeddings is None and dataset_input_ids is not None:
            dataset_embeddings = self.first_stage(dataset_input_ids, dataset_attention_mask)
        is_given = dataset_embeddings is not None
        contexts_CE = as_context_rows(dataset_embeddings, self.sizes) if is_given else self.current_context()
        self._context_is_stale |= self.training  # its weights may change
        vectors_ND = self.second_stage_model(ids_NS, mask_NS, contexts_CE)
        return (vectors_ND,) if return_dict is False else BaseModelOutputWithPooling(pooler_output=vectors_ND)

    def get_call_options(self) -> dict[str, Tensor]:
        """Return the current context. Empty for a model trained without documents, which has the null context alone."""
        return {} if self.is_blind else {"dataset_embeddings": self.current_context()}

    def current_context(self) -> Tensor:
        """Return the context that was set, (C, E), or the null context."""
        if self.context_input_ids is None:
            if self.config.context is None and not self.is_blind and not self._has_warned:
                self.second_stage_model.null_contexts()
                warnings.warn(NO_CONTEXT, stacklevel=2)
                self._has_warned = True
            return self.second_stage_model.null_contexts()
        # Weights change at every step of training, so the vectors are computed again when it has ended.
        if self._context_is_stale and not self.training:
            self._update_context()
        assert self.context_embeddings is not None, "it is set together with its token ids"
        return self.context_embeddings

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | Path, *args: Any, **kwargs: Any
    ) -> None:
        """Write a complete folder, with the context that was set."""
        if self._context_is_stale and self.context_input_ids is not None:
            self._update_context()
        super().save_pretrained(save_directory, *args, **kwargs)

    def _update_context(self) -> None:
        """Embed the documents of the context again after the weights have changed."""
        assert self.context_input_ids is not None and self.context_attention_mask is not None, "a context was set"
        self.context_embeddings = self._embed_context(self.context_input_ids, self.context_attention_mask)
        self._context_is_stale = False

    # Weights cannot be loaded into a tensor that was made in inference mode, in which sentence-transformers encodes.
    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def _embed_context(self, ids_CS: Tensor, mask_CS: Tensor) -> Tensor:
        # In pieces, because a context may have hundreds of documents.
        batches = zip(ids_CS.split(64), mask_CS.split(64), strict=True)
        with evaluation_mode(self):
            return torch.cat([self.first_stage(ids, mask) for ids, mask in batches])


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
        context = self.config.context
        return {
            "num_contexts": self.model.sizes.num_contexts,
            "max_seq_length": self.max_seq_length,
            "context": context,
        }

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write a complete folder. ValueError for another format than safetensors."""
        if not safe_serialization:
            raise ValueError("safe_serialization=False would write a pickle: only safetensors are written")
        self.config.repro = {**self.config.repro, "max_tokens": int(self.max_seq_length or self.model.sizes.max_tokens)}
        self.model.save_pretrained(output_path)

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


def as_texts(texts: Sequence[str] | Mapping[Any, str]) -> list[str]:
    """Return texts from a list, tuple, array, or column of a table, in order, or the values of a mapping.

    Raises ValueError for one text alone, a table, a collection without order or length, and for items that are not
    strings, such as None or NaN.
    """
    is_table = hasattr(texts, "columns") or getattr(texts, "ndim", 1) != 1
    if isinstance(texts, (str, bytes, Set)) or is_table or not hasattr(texts, "__len__"):
        kind = type(texts).__name__
        raise ValueError(f"expected a list of texts, got {kind}: give a list, or one column of a table")
    listed: Any = texts.values() if isinstance(texts, Mapping) else texts
    items = listed.to_pylist() if hasattr(listed, "to_pylist") else list(listed)
    if invalid := [index for index, item in enumerate(items) if not isinstance(item, str)]:
        first = items[invalid[0]]
        raise ValueError(
            f"expected a list of texts: text {invalid[0]} of {len(items)} is {first!r:.60} ({type(first).__name__}), "
            f"{len(invalid)} in total are not strings"
        )
    return items


def as_context_rows(vectors: Any, sizes: SimpleNamespace) -> Tensor:
    """Return context vectors that a caller gives as rows, (C, E). Warns if there are fewer than the model was trained with.

    Raises ValueError for another width, since a reshape would mix several vectors in a row, and for more vectors than
    the model reads, since the rest would be dropped.
    """
    vectors = torch.as_tensor(vectors)
    width = int(sizes.hidden_size + (sizes.vocab_size if sizes.pooling == "frequency" else 0))
    tokens_per_document = sizes.tokens_per_document
    max_rows = sizes.num_contexts * tokens_per_document
    if not vectors.numel() or vectors.shape[-1] not in (width, width * tokens_per_document):
        raise ValueError(
            f"the context has the shape {tuple(vectors.shape)}: expected vectors of {width} numbers, as this model's "
            "first stage returns them"
        )
    rows_CE = vectors.reshape(-1, width)
    if len(rows_CE) > max_rows:
        raise ValueError(
            f"{len(rows_CE) / tokens_per_document:g} context documents for a model that takes {sizes.num_contexts}: draw that many "
            "before they are embedded, for example with `drawn_from`"
        )
    if len(rows_CE) < max_rows:
        warnings.warn(
            f"{len(rows_CE) / tokens_per_document:g} context documents for a model that takes {sizes.num_contexts}: set_context "
            "repeats some of them, vectors that are given are used as they are",
            stacklevel=4,
        )
    return rows_CE


def mean_states(states_NSD: Tensor, weights_NS: Tensor) -> Tensor:
    """Return the weighted mean of the states of each text, (N, D)."""
    dtype = torch.promote_types(states_NSD.dtype, torch.float32)
    weights_NS = weights_NS.to(dtype)
    sums_ND = torch.einsum("nsd,ns->nd", states_NSD.to(dtype), weights_NS)
    # The lower bound keeps a text without any token at zero instead of NaN.
    return (sums_ND / weights_NS.sum(1, keepdim=True).clamp(min=1e-6)).to(states_NSD.dtype)


def pad_right(ids_NS: Tensor, mask_NS: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return token ids and mask with their padding after the text, as positions assume."""
    if mask_NS is None:
        return ids_NS, torch.ones_like(ids_NS)
    if bool((mask_NS[:, :-1] >= mask_NS[:, 1:]).all()):
        return ids_NS, mask_NS
    # A stable sort by the mask moves the padding to the end and keeps the order of the tokens.
    order_NS = torch.argsort((mask_NS == 0).long(), dim=1, stable=True)
    return ids_NS.gather(1, order_NS), mask_NS.gather(1, order_NS)


def split_mask(mask_NS: Tensor, num_segments: int) -> Iterator[Tensor]:
    """Return the mask of each of the equal segments of the texts. An empty segment is replaced by the whole text."""
    steps_S = torch.arange(mask_NS.shape[1], device=mask_NS.device)
    # Token s of a text with n tokens belongs to segment s · T // n.
    segment_NS = steps_S * num_segments // mask_NS.sum(1, keepdim=True).clamp(min=1)
    for number in range(num_segments):
        part_NS = mask_NS * (segment_NS == number)
        yield torch.where(part_NS.any(1, keepdim=True), part_NS, mask_NS)


def mask_instruction(ids_NS: Tensor, mask_NS: Tensor, instruction_end: int) -> Tensor:
    """Return the mask without the instruction: the tokens up to the first `instruction_end` after the start."""
    is_end_NS = (ids_NS == instruction_end) & mask_NS.bool()
    # The start token may be the same as the one that ends the instruction.
    is_end_NS[:, 0] = False
    # Counts the ends strictly before each token, so that the end itself belongs to the instruction.
    ends_before_NS = is_end_NS.long().cumsum(1) - is_end_NS.long()
    return mask_NS * ((ends_before_NS > 0) | ~is_end_NS.any(1, keepdim=True))


def make_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return numpy's generator for one purpose."""
    digest = hashlib.sha256("\x1f".join(map(str, (seed, *purpose))).encode()).digest()
    # As in `repro.seeds`, so that this file and the project draw the same documents.
    return np.random.default_rng(int.from_bytes(digest[:8], "big") >> 1)


def fill_context(num_texts: int, num_contexts: int, seed: int) -> np.ndarray:
    """Return the positions of the texts that become context, int64 (num_contexts,)."""
    if num_texts == 0:
        raise ValueError("the context is an empty list of texts: give at least one, or None for the null context")
    if num_texts > num_contexts:
        drawn = make_generator(seed, "context drawing").choice(num_texts, num_contexts, replace=False)
        # Sorted, because the drawn set matters and not its order.
        return np.sort(drawn)
    if num_texts == num_contexts:
        return np.arange(num_texts)
    warnings.warn(
        f"{num_texts} context documents for a model that takes {num_contexts}: some are repeated (seed {seed})",
        stacklevel=4,
    )
    extra = make_generator(seed, "context filling").choice(num_texts, num_contexts - num_texts, replace=True)
    return np.concatenate([np.arange(num_texts), extra])


def draw_batch_context(num_documents: int, num_contexts: int, seed: int, number: int) -> np.ndarray:
    """Return the positions of the documents of a batch that become its context, int64 (num_contexts,)."""
    generator = make_generator(seed, "contexts", number)
    if num_documents >= num_contexts:
        return generator.choice(num_documents, num_contexts, replace=False)
    extra = generator.choice(num_documents, num_contexts - num_documents, replace=True)
    return np.concatenate([np.arange(num_documents), extra])


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode for the length of a block."""
    was_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in was_training:
            module.training = True

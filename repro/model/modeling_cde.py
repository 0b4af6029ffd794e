"""Contextual document embeddings (Morris & Rush, ICLR 2025): the model, for training and for transformers.

This file is copied next to exported weights, with `sentence_cde.py`, and needs nothing but these two libraries:

    model = SentenceTransformer(folder, trust_remote_code=True)
    model.set_context(documents, seed=0)          # documents of the corpus that is searched
    vectors = model.encode_document(documents)

1. The first stage turns each of `num_contexts` documents of a corpus into T vectors: the context.
2. The second stage reads [context vectors | soft prompts | text] and averages the states of the text.
3. Without a context, each slot holds one learned null vector.

Shapes: N texts, S tokens, C context vectors, P soft prompts, L = C + P + S, D hidden size, V words, T vectors per
context document, E = D, or D + V if the mean is weighted by word frequency.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

try:
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
except ImportError as error:
    raise ImportError('this model needs another version: pip install "transformers>=5.17"') from error

TRAINED_ON_FILE = "trained_on.json"
NO_CONTEXT = (
    "no context is set: texts are embedded under the null context. Call set_context(documents) with documents of the "
    "corpus that is searched, or set_context(None) to use the null context without this warning"
)
FREQUENCY_RATE = 10.0
"""Factor on the logits, which acts as a factor on their learning rate: Adam changes every weight by about the learning
rate per step, whatever the size of its gradient.
"""
FREQUENCY_DROPPED = 0.1
NULL_STD = 0.01
MIN_WEIGHT = 1e-6
"""Lower bound for the sum of weights, which avoids division by zero."""
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


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


class Backbone(nn.Module):
    """BERT, NomicBERT or ModernBERT that reads a text alone, or a text after context vectors and soft prompts.

    With a prefix, the sequence is [C contexts | P soft prompts | S text tokens], with full attention:

    1. Text enters as word vectors. The class adds its token type 0 to every input, and BERT its learned position.
    2. The same terms are subtracted from prefix vectors before they enter. Prefix vectors therefore carry no token type,
       and contexts no position.
    3. NomicBERT: contexts have rotary position 0, which is the identity. The first soft prompt has position C and the first
       text token C + P. In BERT the same numbers index the learned positions, unless `first_position` is set. C is the
       actual number of contexts, not the configured one.
    4. ModernBERT uses positions 0, 1, … for everything, contexts included, as in the authors' second release.
    5. `first_position` is the learned position of the first text token in a BERT, with or without a prefix. Soft prompts
       then have position 0. A shift changes nothing between the words of a text in NomicBERT, but a pretrained BERT knows
       its text at the positions 0, 1, … only.

    Paper: §4.2 and appendix "Removing positionality". There is no dropout.
    """

    def __init__(self, sizes: Any, num_layers: int, first_position: int | None = None) -> None:
        super().__init__()
        self.kind, self.text_normalised_twice = sizes.backbone, sizes.text_normalised_twice
        self.first_position = first_position if self.kind == "bert" else None
        settings = dict(sizes.backbone_settings)
        # The list describes the pretrained model, which may have more layers.
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
        """Return the states of texts alone, (N, S, D). States of padding are undefined."""
        positions_1S = self.build_positions(0, 0, ids_NS.shape[1], ids_NS.device)
        # Without positions, the class counts from 0.
        shifted = {"position_ids": positions_1S} if self.first_position else {}
        return self._run(mask_NS, inputs_embeds=self.look_up(ids_NS), **shifted)

    def read_after(
        self, contexts_NCD: Tensor, prompts_PD: Tensor, ids_NS: Tensor, mask_NS: Tensor, *, with_prefix: bool = False
    ) -> Tensor:
        """Return the states of the texts, (N, S, D), or all states `with_prefix`, (N, L, D).

        Contexts are (1, C, D) if all texts share them. There may be no soft prompts.
        """
        num_texts, num_prefix = len(ids_NS), contexts_NCD.shape[1] + len(prompts_PD)
        text_NSD = self.embed(ids_NS)
        positions_1L = self.build_positions(contexts_NCD.shape[1], len(prompts_PD), ids_NS.shape[1], ids_NS.device)
        embeds_NLD = torch.cat([self.build_prefix(contexts_NCD, prompts_PD, num_texts), text_NSD], dim=1)
        mask_NL = torch.cat([mask_NS.new_ones(num_texts, num_prefix), mask_NS], dim=1)
        states_NLD = self._run(mask_NL, inputs_embeds=embeds_NLD, position_ids=positions_1L)
        return states_NLD if with_prefix else states_NLD[:, num_prefix:]

    def embed(self, ids_NS: Tensor) -> Tensor:
        """Return the vectors with which text enters after a prefix, (N, S, D). The class adds position and token type."""
        words_NSD = self.look_up(ids_NS)
        return self.model.embeddings(inputs_embeds=words_NSD) if self.text_normalised_twice else words_NSD

    def look_up(self, ids_NS: Tensor) -> Tensor:
        """Return word vectors, (N, S, D)."""
        words_NSD: Tensor = self.model.get_input_embeddings()(ids_NS)
        return words_NSD

    def build_prefix(self, contexts_NCD: Tensor, prompts_PD: Tensor, num_texts: int) -> Tensor:
        """Return contexts and soft prompts as inputs of the class, (`num_texts`, C + P, D).

        The terms that the class adds to every input are subtracted: token type 0, and the learned position of contexts.
        """
        offset_D = self._get_token_type_vector()
        if self.kind == "bert":
            offset_D = offset_D + self.model.embeddings.position_embeddings.weight[0]
        contexts_NCD = (contexts_NCD - offset_D).expand(num_texts, -1, -1)
        prompts_NPD = (prompts_PD - self._get_token_type_vector()).expand(num_texts, -1, -1)
        return torch.cat([contexts_NCD, prompts_NPD], dim=1)

    def build_positions(self, num_contexts: int, num_prompts: int, num_tokens: int, device: torch.device) -> Tensor:
        """Return the positions of contexts, soft prompts and text, (1, L).

        Raises ValueError if the last one is beyond BERT's learned positions.
        """
        num_prefix = num_contexts + num_prompts
        first_position = num_prefix if self.first_position is None else self.first_position
        if self.kind == "bert" and first_position + num_tokens > (limit := self.model.config.max_position_embeddings):
            raise ValueError(
                f"{first_position + num_tokens} positions ({num_prefix} vectors of the prefix, {num_tokens} tokens) exceed the "
                f"{limit} learned positions of this backbone: use fewer contexts or shorter texts"
            )
        positions_L = torch.arange(num_prefix + num_tokens, device=device)
        if self.kind != "modernbert":
            positions_L[:num_contexts] = 0
        if self.first_position is not None:
            positions_L[num_contexts:num_prefix] = 0
            positions_L[num_prefix:] += first_position - num_prefix
        return positions_L[None]

    def _run(self, mask_NL: Tensor, **inputs: Any) -> Tensor:
        # one broadcast row instead of a lookup per token
        if self.kind != "modernbert":
            inputs["token_type_ids"] = mask_NL.new_zeros(1, 1)
        states_NLD: Tensor = self.model(attention_mask=mask_NL, **inputs).last_hidden_state
        return states_NLD

    def _get_token_type_vector(self) -> Tensor:
        """Return the vector that the class adds to every input: token type 0."""
        if self.kind == "modernbert":
            return self.model.embeddings.tok_embeddings.weight.new_zeros(())
        return self.model.embeddings.token_type_embeddings.weight[0]


class FirstStage(nn.Module):
    """Backbone, mean, Linear – GELU – Linear: the first stage of a contextual model (M1), or all of a biencoder."""

    def __init__(
        self, sizes: Any, num_layers: int, first_position: int | None = None, backbone: type[Backbone] = Backbone
    ) -> None:
        super().__init__()
        width = sizes.hidden_size
        self.embedder = backbone(sizes, num_layers, first_position)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, ids_NS: Tensor, mask_NS: Tensor, num_segments: int = 1) -> Tensor:
        """Return one vector for each of the equal segments of a text, (N, T, D), not normalised."""
        vectors_NTD: Tensor = self.mlp(segment_pool(self.embedder(ids_NS, mask_NS), mask_NS, num_segments))
        return vectors_NTD


class SecondStage(nn.Module):
    """Second stage (M2): a text after context vectors and soft prompts."""

    def __init__(self, sizes: Any, backbone: type[Backbone] = Backbone) -> None:
        super().__init__()
        self.sizes, width = sizes, sizes.hidden_size
        # The modules and the null vector are named and initialised as in the authors' code.
        self.backbone = backbone(sizes, sizes.num_layers, sizes.first_position)
        if sizes.num_soft_prompts:
            output_width = width * sizes.num_soft_prompts
            self.prompt_projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, output_width))
        self.output_projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        if sizes.sequence_dropout > 0:
            self.sequence_dropout_null_embedding = nn.Parameter(torch.randn(width) * NULL_STD)
        if sizes.pooling not in POOLINGS:
            raise ValueError(f"pooling={sizes.pooling!r} has no function: add it to POOLINGS in modeling_cde.py")
        self.frequency_weights = FrequencyWeights(sizes.num_contexts) if sizes.pooling == "frequency" else None

    def forward(self, ids_NS: Tensor, mask_NS: Tensor, contexts_CE: Tensor | None) -> Tensor:
        """Return vectors, (N, D), not normalised. Only the first C contexts are used.

        If `contexts_CE` is None, the null context is used without sequence dropout.
        """
        sizes, num_texts = self.sizes, len(ids_NS)
        may_drop = contexts_CE is not None and self.training and sizes.sequence_dropout > 0
        if contexts_CE is None:
            contexts_CE = self.null_contexts()
        # Contexts may be stored in float32. A model in half precision needs its own type.
        dtype = next(self.parameters()).dtype
        contexts_CE = contexts_CE[: sizes.num_contexts * sizes.tokens_per_document].to(dtype)
        # Frequency pooling appends the word columns to the context vectors, so both travel as one tensor.
        contexts_NCD, words_CV = contexts_CE[None, :, : sizes.hidden_size], contexts_CE[:, sizes.hidden_size :]
        if may_drop:
            # Each text draws its own slots, so the texts of a batch no longer share all contexts.
            shape_NC1 = (num_texts, contexts_NCD.shape[1], 1)
            dropped_NC1 = torch.rand(shape_NC1, device=ids_NS.device) < sizes.sequence_dropout
            null_D = self.sequence_dropout_null_embedding.to(contexts_NCD.dtype)
            contexts_NCD = torch.where(dropped_NC1, null_D, contexts_NCD)
        # The paper averages over the text only.
        states_NLD = self.backbone.read_after(
            contexts_NCD, self.soft_prompts(), ids_NS, mask_NS, with_prefix=sizes.prefix_is_pooled
        )
        weights_NS = mask_NS if self.frequency_weights is None else self.frequency_weights(ids_NS, mask_NS, words_CV)
        if sizes.instruction_end is not None:
            weights_NS = weights_NS * mask_instruction(ids_NS, mask_NS, sizes.instruction_end)
        num_prefix = states_NLD.shape[1] - ids_NS.shape[1]
        if num_prefix:
            weights_NS = torch.cat([weights_NS.new_ones(num_texts, num_prefix), weights_NS], dim=1)
        pooled_ND = POOLINGS[sizes.pooling](states_NLD, weights_NS)
        output_ND: Tensor = self.output_projection(pooled_ND)
        # the skip connection of the authors' second release
        return output_ND + pooled_ND if sizes.residual else output_ND

    def soft_prompts(self) -> Tensor:
        """Return the learned vectors between context and text, (P, D)."""
        # any weight, for its type and device
        width, weight = self.sizes.hidden_size, next(self.parameters())
        if not self.sizes.num_soft_prompts:
            return weight.new_zeros(0, width)
        # A function of a constant input: the prompts are the same for every text.
        prompts_F: Tensor = self.prompt_projection(weight.new_ones(width))
        return prompts_F.view(-1, width)

    def null_contexts(self) -> Tensor:
        """Return the null vector in every slot, (C, E). ValueError if the model was trained without one."""
        sizes = self.sizes
        if sizes.sequence_dropout == 0:
            raise ValueError("this model has no null context, and no context is set: call set_context(documents)")
        nulls_CD = self.sequence_dropout_null_embedding.expand(sizes.num_contexts * sizes.tokens_per_document, -1)
        if self.frequency_weights is None:
            return nulls_CD
        return torch.cat([nulls_CD, make_no_words(len(nulls_CD), sizes.vocab_size, nulls_CD.device)], dim=1)


class FrequencyWeights(nn.Module):
    """Learned token weights by word frequency in the context. This extension is not in the paper.

    1. Besides its vector, a context document contributes the set of its vocabulary words.
    2. The share of context documents that contain a word selects a learned weight, by linear interpolation. The null
       context has its own weight.
    3. A text's vector is the weighted mean of its states. All weights start at one, which gives the plain mean.
    4. In training, a text's context is replaced by the null context with probability `FREQUENCY_DROPPED`, so that this
       weight is trained as well.

    It measures the gain if the model receives word–document frequencies directly. Otherwise attention would have to find
    them.
    """

    def __init__(self, num_contexts: int) -> None:
        super().__init__()
        self.logits_K = nn.Parameter(torch.zeros(num_contexts + 2))

    def forward(self, ids_NS: Tensor, mask_NS: Tensor, words_CV: Tensor) -> Tensor:
        """Return the weights of the tokens of texts, (N, S), zero on padding."""
        # The last learned weight is that of the null context, so shares map to the others.
        last = len(self.logits_K) - 2
        documents_CV = words_CV[words_CV[:, 0] >= 0].detach().float()
        null_NS = self.logits_K[-1].expand(ids_NS.shape)
        logits_NS = null_NS
        if len(documents_CV):
            # Interpolate linearly between the two nearest of the learned weights.
            position_V = documents_CV.mean(0) * last
            lower_V = position_V.floor().long().clamp(max=last - 1)
            fraction_V = position_V - lower_V
            logits_V = self.logits_K[lower_V] * (1 - fraction_V) + self.logits_K[lower_V + 1] * fraction_V
            logits_NS = logits_V[ids_NS]
        if self.training:
            dropped_N1 = torch.rand(len(ids_NS), 1, device=ids_NS.device) < FREQUENCY_DROPPED
            logits_NS = torch.where(dropped_N1, null_NS, logits_NS)
        return torch.exp(FREQUENCY_RATE * logits_NS) * mask_NS


def mark_words(ids_NS: Tensor, mask_NS: Tensor, num_words: int) -> Tensor:
    """Return 1 if a text contains a word and 0 otherwise, (N, V). Padding does not count."""
    contains_NV = torch.zeros(len(ids_NS), num_words, device=ids_NS.device)
    # The maximum, because a word may occur several times and padding repeats an id with mask 0.
    return contains_NV.scatter_reduce_(1, ids_NS, mask_NS.to(contains_NV.dtype), "amax")


def make_no_words(num_contexts: int, num_words: int, device: torch.device) -> Tensor:
    """Return the word columns of null vectors, (C, V). The value −1 marks a row that is not a document."""
    return torch.full((num_contexts, num_words), -1.0, device=device)


def embed_documents(stage: FirstStage, sizes: Any, ids_NS: Tensor, mask_NS: Tensor) -> Tensor:
    """Return the context vectors per document, (documents, T, E)."""
    vectors_NTD: Tensor = stage(ids_NS, mask_NS, sizes.tokens_per_document)
    if sizes.pooling != "frequency":
        return vectors_NTD
    # All vectors of a document carry the same words.
    words_NV = mark_words(ids_NS, mask_NS, sizes.vocab_size)
    return torch.cat([vectors_NTD, words_NV[:, None].expand(-1, vectors_NTD.shape[1], -1)], dim=2)


class CdeModel(PreTrainedModel):
    """Both stages. Call `set_context`, then `encode`."""

    config_class = CdeConfig
    base_model_prefix = "cde"
    main_input_name = "input_ids"
    context_embeddings: Tensor | None
    context_input_ids: Tensor | None
    context_attention_mask: Tensor | None

    def __init__(self, config: CdeConfig) -> None:
        super().__init__(config)
        self._tokenizer: PreTrainedTokenizerFast | None = None
        # folders written before the field existed have no first_position
        self.sizes = sizes = SimpleNamespace(**({"first_position": None} | config.repro))
        self.first_stage_model = FirstStage(sizes, sizes.num_first_stage_layers)
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

    def _init_weights(self, module: nn.Module) -> None:
        """Keep the values that the modules have drawn. transformers would draw the heads a second time."""

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

    def encode(self, texts: Sequence[str], prompt: str = "document", batch_size: int = 32) -> np.ndarray:
        """Return vectors of unit length, float32 (N, D). `prompt` is "query" or "document"."""
        texts, prompt_text = as_texts(texts), self.get_prompt(prompt)
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: it must be at least 1")
        vectors = [np.zeros((0, self.sizes.hidden_size), dtype=np.float32)]
        with evaluation_mode(self):
            # read once: another thread may set a new context between two batches
            options = {} if self.is_blind else {"dataset_embeddings": self.current_context()}
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

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | Path, *args: Any, **kwargs: Any
    ) -> None:
        """Write a complete folder: weights, context, configuration, tokenizer, this file, and which run trained the model."""
        if kwargs.get("push_to_hub"):
            raise ValueError("push_to_hub=True would upload an incomplete folder: call model.push_to_hub(NAME)")
        if self._context_is_stale and self.context_input_ids is not None:
            self._update_context()
        self.config.auto_map = {"AutoConfig": "modeling_cde.CdeConfig", "AutoModel": "modeling_cde.CdeModel"}
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
        return embed_documents(self.first_stage_model, self.sizes, input_ids, mask_NS).flatten(0, 1)

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

    def _update_context(self) -> None:
        """Embed the documents of the context again after the weights have changed."""
        assert self.context_input_ids is not None and self.context_attention_mask is not None, "a context was set"
        self.context_embeddings = self._embed_context(self.context_input_ids, self.context_attention_mask)
        self._context_is_stale = False

    # Weights cannot be loaded into a tensor that was made in inference mode, in which sentence-transformers encodes.
    @torch.inference_mode(mode=False)
    def _embed_context(self, ids_CS: Tensor, mask_CS: Tensor) -> Tensor:
        # In pieces, because a context may have hundreds of documents.
        batches = zip(ids_CS.split(64), mask_CS.split(64), strict=True)
        with evaluation_mode(self):
            return torch.cat([self.first_stage(ids, mask) for ids, mask in batches])


def as_texts(texts: Iterable[str] | Mapping[Any, str]) -> list[str]:
    """Return a list of texts, given a list, tuple, array, a column of a table or of `datasets`, or the values of a mapping.

    Raises ValueError for a single string, for a table, for a collection without order or length, and for items that are
    not strings, such as None or NaN.
    """
    kind = type(texts).__name__
    if isinstance(texts, str | bytes):
        raise ValueError(f"{texts!r:.60} is one text, not a list: give a list, [text]")
    is_table = hasattr(texts, "columns") or getattr(texts, "ndim", 1) != 1
    if isinstance(texts, Set) or not hasattr(texts, "__len__") or is_table:
        raise ValueError(f"texts are a {kind}: give a list, tuple, array or one column of a table, in a fixed order")
    values: Any = texts.values() if isinstance(texts, Mapping) else texts
    items: list[Any] = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    for index, text in enumerate(items):
        if not isinstance(text, str):
            found = f"{text!r:.60} ({type(text).__name__})"
            raise ValueError(f"text {index} of {len(items)} is {found}, not a string: replace or remove it")
        if not text.isascii() and LONE_SURROGATE.search(text):
            raise ValueError(f"text {index} of {len(items)} contains half a letter (a lone surrogate): decode it again")
    return [str(text) for text in items]


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
        raise ValueError(f"the context has the shape {tuple(vectors.shape)}: expected {width} numbers per vector")
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


def mean_pool(states_NSD: Tensor, weights_NS: Tensor) -> Tensor:
    """Return the weighted mean of the states of each text, (N, D). A text without tokens gives zeros."""
    dtype = torch.promote_types(states_NSD.dtype, torch.float32)
    weights_NS = weights_NS.to(dtype)
    sums_ND = torch.einsum("nsd,ns->nd", states_NSD.to(dtype), weights_NS)
    return (sums_ND / weights_NS.sum(1, keepdim=True).clamp(min=MIN_WEIGHT)).to(states_NSD.dtype)


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"mean": mean_pool, "frequency": mean_pool}
"""Poolings of the second stage. "frequency" has other weights (`FrequencyWeights`)."""


def segment_pool(states_NSD: Tensor, mask_NS: Tensor, num_segments: int) -> Tensor:
    """Return the means of equal segments of right-padded texts, (N, T, D) (figure 18).

    A text of n tokens is divided into T segments of equal length (±1). They depend on n, not on the padded width, so a
    vector does not depend on the batch. An empty segment of a very short text uses the mean of the whole text.
    """
    if num_segments == 1:
        return mean_pool(states_NSD, mask_NS)[:, None]
    lengths_N = mask_NS.sum(1)
    positions_S = torch.arange(mask_NS.shape[1], device=mask_NS.device)
    # Token s of a text with n tokens belongs to segment floor(s * T / n).
    segment_NS = positions_S * num_segments // lengths_N.clamp(min=1)[:, None]
    segments_T = torch.arange(num_segments, device=mask_NS.device)
    is_token_N1S = mask_NS.bool()[:, None, :]
    members_NTS = (segment_NS[:, None, :] == segments_T[None, :, None]) & is_token_N1S
    members_NTS = torch.where(members_NTS.any(2, keepdim=True), members_NTS, is_token_N1S)
    weights_NTS = members_NTS.to(states_NSD.dtype)
    weights_NTS = weights_NTS / weights_NTS.sum(2, keepdim=True).clamp(min=1.0)
    return torch.einsum("nts,nsd->ntd", weights_NTS, states_NSD)


def pad_right(ids_NS: Tensor, mask_NS: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return token ids and mask with their padding after the text, as positions assume."""
    if mask_NS is None:
        return ids_NS, torch.ones_like(ids_NS)
    if bool((mask_NS[:, :-1] >= mask_NS[:, 1:]).all()):
        return ids_NS, mask_NS
    # A stable sort by the mask moves the padding to the end and keeps the order of the tokens.
    order_NS = torch.argsort((mask_NS == 0).long(), dim=1, stable=True)
    return ids_NS.gather(1, order_NS), mask_NS.gather(1, order_NS)


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
    if num_texts >= num_contexts:
        drawn = make_generator(seed, "context drawing").choice(num_texts, num_contexts, replace=False)
        # Sorted, because the drawn set matters and not its order.
        return np.sort(drawn)
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
    """Run a block in eval mode without gradients. Afterwards each module returns to its own mode."""
    were_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in were_training:
            module.training = True

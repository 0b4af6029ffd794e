"""One face for transformers' NomicBERT, BERT and ModernBERT: text alone, or text behind context and prompt vectors.

Behind a prefix, the sequence is [C contexts | P soft prompts | S text tokens], all of it visible to all of it:

1. Text enters as word vectors; the class adds its token type 0 (and BERT's learned position) to all it is given.
2. Prefix vectors enter with what the class will add already subtracted: they carry no token type, contexts no position.
3. NomicBERT: contexts take rotary position 0, which rotates by nothing; the first soft prompt is at C, the first text
   token at C + P. BERT: the same numbers index the learned positions. C is the number of contexts given, never the
   configured one.
4. ModernBERT keeps positions 0 … for everything, contexts included, as the authors' second release did.

Paper: §4.2 and appendix "Removing positionality". Shapes: N texts, S tokens, C contexts, P soft prompts, L = C + P + S,
D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    NomicBertConfig,
    NomicBertModel,
    PreTrainedModel,
)

from repro.model.config import ModelConfig
from repro.model.packed import TextProjections, can_pack, packed_states, project_texts
from repro.model.texts import Texts
from repro.model.word_vectors import load_word_vectors


class Backbone(nn.Module):
    """A transformer encoder without dropout; `model` is transformers' own module."""

    model: Any  # a PreTrainedModel; its submodules differ by class and are reached by name
    packs: ClassVar[bool] = True  # whether its forward is the one that `repro.model.packed` spells out

    def __init__(self, model: PreTrainedModel, kind: str, *, text_normalised_twice: bool = False) -> None:
        super().__init__()
        self.model = model
        self.kind = kind
        self.text_normalised_twice = text_normalised_twice
        self._compiled: Callable[..., Any] | None = None
        self._keeps_less = False
        self._keeps_projections = False
        self._last: tuple[Tensor, int, TextProjections] | None = None

    def keep_less(self, checkpointed: bool) -> None:
        """Compute the states inside a layer again in backward instead of keeping them, or no longer."""
        of = "activation" if hasattr(self.model, "activation_checkpointing_enable") else "gradient"  # transformers 5.17
        if checkpointed:
            getattr(self.model, f"{of}_checkpointing_enable")({"use_reentrant": False})
        elif self._keeps_less:
            getattr(self.model, f"{of}_checkpointing_disable")()
        self._keeps_less = checkpointed

    def compile_forward(self, backend: str | None) -> None:
        """Put torch.compile, with this backend, between this and the class; None: nothing."""
        # of the method: a compiled module would be a submodule, and its weights would have two names
        self._compiled = None if backend is None else torch.compile(self.model.forward, dynamic=True, backend=backend)

    def embed(self, ids_NS: Tensor) -> Tensor:
        """Return the vectors under which text enters behind a prefix, (N, S, D): the class adds the rest."""
        words_NSD = load_word_vectors(ids_NS, self.model.get_input_embeddings().weight)
        return self.model.embeddings(inputs_embeds=words_NSD) if self.text_normalised_twice else words_NSD

    def forward(self, texts: Texts) -> Tensor:
        """Return the states of texts alone, (N, S, D), text positions from 0; those of padding mean nothing."""
        self._check_length(texts.ids_NS.shape[1], "a text of so many tokens")
        if self._can_pack(texts):
            return packed_states(self.model, self.kind, texts, torch.arange(texts.ids_NS.shape[1]))
        words_NSD = load_word_vectors(texts.ids_NS, self.model.get_input_embeddings().weight)
        return self._run(texts.mask_NS, inputs_embeds=words_NSD)

    def text_behind(self, contexts_NCD: Tensor, prompts_PD: Tensor, texts: Texts) -> Tensor:
        """Return the states of the texts' tokens, (N, S, D), behind contexts (N or 1 first) and soft prompts."""
        if not self._can_pack(texts):
            return self.forward_behind(contexts_NCD, prompts_PD, texts)[:, -texts.ids_NS.shape[1] :]
        num_contexts, length = contexts_NCD.shape[1], texts.ids_NS.shape[1]
        num_prefix, first_counts = num_contexts + len(prompts_PD), 1
        positions_L = self._positions(num_contexts, num_prefix + length, texts.ids_NS.device)[0]
        if not self.training and _are_equal(contexts_NCD):
            # n equal vectors at one position are one vector that counts n times: the null context is computed once
            contexts_NCD, first_counts = contexts_NCD[:, :1], num_contexts
            positions_L = torch.cat([positions_L[:1], positions_L[num_contexts:]])
        prefix_NPD = self._prefix(contexts_NCD, prompts_PD, len(contexts_NCD))
        projections = self._project(texts, positions_L[prefix_NPD.shape[1] :]) if len(contexts_NCD) == 1 else None
        return packed_states(
            self.model,
            self.kind,
            texts,
            positions_L,
            prefix_NPD,
            first_counts=first_counts,
            projections=projections,
        )

    @contextmanager
    def keep_projections(self) -> Iterator[None]:
        """Keep what the first layer makes of the last texts: several contexts in a row then share it.

        Weights must stay as they are meanwhile.
        """
        self._keeps_projections = True
        try:
            yield
        finally:
            self._keeps_projections, self._last = False, None

    def _project(self, texts: Texts, positions_S: Tensor) -> TextProjections | None:
        """Return what the first layer makes of texts that share one prefix; None in training or with gradients."""
        if self.training or torch.is_grad_enabled():
            return None
        start = int(positions_S[0])
        if self._last is not None and self._last[0] is texts.ids_NS and self._last[1] == start:
            return self._last[2]
        found = project_texts(self.model, self.kind, texts, positions_S)
        self._last = (texts.ids_NS, start, found) if self._keeps_projections else None
        return found

    def forward_behind(self, contexts_NCD: Tensor, prompts_PD: Tensor, texts: Texts) -> Tensor:
        """Return all states, (N, C + P + S, D), behind contexts (N or 1 first) and soft prompts (P may be 0)."""
        num_contexts, num_prefix = contexts_NCD.shape[1], contexts_NCD.shape[1] + prompts_PD.shape[0]
        text_NSD = self.embed(texts.ids_NS)
        positions_1L = self._positions(num_contexts, num_prefix + text_NSD.shape[1], text_NSD.device)
        num_texts = texts.num_texts
        embeds_NLD = torch.cat([self._prefix(contexts_NCD, prompts_PD, num_texts), text_NSD], dim=1)
        mask_NL = torch.cat([texts.mask_NS.new_ones(num_texts, num_prefix), texts.mask_NS], dim=1)
        return self._run(mask_NL, inputs_embeds=embeds_NLD, position_ids=positions_1L)

    def _can_pack(self, texts: Texts) -> bool:
        is_plain = self.packs and not self.text_normalised_twice and self._compiled is None
        keeps_all = not (self.training and self._keeps_less)
        return is_plain and keeps_all and can_pack(self.model, self.kind, texts)

    def _prefix(self, contexts_NCD: Tensor, prompts_PD: Tensor, num_texts: int) -> Tensor:
        """Return contexts and soft prompts as they enter, (`num_texts`, C + P, D): the class adds to all it is given"""
        contexts_NCD = (contexts_NCD - self._added_to_context()).expand(num_texts, -1, -1)
        return torch.cat([contexts_NCD, (prompts_PD - self._added_to_all()).expand(num_texts, -1, -1)], dim=1)

    def _run(self, mask_NL: Tensor, **inputs: Any) -> Tensor:
        if self.kind != "modernbert":  # one row, broadcast: the class would look row 0 up for every token
            inputs["token_type_ids"] = mask_NL.new_zeros(1, 1)
        return (self._compiled or self.model)(attention_mask=mask_NL, **inputs).last_hidden_state

    def _positions(self, num_contexts: int, length: int, device: torch.device) -> Tensor:
        positions_L = torch.arange(length, device=device)
        if self.kind != "modernbert":
            positions_L[:num_contexts] = 0
        self._check_length(length, f"{num_contexts} contexts, soft prompts and text")
        return positions_L[None]

    def _check_length(self, length: int, what: str) -> None:
        limit = self.model.config.max_position_embeddings
        if self.kind == "bert" and length > limit:
            raise ValueError(
                f"{length} positions ({what}) are more than the {limit} that this backbone has learned: use fewer "
                "contexts or shorter texts"
            )

    def _added_to_all(self) -> Tensor:
        if self.kind == "modernbert":
            return self.model.embeddings.tok_embeddings.weight.new_zeros(())
        return self.model.embeddings.token_type_embeddings.weight[0]

    def _added_to_context(self) -> Tensor:
        if self.kind == "bert":
            return self._added_to_all() + self.model.embeddings.position_embeddings.weight[0]
        return self._added_to_all()


def _are_equal(contexts_NCD: Tensor) -> bool:
    """Return whether one vector fills all slots of all texts, where no gradient has to reach each slot."""
    is_shared = len(contexts_NCD) == 1 and contexts_NCD.shape[1] > 1 and not torch.is_grad_enabled()
    return is_shared and bool((contexts_NCD == contexts_NCD[:, :1]).all())


def build_backbone(config: ModelConfig, num_layers: int) -> Backbone:
    """Build a backbone of `num_layers` layers with random weights, drawn from torch's global generator."""
    settings = dict(config.backbone_settings)
    if "layer_types" in settings:
        settings["layer_types"] = settings["layer_types"][:num_layers]
    shared = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.intermediate_size,
        "attn_implementation": "sdpa",
        **settings,
    }
    if config.backbone == "nomic":
        model: PreTrainedModel = NomicBertModel(NomicBertConfig(**shared))
    elif config.backbone == "bert":
        shared |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model = BertModel(BertConfig(**shared), add_pooling_layer=False)
    else:
        shared = {"pad_token_id": 0, "cls_token_id": None, "sep_token_id": None, **shared}
        shared = {"bos_token_id": None, "eos_token_id": None, **shared}
        model = ModernBertModel(ModernBertConfig(**shared))
    return Backbone(model, config.backbone, text_normalised_twice=config.text_normalised_twice)

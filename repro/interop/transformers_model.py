"""Our models as transformers knows them: importing this module lets `AutoModel.from_pretrained(folder)` open an export.

Shapes: N texts, S tokens, C context documents, T vectors each gives, D hidden size.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from repro.data.tokens import with_own_tokenizer, write_tokenizer
from repro.interop.official.folder import find_folder
from repro.interop.safe_weights import read_safetensors
from repro.model.biencoder import Biencoder
from repro.model.config import config_from
from repro.model.contextual import ContextualModel, Model
from repro.model.encoding import WEIGHTS_FILE, check_fit, shapes_of, write_tensors
from repro.model.texts import Texts


class CdeConfig(PreTrainedConfig):
    """`repro` holds our own configuration; the other field is for programs that ask how many context documents."""

    # transformers shows it to whoever opens the folder without this module, and nothing else that we could say
    model_type = "cde_repro (import repro.interop.transformers_model first)"
    transductive_corpus_size: int = 512
    repro: dict[str, Any] | None = None


class CdeModel(PreTrainedModel):
    """A biencoder or a contextual model; `encoder` is our own model, with `set_context` and `encode`."""

    config_class = CdeConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"

    def __init__(self, config: CdeConfig) -> None:
        super().__init__(config)
        if config.repro is None:
            raise ValueError("this config.json has no field `repro`: the folder was not exported for transformers")
        ours = config_from(config.repro, "config.json")
        self.encoder = (Biencoder if ours.architecture == Biencoder.architecture else ContextualModel)(ours)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        dataset_input_ids: Tensor | None = None,
        dataset_attention_mask: Tensor | None = None,
        dataset_embeddings: Tensor | None = None,
    ) -> BaseModelOutputWithPooling:
        """Return `pooler_output`, (N, D), not normalised.

        A contextual model needs its context: token ids of documents, or their vectors (C × T, D) from `first_stage`.
        ValueError when it has none; a biencoder takes none.
        """
        texts = _texts(input_ids, attention_mask)
        if isinstance(self.encoder, Biencoder):
            return BaseModelOutputWithPooling(pooler_output=self.encoder(texts))
        if dataset_embeddings is None:
            if dataset_input_ids is None:
                raise ValueError("a contextual model needs dataset_input_ids or dataset_embeddings: its context")
            dataset_embeddings = self.first_stage(dataset_input_ids, dataset_attention_mask)
        contexts_CE = dataset_embeddings.reshape(-1, self.encoder.config.context_width)
        return BaseModelOutputWithPooling(pooler_output=self.encoder.second_stage(texts, contexts_CE))

    def first_stage(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the context vectors of some documents, (C × T, E); ValueError for a biencoder."""
        if not isinstance(self.encoder, ContextualModel):
            raise ValueError("a biencoder has no first stage: call the model itself")
        return self.encoder.first_stage(_texts(input_ids, attention_mask))

    @classmethod
    def of(cls, model: Model) -> Self:
        """Wrap a model of ours, sharing its weights."""
        contexts = model.config.num_contexts if isinstance(model, ContextualModel) else 0
        wrapped = cls(CdeConfig(transductive_corpus_size=contexts, repro=asdict(model.config)))
        wrapped.encoder = model
        return wrapped.eval()

    def save_pretrained(self, save_directory: str | Path, **kwargs: Any) -> None:  # type: ignore[override]
        """Write config.json, model.safetensors, and words that are a folder's, whatever other format is asked for."""
        self.config.architectures = [type(self).__name__]
        self.config.save_pretrained(save_directory)
        write_tensors(dict(self.state_dict()), Path(save_directory) / WEIGHTS_FILE, {"format": "pt"})
        if Path(words := self.encoder.config.tokenizer).is_dir():
            write_tokenizer(words, Path(save_directory))

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path, *args: Any, config: CdeConfig | None = None, **kwargs: Any
    ) -> Self:
        """Load a folder or hub id, safetensors only, in eval mode; ValueError names what does not fit."""
        folder = find_folder(pretrained_model_name_or_path, kwargs.get("revision"))
        model = cls(config if isinstance(config, CdeConfig) else CdeConfig.from_pretrained(folder))
        found = read_safetensors(folder / WEIGHTS_FILE)
        says = f"{folder / WEIGHTS_FILE} does not fit its config"
        check_fit(shapes_of(found), shapes_of(model.state_dict()), says)
        model.load_state_dict(found)
        own = model.encoder.config
        model.encoder.config = replace(own, tokenizer=with_own_tokenizer(own.tokenizer, folder))
        return model.eval()


def _texts(input_ids: Tensor, attention_mask: Tensor | None) -> Texts:
    return Texts(input_ids, torch.ones_like(input_ids) if attention_mask is None else attention_mask)


AutoConfig.register(CdeConfig.model_type, CdeConfig, exist_ok=True)
AutoModel.register(CdeConfig, CdeModel, exist_ok=True)

"""Our models as folders of sentence-transformers.

1. A biencoder becomes stock modules: Transformer – mean pooling – Dense (GELU) – Dense – Normalize.
2. A contextual model becomes a self-contained folder, whose code lies next to the weights. sentence-transformers needs
   `trust_remote_code=True` to run it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertModel, PreTrainedModel

from repro.batches.sentence_encoder import check_kind, check_weights
from repro.data.prompts import PROMPTS
from repro.interop.self_contained import make_fast_tokenizer, write_self_contained
from repro.model.contextual import ContextualModel, Model
from repro.model.encoding import write_tensors
from repro.storage.files import json_object, read_json, write_json
from repro.storage.tensor_files import check_digest

ROUTERS = ("Router", "Asym")
"""Modules with other modules inside, one for each role. They are not supported."""
# names and settings of modules before sentence-transformers 6
OLD_MODULES = "sentence_transformers.models"
DENSE_SETTINGS = ("in_features", "out_features", "bias", "activation_function")
IMPLIED_SETTINGS = {
    "module_input_name": ("sentence_embedding",),
    "module_output_name": ("sentence_embedding", "token_embeddings"),
    "use_residual": (False,),
    "transformer_task": ("feature-extraction",),
    "modality_config": ({"text": {"method": "forward", "method_output_name": "last_hidden_state"}},),
}
"""Settings of version 6, and the values that earlier versions imply. No other setting has an earlier form."""
POOLINGS = {
    "cls": "cls_token",
    "max": "max_tokens",
    "mean": "mean_tokens",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens",
    "lasttoken": "lasttoken",
}
"""Names of poolings since version 6, and the earlier ones, in the order in which earlier versions join them."""


def export_sentence_transformers(model: Model, folder: str | Path) -> None:
    """Write a folder that `SentenceTransformer(folder)` opens.

    The folder of a biencoder opens in versions 3 to 6. It was last tried with 3.4.1, 4.1.0, 5.1.0 and 6.2.0.
    """
    if isinstance(model, ContextualModel):
        write_self_contained(model, Path(folder))
    else:
        save_stock_modules(as_sentence_transformer(model), Path(folder))


def as_sentence_transformer(model: Model) -> SentenceTransformer:
    """Return a model as a SentenceTransformer, with a copy of its weights. A contextual one has the code of its export.

    Raises ValueError if the text of a biencoder does not begin at position 0, which a stock module cannot express.
    """
    if isinstance(model, ContextualModel):
        with tempfile.TemporaryDirectory() as folder:
            write_self_contained(model, Path(folder))
            return SentenceTransformer(folder, trust_remote_code=True, device=str(model.device)).eval()
    if model.config.backbone == "bert" and model.config.first_position:
        raise ValueError(f"first_position={model.config.first_position}: stock modules read a text at position 0")
    prompts = dict(PROMPTS[model.config.prompts]._asdict())
    # the module Transformer can only be created from a folder
    with tempfile.TemporaryDirectory() as folder:
        _add_unused_pooler(model.embedder.model).save_pretrained(folder)
        make_fast_tokenizer(model.config).save_pretrained(folder)
        transformer = Transformer(folder, max_seq_length=model.config.max_tokens)
    pooling = Pooling(model.config.hidden_size, pooling_mode="mean")
    first, second = _make_dense(model.mlp[0], torch.nn.GELU()), _make_dense(model.mlp[2], torch.nn.Identity())
    modules = [transformer, pooling, first, second, Normalize()]
    return SentenceTransformer(modules=modules, prompts=prompts, device=str(model.device)).eval()


def _add_unused_pooler(backbone: PreTrainedModel) -> PreTrainedModel:
    """Return a BERT with a pooler of zeros, and any other backbone as it is.

    A stock BERT has a pooler, which mean pooling ignores. If a folder lacks its weights, transformers draws them at random,
    and warns that the model needs training.
    """
    if not isinstance(backbone, BertModel):
        return backbone
    with_pooler = BertModel(backbone.config)
    with_pooler.load_state_dict(backbone.state_dict(), strict=False)
    assert with_pooler.pooler is not None, "a BertModel is built with a pooler by default"
    for weight in with_pooler.pooler.parameters():
        torch.nn.init.zeros_(weight)
    return with_pooler


def open_sentence_transformers(folder: str | Path) -> SentenceTransformer:
    """Open a folder of stock modules.

    Raises:
        ValueError: if the folder is damaged or has other modules, or if it is a CrossEncoder or SparseEncoder. Their
            modules would load, but give meaningless vectors.
    """
    path = Path(folder)
    modules = read_json(path / "modules.json")
    check_kind(path)
    types = [str(module["type"]) for module in modules]
    # Stock modules run no code of the folder.
    if not all(name.startswith("sentence_transformers.") and not name.endswith(ROUTERS) for name in types):
        raise ValueError(f"{path} needs {types}; only modules of sentence-transformers without a Router are supported")
    # The library would replace an activation of another package by tanh.
    for file in [path / module["path"] / "config.json" for module in modules if module["type"].endswith(".Dense")]:
        activation = str(json_object(file)["activation_function"])
        if not activation.startswith("torch."):
            raise ValueError(f"{file}: the activation {activation} is not one of torch")
    # Folders that others saved have no digest.
    for file in path.rglob("*.safetensors"):
        check_digest(file)
    model = SentenceTransformer(str(path), local_files_only=True)
    check_weights(model, path)
    return model


def _make_dense(linear: torch.nn.Module, activation: torch.nn.Module) -> Dense:
    weights = linear.state_dict()
    dense = Dense(weights["weight"].shape[1], weights["weight"].shape[0], activation_function=activation)
    dense.linear.load_state_dict(weights)
    return dense


def save_stock_modules(model: SentenceTransformer, folder: Path) -> None:
    """Save a model of stock modules so that sentence-transformers 3 to 6 can open it, with transformers 4 and 5.

    Version 6 moved its modules and added settings that earlier versions reject. The earlier form opens in all versions.
    A module whose settings have none, such as a residual `Dense`, keeps its form, which earlier versions reject.
    """
    model.save_pretrained(str(folder), create_model_card=False)
    modules = read_json(folder / "modules.json")
    for row, module in zip(modules, model, strict=True):
        row["type"] = f"{OLD_MODULES}.{row['type'].rpartition('.')[2]}"
        files = folder / row["path"]
        path = files / "config.json"
        if isinstance(module, Pooling):
            if settings := _make_old_pooling_settings(module):
                write_json(path, settings)
        elif isinstance(module, Dense):
            _write_old_settings(path, {name: json_object(path)[name] for name in DENSE_SETTINGS})
        elif isinstance(module, Transformer):
            settings = {
                "max_seq_length": module.max_seq_length,
                "do_lower_case": getattr(module, "do_lower_case", False),
            }
            _write_old_settings(files / "sentence_bert_config.json", settings)
            _write_old_tokenizer_settings(files / "tokenizer_config.json")
    write_json(folder / "modules.json", modules)
    for path in folder.rglob("*.safetensors"):
        write_tensors(load_file(path), path, {"format": "pt"})


def _write_old_settings(path: Path, settings: dict[str, Any]) -> None:
    """Replace the settings of a module by their earlier form, unless it would drop one that decides vectors."""
    stored = json_object(path)
    if all(stored[name] in IMPLIED_SETTINGS.get(name, ()) for name in stored.keys() - settings.keys()):
        write_json(path, settings)


def _make_old_pooling_settings(pooling: Pooling) -> dict[str, Any] | None:
    """Return the earlier form of the settings. None if there is none: earlier versions join poolings in one order only."""
    modes = [pooling.pooling_mode] if isinstance(pooling.pooling_mode, str) else [*pooling.pooling_mode]
    if modes != [mode for mode in POOLINGS if mode in modes]:
        return None
    flags = {f"pooling_mode_{old}": mode in modes for mode, old in POOLINGS.items()}
    return {"word_embedding_dimension": pooling.embedding_dimension, **flags, "include_prompt": pooling.include_prompt}


def _write_old_tokenizer_settings(path: Path) -> None:
    """Rewrite what transformers 5 stores in another form than 4 reads."""
    if not path.is_file():
        return
    settings = json_object(path)
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(settings.get("extra_special_tokens"), list):
        settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
    write_json(path, settings)

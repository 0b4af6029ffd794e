"""Our models as folders of sentence-transformers.

1. A biencoder becomes stock modules: Transformer – mean pooling – Dense (GELU) – Dense – Normalize.
2. A contextual model becomes a self-contained folder, whose code lies next to the weights. sentence-transformers needs
   `trust_remote_code=True` to run it. `open_sentence_transformers` runs it if it is the code of this version.
3. Contextual folders that version 0.1.0 exported name a module of this project, and open if it is installed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from repro.data.prompts import PROMPTS
from repro.interop.contextual_module import MODULE_FOLDER, ContextualModule, fast_tokenizer, normalize
from repro.interop.self_contained import has_our_code, is_self_contained, write_self_contained
from repro.interop.stock_files import write_old_settings
from repro.model.biencoder import Biencoder
from repro.model.contextual import ContextualModel, Model
from repro.storage.files import json_object, read_json
from repro.text import short

SETTINGS_FILE = "config_sentence_transformers.json"
DENSE = "SentenceTransformer"
"""The kind of model that gives each text one vector, whose inner products rank."""


def export_sentence_transformers(model: Model, folder: str | Path, *, width: int | None = None) -> None:
    """Write a folder that `SentenceTransformer(folder)` opens; ValueError when it is there and not empty.

    A biencoder's opens in versions 3 to 6: `benchmarks.open_exports` tries them.

    `width`, of a biencoder: its vectors are the first so many dimensions, normalised anew.
    """
    target = Path(folder)
    if target.exists() and any(target.iterdir()):
        raise ValueError(f"{target} is not empty: choose a new folder, nothing is overwritten")
    if isinstance(model, ContextualModel):
        write_self_contained(model, target)
        return
    as_sentence_transformer(model, width=width).save_pretrained(str(target), create_model_card=False)
    write_old_settings(target, max_tokens=model.config.max_tokens)


def as_sentence_transformer(model: Model, *, width: int | None = None) -> SentenceTransformer:
    """Return the same model inside sentence-transformers; a biencoder's weights are copied, others shared.

    `width`, of a biencoder: the head ends there, so that vectors are normalised at that width, and `truncate_dim` says
    so; sentence-transformers' own truncation comes after normalising, and would leave vectors short of length 1.
    """
    prompts = dict(PROMPTS[model.config.prompts]._asdict())
    if isinstance(model, ContextualModel):
        ours: list[torch.nn.Module] = [ContextualModule(model), normalize()]
        return SentenceTransformer(modules=ours, prompts=prompts, device=str(model.device))
    with tempfile.TemporaryDirectory() as scratch:
        model.embedder.model.save_pretrained(scratch)
        fast_tokenizer(model.config).save_pretrained(scratch)
        words = Transformer(scratch, max_seq_length=model.config.max_tokens)
    modules = [words, Pooling(model.config.hidden_size, pooling_mode="mean"), *_head(model, width), Normalize()]
    device = str(model.device)
    return SentenceTransformer(modules=modules, prompts=prompts, device=device, truncate_dim=width).eval()


def open_sentence_transformers(folder: str | Path) -> SentenceTransformer:
    """Open an exported folder without remote code, whichever kind it is; ValueError when it is no such folder.

    That is also one of sentence-transformers' other models: a CrossEncoder's or a SparseEncoder's modules would open,
    and give vectors that nobody trained.
    """
    path = Path(folder)
    listed = path / "modules.json"
    if not listed.is_file():
        raise ValueError(f"{path} is no folder of sentence-transformers: modules.json is missing")
    modules = read_json(listed)
    if not isinstance(modules, list) or not all(isinstance(one, dict) and "type" in one for one in modules):
        raise ValueError(f"{listed} is no list of modules, each with its type: export or download the folder again")
    _check_kind(path)
    if is_self_contained(path):
        if not has_our_code(path):
            raise ValueError(
                f"{path} has code that is not of this version: if you trust it, open it with "
                "SentenceTransformer(folder, trust_remote_code=True)"
            )
        return SentenceTransformer(str(path), trust_remote_code=True, local_files_only=True)
    types = [str(module["type"]) for module in modules]
    if all(name.startswith("sentence_transformers.") for name in types):
        try:
            return SentenceTransformer(str(path), local_files_only=True)
        except (SafetensorError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            said = short(" ".join(str(error).split()), 200)
            raise ValueError(
                f"{path} is damaged ({type(error).__name__}: {said}): export or download it again"
            ) from error
    ours = f"{ContextualModule.__module__}.{ContextualModule.__name__}"
    if [name for name in types if not name.startswith("sentence_transformers.")] != [ours] or types[0] != ours:
        raise ValueError(f"{path} needs {types}, which are neither stock modules nor {ours}")
    settings = json_object(path / SETTINGS_FILE)
    module = ContextualModule.load(str(path), subfolder=MODULE_FOLDER)
    return SentenceTransformer(modules=[module, normalize()], prompts=settings.get("prompts"))


def _check_kind(folder: Path) -> None:
    """ValueError for a folder of another kind of model; one that does not say its kind is of the oldest, the usual."""
    path = folder / SETTINGS_FILE
    kind = json_object(path).get("model_type") if path.is_file() else None
    if kind not in (None, DENSE):
        raise ValueError(f"{folder} is a {short(kind)} of sentence-transformers, expected a {DENSE}: name one of these")


def _head(model: Biencoder, width: int | None) -> list[Dense]:
    layers, whole = [], model.config.hidden_size
    for linear, activation, size in (
        (model.mlp[0], torch.nn.GELU(), whole),
        (model.mlp[2], torch.nn.Identity(), width or whole),
    ):
        dense = Dense(whole, size, activation_function=activation)
        dense.linear.load_state_dict({name: weight[:size] for name, weight in linear.state_dict().items()})
        layers.append(dense)
    return layers

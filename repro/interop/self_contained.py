"""Folders of contextual models that open in sentence-transformers and in transformers, without this project.

The code of the model, `sentence_cde.py` and `modeling_cde.py`, lies next to the weights.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from repro.data.prompts import PROMPTS
from repro.data.tokens import load_whole_tokenizer, resolve_tokenizer
from repro.model import modeling_cde
from repro.model.config import CONFIG_FILE, ModelConfig, make_config
from repro.model.contextual import ContextualModel
from repro.model.encoding import WEIGHTS_FILE, check_fit, get_shapes, read_tensors, write_tensors
from repro.storage.files import json_object, read_json, write_json

CODE = Path(modeling_cde.__file__)
MODULE_CODE = CODE.with_name("sentence_cde.py")
MODULE = f"{MODULE_CODE.stem}.ContextualModule"
"""The class of the only module, as modules.json names it."""
STORED_CONTEXT = ("context_embeddings", "context_input_ids", "context_attention_mask")


def write_self_contained(model: ContextualModel, folder: Path) -> None:
    """Write weights, configuration, tokenizer and code."""
    prompts = dict(PROMPTS[model.config.prompts]._asdict())
    config = modeling_cde.CdeConfig(
        repro=asdict(model.config),
        prompts=prompts,
        architectures=[modeling_cde.CdeModel.__name__],
        auto_map={"AutoConfig": "modeling_cde.CdeConfig", "AutoModel": "modeling_cde.CdeModel"},
        dtype="float32",
    )
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    write_tensors(dict(model.state_dict()), folder / WEIGHTS_FILE, {"format": "pt"})
    make_fast_tokenizer(model.config).save_pretrained(folder)
    for code in (CODE, MODULE_CODE):
        shutil.copyfile(code, folder / code.name)
    write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": MODULE}])
    settings = {"model_type": "SentenceTransformer", "prompts": prompts, "default_prompt_name": None}
    write_json(folder / "config_sentence_transformers.json", settings | {"similarity_fn_name": "cosine"})


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
    # Padding is masked, so any token will do. An ordinary one would become special, and split texts that contain it.
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    special.setdefault("pad_token", next(iter(added), str(tokenizer.id_to_token(0))))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=config.max_tokens, **special)


def is_self_contained(folder: Path) -> bool:
    """Return whether `write_self_contained` wrote a folder, or an opened model that was saved again."""
    path = folder / CONFIG_FILE
    return path.is_file() and json_object(path).get("model_type") == modeling_cde.CdeConfig.model_type


def load_self_contained_model(folder: Path) -> ContextualModel:
    """Read such a folder as our model, in eval mode, with the stored context. Its code is not executed.

    Raises:
        ValueError: if configuration and weights do not match, or if sentence-transformers would change the vectors.
    """
    path = folder / CONFIG_FILE
    values = json_object(path)
    _check_settings(folder, values.get("prompts"))
    config = make_config(values["repro"], str(path))
    config = replace(config, tokenizer=resolve_tokenizer(config.tokenizer, folder))
    model = ContextualModel(config)
    weights = {name: value.float() for name, value in read_tensors(folder / WEIGHTS_FILE).items()}
    context = {name: weights.pop(name) for name in STORED_CONTEXT if name in weights}
    check_fit(get_shapes(weights), get_shapes(model.state_dict()), f"{folder / WEIGHTS_FILE} does not fit its config")
    model.load_state_dict(weights)
    if context:
        model.context_CE = context[STORED_CONTEXT[0]].to(torch.float32)
    elif values.get("context") is not None:
        model.set_context(None)
    return model.eval()


def _check_settings(folder: Path, prompts: Any) -> None:
    """Raise ValueError if sentence-transformers saved the folder with other modules, a truncation or other prompts."""
    path = folder / "modules.json"
    types = [str(module["type"]) for module in read_json(path)] if path.is_file() else []
    if further := [name for name in types if not name.endswith((MODULE, ".Normalize"))]:
        raise ValueError(f"{path}: {further} would change the vectors of the contextual model: remove them")
    path = folder / "config_sentence_transformers.json"
    settings = json_object(path) if path.is_file() else {}
    if settings.get("truncate_dim"):
        raise ValueError(f"{path}: truncate_dim is {settings['truncate_dim']!r}: set it to null")
    stored, saved = (dict(value) if isinstance(value, dict) else {} for value in (prompts, settings.get("prompts")))
    # the library reads a missing prompt as an empty one
    if changed := sorted(name for name in stored if "prompts" in settings and saved.get(name, "") != stored[name]):
        raise ValueError(f"{path}: the prompt {changed[0]!r} is not that of {CONFIG_FILE}: make them equal")

"""Settings of an exported folder in the words that sentence-transformers 3 to 6 and transformers 4 and 5 all read.

Version 6 moved its modules and added settings that earlier versions refuse. The earlier words still open everywhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from repro.storage.files import json_object, read_json

OLD_MODULES = "sentence_transformers.models"
DENSE_SETTINGS = ("in_features", "out_features", "bias", "activation_function")
POOLINGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


def write_old_settings(folder: Path, *, max_tokens: int) -> None:
    """Rewrite the settings of a folder of stock modules that `SentenceTransformer.save_pretrained` wrote."""
    modules = read_json(folder / "modules.json")
    for module in modules:
        kind = str(module["type"]).rpartition(".")[2]
        module["type"] = f"{OLD_MODULES}.{kind}"
        path = folder / str(module["path"]) / "config.json"
        if kind == "Pooling":
            _write(path, _old_pooling(json_object(path)))
        elif kind == "Dense":
            found = json_object(path)
            _write(path, {name: found[name] for name in DENSE_SETTINGS})
    _write(folder / "modules.json", modules)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False})
    path = folder / "tokenizer_config.json"
    # the name that transformers 5 gives the class is unknown to transformers 4
    _write(path, json_object(path) | {"tokenizer_class": "PreTrainedTokenizerFast"})


def _old_pooling(found: dict[str, Any]) -> dict[str, Any]:
    width = found.get("embedding_dimension", found.get("word_embedding_dimension"))
    modes = {f"pooling_mode_{name}": name == "mean_tokens" for name in POOLINGS}
    return {"word_embedding_dimension": width, **modes, "include_prompt": found.get("include_prompt", True)}


def _write(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")

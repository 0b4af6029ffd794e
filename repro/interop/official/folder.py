"""Load the authors' checkpoints, cde-small-v1 and cde-small-v2, without remote code or pickles.

The forward pass is the one that a release was trained with. The first returns the head of the mean over the text. The
second adds the pooled vector, and excludes the instruction from the mean if its config sets this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from repro.data.tokens import TOKENIZER_FILE, load_tokenizer
from repro.interop.official.config import drops_instruction, is_second_release, read_official_config
from repro.interop.official.keys import NULL_VECTOR, to_ours
from repro.model.contextual import ContextualModel
from repro.model.encoding import WEIGHTS_FILE, read_tensors
from repro.storage.files import json_object
from repro.storage.hub import download_model

RELEASES = {
    "jxm/cde-small-v1": "e151df18af0d7f1d1c37b074fee58406ececf19f",
    "jxm/cde-small-v2": "4e1d021a6c3fd7ce8aa0a7204057eee5ae61d390",
}
"""Hub ids and their default revisions."""
FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
"""Files that are downloaded from a hub: settings, weights and tokenizers, but no code and no pickle."""
COMPILED_SEGMENT = "_orig_mod."
"""Segment that torch.compile and FSDP add to names of weights."""
INSTRUCTION_END = ": "
"""End of an instruction. Its first token is searched for in a text."""


def load_official(source: str | Path, *, revision: str | None = None, tokenizer: str | None = None) -> ContextualModel:
    """Load a checkpoint in eval mode, float32.

    Args:
        source: A folder or a hub id.
        revision: A revision of a hub id. Default: `RELEASES`.
        tokenizer: A folder, a hub id or "minilm". Default: that of the folder, or else "minilm", which has v1's
            vocabulary, for NomicBERT, and that of the base model for ModernBERT.

    Raises:
        ValueError: if a file is missing or damaged, or if the model is not supported.
    """
    folder = find_folder(source, revision)
    values = json_object(folder / "config.json")
    weights = _read_weights(folder / WEIGHTS_FILE)
    if tokenizer is None:
        tokenizer = _find_tokenizer(folder, values)
    instruction_end = None
    if drops_instruction(values):
        instruction_end = load_tokenizer(tokenizer).encode(INSTRUCTION_END, add_special_tokens=False).ids[0]
    config = read_official_config(
        values,
        has_null_vector=NULL_VECTOR in weights,
        tokenizer=tokenizer,
        instruction_end=instruction_end,
    )
    model = ContextualModel(config)
    model.load_state_dict(to_ours(weights, config, folder / WEIGHTS_FILE))
    return model.eval()


def is_official(source: str | Path) -> bool:
    """Return whether a folder or id is in the authors' format rather than ours."""
    path = Path(source) / "config.json"
    return str(source) in RELEASES or (path.is_file() and "embedder" in json_object(path))


def find_folder(source: str | Path, revision: str | None = None) -> Path:
    """Return the local folder of a model. A hub id is read from the hub's cache if that is complete, or downloaded.

    The default revision of a checkpoint of the authors is that of `RELEASES`. Raises ValueError if `source` is neither a
    folder nor a hub id, or cannot be downloaded.
    """
    return download_model(str(source), revision or RELEASES.get(str(source)), allow_patterns=list(FILES))


def _find_tokenizer(folder: Path, values: dict[str, Any]) -> str:
    if (folder / TOKENIZER_FILE).is_file():
        return str(folder)
    # MiniLM has the vocabulary of bert-base-uncased, which v1 was trained with
    return str(values.get("embedder")) if is_second_release(values) else "minilm"


def _read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights by name without compiled segments. Raises ValueError if two names become equal."""
    stored = read_tensors(path)
    weights = {name.replace(COMPILED_SEGMENT, ""): value.float() for name, value in stored.items()}
    if len(weights) != len(stored):
        raise ValueError(f"{path} holds weights twice, with and without {COMPILED_SEGMENT!r} in their names")
    return weights

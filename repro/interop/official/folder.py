"""Load the authors' checkpoints, cde-small-v1 and cde-small-v2, without remote code or pickles.

The forward pass is the one that a release was trained with. The first returns the head of the mean over the text. The
second adds the pooled vector, and excludes the instruction from the mean if its config sets this.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repro.data.tokens import TOKENIZER_FILE, load_tokenizer
from repro.interop.official.config import drops_instruction, is_second_release, read_official_config
from repro.interop.official.keys import NULL_VECTOR, to_ours
from repro.interop.safe_weights import read_safetensors
from repro.model.contextual import ContextualModel
from repro.model.encoding import WEIGHTS_FILE
from repro.storage.files import json_object
from repro.storage.hub import download_model

RELEASES = {
    "jxm/cde-small-v1": "e151df18af0d7f1d1c37b074fee58406ececf19f",
    "jxm/cde-small-v2": "4e1d021a6c3fd7ce8aa0a7204057eee5ae61d390",
}
"""Hub ids and their default revisions."""
FILES = ("config.json", WEIGHTS_FILE, f"{WEIGHTS_FILE}.index.json", "model-*.safetensors", TOKENIZER_FILE)
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
    values = _read_json(folder / "config.json")
    weights = read_safetensors(folder / WEIGHTS_FILE)
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
    return str(source) in RELEASES or (path.is_file() and "embedder" in _read_json(path))


def find_folder(source: str | Path, revision: str | None = None, files: Sequence[str] = FILES, **options: Any) -> Path:
    """Return the local folder of a model. A hub id is read from the hub's cache if that is complete, or downloaded.

    Args:
        source: A folder or a hub id.
        revision: A revision of a hub id. Default: `RELEASES`.
        files: Patterns of the files to download.
        options: Options of the hub: token, cache_dir, local_files_only.

    Raises:
        ValueError: if `source` is neither a folder nor a hub id, or cannot be downloaded.
    """
    return download_model(str(source), revision or RELEASES.get(str(source)), allow_patterns=list(files), **options)


def _find_tokenizer(folder: Path, values: dict[str, Any]) -> str:
    if (folder / TOKENIZER_FILE).is_file():
        return str(folder)
    # MiniLM has the vocabulary of bert-base-uncased, which v1 was trained with
    return str(values.get("embedder")) if is_second_release(values) else "minilm"


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path} is missing: a checkpoint is a folder with config.json and {WEIGHTS_FILE}")
    return json_object(path)

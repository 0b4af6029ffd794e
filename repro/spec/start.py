"""Local encoders of a run: the start of its weights, its surrogate and its filter model.

A run names a local encoder as NAME@DIGEST: the folder's name, and the first twelve hex digits of the sha256 of its files'
digests. The path is stored outside the run, in `encoders/NAME@DIGEST.json`, with the sha256 of every file that can change a
result. An encoder whose files have changed is refused. So is a start whose special tokens differ from its configuration.
Weights that differ from it are refused when they are loaded (`repro.model.start`), and a vocabulary of another size before
training (`repro.train.setup`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from repro.storage.digests import get_cached_digests, get_digests_note
from repro.storage.files import json_object, name_in_errors, write_json
from repro.storage.paths import get_home
from repro.text import shorten

KINDS: Mapping[str, str] = {"nomic_bert": "nomic", "bert": "bert", "modernbert": "modernbert"}
"""Our name of a backbone, by the `model_type` of transformers."""
FROM_WORDS = ("random", "words")
FROM_WHEELS = ("minilm", "minilm-words")
"""Surrogates that are not sentence-transformers models."""
WORD_VECTOR_WIDTH = 384
DEFAULT_BERT_POSITIONS = 512
"""Learned positions of a BERT that starts without pretrained weights (`transformers.BertConfig`)."""
LOCAL_NAME = re.compile(r"[A-Za-z0-9._-]+@[0-9a-f]{12}")
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
ADAPTER = "adapter_config.json"
TOKENIZER_FILES = (
    *(TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer.model"),
)
IGNORED_SUFFIXES = (".md", ".lock", ".log")
"""Suffixes of files that cannot change a result."""
CONFIG_NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd"),
    "num_layers": ("num_hidden_layers", "n_layer"),
}
"""Names in a configuration for each size of `Encoder`. The second name is the one in Nomic's own releases."""


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """The sizes of a pretrained encoder, named as in `Run`, and the folder and files of a local one.

    A surrogate or filter model has no sizes, because sentence-transformers loads it.
    """

    name: str
    backbone: str = ""
    num_layers: int = 0
    hidden_size: int = 0
    max_position_embeddings: int | None = None
    path: str = ""
    files: Mapping[str, str] | None = None  # the sha256 of each file, by its name in the folder

    @property
    def fields(self) -> dict[str, Any]:
        """The default fields of a run that starts from the encoder."""
        layers = {"num_layers": self.num_layers, "num_first_stage_layers": self.num_layers}
        return {"backbone": self.backbone, **layers, "hidden_size": self.hidden_size}


MINILM = Encoder(name="minilm", backbone="bert", num_layers=6, hidden_size=384, max_position_embeddings=512)
MINILM_TOKENS = 256
"""Number of tokens that MiniLM reads of a text outside a run."""


def resolve_encoders(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run with the names of its encoders, and with the sizes of its start as defaults.

    A folder becomes the NAME@DIGEST of its encoder. Hub ids and names such as "words" stay as they are.

    Raises:
        ValueError: if the folder is not an encoder that a run can start from. The message names file and field.
    """
    fields = dict(fields)
    for name in ("surrogate", "filter_model", "start"):
        value = fields.get(name)
        if isinstance(value, str) and value not in (*FROM_WORDS, *FROM_WHEELS) and _is_folder(value):
            fields[name] = register_encoder(Path(value), is_start=name == "start").name
    start = fields.get("start")
    if not isinstance(start, str):
        return fields
    encoder = MINILM if start == MINILM.name else find_encoder(start)
    if encoder is None:
        return fields
    if not encoder.backbone:
        raise ValueError(f"start={start!r} was named as a surrogate or filter model: name its folder, start=FOLDER")
    return {**encoder.fields, **fields}


def _is_folder(name: str) -> bool:
    """Return whether a name is a folder.

    ORGANISATION/NAME is a hub id. If it is a folder, too, `check_model_name` requests ./ORGANISATION/NAME.
    """
    if name.startswith(("/", "./", "../", "~")):
        return True
    try:
        return "/" not in name and Path(name).is_dir()
    except OSError:
        # no file system accepts this name
        return False


def check_start(run: Any) -> None:
    """Raise ValueError if a run's sizes do not fit the weights that it starts from.

    An encoder of the hub is checked when its weights are loaded.
    """
    start = f"start={shorten(repr(run.start))}"
    if run.start in FROM_WORDS:
        if run.start == "words" and run.hidden_size > WORD_VECTOR_WIDTH:
            raise ValueError(f"hidden_size={run.hidden_size}: start='words' has vectors of {WORD_VECTOR_WIDTH} at most")
        return _check_positions(run, run.backbone, DEFAULT_BERT_POSITIONS, start)
    if run.start != MINILM.name and not LOCAL_NAME.fullmatch(run.start):
        return
    encoder = MINILM if run.start == MINILM.name else _get_encoder(run.start)
    for name in ("backbone", "hidden_size"):
        value, expected = getattr(run, name), getattr(encoder, name)
        if value != expected:
            raise ValueError(f"{name}={value!r}: {start} has {expected!r}; leave {name} out or set it")
    for name in ("num_layers", "num_first_stage_layers") if run.architecture == "contextual" else ("num_layers",):
        if getattr(run, name) > encoder.num_layers:
            raise ValueError(
                f"{name}={getattr(run, name)}: {start} has {encoder.num_layers} layers; set at most as many"
            )
    _check_positions(run, encoder.backbone, encoder.max_position_embeddings, start)


def _check_positions(run: Any, backbone: str, max_positions: int | None, start: str) -> None:
    """Raise ValueError if the learned positions of a BERT are fewer than the tokens of a text with its context."""
    if max_positions is None or backbone != "bert":
        return
    length = run.max_tokens
    if run.first_position is not None:
        length += run.first_position
    elif run.architecture == "contextual":
        # the second stage places context vectors and soft prompts before the text
        length += run.num_contexts * run.tokens_per_document + run.num_soft_prompts
    if length > max_positions:
        raise ValueError(
            f"max_tokens={run.max_tokens}: {start} has {max_positions} positions, and a text with its context takes {length}"
        )


def register_encoder(folder: Path, *, is_start: bool) -> Encoder:
    """Store the path of an encoder under the name that runs use.

    Args:
        folder: The folder.
        is_start: Whether a run starts from its weights, so that its sizes and its tokenizer matter.

    Raises:
        ValueError: if the folder is not such an encoder.
    """
    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise ValueError(f"{shorten(folder)}: there is no such folder")
    sizes = _read_sizes(folder / CONFIG) if is_start else {}
    check_weights_are_read(folder)
    if is_start:
        _check_tokenizer(folder)
    digests = _hash_files(folder)
    if not any(name.endswith(".safetensors") for name in digests):
        raise ValueError(f"{shorten(folder)}: there is no {WEIGHTS} in this folder")
    digest = hashlib.sha256("".join(f"{digests[name]}  {name}\n" for name in digests).encode()).hexdigest()
    encoder = Encoder(name=_make_name(folder, digest), path=str(folder), files=digests, **sizes)
    registered = find_encoder(encoder.name)
    if registered is not None and not is_start:
        # A run may also start from it.
        encoder = replace(registered, path=encoder.path)
    if registered != encoder:
        write_json(_get_entry_path(encoder.name), asdict(encoder))
    return encoder


def _make_name(folder: Path, digest: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("-") or "encoder"
    return f"{slug[:60]}@{digest[:12]}"


def find_encoder(name: str) -> Encoder | None:
    """Return a local encoder by the name that runs store, or None if it was never used on this machine."""
    if not LOCAL_NAME.fullmatch(name) or not _get_entry_path(name).is_file():
        return None
    with name_in_errors(_get_entry_path(name)):
        return Encoder(**json_object(_get_entry_path(name)))


def _get_encoder(name: str) -> Encoder:
    encoder = find_encoder(name)
    if encoder is None:
        raise ValueError(f"the encoder {name} was never used on this machine: name its folder once")
    return encoder


def get_encoder_folder(name: str) -> Path | None:
    """Return the folder of a local encoder by its NAME@DIGEST, or None for any other name.

    Raises:
        ValueError: if the encoder was never used on this machine, or if its folder is missing or has changed.
    """
    if not LOCAL_NAME.fullmatch(name):
        return None
    encoder = _get_encoder(name)
    folder = Path(encoder.path)
    if not folder.is_dir():
        raise ValueError(f"the folder {folder} of the encoder {name} is gone: put it back, or name it where it is now")
    if changed := _find_changed_file(encoder, _hash_files(folder)):
        raise ValueError(
            f"{folder / changed} has changed since the encoder was named {name}: put it back, or name the new one"
        )
    return folder


def _find_changed_file(encoder: Encoder, digests: Mapping[str, str]) -> str | None:
    """Return the name of a file that was added, removed or changed since an encoder was registered, or None."""
    registered = encoder.files or {}
    changed = sorted(name for name in {*registered, *digests} if registered.get(name) != digests.get(name))
    return changed[0] if changed else None


def _hash_files(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a model by its relative path, except hidden files and notes."""
    return get_cached_digests(folder, list_model_files(folder), get_digests_note(folder))


def list_model_files(folder: Path) -> list[Path]:
    """Return the files below the folder of a model that can change a result, sorted."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in IGNORED_SUFFIXES)
    return [path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def check_weights_are_read(folder: Path) -> None:
    """Raise ValueError if a folder has weights that would be ignored (an adapter) or read as a pickle."""
    for path in sorted(folder.rglob("*")):
        if path.name == ADAPTER:
            raise ValueError(f"{path}: the adapter would be ignored; merge it into the weights and save them again")
        if path.name.startswith("pytorch_model") and not any(path.parent.glob("*.safetensors")):
            raise ValueError(f"{path}: pickles are not read; save the weights again as safetensors")


def _get_entry_path(name: str) -> Path:
    return get_home() / "encoders" / f"{name}.json"


def _read_sizes(path: Path) -> dict[str, Any]:
    """Return the backbone and the sizes in a configuration, as fields of `Encoder`."""
    config = json_object(path)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in KINDS:
        raise ValueError(
            f"{path}: model_type is {shorten(repr(model_type))}; a run can start from one of {list(KINDS)}"
        )
    fields: dict[str, Any] = {"backbone": KINDS[model_type]}
    for field, names in CONFIG_NAMES.items():
        value = next((config[name] for name in names if name in config), None)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{path}: {names[0]} is {shorten(repr(value))}, expected a whole number of at least 1")
        fields[field] = value
    max_positions = config.get("max_position_embeddings")
    return {**fields, "max_position_embeddings": max_positions if isinstance(max_positions, int) else None}


def _check_tokenizer(folder: Path) -> None:
    """Raise ValueError if the tokenizer is missing, or if its special tokens have other ids than in the configuration."""
    from tokenizers import Tokenizer

    path = folder / TOKENIZER
    if not path.is_file():
        raise ValueError(f"{path} is missing: save the encoder's own tokenizer next to its weights")
    with name_in_errors(path):
        ids = Tokenizer.from_file(str(path)).get_vocab()
    config, special_tokens = json_object(folder / CONFIG), _read_special_tokens(folder)
    for role in ("cls_token", "sep_token", "pad_token"):
        expected, actual = config.get(f"{role}_id"), ids.get(special_tokens.get(role, ""))
        if isinstance(expected, int) and actual is not None and expected != actual:
            found = f"{path} has id {actual} for {role}, {folder / CONFIG} has {expected}"
            raise ValueError(f"{found}: this is the tokenizer of another vocabulary")


def _read_special_tokens(folder: Path) -> dict[str, str]:
    """Return the special tokens of a tokenizer by their role, such as "cls_token"."""
    tokens: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        values = json_object(folder / name) if (folder / name).is_file() else {}
        for role, token in values.items():
            text = token.get("content") if isinstance(token, Mapping) else token
            if role.endswith("_token") and isinstance(text, str):
                tokens[role] = text
    return tokens

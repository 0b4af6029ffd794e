"""Local encoders of a run: the start of its weights, its surrogate and its filter model.

A run names a local encoder as NAME@DIGEST: the folder's name, and the first twelve hex digits of the sha256 of its
weights. For a surrogate or filter model, the digest covers all files. The path is stored outside the run, in
`encoders/NAME@DIGEST.json`, with the sha256 of every file that can change a result. An encoder whose files have changed
is refused. So is a start whose weights or tokenizer differ from its configuration. Only headers of weights are read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
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
CONFIG, INDEX, WEIGHTS, TOKENIZER = "config.json", "model.safetensors.index.json", "model.safetensors", "tokenizer.json"
ADAPTER = "adapter_config.json"
TOKENIZER_FILES = (
    *(TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer.model"),
)
IGNORED_SUFFIXES = (".md", ".lock", ".log")
"""Suffixes of files that cannot change a result."""
MAX_UNUSED_IDS = 1024
"""The largest number of unused word vectors. Configurations round the vocabulary up, but never by more than this."""
CONFIG_NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd"),
    "num_layers": ("num_hidden_layers", "n_layer"),
    "vocab_size": ("vocab_size",),
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
    vocab_size: int = 0
    max_position_embeddings: int | None = None
    path: str = ""
    files: Mapping[str, str] | None = None  # the sha256 of each file, by its name in the folder

    @property
    def fields(self) -> dict[str, Any]:
        """The default fields of a run that starts from the encoder."""
        layers = {"num_layers": self.num_layers, "num_first_stage_layers": self.num_layers}
        return {"backbone": self.backbone, **layers, "hidden_size": self.hidden_size}


MINILM = Encoder(
    name="minilm", backbone="bert", num_layers=6, hidden_size=384, vocab_size=30522, max_position_embeddings=512
)
MINILM_TOKENS = 256
"""Number of tokens that MiniLM reads of a text outside a run."""


def resolve_encoders(fields: Mapping[str, Any], *, is_stored: bool = False) -> dict[str, Any]:
    """Return the fields of a run with the names of its encoders, and with the sizes of its start as defaults.

    A folder becomes the NAME@DIGEST of its encoder. Hub ids and names such as "words" stay as they are.

    Args:
        fields: the fields that were typed, or those of a row of a runs file.
        is_stored: whether the row holds every field, as a stored run does. Then a path is a folder only if it cannot be
            a hub id.

    Raises:
        ValueError: if the folder is not an encoder that a run can start from. The message names file and field.
    """
    fields = dict(fields)
    for name in ("surrogate", "filter_model"):
        model = fields.get(name)
        if not isinstance(model, str) or model in FROM_WHEELS:
            continue
        # ORGANISATION/NAME may be a hub id: `check_model_name` asks for ./ORGANISATION/NAME if it is a folder too
        is_plain_folder = not is_stored and "/" not in model and _is_folder(model)
        if _looks_like_path(model) or is_plain_folder:
            fields[name] = register_encoder(Path(model), is_start=False).name
    start = fields.get("start")
    if not isinstance(start, str) or start in FROM_WORDS:
        return fields
    if start == MINILM.name:
        encoder: Encoder | None = MINILM
    elif LOCAL_NAME.fullmatch(start):
        encoder = find_encoder(start)
    elif _looks_like_path(start) or (not is_stored and _is_folder(start)):
        encoder = register_encoder(Path(start), is_start=True)
    else:
        encoder = None
    if encoder is None:
        return fields
    if not encoder.backbone:
        raise ValueError(f"start={start!r} was named as a surrogate or filter model: name its folder, start=FOLDER")
    return {**encoder.fields, **fields, "start": encoder.name}


def _is_folder(name: str) -> bool:
    """Return whether a name is a folder. A name that no file system accepts is none."""
    try:
        return Path(name).is_dir()
    except OSError:
        return False


def _looks_like_path(name: str) -> bool:
    """Return whether a name can only be a path, because no hub id looks like it."""
    return name.startswith(("/", "./", "../", "~")) or name in (".", "..")


def check_start(run: Any) -> None:
    """Raise ValueError if a run's sizes do not fit the weights that it starts from.

    An encoder of the hub is checked only if its configuration is in the cache.
    """
    start = f"start={shorten(repr(run.start))}"
    if run.start in FROM_WORDS:
        if run.start == "words" and run.hidden_size > WORD_VECTOR_WIDTH:
            raise ValueError(f"hidden_size={run.hidden_size}: start='words' has vectors of {WORD_VECTOR_WIDTH} at most")
        return _check_positions(run, run.backbone, DEFAULT_BERT_POSITIONS, start)
    encoder = _find_sizes(run.start)
    if encoder is None:
        return
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


def _find_sizes(start: str) -> Encoder | None:
    """Return the encoder of a start. Of one from the hub the sizes, or None if its configuration is not cached."""
    if start == MINILM.name:
        return MINILM
    if LOCAL_NAME.fullmatch(start):
        return _get_encoder(start)
    if Path(start).is_dir():
        return Encoder(name=start, **read_encoder(Path(start)))
    from huggingface_hub import try_to_load_from_cache

    with name_in_errors(f"start={shorten(start)}"):
        path = try_to_load_from_cache(start, CONFIG)
    if not isinstance(path, str):
        return None
    return Encoder(name=start, **_read_sizes(json_object(Path(path)), Path(path)))


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
        is_start: Whether a run starts from its weights, whose digest is in the name. The name of a surrogate or filter
            model, which sentence-transformers loads, has a digest of all files.

    Raises:
        ValueError: if the folder is not such an encoder, or if another file differs from the one that was first stored
            with the same name and weights.
    """
    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise ValueError(f"{shorten(folder)}: there is no such folder")
    sizes = read_encoder(folder) if is_start else {}
    check_weights_are_read(folder)
    digests = _hash_files(folder)
    named = [path.name for path in _list_weight_files(folder)] if is_start else list(digests)
    if not named:
        raise ValueError(f"{shorten(folder)}: there is no model in this folder")
    digest = digests[named[0]]
    if len(named) > 1 or not is_start:
        # of several files, the name contains a digest of their digests
        digest = hashlib.sha256("".join(f"{digests[name]}  {name}\n" for name in named).encode()).hexdigest()
    encoder = Encoder(name=_make_name(folder, digest), path=str(folder), files=digests, **sizes)
    registered = find_encoder(encoder.name)
    if registered is not None and (changed := _find_changed_file(registered, digests)):
        raise ValueError(
            f"{folder / changed} is not the file that {encoder.name} was first used with, from {registered.path}: put "
            "that one back, or copy the files to a folder of another name, which makes it another encoder"
        )
    if registered != encoder:
        write_json(_get_entry_path(encoder.name), asdict(encoder))
    return encoder


def _make_name(folder: Path, digest: str) -> str:
    name = folder.name
    # models--OWNER--NAME/snapshots/COMMIT in the cache of the hub
    if folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--"):
        name = folder.parents[1].name.rpartition("--")[2]
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "encoder"
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
    return get_cached_digests(folder, list_model_files(folder), get_digests_note(folder, "-all"))


def list_model_files(folder: Path) -> list[Path]:
    """Return the files below the folder of a model that can change a result, sorted."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in IGNORED_SUFFIXES)
    return [path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def read_encoder(folder: Path) -> dict[str, Any]:
    """Return the sizes of the encoder in a folder, as the fields of `Encoder`.

    Raises:
        ValueError: if it is not a complete BERT, NomicBERT or ModernBERT with safetensors weights and its tokenizer.
    """
    check_weights_are_read(folder)
    config = json_object(folder / CONFIG)
    sizes = _read_sizes(config, folder / CONFIG)
    _check_weights(folder, sizes)
    _check_tokenizer(folder, config, sizes["vocab_size"])
    max_positions = config.get("max_position_embeddings")
    return {**sizes, "max_position_embeddings": max_positions if isinstance(max_positions, int) else None}


def check_weights_are_read(folder: Path) -> None:
    """Raise ValueError if a folder has weights that would be ignored (an adapter) or read as a pickle."""
    for path in sorted(folder.rglob("*")):
        if path.name == ADAPTER:
            raise ValueError(f"{path}: the adapter would be ignored; merge it into the weights and save them again")
        if path.name.startswith("pytorch_model") and not any(path.parent.glob("*.safetensors")):
            raise ValueError(f"{path}: pickles are not read; save the weights again as safetensors")


def _get_entry_path(name: str) -> Path:
    return get_home() / "encoders" / f"{name}.json"


def _list_weight_files(folder: Path) -> list[Path]:
    """Return the weight files, sorted by name: a single file, or the shards that an index lists."""
    if not (folder / INDEX).is_file() or (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    with name_in_errors(folder / INDEX):
        return [folder / name for name in sorted(set(json_object(folder / INDEX)["weight_map"].values()))]


def _read_sizes(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the backbone and the sizes in a configuration, as fields of `Encoder`. `path` is for error messages."""
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
    return fields


def _check_weights(folder: Path, sizes: Mapping[str, int]) -> None:
    """Raise ValueError if the sizes of weights and configuration differ. Transformers would reinitialize them."""
    config = folder / CONFIG
    shapes = dict(_read_shapes(folder))
    word_vectors = [name for name in shapes if name.endswith(("word_embeddings.weight", "tok_embeddings.weight"))]
    if not word_vectors:
        raise ValueError(f"{folder}: the weights hold no word vectors (embeddings.word_embeddings.weight)")
    shape = shapes[word_vectors[0]]
    if shape != [sizes["vocab_size"], sizes["hidden_size"]]:
        name = "vocab_size" if shape[:1] != [sizes["vocab_size"]] else "hidden_size"
        raise ValueError(f"{config}: {name} is {sizes[name]}, but the word vectors have shape {shape}")
    # more layers than configured are fine, because a run may use only the first ones
    matches = [re.search(r"\blayers?\.(\d+)\.", name) for name in shapes]
    num_layers = max((int(match[1]) for match in matches if match), default=-1) + 1
    if num_layers < sizes["num_layers"]:
        raise ValueError(
            f"{config}: num_hidden_layers is {sizes['num_layers']}, but the weights hold {num_layers} layers"
        )


def _read_shapes(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield the name and shape of each weight. safetensors refuses a file that was cut."""
    from safetensors import safe_open

    for path in _list_weight_files(folder):
        with name_in_errors(path), safe_open(path, framework="numpy") as weights:
            yield from ((name, weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118


def _check_tokenizer(folder: Path, config: Mapping[str, Any], vocab_size: int) -> None:
    """Raise ValueError if the tokenizer is missing, or if its vocabulary does not fit the word vectors."""
    from tokenizers import Tokenizer

    path = folder / TOKENIZER
    if not path.is_file():
        raise ValueError(f"{path} is missing: save the encoder's own tokenizer next to its weights")
    with name_in_errors(path):
        ids = Tokenizer.from_file(str(path)).get_vocab()
    num_tokens = max(ids.values(), default=0) + 1
    problems = []
    if num_tokens > vocab_size or vocab_size - num_tokens > MAX_UNUSED_IDS:
        problems.append(f"{num_tokens} words, but vocab_size in {folder / CONFIG} is {vocab_size}")
    special_tokens = _read_special_tokens(folder)
    for role in ("cls_token", "sep_token", "pad_token"):
        expected, actual = config.get(f"{role}_id"), ids.get(special_tokens.get(role, ""))
        if isinstance(expected, int) and actual is not None and expected != actual:
            problems.append(f"id {actual} for {role}, but {role}_id in {folder / CONFIG} is {expected}")
    if problems:
        raise ValueError(f"{path} has {problems[0]}: this is the tokenizer of another vocabulary")


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

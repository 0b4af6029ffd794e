"""Local encoders of a run: the start of its weights, its surrogate and its filter model.

A run names a local encoder as NAME@DIGEST: the folder's name, and the first twelve hex digits of the sha256 of its
weights. For a surrogate or filter model, the digest covers all files. The path is stored outside the run, in
`encoders/NAME@DIGEST.json`, with the sha256 of every file that can change a result. An encoder whose files have changed
is refused. The folder of a start is validated, and its sizes become fields of the run.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.storage.digests import get_cached_digests, get_digests_note
from repro.storage.files import json_object, read_json, write_json
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
TOKENIZER_FILES = (
    *(TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer.model"),
)
VOCABULARY_FILES = (TOKENIZER, "vocab.txt", "vocab.json", "spiece.model", "tokenizer.model")
SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
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
            fields[name] = register_fixed_encoder(Path(model)).name
    start = fields.get("start")
    if not isinstance(start, str) or start in FROM_WORDS:
        return fields
    if start == MINILM.name:
        encoder: Encoder | None = MINILM
    elif LOCAL_NAME.fullmatch(start):
        encoder = find_encoder(start)
    elif _looks_like_path(start) or (not is_stored and _is_folder(start)):
        encoder = register_encoder(Path(start))
    else:
        encoder = None
    if encoder is None:
        return fields
    if not encoder.backbone:
        raise ValueError(f"start={start!r} was named as a surrogate or filter model: name its folder, start=FOLDER")
    return {**encoder.fields, **fields, "start": encoder.name}


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
    if run.start == MINILM.name:
        encoder: Encoder | None = MINILM
    else:
        encoder = find_encoder(run.start)
        if encoder is None and LOCAL_NAME.fullmatch(run.start):
            raise ValueError(_describe_unknown_encoder(run.start))
        encoder = encoder or _find_cached_encoder(run.start)
    if encoder is None:
        return
    if run.backbone != encoder.backbone:
        raise ValueError(
            f"backbone={run.backbone!r}: {start} is a {encoder.backbone} model; leave backbone out or set it"
        )
    if run.hidden_size != encoder.hidden_size:
        raise ValueError(
            f"hidden_size={run.hidden_size}: {start} has {encoder.hidden_size}; leave hidden_size out or set it"
        )
    names = ("num_layers", "num_first_stage_layers") if run.architecture == "contextual" else ("num_layers",)
    for name in names:
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


def _is_folder(name: str) -> bool:
    """Return whether a name is a folder. A name that no file system accepts is none."""
    try:
        return Path(name).is_dir()
    except OSError:
        return False


def register_encoder(folder: Path) -> Encoder:
    """Check the encoder in a folder, and store its path under the name that runs use.

    Raises:
        ValueError: if the folder is not an encoder that a run can start from, or if its configuration or tokenizer
            differ from those that were first stored with the same name and weights.
    """
    folder = folder.expanduser().resolve()
    sizes = read_encoder(folder)
    weights = [path.name for path in _list_weight_files(folder)]
    digests = _hash_files(folder)
    digest = digests[weights[0]]
    if len(weights) > 1:
        # with several weight files, the name contains a digest of their digests
        listing = "".join(f"{digests[name]}  {name}\n" for name in weights)
        digest = hashlib.sha256(listing.encode()).hexdigest()
    encoder = Encoder(name=_make_name(folder, digest), path=str(folder), files=digests, **sizes)
    registered = find_encoder(encoder.name)
    if registered is not None and registered.files != digests:
        changed = _list_changed_files(registered, digests)[0]
        raise ValueError(
            f"{folder / changed} is not the file that {encoder.name} was first used with, from {registered.path}: put "
            "that one back, or copy the files to a folder of another name, which makes it another encoder"
        )
    if registered != encoder:
        _write_entry(encoder)
    return encoder


def register_fixed_encoder(folder: Path) -> Encoder:
    """Store the path of a surrogate or filter model, in the format of sentence-transformers, under its name.

    Raises ValueError if there is no such folder, or no file in it.
    """
    folder = folder.expanduser().resolve()
    digests = _hash_all_files(folder) if folder.is_dir() else {}
    if not digests:
        raise ValueError(f"{shorten(folder)}: there is no model in this folder")
    listing = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    digest = hashlib.sha256(listing.encode()).hexdigest()
    encoder = Encoder(name=_make_name(folder, digest), path=str(folder), files=digests)
    if find_encoder(encoder.name) != encoder:
        _write_entry(encoder)
    return encoder


def _make_name(folder: Path, digest: str) -> str:
    name = folder.name
    # models--OWNER--NAME/snapshots/COMMIT in the cache of the hub
    if folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--"):
        name = folder.parents[1].name.rpartition("--")[2]
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "encoder"
    return f"{slug[:60]}@{digest[:12]}"


def _write_entry(encoder: Encoder) -> None:
    write_json(_get_entry_path(encoder.name), asdict(encoder))


def find_encoder(name: str) -> Encoder | None:
    """Return a local encoder by the name that runs store, or None if it was never used on this machine."""
    if not LOCAL_NAME.fullmatch(name) or not _get_entry_path(name).is_file():
        return None
    values = json_object(_get_entry_path(name))
    try:
        return Encoder(**values)
    except TypeError as error:
        raise ValueError(
            f"{_get_entry_path(name)} does not describe an encoder: remove it, and name the folder again"
        ) from error


def is_fixed_encoder(name: str) -> bool:
    """Return whether a NAME@DIGEST was named as a surrogate or filter model, which sentence-transformers loads."""
    encoder = find_encoder(name)
    return encoder is not None and not encoder.backbone


def get_encoder_folder(name: str) -> Path | None:
    """Return the folder of a local encoder by its NAME@DIGEST, or None for any other name.

    Raises:
        ValueError: if the encoder was never used on this machine, or if its folder is missing or has changed.
    """
    if not LOCAL_NAME.fullmatch(name):
        return None
    encoder = find_encoder(name)
    if encoder is None:
        raise ValueError(_describe_unknown_encoder(name))
    folder = Path(encoder.path)
    if not folder.is_dir():
        raise ValueError(f"the folder {folder} of the encoder {name} is gone: put it back, or name it where it is now")
    digests = _hash_files(folder) if encoder.backbone else _hash_all_files(folder)
    if changed := _list_changed_files(encoder, digests):
        raise ValueError(
            f"{folder / changed[0]} has changed since the encoder was named {name}: put it back, or name the new one"
        )
    return folder


def _describe_unknown_encoder(name: str) -> str:
    return f"the encoder {name} was never used on this machine: name its folder once"


def _list_changed_files(encoder: Encoder, digests: Mapping[str, str]) -> list[str]:
    """Return the names of files that were added, removed or changed since an encoder was registered, sorted."""
    registered = encoder.files or {}
    return sorted(name for name in {*registered, *digests} if registered.get(name) != digests.get(name))


def read_encoder(folder: Path) -> dict[str, Any]:
    """Return the sizes of the encoder in a folder, as the fields of `Encoder`.

    Raises:
        ValueError: if it is not a complete BERT, NomicBERT or ModernBERT with safetensors weights and its tokenizer.
    """
    start = f"start={shorten(folder)}"
    if not folder.is_dir():
        raise ValueError(f"{start}: there is no such folder")
    path = folder / CONFIG
    if not path.is_file():
        nested = sorted(file.parent for file in folder.glob(f"*/{CONFIG}") if (file.parent / WEIGHTS).is_file())
        hint = f"; the encoder lies in {nested[0]}" if nested else ""
        raise ValueError(f"{start}: {path} is missing, so this is not an encoder in transformers' format{hint}")
    config = json_object(path)
    sizes = _read_sizes(config, path)
    _check_weights(_read_weight_shapes(folder), sizes, folder)
    _check_tokenizer(folder, config, sizes["vocab_size"])
    max_positions = config.get("max_position_embeddings")
    return {**sizes, "max_position_embeddings": max_positions if isinstance(max_positions, int) else None}


def _get_entry_path(name: str) -> Path:
    return get_home() / "encoders" / f"{name}.json"


def _hash_files(folder: Path) -> dict[str, str]:
    """Return the sha256 of the files that can change a result. A file is hashed again if its size or time changes."""
    names = [CONFIG, INDEX, *TOKENIZER_FILES]
    paths = [*_list_weight_files(folder), *(folder / name for name in names if (folder / name).is_file())]
    return get_cached_digests(folder, paths, get_digests_note(folder))


def _hash_all_files(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a model by its relative path, except hidden files and notes."""
    return get_cached_digests(folder, list_model_files(folder), get_digests_note(folder, "-all"))


def list_model_files(folder: Path) -> list[Path]:
    """Return the files below the folder of a model that can change a result, sorted."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and _is_model_file(path.relative_to(folder))]


def _is_model_file(name: Path) -> bool:
    return not any(part.startswith(".") for part in name.parts) and name.suffix not in IGNORED_SUFFIXES


def _list_weight_files(folder: Path) -> list[Path]:
    """Return the weight files, sorted by name: a single file, or the shards that an index lists."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = folder / INDEX
    shards = sorted(path.name for path in folder.iterdir() if SHARD.fullmatch(path.name))
    if not index.is_file():
        if shards:
            raise ValueError(f"{index} is missing: it maps the weights to the {len(shards)} shards")
        unsupported = [name for name in ("pytorch_model.bin", "tf_model.h5") if (folder / name).is_file()]
        hint = f"; {unsupported[0]} is not read: save the model again with safetensors" if unsupported else ""
        raise ValueError(f"{folder / WEIGHTS} is missing{hint}")
    weight_map = json_object(index).get("weight_map")
    if (
        not isinstance(weight_map, Mapping)
        or not weight_map
        or not all(isinstance(shard, str) for shard in weight_map.values())
    ):
        raise ValueError(f"{index}: weight_map should name the shard of every weight")
    paths = [folder / name for name in sorted(set(weight_map.values()))]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{index}: weight_map names {path.name}, which is missing in {folder}")
    return paths


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


def _read_weight_shapes(folder: Path) -> dict[str, tuple[Path, list[int]]]:
    """Return the file and the shape of each weight, read from the file headers."""
    shapes: dict[str, tuple[Path, list[int]]] = {}
    for path in _list_weight_files(folder):
        size = path.stat().st_size
        try:
            with path.open("rb") as file:
                # safetensors: an 8-byte length, a JSON header, then the data
                (length,) = struct.unpack("<Q", file.read(8))
                if length > size:
                    raise ValueError("its header is cut off")
                header = json.loads(file.read(length))
            weights = {name: entry for name, entry in header.items() if name != "__metadata__"}
            end = max((entry["data_offsets"][1] for entry in weights.values()), default=0)
            if 8 + length + end != size:
                raise ValueError(f"it has {size} bytes of {8 + length + end}")
            shapes |= {name: (path, list(entry["shape"])) for name, entry in weights.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
            raise ValueError(f"{path} is not a complete safetensors file ({shorten(error)}): copy it again") from error
    return shapes


def _check_weights(shapes: Mapping[str, tuple[Path, list[int]]], sizes: Mapping[str, int], folder: Path) -> None:
    """Raise ValueError if the sizes of weights and configuration differ. Transformers would reinitialize them."""
    config = folder / CONFIG
    word_vectors = [name for name in shapes if name.endswith(("word_embeddings.weight", "tok_embeddings.weight"))]
    if not word_vectors:
        raise ValueError(f"{_list_weight_files(folder)[0]} holds no word vectors (embeddings.word_embeddings.weight)")
    path, shape = shapes[word_vectors[0]]
    if shape != [sizes["vocab_size"], sizes["hidden_size"]]:
        name = "vocab_size" if shape[:1] != [sizes["vocab_size"]] else "hidden_size"
        raise ValueError(f"{config}: {name} is {sizes[name]}, but the word vectors in {path.name} have shape {shape}")
    # more layers than configured are fine, because a run may use only the first ones
    matches = [re.search(r"\blayers?\.(\d+)\.", name) for name in shapes]
    num_layers = max((int(match[1]) for match in matches if match), default=-1) + 1
    if num_layers < sizes["num_layers"]:
        raise ValueError(
            f"{config}: num_hidden_layers is {sizes['num_layers']}, but the weights hold {num_layers} layers"
        )


def _check_tokenizer(folder: Path, config: Mapping[str, Any], vocab_size: int) -> None:
    """Raise ValueError if the tokenizer is missing, or if its vocabulary does not fit the word vectors."""
    path = next((folder / name for name in VOCABULARY_FILES if (folder / name).is_file()), None)
    if path is None:
        raise ValueError(f"{folder / TOKENIZER} is missing: save the encoder's own tokenizer next to its weights")
    ids = _read_token_ids(path)
    if not ids:
        return
    num_tokens = max(ids.values()) + 1
    if num_tokens > vocab_size or vocab_size - num_tokens > MAX_UNUSED_IDS:
        raise ValueError(
            f"{path} has {num_tokens} words, but vocab_size in {folder / CONFIG} is {vocab_size}: this is the "
            "tokenizer of another vocabulary"
        )
    special_tokens = _read_special_tokens(folder)
    for role in ("cls_token", "sep_token", "pad_token"):
        token = special_tokens.get(role, "")
        expected, actual = config.get(f"{role}_id"), ids.get(token)
        if isinstance(expected, int) and actual is not None and expected != actual:
            raise ValueError(
                f"{path}: {token} has id {actual}, but {role}_id in {folder / CONFIG} is {expected}: this is "
                "the tokenizer of another vocabulary"
            )


def _read_token_ids(path: Path) -> dict[str, int]:
    """Return the id of each token of a tokenizer file. Empty for formats that only their own libraries can read."""
    if path.name == "vocab.txt":
        # a word may contain a Unicode line separator, at which `splitlines` would split
        words = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        return {word: index for index, word in enumerate(words)}
    if path.name != TOKENIZER:
        return {}
    content = json_object(path)
    model = content.get("model")
    vocab: Any = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocab, list):
        # unigram models store a list of (token, score)
        vocab = {str(row[0]): index for index, row in enumerate(vocab) if isinstance(row, list) and row}
    if not isinstance(vocab, Mapping) or not vocab:
        raise ValueError(f"{path}: model.vocab lists no words")
    ids = dict(vocab)
    for token in content.get("added_tokens") or ():
        if isinstance(token, Mapping) and "id" in token:
            ids[str(token["content"])] = int(token["id"])
    return ids


def _read_special_tokens(folder: Path) -> dict[str, str]:
    """Return the special tokens of a tokenizer by their role, such as "cls_token"."""
    tokens: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        values = read_json(folder / name) if (folder / name).is_file() else {}
        if not isinstance(values, dict):
            continue
        for role, token in values.items():
            text = token.get("content") if isinstance(token, Mapping) else token
            if role.endswith("_token") and isinstance(text, str):
                tokens[role] = text
    return tokens


def _find_cached_encoder(start: str) -> Encoder | None:
    """Return the sizes of a hub encoder from its cached configuration, or None if it is not cached."""
    if Path(start).is_dir():
        return Encoder(name=start, **read_encoder(Path(start)))
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(start, CONFIG)
    except HFValidationError as error:
        raise ValueError(f"start={shorten(repr(start))} is neither a folder nor a hub id ({error})") from error
    if not isinstance(path, str):
        return None
    return Encoder(name=start, **_read_sizes(json_object(Path(path)), Path(path)))

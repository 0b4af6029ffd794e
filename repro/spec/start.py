"""Pretrained encoders as the start of a run: validate their folders and derive fields of the run from their sizes.

A run names a local encoder as NAME@DIGEST: the folder's name, and the first twelve hex digits of the sha256 of its
weights. The path is stored outside the run, in `encoders/NAME@DIGEST.json`, with the sha256 of every file that can
change a result. An encoder whose files have changed is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.storage.digests import noted_digests
from repro.storage.files import json_object, read_json, whole_file
from repro.storage.paths import home
from repro.text import short

KINDS: Mapping[str, str] = {"nomic_bert": "nomic", "bert": "bert", "modernbert": "modernbert"}
"""Our name of a backbone, by the `model_type` of transformers."""
FROM_WORDS = ("random", "words")
WORD_VECTOR_WIDTH = 384
LOCAL_NAME = re.compile(r"[A-Za-z0-9._-]+@[0-9a-f]{12}")
CONFIG, INDEX, WEIGHTS, TOKENIZER = "config.json", "model.safetensors.index.json", "model.safetensors", "tokenizer.json"
TOKENIZER_FILES = (
    *(TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer.model"),
)
MAKE_TOKENIZERS = (TOKENIZER, "vocab.txt", "vocab.json", "spiece.model", "tokenizer.model")
SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
MAX_UNUSED_IDS = 1024
"""The largest number of unused word vectors. Configurations round the vocabulary up, but never by more than this."""
CONFIG_NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer"),
    "vocab_size": ("vocab_size",),
}
"""The fields that are read from a configuration. The second name is the one in Nomic's own releases."""


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """The sizes of a pretrained encoder, named as in `Run`, and the folder and files of a local one."""

    name: str
    backbone: str
    num_layers: int
    hidden_size: int
    vocab_size: int
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


def resolve_start(fields: Mapping[str, Any], *, is_stored: bool = False) -> dict[str, Any]:
    """Return the fields of a run with the name of its start, and with the sizes of the encoder as defaults.

    A folder becomes the NAME@DIGEST of its encoder. Hub ids, "random" and "words" stay as they are.

    Args:
        fields: the fields that were typed, or those of a row of a runs file.
        is_stored: whether the row holds every field, as a stored run does. Then a path is a folder only if it cannot be
            a hub id.

    Raises:
        ValueError: if the folder is not an encoder that a run can start from. The message names file and field.
    """
    start = fields.get("start")
    if not isinstance(start, str) or start in FROM_WORDS:
        return dict(fields)
    looks_like_path = start.startswith(("/", "./", "../", "~")) or start in (".", "..")
    if start == MINILM.name:
        encoder: Encoder | None = MINILM
    elif LOCAL_NAME.fullmatch(start):
        encoder = find_encoder(start)
    elif looks_like_path or (not is_stored and Path(start).is_dir()):
        encoder = register_encoder(Path(start))
    else:
        encoder = None
    if encoder is None:
        return dict(fields)
    return {**encoder.fields, **fields, "start": encoder.name}


def check_start(run: Any) -> None:
    """Raise ValueError if a run's sizes do not fit the weights that it starts from.

    An encoder of the hub is checked only if its configuration is in the cache.
    """
    if run.start in FROM_WORDS:
        if run.start == "words" and run.hidden_size > WORD_VECTOR_WIDTH:
            raise ValueError(f"hidden_size={run.hidden_size}: start='words' has vectors of {WORD_VECTOR_WIDTH} at most")
        return
    found = MINILM if run.start == MINILM.name else find_encoder(run.start) or _find_cached_encoder(run.start)
    if found is None:
        return
    start = f"start={short(repr(run.start))}"
    if run.backbone != found.backbone:
        raise ValueError(
            f"backbone={run.backbone!r}: {start} is a {found.backbone} model; leave backbone out or set it"
        )
    if run.hidden_size != found.hidden_size:
        raise ValueError(
            f"hidden_size={run.hidden_size}: {start} has {found.hidden_size}; leave hidden_size out or set it"
        )
    names = ("num_layers", "num_first_stage_layers") if run.architecture == "contextual" else ("num_layers",)
    for name in names:
        if getattr(run, name) > found.num_layers:
            raise ValueError(f"{name}={getattr(run, name)}: {start} has {found.num_layers} layers; set at most as many")
    most = found.max_position_embeddings
    if most is not None and found.backbone == "bert":
        # the second stage of a contextual model places context vectors and soft prompts before the text
        ahead = run.num_contexts * run.tokens_per_document + run.num_soft_prompts
        length = run.max_tokens + (ahead if run.architecture == "contextual" else 0)
        if length > most:
            raise ValueError(
                f"max_tokens={run.max_tokens}: {start} has {most} positions, and a text with its context takes {length}"
            )


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
    # with several weight files, the name contains a digest of their digests
    one = digests[weights[0]]
    joined = "".join(f"{digests[name]}  {name}\n" for name in weights)
    digest = one if len(weights) == 1 else hashlib.sha256(joined.encode()).hexdigest()
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("-") or "encoder"
    found = Encoder(name=f"{slug[:60]}@{digest[:12]}", path=str(folder), files=digests, **sizes)
    known = find_encoder(found.name)
    if known is not None and known.files != digests:
        changed = sorted(
            name for name in {*digests, *(known.files or {})} if (known.files or {}).get(name) != digests.get(name)
        )
        raise ValueError(
            f"{folder / changed[0]} is not the file that {found.name} was first used with, from {known.path}: put that "
            "one back, or rename the folder, which makes it another encoder"
        )
    if known != found:
        with whole_file(_get_entry_path(found.name)) as part:
            part.write_text(json.dumps(asdict(found), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return found


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


def get_encoder_folder(start: str) -> Path | None:
    """Return the folder of a local encoder, or None for any other start.

    Raises:
        ValueError: if the encoder was never used on this machine, or if its folder is missing or has changed.
    """
    if not LOCAL_NAME.fullmatch(start):
        return None
    encoder = find_encoder(start)
    if encoder is None:
        raise ValueError(f"start={start!r} was never used on this machine: name its folder once, start=FOLDER")
    folder = Path(encoder.path)
    if not folder.is_dir():
        raise ValueError(f"start={start!r}: its folder {folder} is gone: put it back, or name it where it is now")
    now, files = _hash_files(folder), encoder.files or {}
    if now != files:
        changed = sorted(name for name in {*now, *files} if now.get(name) != files.get(name))
        raise ValueError(f"start={start!r}: {folder / changed[0]} has changed since: put it back, or name the new one")
    return folder


def read_encoder(folder: Path) -> dict[str, Any]:
    """Return the sizes of the encoder in a folder, as the fields of `Encoder`.

    Raises:
        ValueError: if it is not a complete BERT, NomicBERT or ModernBERT with safetensors weights and its tokenizer.
    """
    start = f"start={short(folder)}"
    if not folder.is_dir():
        raise ValueError(f"{start}: there is no such folder")
    path = folder / CONFIG
    if not path.is_file():
        inside = sorted(one.parent.name for one in folder.glob(f"*/{CONFIG}") if (one.parent / WEIGHTS).is_file())
        more = f"; the encoder lies in {folder / inside[0]}" if inside else ""
        raise ValueError(f"{start}: {path} is missing, so this is not an encoder in transformers' format{more}")
    config = json_object(path)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{path}: model_type is {short(repr(kind))}; a run can start from one of {list(KINDS)}")
    sizes = {name: _read_size(config, name, path) for name in CONFIG_NAMES}
    shapes = _read_weight_shapes(folder)
    _check_weights(shapes, sizes, folder)
    _check_tokenizer(folder, config, sizes["vocab_size"])
    positions = config.get("max_position_embeddings")
    return {
        "backbone": KINDS[kind],
        "num_layers": sizes["num_hidden_layers"],
        "hidden_size": sizes["hidden_size"],
        "vocab_size": sizes["vocab_size"],
        "max_position_embeddings": positions if isinstance(positions, int) else None,
    }


def _get_entry_path(name: str) -> Path:
    return home() / "encoders" / f"{name}.json"


def _hash_files(folder: Path) -> dict[str, str]:
    """Return the sha256 of the files that can change a result. A file is hashed again if its size or time changes."""
    names = [CONFIG, INDEX, *TOKENIZER_FILES]
    paths = [*_list_weight_files(folder), *(folder / name for name in names if (folder / name).is_file())]
    note = home() / "digests" / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}.json"
    return noted_digests(folder, paths, note)


def _list_weight_files(folder: Path) -> list[Path]:
    """Return the weight files, sorted by name: a single file, or the shards that an index lists."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = folder / INDEX
    shards = sorted(path.name for path in folder.iterdir() if SHARD.fullmatch(path.name))
    if not index.is_file():
        if shards:
            raise ValueError(f"{index} is missing: it maps the weights to the {len(shards)} shards")
        others = [name for name in ("pytorch_model.bin", "tf_model.h5") if (folder / name).is_file()]
        more = f"; {others[0]} is not read: save the model again with safetensors" if others else ""
        raise ValueError(f"{folder / WEIGHTS} is missing{more}")
    named = json_object(index).get("weight_map")
    if not isinstance(named, Mapping) or not named or not all(isinstance(one, str) for one in named.values()):
        raise ValueError(f"{index}: weight_map should name the shard of every weight")
    wanted = sorted(set(named.values()))
    lacking = [name for name in wanted if not (folder / name).is_file()]
    if lacking:
        raise ValueError(f"{index}: weight_map names {lacking[0]}, which is missing in {folder}")
    return [folder / name for name in wanted]


def _read_size(config: Mapping[str, Any], name: str, path: Path) -> int:
    value = next((config[one] for one in CONFIG_NAMES[name] if one in config), None)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{path}: {name} is {short(repr(value))}, expected a whole number of at least 1")
    return value


def _read_weight_shapes(folder: Path) -> dict[str, tuple[Path, list[int]]]:
    """Return the file and the shape of each weight, read from the file headers."""
    found: dict[str, tuple[Path, list[int]]] = {}
    for path in _list_weight_files(folder):
        size = path.stat().st_size
        try:
            with path.open("rb") as file:
                # safetensors: an 8-byte length, a JSON header, then the data
                (length,) = struct.unpack("<Q", file.read(8))
                if length > size:
                    raise ValueError("its header is cut off")
                header = json.loads(file.read(length))
            weights = {name: one for name, one in header.items() if name != "__metadata__"}
            end = max((one["data_offsets"][1] for one in weights.values()), default=0)
            if 8 + length + end != size:
                raise ValueError(f"it has {size} bytes of {8 + length + end}")
            found |= {name: (path, list(one["shape"])) for name, one in weights.items()}
        except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
            raise ValueError(f"{path} is not a complete safetensors file ({short(error)}): copy it again") from error
    return found


def _check_weights(shapes: Mapping[str, tuple[Path, list[int]]], sizes: Mapping[str, int], folder: Path) -> None:
    """Raise ValueError if the sizes of weights and configuration differ. Transformers would reinitialize them."""
    config = folder / CONFIG
    words = [one for name, one in shapes.items() if name.endswith(("word_embeddings.weight", "tok_embeddings.weight"))]
    if not words:
        raise ValueError(f"{_list_weight_files(folder)[0]} holds no word vectors (embeddings.word_embeddings.weight)")
    path, shape = words[0]
    if shape != [sizes["vocab_size"], sizes["hidden_size"]]:
        name = "vocab_size" if shape[:1] != [sizes["vocab_size"]] else "hidden_size"
        raise ValueError(f"{config}: {name} is {sizes[name]}, but the word vectors in {path.name} have shape {shape}")
    # more layers than configured are fine, because a run may use only the first ones
    numbers = [int(found[1]) for name in shapes if (found := re.search(r"\blayers?\.(\d+)\.", name))]
    num_layers = max(numbers, default=-1) + 1
    if num_layers < sizes["num_hidden_layers"]:
        raise ValueError(
            f"{config}: num_hidden_layers is {sizes['num_hidden_layers']}, but the weights hold {num_layers} layers"
        )


def _check_tokenizer(folder: Path, config: Mapping[str, Any], vocab_size: int) -> None:
    """Raise ValueError if the tokenizer is missing, or if its vocabulary does not fit the word vectors."""
    made_of = next((folder / name for name in MAKE_TOKENIZERS if (folder / name).is_file()), None)
    if made_of is None:
        raise ValueError(f"{folder / TOKENIZER} is missing: save the encoder's own tokenizer next to its weights")
    ids = _read_token_ids(made_of)
    if not ids:
        return
    num_words = max(ids.values()) + 1
    if num_words > vocab_size or vocab_size - num_words > MAX_UNUSED_IDS:
        raise ValueError(
            f"{made_of} has {num_words} words, but vocab_size in {folder / CONFIG} is {vocab_size}: this is the "
            "tokenizer of another vocabulary"
        )
    tokens = _read_special_tokens(folder)
    for name in ("cls_token", "sep_token", "pad_token"):
        wanted, found = config.get(f"{name}_id"), ids.get(tokens.get(name, ""))
        if isinstance(wanted, int) and found is not None and wanted != found:
            raise ValueError(
                f"{made_of}: {tokens[name]} has id {found}, but {name}_id in {folder / CONFIG} is {wanted}: this is "
                "the tokenizer of another vocabulary"
            )


def _read_token_ids(path: Path) -> dict[str, int]:
    """Return the id of each token of a tokenizer file. Empty for formats that only their own libraries can read."""
    if path.name == "vocab.txt":
        return {word: place for place, word in enumerate(path.read_text(encoding="utf-8").splitlines())}
    if path.name != TOKENIZER:
        return {}
    content = json_object(path)
    model = content.get("model")
    vocab: Any = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocab, list):
        # unigram models store a list of (token, score)
        vocab = {str(row[0]): place for place, row in enumerate(vocab) if isinstance(row, list) and row}
    if not isinstance(vocab, Mapping) or not vocab:
        raise ValueError(f"{path}: model.vocab lists no words")
    added: Iterable[Any] = content.get("added_tokens") or ()
    more = {str(one["content"]): int(one["id"]) for one in added if isinstance(one, Mapping) and "id" in one}
    return {**vocab, **more}


def _read_special_tokens(folder: Path) -> dict[str, str]:
    """Return the special tokens of a tokenizer by their role, such as "cls_token"."""
    found: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        values = read_json(folder / name) if (folder / name).is_file() else {}
        for role, token in values.items() if isinstance(values, dict) else ():
            text = token.get("content") if isinstance(token, Mapping) else token
            if role.endswith("_token") and isinstance(text, str):
                found[role] = text
    return found


def _find_cached_encoder(start: str) -> Encoder | None:
    """Return the sizes of a hub encoder from its cached configuration, or None if it is not cached."""
    if Path(start).is_dir():
        return Encoder(name=start, **read_encoder(Path(start)))
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(start, CONFIG)
    except HFValidationError as error:
        raise ValueError(f"start={short(repr(start))} is neither a folder nor a hub id ({error})") from error
    if not isinstance(path, str):
        return None
    config = json_object(Path(path))
    if config.get("model_type") not in KINDS:
        raise ValueError(
            f"{path}: model_type is {short(repr(config.get('model_type')))}; a run can start from one of {list(KINDS)}"
        )
    sizes = {name: _read_size(config, name, Path(path)) for name in CONFIG_NAMES}
    return Encoder(
        name=start,
        backbone=KINDS[config["model_type"]],
        num_layers=sizes["num_hidden_layers"],
        hidden_size=sizes["hidden_size"],
        vocab_size=sizes["vocab_size"],
    )

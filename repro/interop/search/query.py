"""Search a corpus with a model: find or build the index, encode the queries, return the best documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from repro.interop.search.corpus import find_corpus
from repro.interop.search.index import CONTEXTS, VERSION, Asked, Found, Index, Progress
from repro.records.lookup import BEGINS_AN_ID, RECORDS, run_of_id
from repro.records.store import readable_record
from repro.spec import Run
from repro.spec.identity import get_training_id
from repro.storage.digests import noted_digests
from repro.storage.json_files import short
from repro.storage.paths import home, run_folder
from repro.train.checkpoint import CHECKPOINT_FILE


def search(asked: Asked, queries: Sequence[str], top: int, progress: Progress) -> list[list[Found]]:
    """Return the best documents for each query, building the index first if it is not there.

    Raises:
        ValueError: for a model, corpus or context that there is not.
    """
    run = find_run(asked.model)
    corpus = find_corpus(_get_corpus_name(asked, run))
    lent = None
    if asked.context is not None and asked.context not in CONTEXTS:
        lent = find_corpus(asked.context)

    def locate() -> Index:
        key = [VERSION, get_model_key(asked.model, run), corpus.kind, corpus.digest, asked.context_seed]
        key += [(asked.context or "own") if lent is None else lent.digest]
        return Index(home() / "search" / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16])

    index = locate()
    if not index.is_built:
        from repro.interop.opening import open_model
        from repro.interop.search.build import build_index

        progress(f"opening {asked.model}; the index of {corpus.name} is built once and kept")
        opened = open_model(asked.model, progress=progress)
        index = locate()  # a run that had not ended is trained now, and has other weights
        if not index.is_built:
            build_index(opened, asked, corpus, lent, index.folder, progress)
    if asked.context is not None and index.settings["context"] is None:
        raise ValueError(f"{asked.model} has no context: leave out --context")
    encoder = index.encoder()
    if encoder is not None:
        vectors = [encoder.encode(query) for query in queries]
    else:
        from repro.interop.search.build import encode_queries

        progress("queries of this model are encoded with torch, which takes seconds to load")
        vectors = list(encode_queries(asked, index, queries, progress))
    return [index.search(vector, top) for vector in vectors]


def find_run(source: str) -> Run | None:
    """Return the run that a word names, without looking at all declared runs if its record is here."""
    if Path(source).is_dir() or not BEGINS_AN_ID.fullmatch(source):
        return None
    for folder in RECORDS:
        path = folder() / f"{source}.json"
        if path.is_file() and (record := readable_record(path)) is not None:
            return record.run
    return run_of_id(source)


def get_model_key(source: str, run: Run | None) -> str | None:
    """Return what tells a model's weights from others; None for a run that is not trained here yet."""
    if run is not None:
        folder = run_folder(get_training_id(run))
        path = folder / CHECKPOINT_FILE
        if not path.is_file():
            return None
        note = home() / "digests" / f"run-{folder.name}.json"
        return noted_digests(folder, [path], note)[path.name]
    if Path(source).is_dir():
        from repro.pipeline.encoders import get_files_in_key

        return get_files_in_key(source)["files"]
    from repro.pipeline.encoders import find_commit

    return find_commit(source).get("commit", source)


def _get_corpus_name(asked: Asked, run: Run | None) -> str:
    if asked.corpus is not None:
        return asked.corpus
    if run is None:
        raise ValueError(
            f"which corpus should {short(asked.model)} search? --corpus takes the name of an imported corpus or a "
            "suite, a BEIR folder, or a jsonl file"
        )
    return run.suite

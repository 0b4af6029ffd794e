"""Choice of the corpus that the wrong context is drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repro.data.beir import Retrieval, Suite
from repro.evaluate.collections import read_collections
from repro.evaluate.contexts import are_mostly_searched, have_wrong_corpora
from repro.interop.corpus import Progress, find_corpus, open_suite

DEFAULT_SUITE = "desk"
"""Source of the wrong corpus if a suite has a single dataset. It is mined from wheels."""
OPTION_HINT = "`evaluate --wrong-from SUITE_OR_FOLDER` names another"


def check_wrong_from(source: str | None, contexts: Sequence[str]) -> None:
    """Raise ValueError if --wrong-from is given without the wrong context."""
    if source is not None and "wrong" not in contexts:
        raise ValueError(f"--wrong-from {source}: the wrong context is not evaluated; add --context wrong")


def find_wrong_source(source: str | None, suite: Suite, progress: Progress) -> Retrieval | None:
    """Return the largest other corpus of `source` (a suite, a folder or a file of documents), and report the choice.

    Without a source, the result is None for a suite that provides its own wrong corpora. For a suite of one dataset, or
    of several with the same documents, it is a collection of `desk`.

    Raises:
        ValueError: if the source has only the searched collection itself.
    """
    if source is None and have_wrong_corpora(suite.datasets):
        return None
    searched = [collection.retrieval.documents for collection in read_collections(suite).values()]
    others = [
        corpus
        for corpus in _read_corpora(source or DEFAULT_SUITE, progress)
        if not any(are_mostly_searched(corpus.documents, documents) for documents in searched)
    ]
    if not others:
        raise ValueError(f"--wrong-from {source or DEFAULT_SUITE} has no other corpus than the one that is searched")
    # sorted first, so that the name decides between equal sizes
    largest = max(sorted(others, key=lambda corpus: corpus.name), key=lambda corpus: len(corpus.documents))
    reason = "" if source else f"; {suite.name} has no collection with other documents; {OPTION_HINT}"
    progress(f"wrong context: drawn from {largest.name}, {len(largest.documents)} documents{reason}")
    return largest


def _read_corpora(source: str, progress: Progress) -> list[Retrieval]:
    """Return the documents of a file or BEIR folder, or those of each collection of a suite."""
    path = Path(source)
    if path.is_file() or (path / "corpus.jsonl").is_file():
        corpus = find_corpus(source, progress)
        documents = corpus.read()
        return [Retrieval(corpus.name, tuple(documents), tuple(documents.values()), (), (), {})]
    return [collection.retrieval for collection in read_collections(open_suite(source, progress)).values()]

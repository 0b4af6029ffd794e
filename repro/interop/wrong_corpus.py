"""Choice of the corpus that the wrong context is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.data.beir import Retrieval, Suite, SuiteDataset
from repro.evaluate.collections import read_collections
from repro.evaluate.contexts import wrong_corpora
from repro.interop.opening import open_suite

ELSEWHERE = "desk"
"""Source of the wrong corpus if a suite has a single dataset. It is mined from wheels."""
NAMES_ANOTHER = "`evaluate --wrong-from SUITE_OR_FOLDER` names another"
HAS_ANOTHER = "and a --suite of several would lend another of its own"


def check_wrong_from(named: str | None, contexts: Sequence[str]) -> None:
    """Raise ValueError if --wrong-from is given without the wrong context."""
    if named is not None and "wrong" not in contexts:
        raise ValueError(f"--wrong-from {named}: the wrong context is not evaluated; add --context wrong")


def find_wrong_source(
    named: str | None, suite: Suite, progress: Callable[[str], None], how: str = NAMES_ANOTHER
) -> Retrieval | None:
    """Return the largest other collection of the suite or folder `named`, and report the choice.

    Without a name, the result is None for a suite of several datasets, which provides its own wrong corpora. For a
    suite of one dataset it is a collection of `desk`. `how` explains in the message how to choose another.

    Raises:
        ValueError: if the source has only the searched collection itself.
    """
    if named is None and len(suite.datasets) > 1:
        return None
    searched = {one.retrieval.documents for one in read_collections(suite).values()}
    lender = open_suite(named or ELSEWHERE, progress)
    lent = [one.retrieval for one in read_collections(lender).values()]
    others = sorted((one for one in lent if one.documents not in searched), key=lambda one: one.name)
    if not others:
        raise ValueError(f"--wrong-from {named or ELSEWHERE} has no other corpus than the one that is searched")
    chosen = max(others, key=lambda one: len(one.documents))
    why = "" if named else f"; {suite.name} has one collection only, {how}"
    progress(f"wrong context: drawn from {chosen.name} of {lender.name}, {len(chosen.documents)} documents{why}")
    return chosen


def get_wrong_corpus(suite: Suite, dataset: SuiteDataset, progress: Callable[[str], None]) -> Retrieval:
    """Return the wrong corpus for one collection: another of the suite, or one of `desk` if it has no other."""
    if (lent := find_wrong_source(None, suite, progress, HAS_ANOTHER)) is not None:
        return lent
    name = wrong_corpora(suite.datasets)[dataset.name]
    other = next(one for one in suite.datasets if one.name == name)
    return read_collections(Suite(suite.name, (other,)))[name].retrieval

"""The corpus from which the wrong context is drawn where a suite has no other collection of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.data.beir import Retrieval, Suite, SuiteDataset
from repro.evaluate.collections import read_collections
from repro.evaluate.contexts import wrong_corpora
from repro.interop.opening import open_suite

ELSEWHERE = "desk"
"""The suite that lends one to a suite of a single dataset: it is mined here, from wheels, without a download."""
NAMES_ANOTHER = "`evaluate --wrong-from SUITE_OR_FOLDER` names another"
HAS_ANOTHER = "and a --suite of several would lend another of its own"


def check_wrong_from(named: str | None, contexts: Sequence[str]) -> None:
    """ValueError for a corpus that no context would be drawn from."""
    if named is not None and "wrong" not in contexts:
        raise ValueError(f"--wrong-from {named}: the wrong context is not evaluated; add --context wrong")


def wrong_source(
    named: str | None, suite: Suite, progress: Callable[[str], None], how: str = NAMES_ANOTHER
) -> Retrieval | None:
    """Return the largest collection of the suite or folder `named`, and say which; None: the suite has others itself.

    Without a name, a suite of one dataset is lent one of `desk`, and `how` says what the reader does for another.
    ValueError when the only one is the suite's own.
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
    """Return the wrong corpus that one collection of a suite is given: another of the suite, or one that is lent."""
    if (lent := wrong_source(None, suite, progress, HAS_ANOTHER)) is not None:
        return lent
    name = wrong_corpora(suite.datasets)[dataset.name]
    other = next(one for one in suite.datasets if one.name == name)
    return read_collections(Suite(suite.name, (other,)))[name].retrieval

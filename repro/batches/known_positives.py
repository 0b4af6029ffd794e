"""Known positives: what the training pairs themselves call relevant for a query, and no loss may push it away from.

Two pairs of an equal query have each other's documents as known positives. Texts are compared by the keys of
`repro.batches.mask.compute_content_keys`, so documents of equal text count as one. The filter of eq. 4 is a heuristic that may
miss such a document. The pairs are facts. Not in the paper.

Shapes: N pairs of the data, L links of a query and a document, B pairs of a batch, M documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from repro.storage.arrays import load_array

QUERIES_FILE, LINKS_FILE, COUNTS_FILE = "queries.npy", "links.npy", "pairs_with_several.npy"


def find_links(query_keys_N: np.ndarray, document_keys_N: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the documents of all queries that have several, and how many pairs these queries have.

    Returns:
        Links, int64 (2, L): query keys and document keys, each combination once, in rising order.
    """
    order = np.lexsort((document_keys_N, query_keys_N))
    queries, documents = np.asarray(query_keys_N)[order], np.asarray(document_keys_N)[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (queries[1:] != queries[:-1]) | (documents[1:] != documents[:-1])
    links_2L = np.stack([queries[is_new], documents[is_new]])
    has_several_L = np.zeros(links_2L.shape[1], bool)
    is_equal = links_2L[0, 1:] == links_2L[0, :-1]
    has_several_L[1:] |= is_equal
    has_several_L[:-1] |= is_equal
    links_2L = np.ascontiguousarray(links_2L[:, has_several_L])
    return links_2L, int(np.isin(queries, np.unique(links_2L[0])).sum())


def write_known_positives(folder: Path, document_keys_N: np.ndarray) -> None:
    """Write the links of all pairs into a folder that holds the keys of their queries."""
    query_keys_N = load_array(folder / QUERIES_FILE, kind="i", shape=(len(document_keys_N),), mapped=True)
    links_2L, num_pairs = find_links(query_keys_N, document_keys_N)
    np.save(folder / LINKS_FILE, links_2L)
    np.save(folder / COUNTS_FILE, np.array([num_pairs]))


@dataclass(frozen=True)
class KnownPositives:
    """The known positives of the pairs of a run."""

    query_keys_N: np.ndarray
    links_2L: np.ndarray
    num_pairs_with_several: int

    @classmethod
    def load(cls, folder: Path, num_pairs: int) -> KnownPositives:
        """Read what `write_known_positives` wrote; ValueError names a damaged file."""
        return cls(
            load_array(folder / QUERIES_FILE, kind="i", shape=(num_pairs,), mapped=True),
            load_array(folder / LINKS_FILE, kind="i", shape=(2, None), mapped=True),
            int(load_array(folder / COUNTS_FILE, kind="i", shape=(1,))[0]),
        )

    def among(self, pairs_B: np.ndarray, document_keys_M: np.ndarray) -> np.ndarray:
        """Return which documents are known positives of each pair's query, bool (B, M); the pair's own is one."""
        known_BM = np.zeros((len(pairs_B), len(document_keys_M)), bool)
        keys_B = np.asarray(self.query_keys_N[pairs_B])
        first_B, last_B = (np.searchsorted(self.links_2L[0], keys_B, side) for side in ("left", "right"))
        for row in np.flatnonzero(last_B > first_B):
            known_BM[row] = np.isin(document_keys_M, self.links_2L[1, first_B[row] : last_B[row]])
        return known_BM

    def describe(self) -> str:
        """Return one line with the number of queries that have several documents, and of their pairs."""
        return (
            f"known positives: {len(np.unique(self.links_2L[0])):,} queries have several documents "
            f"({self.num_pairs_with_several:,} of {len(self.query_keys_N):,} pairs): no negatives of each other"
        )

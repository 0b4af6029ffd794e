"""Compare what queries find at each width, when all documents of the suite are searched together.

Matryoshka Representation Learning (Kusupati et al. 2022), figure 9, shows images whose class changes with the width. The
counterpart here is the first document of a query. It is one of these:

1. `relevant`: a relevant document.
2. `collection`: another document of the right collection.
3. `family`: a document of another collection of the right family.
4. `elsewhere`: a document of another family.

`regained` is the share of queries that find a relevant document at this width, but not with the whole vector.

Shapes: Q queries, N documents, W dimensions, M dimensions of a prefix.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.evaluate.collections import Collection, describe_datasets, read_collections
from repro.evaluate.prefixes import find_nearest
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.spec import list_scored_widths

OUTCOMES = ("relevant", "collection", "family", "elsewhere")


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}+widthM/mean/OUTCOME` for each width M and outcome, as shares of the queries, and `…/regained`."""
    run, suite = inputs.run, inputs.suite
    collections = read_collections(suite)
    members = list(collections.values())
    queries_QW, documents_NW = map(
        np.concatenate, zip(*(collection.embed(model) for collection in members), strict=True)
    )
    families_C = np.array([dataset.family for dataset in suite.datasets])
    owner_N = np.repeat(np.arange(len(members)), [len(collection.retrieval.documents) for collection in members])
    owner_Q = np.repeat(np.arange(len(members)), [len(collection.retrieval.queries) for collection in members])
    relevant, own_rows_Q = _find_known_documents(members)
    outcomes = {
        width: classify_hits(
            find_nearest(queries_QW, documents_NW, width, own_rows_Q), relevant, owner_N, owner_Q, families_C
        )
        for width in list_scored_widths(run)
    }
    is_right = {width: outcomes_Q == OUTCOMES.index("relevant") for width, outcomes_Q in outcomes.items()}
    metrics: dict[str, float] = {}
    arrays: dict[str, np.ndarray] = {}
    for width, outcomes_Q in outcomes.items():
        path = f"{suite.name}+width{width}/mean"
        shares = np.bincount(outcomes_Q, minlength=len(OUTCOMES)) / len(outcomes_Q)
        metrics |= {f"{path}/{name}": float(share) for name, share in zip(OUTCOMES, shares, strict=True)}
        metrics[f"{path}/regained"] = float((is_right[width] & ~is_right[max(outcomes)]).mean())
        arrays[f"{path}/relevant"] = is_right[width].astype(np.float32)
    return Measured(metrics, arrays, {"name": suite.name, "datasets": describe_datasets(suite, collections)})


def _find_known_documents(members: list[Collection]) -> tuple[list[set[int]], np.ndarray]:
    """Return the rows of each query's relevant documents, and the row of its self-hit or −1, int64 (Q,).

    Rows are those of the documents of all collections. A self-hit is removed as in `remove_self_hits`.
    """
    relevant: list[set[int]] = []
    own_rows: list[int] = []
    first_row = 0
    for collection in members:
        retrieval = collection.retrieval
        row_by_id = {document_id: first_row + row for row, document_id in enumerate(retrieval.document_ids)}
        for query_id in retrieval.query_ids:
            grades = retrieval.judgements.get(query_id, {})
            relevant.append({row_by_id[key] for key, grade in grades.items() if grade > 0 and key in row_by_id})
            is_removed = collection.rules.removes_self_hits and query_id not in grades
            own_rows.append(row_by_id.get(query_id, -1) if is_removed else -1)
        first_row += len(retrieval.document_ids)
    return relevant, np.array(own_rows)


def classify_hits(
    rows_Q: np.ndarray,
    relevant: list[set[int]],
    owner_N: np.ndarray,
    owner_Q: np.ndarray,
    families_C: np.ndarray,
) -> np.ndarray:
    """Return the index into `OUTCOMES` of the document that each query found, int64 (Q,).

    Args:
        rows_Q: The document that each query found.
        relevant: The relevant documents of each query.
        owner_N: The collection of each document.
        owner_Q: The collection of each query.
        families_C: The family of each collection.
    """
    is_relevant_Q = np.array([row in rows for row, rows in zip(rows_Q.tolist(), relevant, strict=True)])
    hit_owner_Q = owner_N[rows_Q]
    conditions = [is_relevant_Q, hit_owner_Q == owner_Q, families_C[hit_owner_Q] == families_C[owner_Q]]
    return np.select(conditions, [0, 1, 2], default=OUTCOMES.index("elsewhere"))

"""Compare the pairs of a cluster with pairs of the same domain (table 4). Nothing is trained.

1. Clusters of at least two pairs are drawn. Up to 64 pairs of each are compared with each other. The results are the
   mean similarity of their documents, and the share of other documents that eq. 4 would remove: f(q, d′) ≥ f(q, d).
2. The same number of pairs is drawn from the same domain, from any cluster, and compared alike.

Shapes: C drawn clusters, N pairs, M pairs of one cluster, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.batches.negatives import as_near
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import domain_codes
from repro.seeds import make_rng

NUM_CLUSTERS = 200
MAX_PAIRS = 64
NUM_SHOWN = 16  # as many as the paper shows


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `cluster/similarity`, `difficulty` and `plausible`, and the same under `domain/`: a value per drawn cluster.

    `cluster/num_pairs` is the mean size of all clusters.
    """
    run, generator = inputs.run, make_rng(inputs.run.seed, "clusters to look at")
    queries_ND, documents_ND = inputs.embeddings("query"), inputs.embeddings("document")
    assert queries_ND is not None and documents_ND is not None, "this analysis requires the surrogate's vectors"
    assignment_N, codes_N = np.asarray(inputs.clusters.assignment_N), domain_codes(run, inputs.pairs)
    sizes = np.bincount(assignment_N)
    drawn_C = generator.permutation(np.flatnonzero(sizes > 1))[:NUM_CLUSTERS]
    values: dict[str, list[float]] = {}
    for cluster in drawn_C:
        cluster_rows = np.flatnonzero(assignment_N == cluster)
        domain_rows = np.flatnonzero(codes_N == codes_N[cluster_rows[0]])
        num_drawn = min(MAX_PAIRS, len(cluster_rows))
        for kind, pool in (("cluster", cluster_rows), ("domain", domain_rows)):
            rows_M = np.sort(generator.choice(pool, num_drawn, replace=False))
            means = _compare_pairs(queries_ND[rows_M].astype(np.float32), documents_ND[rows_M].astype(np.float32))
            for name, value in means.items():
                values.setdefault(f"{kind}/{name}", []).append(value)
    arrays = {name: np.array(results) for name, results in values.items()}
    metrics = {name: float(results.mean()) for name, results in arrays.items()}
    metrics |= {"cluster/num_pairs": float(sizes[sizes > 0].mean())}
    # The pairs to show come from the drawn cluster whose size is nearest to the requested one.
    index = int(np.argmin(np.abs(sizes[drawn_C] - (run.cluster_size or 0))))
    members = np.flatnonzero(assignment_N == drawn_C[index])
    examples = _describe_pairs(inputs, generator.choice(members, min(NUM_SHOWN, len(members)), replace=False))
    provenance = {
        "num_clusters": len(drawn_C),
        "num_clusters_in_all": int((sizes > 0).sum()),
        "num_shown_of": len(members),
    }
    return Measured(metrics, arrays, provenance, {"pairs": examples})


def _compare_pairs(queries_MD: np.ndarray, documents_MD: np.ndarray) -> dict[str, float]:
    others_MM = ~np.eye(len(queries_MD), dtype=bool)
    scores_MM = queries_MD @ documents_MD.T
    plausible_MM = as_near(scores_MM, queries_MD[:, None], documents_MD[:, None])
    return {
        "similarity": float((documents_MD @ documents_MD.T)[others_MM].mean()),
        "difficulty": float(scores_MM[others_MM].mean()),
        "plausible": float(plausible_MM[others_MM].mean()),
    }


def _describe_pairs(inputs: Inputs, rows: np.ndarray) -> list[Mapping[str, str | float]]:
    pairs = inputs.pairs
    domains = [pairs.domain_names[code] for code in pairs.domain_codes[rows]]
    texts = zip(pairs.texts("query", rows), pairs.texts("document", rows), domains, strict=True)
    return [{"query": query, "document": document, "domain": domain} for query, document, domain in texts]

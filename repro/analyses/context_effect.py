"""Measure the effect of the context on a contextual model: scores, moved vectors and attention.

All paths start with `context_effect/`. A group is a collection, a family, or `mean`.

1. `own_minus_wrong/GROUP/difference` (with `low` and `high`): NDCG@10 under documents of the searched corpus minus that
   under documents of another corpus. `own_minus_random` and `own_minus_null` compare with training documents and the
   null context. `evaluate/comparison.py` defines the intervals.
2. `headroom/GROUP/difference` and `headroom_taken/GROUP/share`: the gain of word overlap from the same context
   documents, and the model's gain as a share of it (below). Only for families and `mean`.
3. `context_cosine/within/cosine`: mean cosine of two different context vectors of one corpus. `across`: of two corpora.
4. `moved_by_wrong/GROUP/cosine_distance`: 1 − cosine of the vectors of a document under the own and the wrong context,
   as a mean over `NUM_MOVED` documents per collection. `moved_by_null` is the same for the null context.
5. `attention/layer_N/contexts`, `prompts` and `text`: attention of text tokens of the second stage to each of these
   under the own context, as a mean over `NUM_WATCHED` documents per collection. The three sum to one.
   `attention/even/…` is the result of uniform attention.

Metrics of contexts that the run does not evaluate are left out, as are those that its model does not support.

Headroom: a contextual model learns about a corpus from some of its documents. Word overlap (the BM25 formula over WordPiece
tokens) can use the same documents: it weights words by their IDF, mixed with that of the training text.

    headroom = NDCG@10 of word overlap with IDF of the own context documents
             − NDCG@10 of word overlap with IDF of the wrong context documents
    share taken = (NDCG@10 of the model under the own context − under the wrong one) / headroom

Both are means over the same collections. At a share of 1 the model gains as much from the right corpus as a system that
only weights words. The share is reported if the interval of the headroom is above zero. Otherwise there is nothing to
gain. `repro/evaluate/headroom.py` computes the headroom.

Shapes: C context vectors of a corpus, D their size, N documents, K layers, Q queries of all collections, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from repro.data.beir import Retrieval, group_datasets
from repro.evaluate.collections import Collection
from repro.evaluate.comparison import Gap, paired_gaps
from repro.evaluate.contexts import draw_context, wrong_corpora
from repro.evaluate.headroom import read_word_scores
from repro.evaluate.suites import OWN, Encoder, Evaluation, get_path_name
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import count_test_contexts, reports_headroom
from repro.seeds import make_rng
from repro.spec import CONTEXTS
from repro.statistics.bootstrap import MANY_UNITS, percentile_interval

if TYPE_CHECKING:
    from repro.model.contextual import ContextualModel

PREFIX = "context_effect"
NUM_MOVED, NUM_WATCHED = 8, 4


def measure_context_effect(
    inputs: Inputs,
    encoder: Encoder,
    evaluation: Evaluation,
    collections: Mapping[str, Collection],
    pool: Retrieval | None = None,
) -> dict[str, float]:
    """Return the metrics of a scored contextual model. Empty if the own context was not scored.

    `pool` is the source of the context "random", if it was scored.
    """
    run, suite, rows = inputs.run, inputs.suite, evaluation.provenance["datasets"]
    paths = {kind: get_path_name(suite.name, kind) for kind in CONTEXTS}
    scores = {kind: evaluation.per_query[path] for kind, path in paths.items() if path in evaluation.per_query}
    own_Q = scores.pop(OWN, None)
    if own_Q is None:
        return {}
    metrics: dict[str, float] = {}
    for kind, other_Q in scores.items():
        gaps = paired_gaps(own_Q, other_Q, rows)
        for group, gap in gaps.items():
            metrics |= gap.as_metrics(f"own_minus_{kind}/{group}")
        if kind == "wrong" and reports_headroom(run):
            word_scores = read_word_scores(inputs.graph.headroom.build())
            # A large suite has no headroom. Single collections have too few queries.
            if word_scores is not None:
                groups = paired_gaps(*word_scores, rows).items()
                headroom = {group: gap for group, gap in groups if group not in collections}
                metrics |= compute_headroom_shares(gaps, headroom)
    others = wrong_corpora(suite.datasets) if "wrong" in scores else {}
    probe = ContextProbe(list(scores), count_test_contexts(run), run.context_seed)
    for name, collection in collections.items():
        sources = {"wrong": collections[others[name]].retrieval if others else None, "random": pool}
        probe.add(encoder, collection, sources)
    return {f"{PREFIX}/{path}": value for path, value in (metrics | probe.compute_metrics(rows)).items()}


def compute_headroom_shares(gains: Mapping[str, Gap], headroom: Mapping[str, Gap]) -> dict[str, float]:
    """Return the headroom per group, and the share of it that was gained, as metrics with intervals.

    A group without headroom has no share. Gaps have paired resamples (`paired_gaps`), so the interval of a share is
    that of the ratio of paired resamples.
    """
    metrics: dict[str, float] = {}
    for group, gap in headroom.items():
        metrics |= gap.as_metrics(f"headroom/{group}")
        if gap.interval is None or gap.interval[0] <= 0:
            continue
        # at least 39 of 40 resamples, since the interval is above zero
        has_room_R = gap.samples_R > 0
        ratios_R = gains[group].samples_R[has_room_R] / gap.samples_R[has_room_R]
        # There is no t interval of a ratio.
        interval = percentile_interval(ratios_R) if gap.num_units >= MANY_UNITS else None
        share = Gap(gains[group].difference / gap.difference, interval, ratios_R, gap.num_units)
        metrics |= share.as_metrics(f"headroom_taken/{group}", "share")
    return metrics


@dataclass
class ContextProbe:
    """Collects context vectors, vector moves and attention over collections."""

    kinds: Sequence[str]
    num_contexts: int
    seed: int
    # unit context vectors, one array per corpus
    vectors_CD: list[np.ndarray] = field(default_factory=list)
    # by context, one value per collection
    moved: dict[str, list[float]] = field(default_factory=dict)
    shares_K3: list[np.ndarray] = field(default_factory=list)
    even_3: list[np.ndarray] = field(default_factory=list)

    def add(self, encoder: Encoder, collection: Collection, sources: Mapping[str, Retrieval | None]) -> None:
        """Add one collection. `sources` are the corpora of its other contexts."""
        retrieval, role = collection.retrieval, collection.document_role
        # Drawn independently of the context, so that watched documents do not depend on the number of contexts.
        order = make_rng(self.seed, "documents that are watched", retrieval.name).permutation(len(retrieval.documents))
        texts = [retrieval.documents[index] for index in order[:NUM_MOVED]]

        def encode_under(kind: str, source: Retrieval | None) -> np.ndarray:
            context = draw_context(kind, source, num_contexts=self.num_contexts, seed=self.seed)
            encoder.set_context(context.texts, self.seed, role)
            return encoder.encode(texts, role)

        own_ND = encode_under(OWN, retrieval)
        self._add_attention(encoder, retrieval, texts[:NUM_WATCHED], role)
        for kind in self.kinds:
            moved = compute_cosine_distance(own_ND, encode_under(kind, sources.get(kind)))
            self.moved.setdefault(kind, []).append(moved)

    def _add_attention(self, encoder: Encoder, retrieval: Retrieval, texts: Sequence[str], role: str) -> None:
        """Store the current context vectors and the attention to them, if the encoder is one of our models."""
        from repro.model.attention import compute_attention_shares
        from repro.model.contextual import ContextualModel
        from repro.model.texts import make_texts

        model = getattr(encoder, "model", encoder)
        if not isinstance(model, ContextualModel):
            return

        self.vectors_CD.append(compute_distinct_vectors(model, min(self.num_contexts, len(retrieval.documents))))
        tokens = model.tokenize(texts, role)
        shares_KN3 = compute_attention_shares(model, make_texts(*tokens.pad(range(len(tokens)))).to(model.device))
        self.shares_K3.append(shares_KN3.mean(1).cpu().numpy())
        # Attention that is equal for all positions gives each part its share of the length.
        sizes_N3 = np.array(
            [(model.config.num_context_vectors, model.config.num_soft_prompts, n) for n in tokens.lengths]
        )
        self.even_3.append((sizes_N3 / sizes_N3.sum(1, keepdims=True)).mean(0))

    def compute_metrics(self, datasets: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Return the metrics, as means over collections."""
        metrics: dict[str, float] = {}
        for kind, values in self.moved.items():
            means = {
                group: np.mean([values[n] for n in members]) for group, members in group_datasets(datasets).items()
            }
            metrics |= {f"moved_by_{kind}/{group}/cosine_distance": float(mean) for group, mean in means.items()}
        for name, cosine in zip(("within", "across"), compute_mean_cosines(self.vectors_CD), strict=True):
            if cosine is not None:
                metrics[f"context_cosine/{name}/cosine"] = cosine
        if self.shares_K3:
            layers = {f"layer_{number}": shares_3 for number, shares_3 in enumerate(np.mean(self.shares_K3, axis=0), 1)}
            for name, shares_3 in {**layers, "even": np.mean(self.even_3, axis=0)}.items():
                parts = zip(("contexts", "prompts", "text"), shares_3, strict=True)
                metrics |= {f"attention/{name}/{part}": float(share) for part, share in parts}
        return metrics


def compute_cosine_distance(first_ND: np.ndarray, second_ND: np.ndarray) -> float:
    """Return 1 − cosine of paired vectors, as a mean over pairs. Equal vectors give exactly 0.

    It is half the squared distance of the unit vectors, which is precise for nearly equal ones.
    """
    return float(np.mean(0.5 * ((_normalize(first_ND) - _normalize(second_ND)) ** 2).sum(axis=1)))


def _normalize(vectors_ND: np.ndarray) -> np.ndarray:
    exact_ND = vectors_ND.astype(np.float64)
    unit_ND: np.ndarray = exact_ND / np.maximum(np.linalg.norm(exact_ND, axis=1, keepdims=True), np.finfo(float).tiny)
    return unit_ND


def compute_distinct_vectors(model: ContextualModel, num_documents: int) -> np.ndarray:
    """Return the current unit context vectors, (C, D), without repeats and without null vectors that fill slots."""
    num_vectors = num_documents * model.config.tokens_per_document
    return _normalize(model.context_vectors()[:num_vectors].float().cpu().numpy())


def compute_mean_cosines(corpora: Sequence[np.ndarray]) -> tuple[float | None, float | None]:
    """Return the mean cosine of two vectors of one corpus (mean over corpora), and of two vectors of different corpora.

    `corpora` are unit vectors, (C, D) each. A result is None if there are no two such vectors.
    """
    # The sum of all inner products of two sets is the inner product of their sums.
    sums = [vectors_CD.sum(axis=0, dtype=np.float64) for vectors_CD in corpora]
    counts = [len(vectors_CD) for vectors_CD in corpora]
    # Each unit vector contributes 1 to `s @ s` with itself, which is not a pair.
    within = [(s @ s - n) / (n * (n - 1)) for s, n in zip(sums, counts, strict=True) if n > 1]
    total, num_pairs = np.sum(sums, axis=0), sum(counts) ** 2 - sum(n * n for n in counts)
    across = None
    if len(corpora) > 1:
        across = float((total @ total - sum(s @ s for s in sums)) / num_pairs)
    return (float(np.mean(within)) if within else None), across

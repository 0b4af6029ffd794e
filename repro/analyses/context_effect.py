"""What a context does to a contextual model: scores lost without it, vectors moved, attention paid; for every record.

1. `own_minus_wrong/GROUP/difference` (and `low`, `high`): NDCG@10 under documents of the searched corpus, less that
under those of another; `own_minus_random` and `own_minus_null` alike, for training documents and the null context.
Intervals: `evaluate/paired.py`.
2. `headroom/GROUP/difference` and `headroom_taken/GROUP/share`: `headroom_taken.py` defines them.
3. `context_cosine/within/cosine`: mean cosine of two different context vectors of one corpus; `across`: of two corpora.
4. `moved_by_wrong/GROUP/cosine_distance`: 1 − cosine of a document's vectors under the own and the wrong context, mean
over `NUM_MOVED` documents a collection; `moved_by_null` alike.
5. `attention/layer_N/contexts`, `prompts` and `text`: what text tokens of the second stage pay to these under the own
context, mean over `NUM_WATCHED` documents a collection; they sum to one. `attention/even/…`: what even attention pays.
A group is a collection, a family, or `mean`. All paths stand below `context_effect/`; what a run is not scored under,
or what its model does not have, is left out.

Shapes: C context vectors of a corpus, D their size, N documents, K layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from repro.analyses.headroom_taken import compute_word_scores, shares_taken
from repro.data.beir import Retrieval, group_datasets
from repro.evaluate.collections import Collection
from repro.evaluate.contexts import draw_context, wrong_corpora
from repro.evaluate.paired import Gap, paired_gaps
from repro.evaluate.prefixes import OWN
from repro.evaluate.suites import Encoder, Evaluation, get_path_name
from repro.pipeline.inputs import Inputs
from repro.pipeline.wanted import count_test_contexts
from repro.seeds import generator_for
from repro.spec import CONTEXTS

if TYPE_CHECKING:
    from repro.model.contextual import ContextualModel

PREFIX = "context_effect"
OTHERS = tuple(kind for kind in CONTEXTS if kind != OWN)
NUM_MOVED, NUM_WATCHED = 8, 4


@dataclass(frozen=True)
class Seen:
    """A contextual model that was scored: the encoder as it was scored, its evaluation, and what it searched."""

    inputs: Inputs
    encoder: Encoder
    evaluation: Evaluation
    collections: Mapping[str, Collection]
    pool: Retrieval | None = None  # the documents of the context "random", where it was scored

    @property
    def count(self) -> int:
        """Context documents it was given."""
        return count_test_contexts(self.inputs.run)

    @property
    def seed(self) -> int:
        """What the context documents were drawn with."""
        return self.inputs.run.context_seed

    @property
    def datasets(self) -> Sequence[Mapping[str, Any]]:
        """What a record keeps of each collection."""
        rows: Sequence[Mapping[str, Any]] = self.evaluation.provenance["datasets"]
        return rows

    def scores(self, kind: str) -> np.ndarray | None:
        """NDCG@10 of every query under a context, (Q,); None where it was not scored."""
        return self.evaluation.per_query.get(get_path_name(self.inputs.suite.name, kind))

    def judged(self, dataset: str) -> list[str]:
        """Ids of a collection's queries in the order of its scores."""
        return sorted(self.collections[dataset].retrieval.judgements)

    def wrong(self, dataset: str) -> Retrieval | None:
        """The corpus of a collection's wrong context; None where that was not scored."""
        if self.scores("wrong") is None:
            return None
        return self.collections[wrong_corpora(self.inputs.suite.datasets)[dataset]].retrieval


def context_effect(seen: Seen) -> dict[str, float]:
    """Return the metrics of a model that was scored; none where nothing was scored under its own context."""
    own_Q = seen.scores("own")
    if own_Q is None:
        return {}
    metrics: dict[str, float] = {}
    for kind in OTHERS:
        other_Q = seen.scores(kind)
        if other_Q is None:
            continue
        gaps = paired_gaps(own_Q, other_Q, seen.datasets)
        for group, gap in gaps.items():
            metrics |= gap.as_metrics(f"own_minus_{kind}/{group}")
        words = compute_word_scores(seen.inputs) if kind == "wrong" else None
        if words is not None:
            metrics |= taken(gaps, words, seen.datasets)
    watched = Watched([kind for kind in OTHERS if seen.scores(kind) is not None], seen.count, seen.seed)
    for dataset in seen.inputs.suite.datasets:
        sources = {"wrong": seen.wrong(dataset.name), "random": seen.pool}
        watched.look(seen.encoder, seen.collections[dataset.name], sources)
    return {f"{PREFIX}/{path}": value for path, value in (metrics | watched.metrics(seen.datasets)).items()}


def taken(
    gained: Mapping[str, Gap], words: tuple[np.ndarray, np.ndarray], datasets: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Return the headroom and the share taken; of families and of the suite, whose collections are many enough."""
    names = {row["name"] for row in datasets}
    headroom = {group: gap for group, gap in paired_gaps(*words, datasets).items() if group not in names}
    return shares_taken(gained, headroom)


@dataclass
class Watched:
    """Looks at the context vectors, moves and attention of one collection after the other."""

    kinds: Sequence[str]
    num_contexts: int
    seed: int
    vectors_CD: list[np.ndarray] = field(default_factory=list)  # unit context vectors, an array a corpus
    moved: dict[str, list[float]] = field(default_factory=dict)  # by kind, a value a collection
    shares_K3: list[np.ndarray] = field(default_factory=list)
    even_3: list[np.ndarray] = field(default_factory=list)
    _contexts: dict[tuple[str | None, str], Any] = field(default_factory=dict)  # what was set, by corpus and role

    def look(self, encoder: Encoder, collection: Collection, sources: Mapping[str, Retrieval | None]) -> None:
        """Look at one collection; `sources` are the corpora of its other contexts."""
        retrieval, role = collection.retrieval, collection.document_role
        order = generator_for(self.seed, "documents that are watched", retrieval.name).permutation(
            len(retrieval.documents)
        )
        texts = [retrieval.documents[place] for place in order[:NUM_MOVED]]
        self._set(encoder, "own", retrieval, role)
        own_ND = encoder.encode(texts, role)
        self._look_inside(encoder, retrieval, texts[:NUM_WATCHED], role)
        for kind in self.kinds:
            self._set(encoder, kind, sources.get(kind), role)
            self.moved.setdefault(kind, []).append(compute_cosine_distance(own_ND, encoder.encode(texts, role)))

    def _set(self, encoder: Encoder, kind: str, source: Retrieval | None, role: str) -> None:
        """Give a context; a corpus that is one collection's own and another's wrong one is embedded once."""
        model, key = contextual_model(encoder), (None if source is None else source.name, role)
        if model is not None and key in self._contexts:
            model.context_CE = self._contexts[key]
            return
        drawn = draw_context(kind, source, num_contexts=self.num_contexts, seed=self.seed)
        encoder.set_context(drawn.texts, self.seed, role)
        if model is not None:
            self._contexts[key] = model.context_CE

    def _look_inside(self, encoder: Encoder, retrieval: Retrieval, texts: Sequence[str], role: str) -> None:
        """Keep the context vectors that are set and the attention to them, where the encoder is a model of ours."""
        model = contextual_model(encoder)
        if model is None:
            return
        from repro.model.attention import compute_attention_shares
        from repro.model.texts import texts_from

        self.vectors_CD.append(compute_distinct_vectors(model, min(self.num_contexts, len(retrieval.documents))))
        tokens = model.tokenize(texts, role)
        found_KN3 = compute_attention_shares(model, texts_from(*tokens.pad(range(len(tokens)))).to(model.device))
        self.shares_K3.append(found_KN3.mean(1).cpu().numpy())
        sizes_N3 = np.array(
            [(model.config.num_context_vectors, model.config.num_soft_prompts, n) for n in tokens.lengths]
        )
        self.even_3.append((sizes_N3 / sizes_N3.sum(1, keepdims=True)).mean(0))

    def metrics(self, datasets: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Return what was seen, means over collections."""
        found: dict[str, float] = {}
        for kind, values in self.moved.items():
            means = {
                group: np.mean([values[n] for n in members]) for group, members in group_datasets(datasets).items()
            }
            found |= {f"moved_by_{kind}/{group}/cosine_distance": float(mean) for group, mean in means.items()}
        for name, cosine in zip(("within", "across"), mean_cosines(self.vectors_CD), strict=True):
            found |= {} if cosine is None else {f"context_cosine/{name}/cosine": cosine}
        if self.shares_K3:
            layers = {f"layer_{number}": shares_3 for number, shares_3 in enumerate(np.mean(self.shares_K3, axis=0), 1)}
            for name, shares_3 in {**layers, "even": np.mean(self.even_3, axis=0)}.items():
                parts = zip(("contexts", "prompts", "text"), shares_3, strict=True)
                found |= {f"attention/{name}/{part}": float(share) for part, share in parts}
        return found


def contextual_model(encoder: Encoder) -> ContextualModel | None:
    """Return the model of ours that an encoder is, or stands in front of; None for any other."""
    from repro.model.contextual import ContextualModel

    model = getattr(encoder, "model", encoder)
    return model if isinstance(model, ContextualModel) else None


def compute_cosine_distance(first_ND: np.ndarray, second_ND: np.ndarray) -> float:
    """Return 1 − cosine of paired vectors, mean over them."""
    return float(np.mean(compute_cosine_distances(first_ND, second_ND)))


def compute_cosine_distances(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
    """Return 1 − cosine of paired vectors, float64 (N,); exactly 0 for equal ones, precise for all but equal ones.

    It is half the squared distance of the unit vectors. One first vector may stand for all.
    """
    return 0.5 * ((_unit(first_ND) - _unit(second_ND)) ** 2).sum(axis=1)


def _unit(vectors_ND: np.ndarray) -> np.ndarray:
    exact_ND = vectors_ND.astype(np.float64)
    unit_ND: np.ndarray = exact_ND / np.maximum(np.linalg.norm(exact_ND, axis=1, keepdims=True), np.finfo(float).tiny)
    return unit_ND


def compute_distinct_vectors(model: ContextualModel, num_documents: int) -> np.ndarray:
    """Return the unit context vectors that are set, (C, D), without repeats and null vectors that fill places."""
    num_vectors = num_documents * model.config.tokens_per_document
    return _unit(model.context_vectors()[:num_vectors].float().cpu().numpy())


def mean_cosines(corpora: Sequence[np.ndarray]) -> tuple[float | None, float | None]:
    """Return the mean cosine of two vectors of one corpus (mean over corpora), and of two of different ones.

    `corpora` are unit vectors, (C, D) each. The sum of all inner products of two sets is that of their sums. None where
    there are no two such vectors.
    """
    sums = [vectors_CD.sum(axis=0, dtype=np.float64) for vectors_CD in corpora]
    counts = [len(vectors_CD) for vectors_CD in corpora]
    within = [(s @ s - n) / (n * (n - 1)) for s, n in zip(sums, counts, strict=True) if n > 1]
    total, num_pairs = np.sum(sums, axis=0), sum(counts) ** 2 - sum(n * n for n in counts)
    across = None
    if len(corpora) > 1:
        across = float((total @ total - sum(s @ s for s in sums)) / num_pairs)
    return (float(np.mean(within)) if within else None), across

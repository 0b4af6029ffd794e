"""Score vectors that are adapted to the corpus without training, for any existing model.

1. Every text is embedded once. A contextual model embeds each corpus under documents of that corpus, drawn as for its
   usual scores. The moments of a foreign corpus therefore come from vectors under the foreign context.
2. Queries and documents are whitened by the moments of documents (`repro.evaluate.adaptation`). These come from the
   searched corpus (`own`), from its wrong corpus (`wrong`), or from as many training documents (`random`). Either 16,
   64 or 256 documents are drawn with the run's `context_seed`, or all are used.
3. Baselines for the own corpus: centring, all-but-the-top, Rocchio feedback and hubness correction.
4. Each method has one parameter, such as the shrinkage. It maximises the mean NDCG@10 on the validation suite of the
   same model, adapted to its own corpora, separately per number of documents. The record stores it.

Moments count a repeated document each time. `repro adapt` and `evaluate --whiten` count each text once
(`list_distinct_rows`). The published numbers are the same either way, because the suites `desk` and `desk-validation`
repeat no document. A suite that does gives other numbers here than there.

Test queries never enter a statistic. They would double the gain, but leak the test set: a future query is unknown.

Metric paths: `desk/…` for unchanged vectors, `desk+whitened/…`, `desk+whitened64/…`, `desk+whitened-wrong/…`,
`desk+whitened-random16/…`, `desk+centred/…`, `desk+all-but-the-top/…`, `desk+rocchio/…`, `desk+hubness/…`. The chosen
parameter is `adaptation/whitened/parameter`. The gain over unchanged vectors is `adaptation/whitened/gain/difference`,
with `low` and `high` of its interval over queries.

Shapes: Q queries, D documents, H dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.analyses.retrieval import choose_encoder
from repro.data.beir import HEADLINE, Retrieval, Suite
from repro.data.paper.collection_rules import CollectionRules
from repro.evaluate.adaptation import (
    DEFAULT_SHRINKAGE,
    SHRINKAGES,
    Moments,
    add_feedback,
    all_but_the_top,
    make_centring_map,
    make_whitened_view,
    make_whitening_map,
    subtract_hubness,
)
from repro.evaluate.collections import (
    Collection,
    describe_datasets,
    read_collections,
    score_headline,
    search_collection,
    summarise_scores,
)
from repro.evaluate.comparison import paired_gaps
from repro.evaluate.contexts import draw_context, have_wrong_corpora, wrong_corpora
from repro.evaluate.suites import Encoder, get_path_name
from repro.pipeline.corpora import CORPORA, load_run_suite
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import count_test_contexts
from repro.seeds import make_rng

COUNTS = (16, 64, 256, None)
"""Numbers of documents for the moments. None: all of the searched corpus, and as many of another text."""
DEPTH = 10
TRAINING_TEXT = "training text"
BASELINES: Mapping[str, Sequence[float]] = {
    "centred": (0,),
    "all-but-the-top": (1, 2, 4, 8, 16),  # directions
    "rocchio": (0.1, 0.2, 0.4, 0.8),  # weight of the feedback
    "hubness": (0.1, 0.25, 0.5, 1.0),  # weight of the hub score
}
"""Baselines and the candidate values of their parameter."""
DEFAULTS = {"centred": 0, "all-but-the-top": 1, "rocchio": 0.1, "hubness": 0.25}
"""Values for a suite without a validation suite."""


@dataclass(frozen=True)
class Vectors:
    """Vectors of one collection: queries (Q, H), documents (D, H), float32, and the order for drawing documents."""

    queries_QH: np.ndarray
    documents_DH: np.ndarray
    order_D: np.ndarray

    def draw(self, count: int | None) -> np.ndarray:
        """Return the vectors of `count` documents, or of all if it is None or larger."""
        # Smaller draws are subsets of larger ones, so differences between counts are not those of different documents.
        return self.documents_DH if count is None else self.documents_DH[np.sort(self.order_D[:count])]


Pair = tuple[np.ndarray, np.ndarray]
"""Vectors of queries and of documents."""


def embed(encoder: Encoder, num_contexts: int, seed: int, collection: Collection) -> Vectors:
    """Return the vectors of a collection, with documents of its own as context unless `num_contexts` is 0."""
    retrieval = collection.retrieval
    if num_contexts:
        context = draw_context("own", retrieval, num_contexts=num_contexts, seed=seed)
        encoder.set_context(context.texts, seed, collection.document_role)
    documents = collection.embed_documents(encoder)
    # Training text has no queries.
    queries_QH = encoder.encode(retrieval.queries, "query") if retrieval.queries else documents[:0]
    order_D = make_rng(seed, "adaptation", retrieval.name).permutation(len(documents))
    return Vectors(queries_QH, documents, order_D)


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return NDCG@10 of each view per dataset, family and mean, with the values of every query."""
    run, suite, collections = inputs.run, inputs.suite, read_collections(inputs.suite)
    num_contexts = count_test_contexts(run) if run.architecture == "contextual" else 0
    embed_corpus = partial(embed, choose_encoder(inputs, model), num_contexts, run.context_seed)
    own = {name: embed_corpus(collection) for name, collection in collections.items()}
    sizes = [len(embedded.documents_DH) for embedded in own.values()]
    parameters, validation = choose_parameters(inputs, embed_corpus)
    others = wrong_corpora(suite.datasets) if have_wrong_corpora(suite.datasets) else {}
    training = embed_corpus(format_training_text(inputs, max(sizes)))
    values_by_path: dict[str, list[dict[str, np.ndarray]]] = {}
    for name, collection in collections.items():
        wrong = {"wrong": own[others[name]]} if others else {}
        for view, vectors in apply_all_adaptations({"own": own[name], **wrong, "random": training}, parameters):
            values_by_path.setdefault(get_path_name(suite.name, view), []).append(
                {HEADLINE: score_headline(search_collection(collection, *vectors, DEPTH), collection)}
            )
    rows = describe_datasets(suite, collections)
    scores, arrays = summarise_scores(values_by_path, rows)
    metrics = {f"adaptation/{method}/parameter": value for method, value in parameters.items()} | scores
    # The first path holds the unchanged vectors.
    for path in list(arrays)[1:]:
        gap = paired_gaps(arrays[path], arrays[suite.name], rows)["mean"]
        metrics |= gap.as_metrics(f"adaptation/{path.partition('+')[2]}/gain")
    counts = {"num_training_documents": len(training.documents_DH), "context_seed": run.context_seed}
    chosen = {"parameters": parameters, "validation": validation}
    return Measured(metrics, arrays, {"name": suite.name, "datasets": rows, **counts, **chosen})


def format_training_text(inputs: Inputs, count: int) -> Collection:
    """Return distinct training documents, drawn with the context seed, as a collection without queries."""
    # Twice as many pairs as documents, because documents repeat.
    order = make_rng(inputs.run.context_seed, "adaptation", "drawn pairs").permutation(len(inputs.pairs))
    texts = list(dict.fromkeys(inputs.pairs.texts("document", order[: 2 * count])))[:count]
    ids = tuple(map(str, range(len(texts))))
    return Collection(Retrieval(TRAINING_TEXT, ids, tuple(texts), (), (), {}), CollectionRules())


def apply_all_adaptations(
    sources: Mapping[str, Vectors], parameters: Mapping[str, float]
) -> Iterator[tuple[str, Pair]]:
    """Yield each view of a collection: unchanged, whitened by each source and number of documents, baselines."""
    vectors = sources["own"]
    num_documents = len(vectors.documents_DH)
    yield "own", (vectors.queries_QH, vectors.documents_DH)
    for source, sample in sources.items():
        for count in COUNTS:
            # As many training documents as the searched corpus has, so that only their text differs.
            size = min(count or num_documents, num_documents) if source == "random" else count
            parameter = parameters[make_whitened_view("own", count)]
            whiten = make_whitening_map(Moments.of(sample.draw(size)), parameter)
            yield make_whitened_view(source, count), (whiten(vectors.queries_QH), whiten(vectors.documents_DH))
    moments = Moments.of(vectors.draw(None))
    for method in BASELINES:
        yield method, adapt(method, parameters[method], vectors, moments)


def adapt(method: str, parameter: float, vectors: Vectors, moments: Moments) -> Pair:
    """Return queries and documents adapted by one method, which is whitening or a baseline."""
    queries_QH, documents_DH = vectors.queries_QH, vectors.documents_DH
    if method == "rocchio":
        return add_feedback(queries_QH, documents_DH, parameter), documents_DH
    if method == "hubness":
        return subtract_hubness(queries_QH, documents_DH, parameter)
    if method == "centred":
        transform = make_centring_map(moments)
    else:
        top = method == "all-but-the-top"
        transform = all_but_the_top(moments, int(parameter)) if top else make_whitening_map(moments, parameter)
    return transform(queries_QH), transform(documents_DH)


def choose_parameters(
    inputs: Inputs, embed_corpus: Callable[[Collection], Vectors]
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return the parameter of each method, and the mean validation NDCG@10 of each candidate.

    A suite without a validation suite uses `DEFAULT_SHRINKAGE` and `DEFAULTS`.
    """
    counts = {make_whitened_view("own", count): count for count in COUNTS}
    suite = load_validation_suite(inputs)
    if suite is None:
        return dict.fromkeys(counts, DEFAULT_SHRINKAGE) | DEFAULTS, {}
    grids: dict[str, Sequence[float]] = {**dict.fromkeys(counts, SHRINKAGES), **BASELINES}
    scores: dict[str, dict[float, list[float]]] = {}
    for collection in read_collections(suite).values():
        vectors = embed_corpus(collection)
        for method, candidates in grids.items():
            moments = Moments.of(vectors.draw(counts.get(method)))
            for value in candidates:
                hits = search_collection(collection, *adapt(method, value, vectors, moments), DEPTH)
                scores.setdefault(method, {}).setdefault(value, []).append(
                    float(score_headline(hits, collection).mean())
                )
    best: dict[str, float] = {}
    validation: dict[str, dict[str, float]] = {}
    for method, by_value in scores.items():
        means = {value: float(np.mean(values)) for value, values in by_value.items()}
        best[method] = float(max(means, key=means.__getitem__))
        validation[method] = {str(value): mean for value, mean in means.items()}
    return best, validation


def load_validation_suite(inputs: Inputs) -> Suite | None:
    """Return the validation suite that belongs to the run's suite, or None."""
    name = f"{inputs.run.suite}-validation"
    is_available = any(name in corpus.suites for corpus in CORPORA.values())
    return load_run_suite(replace(inputs.run, suite=name)) if is_available else None

"""Explain one query under the own, a wrong and the null context: word weights and ranks.

1. The weight of a word is 1 − cosine of the vectors of the text with and without the word (occlusion, all occurrences
   removed). Weights are normalised to shares of the text, so contexts are comparable. Only the part of a text that the
   model reads counts.
2. The texts are the query and one document. The document is the best-ranked relevant one under the own context, or the
   best-ranked one if the query has no judgements.
3. Documents are ranked under each context. The explanation lists the top documents of each context and relevant ones.

Shapes: W different words of a text, D size of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from repro.analyses.context_effect import compute_cosine_distance, compute_cosine_distances
from repro.data.beir import HEADLINE, Retrieval
from repro.data.prompts import with_prompt
from repro.data.tokens import load_tokenizer
from repro.evaluate.collections import Collection
from repro.evaluate.contexts import draw_context
from repro.evaluate.retrieval import rank_by_score, score
from repro.evaluate.suites import Encoder
from repro.evaluate.terms import WORD

Hits = Mapping[str, float]
"""Scores of the best documents of one query, by id."""


@dataclass(frozen=True)
class Word:
    """A word of a text, and its share of the weights of all words under each context."""

    word: str
    shares: Mapping[str, float]

    @property
    def gain(self) -> float:
        """Share under the own context minus the share under the wrong one (or null, if there is no wrong one)."""
        own, *others = self.shares.values()
        return own - others[0] if others else 0.0


@dataclass(frozen=True)
class Passage:
    """A query or a document: its words, and the move of its vector under each other context (1 − cosine)."""

    id: str
    text: str
    words: tuple[Word, ...]
    moved: Mapping[str, float]


@dataclass(frozen=True)
class Ranked:
    """Rank of a document under each context, from 1. None if it is below the ranked hits."""

    id: str
    text: str
    is_relevant: bool
    ranks: Mapping[str, int | None]


@dataclass(frozen=True)
class Explanation:
    """The explanation of one query. `corpora` names the source of each context, `scores` are NDCG@10."""

    model: str
    suite: str
    dataset: str
    corpora: Mapping[str, str]
    num_contexts: int
    context_seed: int
    is_judged: bool
    num_relevant: int
    num_ranked: int
    scores: Mapping[str, float]
    query: Passage
    document: Passage
    hits: tuple[Ranked, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Swap:
    """A model, the searched collection, and the source corpora of its contexts."""

    encoder: Encoder
    collection: Collection
    other: Retrieval | None  # the wrong corpus
    kinds: tuple[str, ...]  # own first
    num_contexts: int
    seed: int = 0

    def set_context(self, kind: str) -> None:
        """Set the context of the model."""
        source = {"own": self.collection.retrieval, "wrong": self.other}.get(kind)
        context = draw_context(kind, source, num_contexts=self.num_contexts, seed=self.seed)
        self.encoder.set_context(context.texts, self.seed, self.collection.document_role)

    @property
    def corpora(self) -> dict[str, str]:
        """The source of each context."""
        wrong = {} if self.other is None else {"wrong": self.other.name}
        sources = {"own": self.collection.retrieval.name, **wrong, "null": "nothing"}
        return {kind: sources[kind] for kind in self.kinds}

    @cached_property
    def documents(self) -> dict[str, str]:
        """Documents by id."""
        return dict(zip(self.collection.retrieval.document_ids, self.collection.retrieval.documents, strict=True))


@dataclass(frozen=True)
class Query:
    """A query. The id is empty if the collection does not judge it."""

    text: str
    id: str = ""


def explain_query(
    swap: Swap, query: Query, get_hits: Callable[[str], Hits], *, called: str, suite: str, top: int = 5
) -> Explanation:
    """Explain one query. `get_hits` maps the name of the current context to the hits of the query."""
    grades = swap.collection.retrieval.judgements.get(query.id, {})
    relevant = [document for document, grade in grades.items() if grade > 0 and document in swap.documents]
    ranks: dict[str, dict[str, int]] = {}
    scores, probes = {}, {"query": TextProbe(query.text, "query")}
    for kind in swap.kinds:
        swap.set_context(kind)
        hits = get_hits(kind)
        ranks[kind] = {document: rank for rank, (document, _) in enumerate(rank_by_score(hits), 1)}
        # The own context comes first, so every context is measured on the same document.
        if kind == "own":
            document_id = next((document for document in ranks[kind] if document in relevant), next(iter(ranks[kind])))
            probes["document"] = TextProbe(swap.documents[document_id], swap.collection.document_role)
        if grades:
            scores[kind] = float(score({query.id: dict(hits)}, {query.id: grades}, (HEADLINE,))[HEADLINE][0])
        for probe in probes.values():
            probe.measure(kind, swap.encoder)
    best = [document for kind in swap.kinds for document in list(ranks[kind])[:top]]
    document_ids = dict.fromkeys([*best, *relevant[:top]])
    ranked_hits = (_rank_document(document, swap, document in relevant, ranks) for document in document_ids)
    return Explanation(
        model=called,
        suite=suite,
        dataset=swap.collection.retrieval.name,
        corpora=swap.corpora,
        num_contexts=swap.num_contexts,
        context_seed=swap.seed,
        is_judged=bool(grades),
        num_relevant=len(relevant),
        num_ranked=max(map(len, ranks.values())),
        scores=scores,
        query=probes["query"].make_passage(query.id),
        document=probes["document"].make_passage(document_id),
        hits=tuple(
            sorted(ranked_hits, key=lambda hit: [hit.ranks[kind] or len(swap.documents) for kind in swap.kinds])
        ),
    )


def _rank_document(document: str, swap: Swap, is_relevant: bool, all_ranks: Mapping[str, Mapping[str, int]]) -> Ranked:
    ranks = {kind: all_ranks[kind].get(document) for kind in swap.kinds}
    return Ranked(document, swap.documents[document], is_relevant, ranks)


class TextProbe:
    """Word weights and the vector of one text under several contexts."""

    def __init__(self, text: str, role: str) -> None:
        self._text, self._role = text, role
        self._shares: dict[str, np.ndarray] = {}
        self._vectors: dict[str, np.ndarray] = {}
        self._words: list[str] = []

    def measure(self, kind: str, encoder: Encoder) -> None:
        """Measure the text under the current context."""
        text = truncate_to_model(encoder, self._text, self._role)
        self._words = list_words(text)
        # One call for all versions of the text. The first row is the complete text.
        vectors_ND = encoder.encode([text, *(remove_word(text, word) for word in self._words)], self._role)
        distances_W = compute_cosine_distances(vectors_ND[:1], vectors_ND[1:])
        # Contexts move vectors by different amounts. As shares of the text they are comparable.
        self._shares[kind] = distances_W / distances_W.sum() if distances_W.sum() > 0 else distances_W
        self._vectors[kind] = vectors_ND[:1]

    def make_passage(self, identifier: str) -> Passage:
        """Return the measurements, with words in the order of the text."""
        shares = (
            {kind: float(shares_W[index]) for kind, shares_W in self._shares.items()}
            for index in range(len(self._words))
        )
        own, *others = self._vectors
        moved = {kind: compute_cosine_distance(self._vectors[own], self._vectors[kind]) for kind in others}
        words = tuple(Word(word, share) for word, share in zip(self._words, shares, strict=True))
        return Passage(identifier, self._text, words, moved)


def list_words(text: str) -> list[str]:
    """Return the different words of a text in lower case, in order."""
    return list(dict.fromkeys(word.lower() for word in WORD.findall(text)))


def remove_word(text: str, word: str) -> str:
    """Return a text without all occurrences of a word, in any case."""
    return " ".join(WORD.sub(lambda match: "" if match[0].lower() == word else match[0], text).split())


def truncate_to_model(encoder: Encoder, text: str, role: str) -> str:
    """Return the part of a text that the model reads. Returns the whole text for models of other libraries."""
    from repro.model.encoding import TextEncoder

    model = getattr(encoder, "model", encoder)
    if not isinstance(model, TextEncoder):
        return text
    (prompted,) = with_prompt([text], model.config.prompts, role)
    tokenizer = load_tokenizer(model.config.tokenizer)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=model.config.max_tokens)
    # Offsets count the prompt, so its length is subtracted from the end of the last token.
    end = max(last for _, last in tokenizer.encode(prompted).offsets)
    return text[: max(0, end - (len(prompted) - len(text)))]


def find_largest_gain(own_Q: np.ndarray, wrong_Q: np.ndarray) -> int:
    """Return the index of the query that gains most from the own context over the wrong one. Ties go to the first."""
    return int(np.argmax(np.round(own_Q.astype(np.float64) - wrong_Q, 6)))


def find_changed_words(words: Sequence[Word], count: int) -> list[Word]:
    """Return the words whose weight changes most, from the largest gain to the largest loss."""
    changed = sorted(words, key=lambda word: -abs(word.gain))[:count]
    return sorted(changed, key=lambda word: -word.gain)

"""Tables that explain one query under several contexts: scores, weights of words, and ranks of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repro.analyses.batch_text import shorten
from repro.analyses.context_words import find_changed_words
from repro.report.scores import POINTS
from repro.report.view import View, format_with_sign
from repro.text import ABSENT, format_number

if TYPE_CHECKING:
    from repro.analyses.context_words import Explanation, Passage, Word

MAX_TEXT_LENGTH = 66
"""Longest document text in characters, so that a row fits into 100 columns."""
WEIGHT_NOTE = "weight: how far the text's vector turns (1 − cosine) when the word is left out, of all words' sum"
MARK = "●"


def make_context_views(explanation: Explanation, *, num_words: int = 6) -> list[View]:
    """Return the tables of a query, with the `num_words` words per text whose weight changes most."""
    words = [
        _make_words_view(explanation, explanation.query, "query", num_words),
        _make_words_view(explanation, explanation.document, "document", num_words),
    ]
    return [_make_overview(explanation), *words, _make_ranks_view(explanation)]


def _make_overview(explanation: Explanation) -> View:
    scores = {kind: format_number(POINTS * score) for kind, score in explanation.scores.items()}
    rows = [("context from", *explanation.corpora.values())]
    rows.append(("NDCG@10", *(scores.get(kind, ABSENT) for kind in explanation.corpora)))
    for name, passage in (("query", explanation.query), ("document", explanation.document)):
        distances = (f"{passage.moved[kind]:.5f}" if kind in passage.moved else "" for kind in explanation.corpora)
        rows.append((f"the {name}'s vector moved", *distances))
    notes = [
        f"query: {shorten(explanation.query.text, 92)}",
        f"{explanation.num_contexts} context documents, drawn with seed {explanation.context_seed}; moved: 1 − cosine with own",
    ]
    if not explanation.is_judged:
        notes.append("nothing judges this query: no document is marked as relevant, and there is no NDCG@10")
    title = f"{explanation.model} on {explanation.dataset}"
    if explanation.suite != explanation.dataset:
        title += f" of {explanation.suite}"
    return View(title, ("", *explanation.corpora), tuple(rows), tuple(notes), "l" + "r" * len(explanation.corpora))


def _make_words_view(explanation: Explanation, passage: Passage, name: str, num_words: int) -> View:
    selected = find_changed_words(passage.words, num_words)
    rows = tuple(_format_word_line(word) for word in selected)
    other_context = next((kind for kind in explanation.corpora if kind != "own"), "own")
    num_hidden = len(passage.words) - len(selected)
    notes = [WEIGHT_NOTE] if name == "query" else [f"document {passage.id}: {shorten(passage.text, 76)}"]
    if num_hidden > 0:
        notes.append(f"words that change less: {num_hidden}; --words {len(passage.words)} prints all")
    title = f"Words of the {name} that gain or lose weight, %"
    header = ("word", *explanation.corpora, f"own − {other_context}")
    return View(title, header, rows, tuple(notes), "l" + "r" * (len(explanation.corpora) + 1))


def _format_word_line(word: Word) -> tuple[str, ...]:
    shares = (format_number(POINTS * share, 2) for share in word.shares.values())
    return (shorten(word.word, 40), *shares, format_with_sign(POINTS * word.gain))


def _make_ranks_view(explanation: Explanation) -> View:
    rows = []
    for hit in explanation.hits:
        ranks = [ABSENT if hit.ranks[kind] is None else str(hit.ranks[kind]) for kind in explanation.corpora]
        rows.append((*ranks, MARK if hit.is_relevant else "", shorten(hit.text, MAX_TEXT_LENGTH)))
    notes = [f"{MARK} relevant"] if explanation.is_judged else []
    num_hidden = explanation.num_relevant - sum(hit.is_relevant for hit in explanation.hits)
    if num_hidden > 0:
        notes.append(f"{num_hidden} more relevant documents; --top prints more")
    if any(None in hit.ranks.values() for hit in explanation.hits):
        notes.append(f"{ABSENT}: not among the first {explanation.num_ranked}")
    header = (*explanation.corpora, MARK, "document")
    return View("Ranks of the top documents", header, tuple(rows), tuple(notes), "r" * len(explanation.corpora) + "ll")

"""A query under several contexts as tables for a reader: its corpora and scores, its words, the ranks of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repro.analyses.batch_text import shorten
from repro.report.scores import POINTS
from repro.report.view import View, format_number, format_signed
from repro.spec.artefact import ABSENT
from repro.spec.values import count_noun

if TYPE_CHECKING:
    from repro.analyses.context_words import Explanation, Passage, Word

LONGEST_TEXT = 66
"""With it, a line of the tables fits into 100 columns."""
WEIGHT = "weight: how far the text's vector turns (1 − cosine) when the word is left out, of all words' sum"
MARK = "●"


def make_context_views(told: Explanation, *, num_words: int = 6) -> list[View]:
    """Return the views of a query; of the words of each text those `num_words` whose weight changes most."""
    words = [_words(told, told.query, "query", num_words), _words(told, told.document, "document", num_words)]
    return [_overview(told), *words, _ranks(told)]


def _overview(told: Explanation) -> View:
    scores = {kind: format_number(POINTS * score) for kind, score in told.scores.items()}
    rows = [("context from", *told.corpora.values())]
    rows.append(("NDCG@10", *(scores.get(kind, ABSENT) for kind in told.corpora)))
    for name, passage in (("query", told.query), ("document", told.document)):
        moved = (f"{passage.moved[kind]:.5f}" if kind in passage.moved else "" for kind in told.corpora)
        rows.append((f"the {name}'s vector moved", *moved))
    notes = (
        f"query: {shorten(told.query.text, 92)}",
        f"{told.num_contexts} context documents, drawn with seed {told.context_seed}; moved: 1 − cosine with own",
        *_judge_hits(told),
    )
    title = f"{told.model} on {told.dataset}" + (f" of {told.suite}" if told.suite != told.dataset else "")
    return View(title, ("", *told.corpora), tuple(rows), notes, "l" + "r" * len(told.corpora))


def _judge_hits(told: Explanation) -> tuple[str, ...]:
    if told.is_judged:
        return ()
    return ("nothing judges this query: no document is marked as relevant, and there is no NDCG@10",)


def _words(told: Explanation, passage: Passage, name: str, num_words: int) -> View:
    # the largest gain first, the largest loss last
    most = sorted(passage.words, key=lambda word: -abs(word.gain))[:num_words]
    rows = tuple(_format_word_line(word) for word in sorted(most, key=lambda word: -word.gain))
    against = next((kind for kind in told.corpora if kind != "own"), "own")
    left = len(passage.words) - len(most)
    notes = [WEIGHT] if name == "query" else [f"document {passage.id}: {shorten(passage.text, 76)}"]
    more = count_noun(left, "more word, whose weight changes less", "more words, whose weights change less")
    notes += [f"{more}; --words {len(passage.words)} prints all"] * (left > 0)
    title = f"Words of the {name} that gain or lose weight, %"
    header = ("word", *told.corpora, f"own − {against}")
    return View(title, header, rows, tuple(notes), "l" + "r" * (len(told.corpora) + 1))


def _format_word_line(word: Word) -> tuple[str, ...]:
    shares = (format_number(POINTS * share, 2) for share in word.shares.values())
    return (shorten(word.word, 40), *shares, format_signed(POINTS * word.gain))


def _ranks(told: Explanation) -> View:
    rows = tuple(
        (
            *(ABSENT if hit.ranks[kind] is None else str(hit.ranks[kind]) for kind in told.corpora),
            MARK if hit.is_relevant else "",
            shorten(hit.text, LONGEST_TEXT),
        )
        for hit in told.hits
    )
    shown = sum(hit.is_relevant for hit in told.hits)
    notes = [f"{MARK} relevant"] if told.is_judged else []
    notes += [f"{told.num_relevant - shown} more relevant documents; --top prints more"] * (told.num_relevant > shown)
    notes += [f"{ABSENT}: not among the first {told.num_ranked}"] * any(None in hit.ranks.values() for hit in told.hits)
    header = (*told.corpora, MARK, "document")
    return View("Ranks of the documents that lead", header, rows, tuple(notes), "r" * len(told.corpora) + "ll")

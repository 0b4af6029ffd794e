"""Headline sentences of the front page and the results page, each with the claims that judge it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Headline:
    """A short sentence, the paper's number, and ids of claims. Each scale shows its first judged claim of the list."""

    statement: str
    paper: str
    claims: tuple[str, ...]


HEADLINES = (
    Headline(
        "contextual batches beat plain batches of one source (biencoder; at mini: filtered clusters, one domain per "
        "batch)",
        "+1.8",
        ("T1.b", "P.b"),
    ),
    Headline("the same without the false-negative filter (ours)", "", ("FP.a",)),
    Headline(
        "the contextual architecture beats the biencoder on plain batches of one source", "+2.5", ("T1.c", "UB.e")
    ),
    Headline("the same on batches of one domain", "+1.4 (clusters)", ("D.a", "P.a")),
    Headline("contextual batches and architecture together beat each alone", "+1.4, +0.7", ("T1.d", "P.e")),
    Headline("the searched corpus as context beats another corpus, after longer training (ours)", "", ("E.e",)),
    Headline("the searched corpus as context beats random training text", "+2.2", ("P.c", "CB.b")),
    Headline("the contextual model beats the same model trained without documents (ours)", "", ("P.d", "CB.a")),
    Headline("the biencoder gains from whitening by the searched corpus (ours)", "", ("WH.a",)),
    Headline("whitening by the searched corpus beats whitening by another (ours)", "", ("WH.b",)),
    Headline("a word-frequency input makes the model use its corpus (ours)", "", ("E.a",)),
    Headline("the biencoder beats BM25, and off-the-shelf MiniLM at two lengths (ours)", "", ("P.f",)),
    Headline("the false-negative filter helps (biencoder)", "", ("F4.a",)),
    Headline("the filter by word vectors lowers the score (ours)", "", ("FP.b",)),
)
"""The paper's numbers come from Table 1, and from Table 2's retrieval for random context. Elsewhere it prints none."""

"""Headline sentences and questions of the results page, each with the claim that judges it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Headline:
    """A short sentence, the paper's number, and the id of the claim that judges it."""

    says: str
    paper: str
    claim: str


HEADLINES = tuple(
    Headline(*line)
    for line in (
        ("contextual batches beat plain ones (biencoder)", "+1.8", "T1.b"),
        ("the contextual architecture beats the biencoder on plain batches", "+2.5", "T1.c"),
        ("both together beat each alone", "+0.7, +1.4", "T1.d"),
        ("the architecture beats the biencoder on contextual batches, each of one domain", "+1.4", "D.a"),
        (
            "the searched corpus as context beats another one, in retrieval (the paper: random training text)",
            "+2.2",
            "E.e",
        ),
        ("the same, of the architecture trained on batches of one domain (ours)", "", "D.d"),
        ("the searched corpus as context beats none (ours)", "", "E.g"),
        ("it beats another one by half a point, if the model is handed word frequencies (ours)", "", "E.a"),
        ("the architecture gains more on a specific domain: medical text", "", "T1.k"),
        ("contextual batches are harder: a higher training loss", "+0.42, +0.31", "T1.e"),
        ("harder batches go with higher scores", "", "F2.a"),
        ("filtering false negatives helps", "", "F4.a"),
        ("with the filter, smaller clusters are better", "", "F3.a"),
        ("a greedy tour beats random packing at the smallest clusters", "", "F14.a"),
    )
)
"""The paper's numbers come from Table 1, and from Table 2's retrieval for two contexts. Elsewhere it prints none."""

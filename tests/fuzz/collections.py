"""A small good collection, which tests damage."""

from repro.data.beir import Retrieval


def small(name: str) -> Retrieval:
    """Two documents, one query, one judgement."""
    return Retrieval(name, ("d1", "d2"), ("one", "two"), ("q1",), ("what",), {"q1": {"d1": 1}})

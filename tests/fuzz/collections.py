"""A small valid collection, which tests damage."""

from repro.data.beir import Retrieval


def small(name: str) -> Retrieval:
    """Return two documents, one query and one judgement."""
    return Retrieval(name, ("d1", "d2"), ("one", "two"), ("q1",), ("what",), {"q1": {"d1": 1}})

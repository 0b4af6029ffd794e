"""Prompts: the text in front of queries and documents, the same in training, evaluation and use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple


class Prompts(NamedTuple):
    """The prompts of queries and of documents."""

    query: str
    document: str


# appendix "Task prefixes"
SEARCH = Prompts("search_query: ", "search_document: ")
CLUSTERING = Prompts("clustering: ", "clustering: ")
CLASSIFICATION = Prompts("classification: ", "classification: ")
PROMPTS: Mapping[str, Prompts] = MappingProxyType({"none": Prompts("", ""), "task": SEARCH})


def get_prompt(name: str, role: str) -> str:
    """Return the prompt of a role, "query" or "document". ValueError if the role is unknown."""
    if role not in Prompts._fields:
        raise ValueError(f"unknown prompt {role!r}; choose one of {list(Prompts._fields)}")
    return str(getattr(PROMPTS[name], role))


def with_prompt(texts: Sequence[str], name: str, role: str) -> list[str]:
    """Return the texts with their prompt in front, as input of the tokenizer."""
    prompt = get_prompt(name, role)
    return [prompt + text for text in texts]

"""All prompts, each written once: what stands before a query or a document, in training, evaluation and use alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple


class Prompts(NamedTuple):
    """The two strings of one row of the table."""

    query: str
    document: str


SEARCH = Prompts("search_query: ", "search_document: ")  # appendix "Task prefixes"
CLUSTERING = Prompts("clustering: ", "clustering: ")
CLASSIFICATION = Prompts("classification: ", "classification: ")
PROMPTS: Mapping[str, Prompts] = MappingProxyType({"none": Prompts("", ""), "task": SEARCH})


def prompt_for(name: str, role: str) -> str:
    """Return the string put in front of a text; `role` is "query" or "document". ValueError names what is unknown."""
    if name not in PROMPTS:
        raise ValueError(f"unknown prompts {name!r}; choose one of {list(PROMPTS)}")
    if role not in Prompts._fields:
        raise ValueError(f"unknown prompt {role!r}; choose one of {list(Prompts._fields)}")
    return str(getattr(PROMPTS[name], role))


def with_prompt(texts: Sequence[str], name: str, role: str) -> list[str]:
    """Return the texts with their prompt in front, ready for the tokenizer."""
    prompt = prompt_for(name, role)
    return [prompt + text for text in texts]

"""Peculiarities of evaluation collections. They are applied by default, and printed with the scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from repro.data.paper import DECLARED

STORED_NAMES = {"note": "says"}
"""Names of fields in suite.json, if they differ."""


@dataclass(frozen=True, kw_only=True)
class CollectionRules:
    """How one collection is read. The defaults hold for a collection without peculiarities.

    Attributes:
        split: The split that is scored.
        removes_self_hits: The document with the id of a query is removed from its ranking, as in BEIR.
        asks_on_both_sides: Documents are questions too, and have the prompt of queries.
        lacks_documents: Some judged documents are missing from the corpus.
        note: A note for the table of scores. {num_queries} is replaced by their number.
    """

    split: str = "test"
    removes_self_hits: bool = False
    asks_on_both_sides: bool = False
    lacks_documents: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            if type(getattr(self, field.name)) is not type(field.default):
                raise TypeError(f"{field.name}={getattr(self, field.name)!r} is no {type(field.default).__name__}")

    @property
    def document_role(self) -> str:
        """The role whose prompt documents and context documents have."""
        return "query" if self.asks_on_both_sides else "document"

    def describe(self, num_queries: int) -> str:
        """Return the note for a table of scores with this number of queries."""
        return self.note.replace("{num_queries}", f"{num_queries:,}")

    def changed(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults, as suite.json stores them."""
        changed = {name: value for name, value in asdict(self).items() if value != getattr(CollectionRules(), name)}
        return {STORED_NAMES.get(name, name): value for name, value in changed.items()}


def read_rules(stored: Mapping[str, Any]) -> CollectionRules:
    """Return the rules that suite.json stores."""
    names = {stored: name for name, stored in STORED_NAMES.items()}
    return CollectionRules(**{names.get(name, name): value for name, value in dict(stored).items()})


KNOWN_RULES = {name: CollectionRules(**rules) for name, rules in DECLARED["rules"].items()}
_ALIASES = {"quoraretrieval": "quora", "msmarcoretrieval": "msmarco", "touche2020": "webis-touche2020"}


def find_rules(collection: str) -> CollectionRules:
    """Return the peculiarities of a collection by its name in BEIR or mteb, ignoring case."""
    name = collection.lower()
    return KNOWN_RULES.get(_ALIASES.get(name, name), CollectionRules())

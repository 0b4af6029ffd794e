"""What is odd about evaluation collections, as one table: applied by default, printed with the scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Quirks:
    """How one collection is read; the defaults are those of a collection without oddities."""

    split: str = "test"
    removes_self_hits: bool = False  # a query's own document is taken out of its ranking, as BEIR does
    asks_on_both_sides: bool = False  # documents are questions and carry the query's prompt
    lacks_documents: bool = False  # judges documents that its corpus does not have
    says: str = ""  # {num_queries} stands for how many there are

    def __post_init__(self) -> None:
        for field in fields(self):
            if type(getattr(self, field.name)) is not type(field.default):
                raise TypeError(f"{field.name}={getattr(self, field.name)!r} is no {type(field.default).__name__}")

    @property
    def document_role(self) -> str:
        """The prompt that documents, and context documents, carry."""
        return "query" if self.asks_on_both_sides else "document"

    def describe_quirks(self, num_queries: int) -> str:
        """Return the note for a reader of the scores of so many queries."""
        return self.says.replace("{num_queries}", f"{num_queries:,}")

    def changed(self) -> dict[str, Any]:
        """Return what differs from a collection without oddities, as a suite's file holds it."""
        return {name: value for name, value in asdict(self).items() if value != getattr(Quirks(), name)}


QUIRKS: Mapping[str, Quirks] = MappingProxyType(
    {
        "arguana": Quirks(
            removes_self_hits=True,
            lacks_documents=True,
            says="each query is a document of the corpus: its own is taken out of the ranking; a judged document that "
            "the corpus lacks stays in the ideal ranking, as trec_eval has it",
        ),
        "quora": Quirks(
            removes_self_hits=True,
            asks_on_both_sides=True,
            says="queries and documents are questions: a query's own id is taken out, both sides get its prompt",
        ),
        "msmarco": Quirks(
            split="dev", says="scored on dev ({num_queries} queries here), as in the paper: MS MARCO's has 6,980"
        ),
        "webis-touche2020": Quirks(
            says="BEIR's scores are of version 2 of the judgements (49 queries; {num_queries} here), not of version 3"
        ),
    }
)
_SAME = {"quoraretrieval": "quora", "msmarcoretrieval": "msmarco", "touche2020": "webis-touche2020"}


def find_quirks(collection: str) -> Quirks:
    """Return what is odd about a collection by its BEIR or mteb name, whatever its case; defaults when nothing is."""
    name = collection.lower()
    return QUIRKS.get(_SAME.get(name, name), Quirks())

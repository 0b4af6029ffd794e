"""The corpus `desk` without the sources that take a minute to parse: what is trained on and what is evaluated.

The rows of each source are compared with its manifest whenever the corpus is built.
"""

import hashlib
import json
from pathlib import Path

import pytest

from repro.data.beir import Retrieval, load_beir, load_suite
from repro.data.mined import desk, mining
from repro.data.mined.splits import get_split
from repro.data.pairs import Pairs, read_pairs
from repro.data.wording import keep_words
from repro.pipeline.corpora import CORPORA
from repro.report.scores import find_records
from repro.spec.registry import find_experiment

SOURCES = ("services", "phenotypes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build `desk` from two of its sources."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mining, "MINERS", {source: mining.MINERS[source] for source in SOURCES})
        for name in ("TEST_DATASETS", "VALIDATION_DATASETS"):
            patch.setattr(desk, name, [dataset for dataset in getattr(desk, name) if dataset.source in SOURCES])
        desk.build_desk(folder)
    return folder


@pytest.fixture(scope="module")
def train(folder: Path) -> Pairs:
    return read_pairs(folder / "train.arrow")


@pytest.fixture(scope="module")
def suites(folder: Path) -> dict[str, list[Retrieval]]:
    datasets = {name: load_suite(folder / "suites" / name).datasets for name in ("desk", "desk-validation")}
    return {name: [load_beir(dataset.path) for dataset in each] for name, each in datasets.items()}


def test_evaluated_texts_are_not_trained_on(train: Pairs, suites: dict[str, list[Retrieval]]) -> None:
    """Neither do the suites share a text. Each document is trained on once."""
    documents = [keep_words(text) for text in train.texts("document", range(len(train)))]
    assert len(set(documents)) == len(documents) > 10_000
    queries = {keep_words(text) for text in train.texts("query", range(len(train)))}
    test, validation = (
        {keep_words(text) for collection in suites[name] for text in (*collection.documents, *collection.queries)}
        for name in ("desk", "desk-validation")
    )
    assert (test | validation).isdisjoint(queries.union(documents))
    assert test.isdisjoint(validation)


DIGESTS = {1: "3c504d2c9dafb2a0"}
"""Digest of rows and suites per version of the recipe. Other ones need a new version, since it is part of stage keys."""


def test_corpus_matches_recipe_digest(folder: Path, train: Pairs) -> None:
    domains = [train.domain_names[code] for code in train.domain_codes]
    texts = [train.texts(side, range(len(train))) for side in ("query", "document")]
    digest = hashlib.sha256(json.dumps([train.ids(), *texts, domains]).encode())
    for path in sorted((folder / "suites").rglob("*.*")):
        digest.update(path.read_bytes())
    assert digest.hexdigest()[:16] == DIGESTS[CORPORA["desk"].recipe], "raise its recipe in repro/pipeline/corpora.py"


def test_only_training_domains_are_trained_on(train: Pairs) -> None:
    assert {get_split("services", domain) for domain in train.domain_names} == {"train"}
    assert not any(domain.startswith(("rds", "docdb", "neptune")) for domain in train.domain_names)
    for source, domain in (("packages", "statsmodels.tsa"), ("modules", "google.cloud"), ("phenotypes", "abnormality")):
        assert get_split(source, domain) != "train"


def test_evaluated_texts_are_distinct(suites: dict[str, list[Retrieval]]) -> None:
    """So the published numbers of whitening do not depend on whether a repeated document counts once."""
    for collection in (*suites["desk"], *suites["desk-validation"]):
        for texts in (collection.queries, collection.documents):
            assert len({keep_words(text) for text in texts}) == len(texts), collection.name


def test_moved_source_is_refused() -> None:
    mined = mining.mine("diagnoses")
    moved = mined._replace(rows=mined.rows[1:])
    mining.verify_manifests([mined])
    with pytest.raises(ValueError, match="diagnoses: simple-icd-10-cm "):
        mining.verify_manifests([moved])


def test_suite_is_that_of_published_records(suites: dict[str, list[Retrieval]]) -> None:
    (record,) = find_records(find_experiment("table1").runs("desk")[:1])
    expected = {row["name"]: row["num_queries"] for row in record.provenance["suite"]["datasets"]}
    sizes = {collection.name: len(collection.queries) for collection in suites["desk"]}
    assert sizes.items() <= expected.items() and len(sizes) > 14

"""The real desk corpus: nothing evaluated is trained on, domains are held out whole, sizes are what is promised."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from repro.data.audit import check_no_overlap, overlap
from repro.data.beir import Retrieval, load_beir, load_suite
from repro.data.mined.manifests import WHEELS, describe, read_manifest, verify, write_manifests
from repro.data.mined.mining import MINERS, Mined, mine
from repro.data.mined.splits import TEST_DATASETS, TRAINING_SOURCES, VALIDATION_DATASETS, split_of
from repro.data.pairs import Pairs, Row, read_pairs, write_pairs
from repro.data.wording import normalise
from repro.pipeline.corpora import RECIPE

SUITES = ("desk", "desk-validation")


@pytest.fixture(scope="module")
def train(desk: Path) -> Pairs:
    return read_pairs(desk / "train.arrow")


@pytest.fixture(scope="module")
def suites(desk: Path) -> dict[str, list[Retrieval]]:
    return {name: [load_beir(d.path) for d in load_suite(desk / "suites" / name).datasets] for name in SUITES}


DIGESTS = {1: "bebe7043f1b1f9d1"}
"""What each version of the recipe makes of the pinned wheels; other rows are another version, which stages follow."""


def test_rows_are_those_of_the_recipe(train: Pairs) -> None:
    digest = hashlib.sha256()
    for start in range(0, len(train), 8192):
        rows = np.arange(start, min(start + 8192, len(train)))
        texts = (train.ids(rows), train.texts("query", rows), train.texts("document", rows))
        domains = [train.domain_names[code] for code in train.domain_codes[rows]]
        digest.update(json.dumps([*texts, domains]).encode())
    assert digest.hexdigest()[:16] == DIGESTS[RECIPE["desk"]], (
        "other rows: raise RECIPE['desk'] in repro/pipeline/corpora.py"
    )


def test_no_evaluated_text_is_trained_on(desk: Path, train: Pairs) -> None:
    assert not overlap(train, [desk / "suites" / name for name in SUITES])


def test_audit_finds_planted_texts(desk: Path, tmp_path: Path) -> None:
    suite = desk / "suites" / "desk"
    held_out = load_beir(load_suite(suite).datasets[3].path)
    rows = [
        Row("1", "fine query", held_out.documents[5].upper(), "d", "s"),
        Row("2", f"{held_out.queries[2]}?", "a fine document", "d", "s"),
    ]
    write_pairs(tmp_path / "train.arrow", rows)
    found = overlap(read_pairs(tmp_path / "train.arrow"), [suite])
    assert found.documents == (normalise(held_out.documents[5]),)
    assert found.queries == (normalise(held_out.queries[2]),)
    with pytest.raises(ValueError, match="1 evaluated documents and 1 evaluated queries"):
        check_no_overlap(read_pairs(tmp_path / "train.arrow"), [suite])


def test_suites_share_no_text(suites: dict[str, list[Retrieval]]) -> None:
    for side in ("documents", "queries"):
        texts = [{normalise(text) for c in suites[name] for text in getattr(c, side)} for name in SUITES]
        assert not texts[0] & texts[1]


def test_only_training_domains_are_trained_on(train: Pairs) -> None:
    sources = np.asarray(train.source_names)[train.source_codes]
    domains = np.asarray(train.domain_names)[train.domain_codes]
    seen = set(zip(sources.tolist(), domains.tolist(), strict=True))
    assert {split_of(source, domain) for source, domain in seen} == {"train"}
    assert {source for source, _ in seen} == set(TRAINING_SOURCES)
    assert not any(domain.startswith(("rds", "docdb", "neptune", "statsmodels", "google")) for _, domain in seen)


def test_every_document_is_trained_on_once(train: Pairs) -> None:
    documents = [normalise(text) for text in train.texts("document", range(len(train)))]
    assert len(set(documents)) == len(documents) > 150_000


def test_the_suites_have_the_promised_size(suites: dict[str, list[Retrieval]]) -> None:
    test, validation = (suites[name] for name in SUITES)
    assert sum(len(c.queries) for c in test) > 16_000
    assert 20_000 < sum(len(c.documents) for c in test) < 25_000
    assert sum(len(c.queries) for c in validation) > 3_000
    assert all(150 <= len(c.queries) <= 400 and len(c.documents) <= 500 for c in test + validation)
    assert {dataset.family for dataset in TEST_DATASETS} == {"services", "packages", "collections", "cloud", "medical"}
    assert {dataset.source for dataset in VALIDATION_DATASETS} == set(TRAINING_SOURCES)


def test_no_evaluated_query_has_two_answers(suites: dict[str, list[Retrieval]]) -> None:
    for collection in (*suites["desk"], *suites["desk-validation"]):
        assert len({normalise(query) for query in collection.queries}) == len(collection.queries), collection.name
        assert len({normalise(text) for text in collection.documents}) == len(collection.documents), collection.name


def test_the_report_counts_what_is_there(desk: Path, train: Pairs, suites: dict[str, list[Retrieval]]) -> None:
    progress = json.loads((desk / "report.json").read_text())
    assert progress["train"]["num_pairs"] == len(train)
    assert progress["train"]["num_domains"] == len(train.domain_names)
    for name in SUITES:
        assert progress["suites"][name]["total"]["num_queries"] == sum(len(c.queries) for c in suites[name])
        assert progress["suites"][name]["total"]["num_documents"] == sum(len(c.documents) for c in suites[name])


def test_every_source_has_a_manifest() -> None:
    for source in MINERS:
        assert [manifest.wheel for manifest in read_manifest(source)] == list(WHEELS[source])


@pytest.fixture(scope="module")
def diagnoses() -> Mined:
    return mine("diagnoses")


def test_moved_source_is_named(diagnoses: Mined, tmp_path: Path) -> None:
    verify([diagnoses])
    moved = diagnoses._replace(rows=diagnoses.rows[1:])
    with pytest.raises(ValueError, match=r"diagnoses: simple-icd-10-cm .* expected, simple-icd-10-cm .*--write-manif"):
        verify([moved])
    write_manifests([moved], tmp_path)
    verify([moved], tmp_path)
    assert read_manifest("diagnoses", tmp_path) == describe(moved)


def test_tampered_manifest_is_an_error(diagnoses: Mined, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no manifest for the source 'diagnoses'"):
        verify([diagnoses], tmp_path)
    (tmp_path / "diagnoses.json").write_text('[{"wheel": "simple-icd-10-cm"}]')
    with pytest.raises(ValueError, match=r"diagnoses\.json is malformed"):
        verify([diagnoses], tmp_path)

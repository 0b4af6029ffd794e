"""The real corpus `desk`: no evaluated text is trained on, domains are held out whole, sizes are as documented."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from repro.data.beir import Retrieval, load_beir, load_suite
from repro.data.filters import check_no_overlap, find_overlap
from repro.data.mined.manifests import describe, read_manifest, verify, write_manifests
from repro.data.mined.mining import Mined, mine
from repro.data.mined.splits import TEST_DATASETS, TRAINING_SOURCES, VALIDATION_DATASETS, get_split
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
"""Digest of the rows per version of the recipe. Other rows need a new version, since it is part of the stage keys."""


def test_rows_match_recipe_digest(train: Pairs) -> None:
    digest = hashlib.sha256()
    for start in range(0, len(train), 8192):
        rows = np.arange(start, min(start + 8192, len(train)))
        texts = (train.ids(rows), train.texts("query", rows), train.texts("document", rows))
        domains = [train.domain_names[code] for code in train.domain_codes[rows]]
        digest.update(json.dumps([*texts, domains]).encode())
    assert digest.hexdigest()[:16] == DIGESTS[RECIPE["desk"]], "raise RECIPE['desk'] in repro/pipeline/corpora.py"


def test_no_evaluated_text_is_trained_on(desk: Path, train: Pairs) -> None:
    assert not find_overlap(train, [desk / "suites" / name for name in SUITES])


def test_audit_finds_planted_texts(desk: Path, tmp_path: Path) -> None:
    suite = desk / "suites" / "desk"
    held_out = load_beir(load_suite(suite).datasets[3].path)
    rows = [
        Row("1", "fine query", held_out.documents[5].upper(), "d", "s"),
        Row("2", f"{held_out.queries[2]}?", "a fine document", "d", "s"),
    ]
    write_pairs(tmp_path / "train.arrow", rows)
    found = find_overlap(read_pairs(tmp_path / "train.arrow"), [suite])
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
    assert {get_split(source, domain) for source, domain in seen} == {"train"}
    assert {source for source, _ in seen} == set(TRAINING_SOURCES)
    assert not any(domain.startswith(("rds", "docdb", "neptune", "statsmodels", "google")) for _, domain in seen)


def test_every_document_is_trained_on_once(train: Pairs) -> None:
    documents = [normalise(text) for text in train.texts("document", range(len(train)))]
    assert len(set(documents)) == len(documents) > 150_000


def test_suites_have_documented_sizes(suites: dict[str, list[Retrieval]]) -> None:
    test, validation = (suites[name] for name in SUITES)
    assert sum(len(c.queries) for c in test) > 16_000
    assert 20_000 < sum(len(c.documents) for c in test) < 25_000
    assert sum(len(c.queries) for c in validation) > 3_000
    assert all(150 <= len(c.queries) <= 400 and len(c.documents) <= 500 for c in test + validation)
    assert {dataset.family for dataset in TEST_DATASETS} == {"services", "packages", "collections", "cloud", "medical"}
    assert {dataset.source for dataset in VALIDATION_DATASETS} == set(TRAINING_SOURCES)


def test_no_evaluated_query_has_two_answers(suites: dict[str, list[Retrieval]]) -> None:
    for collection in (*suites["desk"], *suites["desk-validation"]):
        for texts in (collection.queries, collection.documents):
            assert len({normalise(text) for text in texts}) == len(texts), collection.name


def test_report_counts_match_files(desk: Path, train: Pairs, suites: dict[str, list[Retrieval]]) -> None:
    report = json.loads((desk / "report.json").read_text())
    assert (report["train"]["num_pairs"], report["train"]["num_domains"]) == (len(train), len(train.domain_names))
    for name in SUITES:
        total = report["suites"][name]["total"]
        assert total["num_queries"] == sum(len(c.queries) for c in suites[name])
        assert total["num_documents"] == sum(len(c.documents) for c in suites[name])


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

"""The held-out part of an imported corpus: searched, never trained on, and a function of the text only."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from repro.data.beir import Retrieval, write_beir_folder, write_suite
from repro.data.filters import find_overlap
from repro.data.own import holdout
from repro.data.own.holdout import (
    FAMILY,
    MIN_DOMAIN_PAIRS,
    extend_to_all_documents,
    get_collection_name,
    hold_out,
    training_rows,
)
from repro.data.pairs import Pairs, Row, read_pairs, write_pairs
from repro.data.suites import SuiteRules
from repro.data.wording import keep_words


def store_pairs(tmp_path: Path, rows: Sequence[Row]) -> Pairs:
    """Write rows with their negatives, and open the file."""
    write_pairs(tmp_path / "pairs.arrow", rows, with_negatives=True)
    return read_pairs(tmp_path / "pairs.arrow")


def make_rows(sizes: dict[str, int]) -> list[Row]:
    """Return this many rows per domain, with distinct texts."""
    rows = []
    for domain, size in sizes.items():
        for n in range(size):
            texts = (f"question {domain} {n}", f"the answer to {domain} is number {n}")
            rows.append(Row(f"{domain}{n}", *texts, domain, "s", (f"no {n}",)))
    return rows


def list_training_rows(pairs: Pairs, collections: Sequence[Retrieval]) -> tuple[list[Row], set[str], Counter[str]]:
    """Return the training rows, the normalised held-out documents, and the numbers of dropped rows."""
    counts: Counter[str] = Counter()
    rows = list(training_rows(pairs, collections, (), counts))
    documents = {keep_words(text) for collection in collections for text in collection.documents}
    return rows, documents, counts


def make_pairs(tmp_path: Path, sizes: dict[str, int]) -> Pairs:
    """Return this many pairs per domain, with distinct texts."""
    return store_pairs(tmp_path, make_rows(sizes))


@pytest.mark.parametrize("domains", [(), ("a",)])
def test_evaluated_texts_are_not_trained_on(tmp_path: Path, domains: tuple[str, ...]) -> None:
    pairs = make_pairs(tmp_path, {"a": 2 * MIN_DOMAIN_PAIRS, "b": MIN_DOMAIN_PAIRS})
    collections, counts = hold_out(pairs, domains), Counter()
    write_pairs(tmp_path / "train.arrow", training_rows(pairs, collections, domains, counts))
    for collection in collections:
        write_beir_folder(tmp_path / "suite" / collection.name, collection)
    write_suite(tmp_path / "suite", "mine", [(collection.name, FAMILY) for collection in collections])
    train = read_pairs(tmp_path / "train.arrow")
    assert not find_overlap(train, [tmp_path / "suite"])
    assert len(train) + sum(counts.values()) == len(pairs)


def test_evaluated_documents_are_no_negatives(tmp_path: Path) -> None:
    size = 2 * MIN_DOMAIN_PAIRS
    texts = [f"the answer to question number {n} of all" for n in range(size)]
    rows = [Row(f"{n}", f"question {n}", texts[n], "a", "mine", (texts[n - 1], f"no {n}")) for n in range(size)]
    pairs = store_pairs(tmp_path, rows)
    trained, documents, counts = list_training_rows(pairs, hold_out(pairs))
    assert [row.negatives for row in trained] == [
        tuple(text for text in row.negatives if keep_words(text) not in documents)
        for row in rows
        if keep_words(row.document) not in documents
    ]
    assert counts["evaluated_negatives"] == sum(len(row.negatives) == 1 for row in trained) > 0


def test_named_domains_are_held_out_whole(tmp_path: Path) -> None:
    pairs = make_pairs(tmp_path, {"a": 30, "b": 300, "c": 30})
    collections = hold_out(pairs, ["a", "c"])
    assert [collection.name for collection in collections] == ["a", "c"]
    assert all(len(collection.documents) == 30 for collection in collections)
    trained = list(training_rows(pairs, collections, ["a", "c"], Counter()))
    assert {row.domain for row in trained} == {"b"} and len(trained) == 300


@pytest.mark.parametrize("domains", [(), ("a", "b")])
def test_document_of_two_domains_is_one(tmp_path: Path, domains: tuple[str, ...]) -> None:
    """Every held-out query judges the one copy of its document that is searched."""
    rows = [
        Row(f"{domain}{n}", f"question {domain} {n}", f"the answer is number {n}", domain, "s", ())
        for domain in "ab"
        for n in range(2 * MIN_DOMAIN_PAIRS)
    ]
    pairs = store_pairs(tmp_path, rows)
    held_out = hold_out(pairs, domains)
    assert [collection.name for collection in held_out] == ["a", "b"]
    for searched in extend_to_all_documents(pairs, held_out, as_one=not domains):
        assert sorted(searched.documents) == sorted({row.document for row in rows})
        texts = dict(zip(searched.document_ids, searched.documents, strict=True))
        assert searched.queries
        for query_id, query in zip(searched.query_ids, searched.queries, strict=True):
            answers = [texts[document_id] for document_id in searched.judgements[query_id]]
            assert answers == [f"the answer is number {query.split()[-1]}"]


def test_sample_of_documents_has_all_domains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash draws them, because the first ones of a sorted file are of few domains. Relevant documents stay."""
    monkeypatch.setattr(holdout, "MAX_SEARCHED_DOCUMENTS", 500)
    rows = make_rows(dict.fromkeys("abcde", 300))
    pairs = store_pairs(tmp_path, rows)
    held_out = hold_out(pairs)
    (searched,) = extend_to_all_documents(pairs, held_out, as_one=True)
    assert len(searched.documents) == 500 == len(set(searched.documents))
    domains = {row.document: row.domain for row in rows}
    counts = Counter(domains[document] for document in searched.documents)
    assert min(counts[domain] for domain in "abcde") > 70
    assert {key for grades in searched.judgements.values() for key in grades} <= set(searched.document_ids)


def test_choice_does_not_depend_on_order(tmp_path: Path) -> None:
    rules = SuiteRules(max_documents=17, max_queries=10)
    rows = make_rows({"a": 600})
    first, second = (hold_out(store_pairs(tmp_path, rows[::step]), rules=rules)[0] for step in (1, -1))
    assert set(first.documents) == set(second.documents) and len(first.documents) == 17
    assert len(first.queries) == 10


def test_shared_documents_are_held_out_together(tmp_path: Path) -> None:
    rows = [Row(f"{n}", f"question {n}", f"shared answer {n // 4} of all", "a", "mine") for n in range(1200)]
    pairs = store_pairs(tmp_path, rows)
    trained, documents, _ = list_training_rows(pairs, hold_out(pairs))
    assert documents and documents.isdisjoint(keep_words(row.document) for row in trained)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"a": 10 * MIN_DOMAIN_PAIRS, "b": 5 * MIN_DOMAIN_PAIRS, "small": 20}, {"a": 2000, "b": 1000}),
        ({f"d{n}": 20 for n in range(30)}, {"all": 600}),
    ],
    ids=["large", "small"],
)
def test_tenth_of_documents_is_held_out(tmp_path: Path, sizes: dict[str, int], expected: dict[str, int]) -> None:
    """Per large domain, or of all small domains together."""
    collections = {collection.name: collection for collection in hold_out(make_pairs(tmp_path, sizes))}
    assert set(collections) == set(expected)
    for name, collection in collections.items():
        assert expected[name] / 15 < len(collection.documents) < expected[name] / 6


def test_impossible_holdouts_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\['z'\].*\['a'\]"):
        hold_out(make_pairs(tmp_path, {"a": 30}), ["z"])
    near_duplicates = [Row(f"s{n}", "what", f"{' '.join('abcdefghij')} {n}", "b", "mine") for n in range(300)]
    rules = SuiteRules(several_answers=True)
    with pytest.raises(ValueError, match=r"not all of \['a', 'b'\] can be held out .*b"):
        hold_out(store_pairs(tmp_path, [*make_rows({"a": 30}), *near_duplicates]), ["a", "b"], rules)
    with pytest.raises(ValueError, match=r"nothing can be held out .*, 1 have a near-duplicate"):
        hold_out(store_pairs(tmp_path, near_duplicates), ["b"], rules)


def test_few_documents_are_named(tmp_path: Path) -> None:
    labels = [text for text in map("label {}".format, range(40)) if holdout._hash(keep_words(text)) % 10][:4]
    rows = [Row(f"{n}", f"question {n}", labels[n % 4], "ab"[n % 2], "mine") for n in range(1000)]
    rows += [Row(f"s{n}", f"ask {n}", f"answer {n}", "small", "mine") for n in range(50)]
    with pytest.raises(ValueError, match="one document in 10, here none"):
        hold_out(store_pairs(tmp_path, rows))


@pytest.mark.parametrize("has_copies", [False, True])
def test_holding_out_everything_is_refused(tmp_path: Path, has_copies: bool) -> None:
    """The error counts pairs of held-out domains, and pairs elsewhere whose text is evaluated."""
    rows = make_rows({"a": 30, "b": 30})
    copies = [row._replace(id=f"c{row.id}", domain="c") for row in rows] if has_copies else []
    pairs = store_pairs(tmp_path, rows + copies)
    remaining = training_rows(pairs, hold_out(pairs, ["a", "b"]), ["a", "b"], Counter())
    message = f"{len(pairs)} pairs .60 of .*held out whole{'; 60 with' if has_copies else ''}"
    with pytest.raises(ValueError, match=message):
        write_pairs(tmp_path / "train.arrow", remaining)


def test_domain_names_become_distinct_folders() -> None:
    assert get_collection_name("Über / Fragen!") == "über-fragen" and get_collection_name("医学") == "医学"
    assert get_collection_name("../..") == "domain" and get_collection_name("mean") == "mean-domain"
    assert get_collection_name("A b", ["a-b"]) == "a-b-2" and get_collection_name("a b", ["a-b", "a-b-2"]) == "a-b-3"
    assert get_collection_name("java", ["java-2"]) == "java"

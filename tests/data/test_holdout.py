"""The held-out part of an imported corpus: searched, never trained on, and a function of the text only."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from repro.data.beir import Retrieval
from repro.data.own import holdout
from repro.data.own.holdout import (
    MAX_DRAWN,
    MIN_DOMAIN_PAIRS,
    Keys,
    Split,
    build_collections,
    get_collection_name,
    iter_training_rows,
    make_split_without_holdout,
    remove_own_texts,
    split_pairs,
)
from repro.data.pairs import Pairs, Row, read_pairs, write_pairs
from repro.data.wording import identify_text


def store_pairs(tmp_path: Path, rows: Sequence[Row]) -> Pairs:
    """Write rows with their negatives, and open the file."""
    write_pairs(tmp_path / "pairs.arrow", rows, with_negatives=True)
    return read_pairs(tmp_path / "pairs.arrow")


def make_rows(sizes: dict[str, int], num_queries: int = 10**9, num_documents: int = 10**9) -> list[Row]:
    """Return this many rows per domain. Queries and documents repeat if there are fewer, each time in another form."""
    rows = []
    for domain, size in sizes.items():
        for n in range(size):
            query = f"{'query: ' * (n % 3 == 0)}question {domain} {n % num_queries}{'?' * (n % 2)}"
            document = f"the answer to {domain} is {n % num_documents}{'.' * (n % 2)}"
            negatives = (f"The answer to {domain} is {(n + 1) % min(size, num_documents)}!", f"no {n}")
            rows.append(Row(f"{domain}{n}", query, document, domain, "s", negatives))
    return rows


def divide(pairs: Pairs, domains: Sequence[str] = ()) -> tuple[Split, list[Retrieval], list[Row]]:
    """Return the split, its collections and the training rows."""
    keys = Keys.compute(pairs)
    split = split_pairs(pairs, keys, domains)
    return (
        split,
        build_collections(pairs, keys, split),
        list(iter_training_rows(pairs, split.train, split.not_negative)),
    )


def find_answers(collection: Retrieval) -> dict[str, set[str]]:
    """Return the identities of the relevant documents of each query."""
    texts = dict(zip(collection.document_ids, map(identify_text, collection.documents), strict=True))
    queries = zip(map(identify_text, collection.queries), collection.query_ids, strict=True)
    return {query: {texts[key] for key in collection.judgements[query_id]} for query, query_id in queries}


@pytest.mark.parametrize(
    ("sizes", "num_queries", "num_documents", "domains"),
    [
        ({"a": 900, "b": 300}, 10**9, 10**9, ()),
        ({"a": 900, "b": 300}, 10**9, 10**9, ("b",)),
        ({"a": 1200}, 400, 10**9, ()),  # several documents per query
        ({"a": 1200}, 10**9, 400, ()),  # several queries per document
        ({"a": 1200}, 400, 401, ()),
        ({f"d{n}": 20 for n in range(40)}, 10**9, 10**9, ()),  # small domains only
        ({"a": 300, "b": 300, "c": 30}, 10**9, 10**9, ("a", "c")),
    ],
)
def test_split_matches_plain_sets(
    tmp_path: Path, sizes: dict[str, int], num_queries: int, num_documents: int, domains: tuple[str, ...]
) -> None:
    """All documents are searched, all answers are judged, and no evaluated text is trained on in any form."""
    rows = make_rows(sizes, num_queries, num_documents)
    pairs = store_pairs(tmp_path, rows)
    split, collections, trained = divide(pairs, domains)
    assert [collection.name for collection in collections] == [*(domains or ["all"])]
    answers: dict[str, set[str]] = {}
    for row in rows:
        answers.setdefault(identify_text(row.query), set()).add(identify_text(row.document))
    every_document = {identify_text(text) for row in rows for text in (row.document, *row.negatives)}
    asked, relevant = set[str](), set[str]()
    for collection in collections:
        found = find_answers(collection)
        assert found == {query: answers[query] for query in found} and found
        assert Counter(map(identify_text, collection.documents)) == Counter(every_document)
        asked |= {*found}
        relevant = relevant.union(*found.values())
    trained_texts = {identify_text(text) for row in trained for text in (row.query, row.document)}
    assert not trained_texts & asked
    assert split.counts["trained answers"] or not trained_texts & relevant
    assert not {identify_text(text) for row in trained for text in row.negatives} & (asked | relevant)
    assert not {row.domain for row in trained} & {*domains}
    parts = [split.counts[name] for name in ("held out", "set apart", "to train on", "sharing a text")]
    assert sum(parts) == len(pairs) and parts[2] == len(trained)
    # pairs set apart share no text with the others
    apart = list(iter_training_rows(pairs, split.set_apart, np.zeros(0, np.uint64)))
    apart_texts = {identify_text(text) for row in apart for text in (row.query, row.document)}
    assert not apart_texts & (trained_texts | asked)
    assert not {identify_text(text) for row in trained for text in row.negatives} & apart_texts


@pytest.mark.parametrize(("num_queries", "num_documents"), [(10**9, 10**9), (1000, 10**9), (10**9, 1000)])
def test_tenth_is_held_out(tmp_path: Path, num_queries: int, num_documents: int) -> None:
    """A tenth of the pairs, whichever text repeats. A twentieth of the others is set apart."""
    pairs = store_pairs(tmp_path, make_rows({"a": 2000}, num_queries, num_documents))
    split, _, _ = divide(pairs)
    assert split.counts["held out"] == pytest.approx(200, rel=0.3)
    assert split.counts["set apart"] + split.counts["sharing a text"] == pytest.approx(90, rel=0.3)


def test_draw_is_capped_per_domain(tmp_path: Path) -> None:
    sizes = {"a": 30 * MIN_DOMAIN_PAIRS, "b": 2 * MIN_DOMAIN_PAIRS, "small": MIN_DOMAIN_PAIRS - 1}
    _, (collection,), _ = divide(store_pairs(tmp_path, make_rows(sizes)))
    counts = Counter(query.rstrip("?").split()[-2] for query in collection.queries)
    assert counts["a"] == MAX_DRAWN["document"] and 20 < counts["b"] < 60 and "small" not in counts


def test_choice_does_not_depend_on_order(tmp_path: Path) -> None:
    rows = make_rows({"a": 900}, 10**9, 700)
    (first,), (second,) = (divide(store_pairs(tmp_path, rows[::step]))[1] for step in (1, -1))
    assert find_answers(first) == find_answers(second) and first.judgements == second.judgements


def test_sample_of_documents_has_all_domains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash draws them, because the first ones of a sorted file are of few domains. Relevant documents stay."""
    monkeypatch.setattr(holdout, "MAX_SEARCHED_DOCUMENTS", 500)
    _, (searched,), _ = divide(store_pairs(tmp_path, make_rows(dict.fromkeys("abcde", 300))))
    assert len(searched.documents) == 500
    counts = Counter(text.split()[3] for text in searched.documents if text.lower().startswith("the"))
    assert min(counts[domain] for domain in "abcde") > 25
    assert {key for grades in searched.judgements.values() for key in grades} <= set(searched.document_ids)


def test_many_answers_are_kept(tmp_path: Path) -> None:
    """If each document answers many queries, their pairs stay, or nothing would be left."""
    rows = [Row(str(n), f"question {n % 19}", f"answer {n // 19}", "a", "a", (f"answer {n % 16}",)) for n in range(300)]
    split, (collection,), trained = divide(store_pairs(tmp_path, rows))
    relevant = set().union(*find_answers(collection).values())
    num_kept = sum(identify_text(row.document) in relevant for row in trained)
    assert split.counts["trained answers"] >= num_kept > 0.2 * len(trained)
    assert not relevant & {identify_text(text) for row in trained for text in row.negatives}


@pytest.mark.parametrize(("num_documents", "num_queries"), [(300, 300), (900, 3)])
def test_few_documents_are_not_set_apart(tmp_path: Path, num_documents: int, num_queries: int) -> None:
    """All pairs are trained on if documents are few or if most pairs would be lost."""
    rows = [Row(str(n), f"about {n % num_queries}", f"thing {n}", "a", "a", ()) for n in range(num_documents)]
    split = make_split_without_holdout(Keys.compute(store_pairs(tmp_path, rows)))
    assert len(split.set_apart) == 0 and len(split.train) == num_documents


def test_own_text_is_no_hit(tmp_path: Path) -> None:
    """A query whose text is a document takes its id, unless that document is relevant to it."""
    texts = [(f"pump{n} leaks{n}", f"pump{n} drips{n}") for n in range(300)]
    rows = [
        Row(f"{n}{m}", *pair, "a", "a") for n, (a, b) in enumerate(texts) for m, pair in enumerate(((a, b), (b, a)))
    ]
    rows += [Row(f"same {n}", f"same {n}", f"same {n}", "a", "a") for n in range(300)]
    _, (searched,), _ = divide(store_pairs(tmp_path, rows))
    collection, rules = remove_own_texts(searched)
    assert rules.removes_self_hits and collection.queries == searched.queries
    for query_id, query in zip(collection.query_ids, collection.queries, strict=True):
        assert (query_id in collection.document_ids) != query.startswith("same")
        assert query_id not in collection.judgements[query_id]


def test_domain_names_become_distinct_folders() -> None:
    assert get_collection_name("Über / Fragen!") == "über-fragen" and get_collection_name("医学") == "医学"
    assert get_collection_name("../..") == "domain" and get_collection_name("mean") == "mean-domain"
    assert get_collection_name("A b", ["a-b"]) == "a-b-2" and get_collection_name("a b", ["a-b", "a-b-2"]) == "a-b-3"
    assert get_collection_name("java", ["java-2"]) == "java"

"""What may be trained on: nothing evaluated, no document twice, and views that stay inside their row."""

from collections import Counter

from repro.data.beir import Retrieval
from repro.data.filters import EvaluatedTexts, drop_evaluated, drop_repeated_pairs, one_row_per_document
from repro.data.mined.views import views
from repro.data.pairs import Row

EVALUATED = EvaluatedTexts(
    [Retrieval("c", ("d",), ("Held out document.",), ("q",), ("held out query",), {"q": {"d": 1}})]
)
LONG = " ".join(f"word{i}" for i in range(40)) + ". Then a second sentence follows. And at last a third one."


def row(key: str, query: str, document: str, domain: str = "a") -> Row:
    return Row(key, query, document, domain, "source")


def test_evaluated_text_is_left_out() -> None:
    rows = [
        row("1", "any", "HELD OUT, document"),
        row("2", "Held-out query", "any"),
        row("3", "held out document", "any"),
        row("4", "fine", "fine"),
    ]
    removed: Counter[str] = Counter()
    assert [kept.id for kept in drop_evaluated(rows, EVALUATED, removed)] == ["4"]
    assert removed == {"evaluated": 3}


def test_evaluated_cuts_are_left_out() -> None:
    """Views are made of whole documents, and those that are evaluated are cut."""
    rows, removed = [row("1", "any", "Held out document. And more of it."), row("2", "any", "fine")], Counter[str]()
    assert [kept.id for kept in drop_evaluated(rows, EVALUATED, removed)] == ["1", "2"] and not removed

    def cut(one: Row) -> Row:
        return one._replace(document=" ".join(one.document.split()[:3]))

    assert list(drop_evaluated(rows, EVALUATED, removed, cut=cut)) == rows[1:] and removed == {"evaluated": 1}


def test_documents_are_trained_on_once() -> None:
    rows = [
        row("1", "tag it", "Adds a tag."),
        row("2", "label it", "adds a TAG", "b"),
        row("3", "Tag it!", "Puts on a label."),
        row("4", "tag it", "Sets a tag here.", "b"),
    ]
    removed: Counter[str] = Counter()
    assert [kept.id for kept in one_row_per_document(rows, removed)] == ["1", "4"]
    assert removed == {"repeated_document": 1, "repeated_query_in_domain": 1}


def test_repeated_pairs_are_kept_once() -> None:
    rows = [row("1", "a b", "c d"), row("2", "A b", "C, d"), row("3", "other", "c d"), row("4", "a b c", "d")]
    assert [kept.id for kept in drop_repeated_pairs(rows, Counter())] == ["1", "3", "4"]


def test_views_add_nothing_to_rows() -> None:
    source = row("r", "ask this", LONG, "my-domain")
    made = list(views([source], max_document_words=30, seed=0))
    known = set(f"{LONG} ask this my domain".split())
    assert {view.id.partition("@")[2].rstrip("0123456789") for view in made} == {
        "",
        "named",
        "first",
        "sentence",
        "crop",
    }
    assert all(set(f"{view.query} {view.document}".split()) <= known for view in made)
    assert all(len(view.document.split()) <= 30 for view in made)
    assert len({view.id for view in made}) == len(made)


def test_crop_leaves_surrounding_text() -> None:
    distinct = " ".join(f"word{i}" for i in range(60))
    made = views([row("r", "ask this", distinct)], max_document_words=60, seed=0)
    crops = [view for view in made if "@crop" in view.id]
    assert len(crops) == 12
    for view in crops:
        assert view.query in distinct
        assert sorted(f"{view.query} {view.document}".split()) == sorted(distinct.split())


def test_sentence_leaves_surrounding_text() -> None:
    sentences = [f"{name} " + " ".join(f"{name.lower()}{i}" for i in range(8)) + "." for name in ("One", "Two", "Six")]
    made = list(views([row("r", "ask this", " ".join(sentences))], max_document_words=60, seed=0))
    found = {view.id: (view.query, view.document) for view in made if "@sentence" in view.id or "@first" in view.id}
    others = {sentence: [other for other in sentences if other != sentence] for sentence in sentences}
    expected = {f"r@sentence{n}": (one, " ".join(others[one])) for n, one in enumerate(sentences)}
    assert found == {"r@first": ("ask this", sentences[0]), **expected}


def test_views_are_function_of_seed() -> None:
    rows = [row(str(i), "ask this", LONG) for i in range(5)]
    made = [list(views(rows, max_document_words=30, seed=seed)) for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]

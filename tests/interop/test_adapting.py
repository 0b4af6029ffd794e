"""Adapted folders hold stock modules with the vectors W (x − m). Corpora are read in several formats."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from repro.cli.main import app
from repro.data.beir import Retrieval, find_collections, write_beir_folder, write_suite
from repro.data.own.imported import import_source
from repro.evaluate.adaptation import DEFAULT_SHRINKAGE, Moments, make_whitening_map, normalize
from repro.interop.adapting import (
    adapt_model,
    append_map,
    fit_whitening_map,
    read_distinct_documents,
)
from repro.interop.corpus import find_corpus
from repro.interop.sentence_transformers_folder import as_sentence_transformer, export_sentence_transformers
from repro.interop.trained_on import find_training_run, write_trained_on
from repro.spec import base
from repro.spec.identity import run_id
from repro.spec.registry import find_experiment
from tests.commands import ignore, run_command
from tests.data.files import write_rows
from tests.interop.small import TEXTS, WORDS, make_model

DOCUMENTS = [f"{word} about {other} and {word} number {n}" for n, word in enumerate(WORDS[:7]) for other in WORDS[:7]]


def write_lines(path: Path, texts: list[str]) -> Path:
    """Write one text per line."""
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def test_adapted_folder_matches_the_map(tmp_path: Path) -> None:
    """The library alone gives the vectors W (x − m) / |W (x − m)|, with the prompts and the training run of the model."""
    model, run = make_model("biencoder"), base("smoke", seed=3)
    export_sentence_transformers(model, tmp_path / "plain")
    write_trained_on(tmp_path / "plain", run)
    corpus = write_lines(tmp_path / "corpus.txt", DOCUMENTS)
    adapt_model(str(tmp_path / "plain"), str(corpus), tmp_path / "out", shrinkage=0.7, progress=ignore)
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert all(type(module).__module__.startswith("sentence_transformers.") for module in theirs)
    assert theirs.prompts == SentenceTransformer(str(tmp_path / "plain"), device="cpu").prompts
    # An evaluation needs the run to count the queries that the model was trained on.
    assert find_training_run(str(tmp_path / "out")) == run
    fitted = make_whitening_map(Moments.of(model.encode(DOCUMENTS, "document")), 0.7)
    for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        raw = model.encode(TEXTS, role).astype(np.float64)
        expected = normalize((raw - fitted.mean_H) @ fitted.weight_HH.T)
        np.testing.assert_allclose(encode(TEXTS, show_progress_bar=False), expected, atol=1e-5, rtol=0)


def test_whitening_respects_the_similarity(tmp_path: Path) -> None:
    """A cosine model without `Normalize` gets one before the map. A model with `dot` keeps raw vectors."""
    model = as_sentence_transformer(make_model("biencoder"))
    for similarity, is_unit in (("cosine", True), ("dot", False)):
        bare = SentenceTransformer(modules=list(model)[:-1], similarity_fn_name=similarity, device="cpu")
        fitted = fit_whitening_map(bare, DOCUMENTS, DEFAULT_SHRINKAGE)
        adapted = append_map(bare, fitted)
        assert sum(isinstance(module, Normalize) for module in adapted) == 1 + is_unit
        raw = bare.encode(TEXTS, normalize_embeddings=is_unit, show_progress_bar=False)
        np.testing.assert_allclose(adapted.encode(TEXTS, show_progress_bar=False), fitted(raw), atol=1e-5, rtol=0)
        assert adapted.similarity_fn_name == similarity


def test_passage_prompts_become_document_prompts() -> None:
    """`encode_document` of the library reads documents as the map was fitted, also if their prompt is named "passage"."""
    stock = as_sentence_transformer(make_model("biencoder"))
    prompts = {"query": "rain ", "passage": "cloud "}
    named = SentenceTransformer(modules=list(stock), prompts=prompts, device="cpu")
    fitted = fit_whitening_map(named, DOCUMENTS, DEFAULT_SHRINKAGE)
    adapted = append_map(named, fitted)
    for text, encode in (("rain ", adapted.encode_query), ("cloud ", adapted.encode_document)):
        raw = stock.encode([text + other for other in TEXTS], prompt="", show_progress_bar=False)
        np.testing.assert_allclose(encode(TEXTS, show_progress_bar=False), fitted(raw), atol=1e-5, rtol=0)


def test_corpora_are_read_in_each_format(tmp_path: Path) -> None:
    """Title and text are joined. Empty and repeated documents are skipped and counted."""
    rows = [
        {"_id": "a", "title": "Rain", "text": "falls"},
        {"_id": "b", "text": "snow"},
        {"_id": "c", "text": " "},
        {"_id": "d", "text": "snow"},
    ]
    corpus = write_lines(tmp_path / "corpus.jsonl", [json.dumps(row) for row in rows])
    # The second source is the folder of a BEIR collection.
    for source in (corpus, tmp_path):
        lines: list[str] = []
        assert read_distinct_documents(str(source), lines.append)[0] == ["Rain falls", "snow"]
        assert "1 empty, 1 repeated" in lines[-1]


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("quotes.tsv", 'id\tpassage\n1\t"start\n2\tmiddle\n3\tend"\n', ['"start', "middle", 'end"']),
        ("quotes.csv", 'id,passage\n1,"a, b"\n2,c\n', ["a, b", "c"]),
        ("semicolons.csv", "passage;n\nbread, salt;1\n", ["bread, salt"]),
        ("case.csv", "ID,Title,Text,text \n1,Rain,falls,no\n", ["Rain falls"]),
        ("title.csv", "Id,Title,text,Passage\n1,Rain,falls,no\n", ["Rain falls"]),
        ("more_cells.csv", "id,passage\n1,hello, world\n", None),
        ("fewer_cells.csv", "passage,id\nhello,1\nworld\n", None),
        ("twice.csv", "passage,passage\na,b\n", None),
        ("latin.csv", b"passage\nna\xefve\n", None),
        ("no_column.csv", "id,words\n1,a\n", None),
    ],
)
def test_tables_are_read_like_imports(tmp_path: Path, name: str, content: str | bytes, texts: list[str] | None) -> None:
    """Quotes in a .tsv are letters. A row with an extra comma is refused, since half of its text would be lost."""
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    if texts is None:
        with pytest.raises(ValueError, match=rf"{name}, line \d"):
            read_distinct_documents(str(tmp_path / name), ignore)
    else:
        assert read_distinct_documents(str(tmp_path / name), ignore)[0] == texts


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_unread_text_columns_are_named(tmp_path: Path, ending: str) -> None:
    """With several columns that may hold the document, one is read. The others must not be dropped silently."""
    content = {
        "jsonl": ['{"id": "a", "passage": "long text", "answer": "short"}'],
        "csv": ["id,passage,answer", "a,long text,short"],
    }
    corpus = write_lines(tmp_path / f"corpus.{ending}", content[ending])
    lines: list[str] = []
    assert read_distinct_documents(str(corpus), lines.append)[0] == ["short"]
    assert "from the column 'answer'; not read: ['passage']" in lines[0]
    titled = write_lines(tmp_path / "titled.jsonl", ['{"id": "a b", "title": "T", "text": "x"}'])
    assert read_distinct_documents(str(titled), lines.append)[0] == ["T x"]
    assert any("after their title" in line for line in lines)


def test_name_of_folder_is_that_of_evaluate(tmp_path: Path) -> None:
    """`search` and `evaluate` draw a context by the name of the collection, so both must use the same one."""
    folder = tmp_path / "My things"
    write_beir_folder(folder, Retrieval("things", ("a",), ("rain",), ("q",), ("rain",), {"q": {"a": 1}}))
    assert find_corpus(str(folder)).name == find_collections(folder)[0].name == "My-things"


def test_ids_are_found_in_any_case(tmp_path: Path) -> None:
    """A search returns the ids of the file, not the numbers of its lines."""
    corpus = write_lines(tmp_path / "corpus.csv", ["ID,Title,text", "x7,Rain,falls"])
    assert find_corpus(str(corpus)).read()[0] == {"x7": "Rain falls"}


def test_other_collections_are_another_corpus(tmp_path: Path) -> None:
    """An index of a folder is stale if suite.json lists other collections."""
    for name in ("ants", "bees"):
        documents = {"document_ids": ("d",), "documents": (name,), "query_ids": ("q",), "queries": (name,)}
        write_beir_folder(tmp_path / name, Retrieval(name, judgements={"q": {"d": 1}}, **documents))
    digests = set()
    for listed in (["ants"], ["ants", "bees"]):
        write_suite(tmp_path, "zoo", [(name, "insects") for name in listed])
        corpus = find_corpus(str(tmp_path))
        assert sorted(corpus.read()[0].values()) == listed
        digests.add(corpus.digest)
    assert len(digests) == 2


def test_linked_collections_are_hashed(tmp_path: Path) -> None:
    """An index of a folder of links is stale if a collection behind a link changes."""
    (tmp_path / "zoo").mkdir()
    digests = set()
    for text in ("rain", "snow falls"):
        collection = Retrieval("ants", ("d",), (text,), ("q",), ("rain",), {"q": {"d": 1}})
        write_beir_folder(tmp_path / "elsewhere", collection)
        if not digests:
            (tmp_path / "zoo" / "ants").symlink_to(tmp_path / "elsewhere")
        corpus = find_corpus(str(tmp_path / "zoo"))
        assert list(corpus.read()[0].values()) == [text]
        digests.add(corpus.digest)
    assert len(digests) == 2


def test_role_of_questions_follows_the_content(tmp_path: Path) -> None:
    """A folder with the name of Quora may lack queries. If it has some, they decide the prompt of its documents."""
    folder = tmp_path / "quora"
    documents = ("is it rain", "will it rain")
    write_beir_folder(folder, Retrieval("quora", ("a", "b"), documents, ("a",), documents[:1], {"a": {"b": 1}}))
    keys = set()
    for name, role in (("", "query"), ("queries.jsonl", "document"), ("qrels/test.tsv", "document")):
        if name:
            (folder / name).rename(folder / "moved")
        corpus = find_corpus(str(folder))
        assert corpus.document_role == role
        keys.add((role, corpus.key))
        if name:
            (folder / "moved").rename(folder / name)
    assert len(keys) == len({key for _, key in keys}) == 2


def test_imported_questions_have_the_prompt_of_queries(tmp_path: Path) -> None:
    """The peculiarities of an imported collection are stored with it, and `evaluate` follows them."""
    documents = ("is it rain", "will it rain")
    collection = Retrieval("quora", ("a", "b"), documents, ("a",), documents[:1], {"a": {"b": 1}})
    write_beir_folder(tmp_path / "quora", collection)
    import_source(tmp_path / "quora", name="asked")
    assert find_corpus("asked").document_role == find_corpus(str(tmp_path / "quora")).document_role == "query"


def test_texts_equal_in_evaluations_are_one_document(tmp_path: Path) -> None:
    """White space and the Unicode form do not make another document."""
    rows = [{"query": f"q {n}", "document": f"caf\u00e9 number {n}"} for n in range(200)]
    rows += [{"query": f"ask {n}", "document": f"cafe\u0301  number {n} \n"} for n in range(200)]
    import_source(write_rows(tmp_path / "x.jsonl", rows), name="twice")
    assert len(find_corpus("twice").read()[0]) == 200


def test_empty_documents_are_no_corpus(tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "empty.csv", ["passage", " "])
    with pytest.raises(ValueError, match="document"):
        read_distinct_documents(str(corpus), ignore)


def test_text_without_a_vector_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error names the text whose vector has NaN, before the eigenvalues fail."""
    model = as_sentence_transformer(make_model("biencoder"))

    def encode(texts: list[str], **options: Any) -> np.ndarray:
        vectors_NH = np.random.default_rng(0).normal(size=(len(texts), 16))
        vectors_NH[5] = np.nan
        return vectors_NH

    monkeypatch.setattr(model, "encode", encode)
    with pytest.raises(ValueError, match=f"1 text, first '{DOCUMENTS[5]}'"):
        fit_whitening_map(model, DOCUMENTS, DEFAULT_SHRINKAGE)
    with pytest.raises(ValueError, match="1 of 49 document vectors"):
        Moments.of(encode(DOCUMENTS))


def test_adapt_writes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command warns about a small corpus, and refuses impossible requests without writing a folder."""
    model, out = tmp_path / "plain", tmp_path / "out"
    export_sentence_transformers(make_model("biencoder"), model)
    few = write_lines(tmp_path / "few.txt", DOCUMENTS[:9])
    single = write_lines(tmp_path / "single.txt", DOCUMENTS[:1])

    def adapt(corpus: Path, folder: Path) -> None:
        words = ["adapt", str(model), "--corpus", str(corpus), "--to", str(folder)]
        app(words, standalone_mode=False)

    adapt(few, out)
    assert "only 9 documents" in capsys.readouterr().out and (out / "modules.json").is_file()
    other = tmp_path / "other"
    for corpus, folder, message in ((few, out, "not empty"), (single, other, "at least 2")):
        with pytest.raises(ValueError, match=message):
            adapt(corpus, folder)
    assert not other.exists()


def test_gain_can_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The printed command compares the folder with the model that it was made of."""
    model, corpus = tmp_path / "plain", tmp_path / "my corpus"
    export_sentence_transformers(make_model("biencoder"), model)
    ids = tuple(f"d{n}" for n in range(len(DOCUMENTS)))
    judgements = {f"q{n}": {f"d{n}": 1} for n in range(4)}
    write_beir_folder(corpus, Retrieval("c", ids, tuple(DOCUMENTS), tuple(judgements), tuple(TEXTS[:4]), judgements))
    adapted = str(tmp_path / "out")
    words = ["adapt", str(model), "--corpus", str(corpus), "--to", adapted, "--shrinkage", "0.7"]
    app(words, standalone_mode=False)
    program, *command = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert program == "repro"
    assert shlex.join(command) == f"evaluate --compare {adapted} {model} --suite '{corpus}'"
    app([*command, "--out", str(tmp_path / "scores"), "--no-bm25"], standalone_mode=False)
    assert "out − plain" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["quora", "things"])
def test_adapted_folder_scores_like_whitening(tmp_path: Path, name: str) -> None:
    """The folder scores as `evaluate --whiten own` does, also if documents have the prompt of queries."""
    model, corpus = tmp_path / "plain", tmp_path / name
    export_sentence_transformers(make_model("biencoder"), model)
    # as in Quora, queries are documents, and another document is relevant
    ids = tuple(f"d{n}" for n in range(len(DOCUMENTS)))
    judgements = {f"d{n}": {f"d{n + 1}": 1} for n in range(4)}
    write_beir_folder(corpus, Retrieval(name, ids, tuple(DOCUMENTS), ids[:4], tuple(DOCUMENTS[:4]), judgements))
    adapt_model(str(model), str(corpus), tmp_path / "out", shrinkage=0.7, progress=ignore)
    words = ("evaluate", "--suite", str(corpus), "--no-bm25", "--json", "--model")
    whitened = json.loads(run_command(*words, str(model), "--whiten", "own", "--shrinkage", "0.7"))["metrics"]
    adapted = json.loads(run_command(*words, str(tmp_path / "out")))["metrics"]
    assert adapted[f"{name}/mean/ndcg_at_10"] == pytest.approx(whitened[f"{name}+whitened/mean/ndcg_at_10"], abs=1e-6)


def test_contextual_models_are_refused(tmp_path: Path) -> None:
    """Stock modules cannot hold a context."""
    export_sentence_transformers(make_model("contextual"), tmp_path / "plain")
    corpus = write_lines(tmp_path / "corpus.txt", DOCUMENTS)
    with pytest.raises(ValueError, match=f"contextual.*--model {tmp_path / 'plain'} --suite"):
        adapt_model(str(tmp_path / "plain"), str(corpus), tmp_path / "out", progress=ignore)
    runs = find_experiment("table1").runs("smoke")
    untrained = next(run_id(run) for run in runs if run.architecture == "contextual")
    with pytest.raises(ValueError, match=f"contextual.*--model {untrained} --suite"):
        adapt_model(untrained, str(corpus), tmp_path / "out", progress=lambda line: pytest.fail(f"not refused: {line}"))


def test_narrow_exports_are_adapted(tmp_path: Path) -> None:
    """An export of fewer dimensions is adapted. A model that is truncated after its last module is refused."""
    model, corpus = make_model("biencoder"), write_lines(tmp_path / "corpus.txt", DOCUMENTS)
    export_sentence_transformers(model, tmp_path / "narrow", width=8)
    adapt_model(str(tmp_path / "narrow"), str(corpus), tmp_path / "out", progress=ignore)
    prefixes = normalize(model.encode([*DOCUMENTS, *TEXTS], "document")[:, :8])
    fitted = make_whitening_map(Moments.of(prefixes[: len(DOCUMENTS)]), DEFAULT_SHRINKAGE)
    vectors = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode_document(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(vectors, fitted(prefixes[len(DOCUMENTS) :]), atol=1e-4, rtol=0)
    export_sentence_transformers(model, tmp_path / "plain")
    cut = SentenceTransformer(str(tmp_path / "plain"), device="cpu", truncate_dim=8)
    cut.save_pretrained(str(tmp_path / "cut"), create_model_card=False)
    with pytest.raises(ValueError, match="truncated to 8 dimensions"):
        adapt_model(str(tmp_path / "cut"), str(corpus), tmp_path / "other", progress=ignore)

"""Adapted folders hold stock modules with the vectors W (x − m). Corpora are read in several formats."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize

from repro.data.beir import Retrieval, find_collections, write_beir_folder
from repro.data.own.imported import import_source
from repro.evaluate.adaptation import DEFAULT_SHRINKAGE, Moments, make_whitening_map, normalize
from repro.interop.adapting import adapt_model, append_map, fit_whitening_map, read_distinct_documents
from repro.interop.corpus import read_corpus
from repro.interop.sentence_transformers_folder import (
    as_sentence_transformer,
    export_sentence_transformers,
    save_stock_modules,
)
from repro.interop.stock_encoder import StockEncoder
from repro.interop.trained_on import find_training_run, write_trained_on
from repro.spec import base
from repro.storage.files import read_json
from tests.commands import ignore, run_command
from tests.data.files import write_rows
from tests.interop.small import TEXTS, WORDS, evaluate, make_model

DOCUMENTS = [f"{word} about {other} and {word} number {n}" for n, word in enumerate(WORDS[:7]) for other in WORDS[:7]]


def write_lines(path: Path, texts: list[str]) -> Path:
    """Write one text per line."""
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def adapted(tmp_path: Path) -> Path:
    """A folder adapted from `plain`, an export of the small biencoder, by `corpus.txt`."""
    export_sentence_transformers(make_model("biencoder", backbone="bert"), tmp_path / "plain")
    write_trained_on(tmp_path / "plain", base("smoke", seed=3))
    corpus = write_lines(tmp_path / "corpus.txt", DOCUMENTS)
    adapt_model(str(tmp_path / "plain"), str(corpus), tmp_path / "out", progress=ignore)
    return tmp_path / "out"


def test_adapted_folder_matches_the_map(adapted: Path) -> None:
    """The library alone gives the vectors W (x − m) / |W (x − m)|, with the prompts and the training run of the model."""
    model, theirs = make_model("biencoder", backbone="bert"), SentenceTransformer(str(adapted), device="cpu")
    assert theirs.prompts == SentenceTransformer(str(adapted.parent / "plain"), device="cpu").prompts
    # An evaluation needs the run to count the queries that the model was trained on.
    assert find_training_run(str(adapted)) == base("smoke", seed=3)
    fitted = make_whitening_map(Moments.of(model.encode(DOCUMENTS, "document")), DEFAULT_SHRINKAGE)
    for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        raw = model.encode(TEXTS, role).astype(np.float64)
        expected = normalize((raw - fitted.mean_H) @ fitted.weight_HH.T)
        np.testing.assert_allclose(encode(TEXTS, show_progress_bar=False), expected, atol=1e-5, rtol=0)


def test_exports_and_adapted_folders_share_a_format(adapted: Path) -> None:
    """It is that of sentence-transformers 3, which version 6 reads, too. The card has the line that installs it."""
    for folder, num_dense in ((adapted.parent / "plain", 2), (adapted, 3)):
        modules = json.loads((folder / "modules.json").read_text())
        kinds = [module["type"].removeprefix("sentence_transformers.models.") for module in modules]
        assert {*kinds} == {"Transformer", "Pooling", "Dense", "Normalize"} and kinds.count("Dense") == num_dense
        pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
        assert pooling["word_embedding_dimension"] == 16 and pooling["pooling_mode_mean_tokens"]
        for module, kind in zip(modules, kinds, strict=True):
            keys = json.loads((folder / module["path"] / "config.json").read_text()).keys()
            assert kind != "Dense" or keys == {"in_features", "out_features", "bias", "activation_function"}
        assert json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"] == 40
    assert "pip install" in (adapted / "README.md").read_text()


def test_settings_of_version_6_survive(tmp_path: Path) -> None:
    """A residual Dense and lengths by role have no earlier form. They are saved as they are, and evaluated as stored."""
    stock = as_sentence_transformer(make_model("biencoder", backbone="bert"))
    stock[0].query_length, stock[0].document_length = 4, 6
    dense = Dense(16, 16, use_residual=True)
    bare = SentenceTransformer(modules=[stock[0], stock[1], dense], device="cpu")
    save_stock_modules(bare, tmp_path)
    opened = SentenceTransformer(str(tmp_path), device="cpu")
    for role, encode in (("query", bare.encode_query), ("document", bare.encode_document)):
        expected = normalize(encode(DOCUMENTS, show_progress_bar=False))
        np.testing.assert_allclose(StockEncoder(opened).encode(DOCUMENTS, role), expected, atol=1e-6, rtol=0)
    assert StockEncoder(opened).longest == 6


@pytest.mark.parametrize("mode", ["cls", "max", "lasttoken", ("max", "mean"), ("mean", "max")])
def test_pooling_survives_the_old_format(tmp_path: Path, mode: Any) -> None:
    stock = as_sentence_transformer(make_model("biencoder", backbone="bert"))
    pooling = type(stock[1])(16, pooling_mode=mode, include_prompt=False)
    bare = SentenceTransformer(modules=[stock[0], pooling], device="cpu")
    save_stock_modules(bare, tmp_path)
    opened = SentenceTransformer(str(tmp_path), device="cpu")
    assert opened[1].pooling_mode == mode and not opened[1].include_prompt
    np.testing.assert_allclose(opened.encode(TEXTS), bare.encode(TEXTS), atol=1e-6, rtol=0)
    assert (read_json(tmp_path / "1_Pooling" / "config.json").get("pooling_mode") is None) == (mode != ("mean", "max"))


def test_whitening_respects_the_similarity() -> None:
    """A cosine model without `Normalize` gets one before the map. A model with `dot` keeps raw vectors."""
    model = as_sentence_transformer(make_model("biencoder"))
    for similarity, is_unit in (("cosine", True), ("dot", False)):
        bare = SentenceTransformer(modules=list(model)[:-1], similarity_fn_name=similarity, device="cpu")
        fitted = fit_whitening_map(bare, DOCUMENTS)
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
    fitted = fit_whitening_map(named, DOCUMENTS)
    adapted = append_map(named, fitted)
    for text, encode in (("rain ", adapted.encode_query), ("cloud ", adapted.encode_document)):
        raw = stock.encode([text + other for other in TEXTS], prompt="", show_progress_bar=False)
        np.testing.assert_allclose(encode(TEXTS, show_progress_bar=False), fitted(raw), atol=1e-5, rtol=0)


def test_documents_are_distinct(tmp_path: Path) -> None:
    """Title and text are joined. Empty and repeated documents are skipped and counted. Columns not read are named."""
    rows = ["ID,title,passage,text", "a,Rain,no,falls", "b,,no,snow", "c,,no, ", "d,,no,snow"]
    path = write_lines(tmp_path / "corpus.csv", rows)
    lines: list[str] = []
    assert read_distinct_documents(read_corpus(str(path), lines.append), lines.append) == ["Rain falls", "snow"]
    assert "'text'" in lines[0] and "['passage']" in lines[0] and "1 empty, 1 repeated" in lines[1]
    assert read_corpus(str(path)).documents == {"a": "Rain falls", "b": "snow", "c": "", "d": "snow"}
    write_lines(path, [*rows, "d,,no,twice"])
    with pytest.raises(ValueError, match=r"corpus\.csv, line 6"):
        read_corpus(str(path))


def test_folders_are_named_as_in_evaluate(tmp_path: Path) -> None:
    """`search` and `evaluate` draw a context by the name of the collection, so both must use the same one."""
    folder = tmp_path / "My things"
    write_beir_folder(folder, Retrieval("things", ("a",), ("rain",), ("q",), ("rain",), {"q": {"a": 1}}))
    assert read_corpus(str(folder)).name == find_collections(folder).datasets[0].name == "My-things"


def test_role_of_questions_follows_the_content(tmp_path: Path) -> None:
    """A folder with the name of Quora may lack queries. If it has some, they decide the prompt of its documents."""
    folder = tmp_path / "quora"
    documents = ("is it rain", "will it rain")
    write_beir_folder(folder, Retrieval("quora", ("a", "b"), documents, ("a",), documents[:1], {"a": {"b": 1}}))
    import_source(folder, name="asked")
    # the peculiarities of an imported collection are stored with it
    assert read_corpus("asked").document_role == read_corpus(str(folder)).document_role == "query"
    (folder / "queries.jsonl").unlink()
    assert read_corpus(str(folder)).document_role == "document"


def test_equal_texts_are_one_document(tmp_path: Path) -> None:
    """White space, the Unicode form, case and a full stop do not make another document, as in the hold-out."""
    rows = [{"query": f"q {n}", "document": f"caf\u00e9 number {n}"} for n in range(200)]
    rows += [{"query": f"ask {n}", "document": f"Cafe\u0301  number {n}. \n"} for n in range(200)]
    import_source(write_rows(tmp_path / "x.jsonl", rows), name="twice")
    assert len(read_corpus("twice").documents) == 200


def test_text_without_a_vector_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error names the text whose vector has NaN, before the eigenvalues fail."""
    model = as_sentence_transformer(make_model("biencoder"))

    def encode(texts: list[str], **options: Any) -> np.ndarray:
        vectors_NH = np.random.default_rng(0).normal(size=(len(texts), 16))
        vectors_NH[5] = np.nan
        return vectors_NH

    monkeypatch.setattr(model, "encode", encode)
    with pytest.raises(ValueError, match=DOCUMENTS[5]):
        fit_whitening_map(model, DOCUMENTS)
    with pytest.raises(ValueError, match="1 of 49"):
        Moments.of(encode(DOCUMENTS))


def test_adapted_folder_scores_like_whitening(tmp_path: Path) -> None:
    """The folder scores as `evaluate --whiten own` does, also if documents have the prompt of queries.

    The printed command compares it with its model.
    """
    model, corpus = tmp_path / "plain", tmp_path / "quora"
    export_sentence_transformers(make_model("biencoder"), model)
    # as in Quora, queries are documents, and another document is relevant
    ids = tuple(f"d{n}" for n in range(len(DOCUMENTS)))
    judgements = {f"d{n}": {f"d{n + 1}": 1} for n in range(4)}
    write_beir_folder(corpus, Retrieval("c", ids, tuple(DOCUMENTS), ids[:4], tuple(DOCUMENTS[:4]), judgements))
    output = run_command("adapt", str(model), "--corpus", str(corpus), "--to", str(tmp_path / "out"))
    program, *command = shlex.split(output.splitlines()[-1])
    whitened = evaluate("--model", str(model), "--whiten", "own", suite=str(corpus))["metrics"]
    compared = json.loads(run_command(*command, "--no-bm25", "--json"))
    path = "quora/mean/ndcg_at_10"
    assert program == "repro" and compared["beside"]["plain"][path] == whitened[path]
    assert compared["metrics"][path] == pytest.approx(whitened["quora+whitened/mean/ndcg_at_10"], abs=1e-6)


def test_late_truncation_is_refused(tmp_path: Path) -> None:
    """A model that is truncated after its last module would cut the map."""
    corpus = write_lines(tmp_path / "corpus.txt", DOCUMENTS)
    export_sentence_transformers(make_model("biencoder"), tmp_path / "plain")
    cut = SentenceTransformer(str(tmp_path / "plain"), device="cpu", truncate_dim=8)
    cut.save_pretrained(str(tmp_path / "cut"), create_model_card=False)
    with pytest.raises(ValueError, match="8 dimensions"):
        adapt_model(str(tmp_path / "cut"), str(corpus), tmp_path / "other", progress=ignore)

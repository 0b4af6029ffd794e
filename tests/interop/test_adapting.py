"""Adapted folders hold stock modules with the vectors W (x − m). Corpora are read in several formats."""

import fcntl
import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from repro.data.beir import Retrieval, find_collections, write_beir_folder
from repro.data.own.imported import import_source
from repro.evaluate.adaptation import DEFAULT_SHRINKAGE, Moments, make_whitening_map, normalize
from repro.interop.adapting import adapt_model, append_map, fit_whitening_map, read_distinct_documents
from repro.interop.corpus import find_corpus
from repro.interop.sentence_transformers_folder import (
    as_sentence_transformer,
    export_sentence_transformers,
    save_stock_modules,
)
from repro.interop.trained_on import find_training_run, write_trained_on
from repro.spec import base
from repro.spec.identity import run_id
from repro.spec.registry import find_experiment
from tests.commands import get_exit_code, ignore, run_command
from tests.data.files import write_rows
from tests.interop.small import TEXTS, WORDS, make_model

DOCUMENTS = [f"{word} about {other} and {word} number {n}" for n, word in enumerate(WORDS[:7]) for other in WORDS[:7]]


def write_lines(path: Path, texts: list[str]) -> Path:
    """Write one text per line."""
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def read_documents(path: Path) -> list[str]:
    return read_distinct_documents(find_corpus(str(path)), ignore)


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


OPEN = """
import sys, numpy as np, sentence_transformers
model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
np.save(sys.argv[2], model.encode(sys.argv[3:], prompt_name="query", show_progress_bar=False))
"""


@pytest.mark.skipif("REPRO_OTHER_PYTHONS" not in os.environ, reason="needs environments with other versions")
def test_other_versions_open_the_folders(adapted: Path) -> None:
    """REPRO_OTHER_PYTHONS lists interpreters of environments with sentence-transformers 3 to 5, split by colons."""
    adapt_model("minilm", str(adapted.parent / "corpus.txt"), adapted.parent / "minilm", progress=ignore)
    for folder in (adapted.parent / "plain", adapted, adapted.parent / "minilm"):
        ours = SentenceTransformer(str(folder), device="cpu").encode(
            TEXTS, prompt_name="query", show_progress_bar=False
        )
        for python in os.environ["REPRO_OTHER_PYTHONS"].split(":"):
            target = adapted.parent / "vectors.npy"
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            command = [python, "-c", OPEN, str(folder), str(target), *TEXTS]
            subprocess.run(command, check=True, env=environment, cwd=adapted.parent)
            np.testing.assert_allclose(np.load(target), ours, atol=1e-5, rtol=0, err_msg=f"{python} {folder}")


@pytest.mark.parametrize("mode", ["cls", "max", "lasttoken", ("mean", "max")])
def test_pooling_survives_the_old_format(tmp_path: Path, mode: Any) -> None:
    stock = as_sentence_transformer(make_model("biencoder", backbone="bert"))
    pooling = type(stock[1])(16, pooling_mode=mode, include_prompt=False)
    bare = SentenceTransformer(modules=[stock[0], pooling], device="cpu")
    save_stock_modules(bare, tmp_path)
    opened = SentenceTransformer(str(tmp_path), device="cpu")
    assert {*np.atleast_1d(opened[1].pooling_mode)} == {*np.atleast_1d(mode)} and not opened[1].include_prompt
    np.testing.assert_array_equal(opened.encode(TEXTS).shape, bare.encode(TEXTS).shape)


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
        assert read_distinct_documents(find_corpus(str(source)), lines.append) == ["Rain falls", "snow"]
        assert "1 empty, 1 repeated" in lines[-1]


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("quotes.tsv", 'id\tpassage\n1\t"start\n2\tmiddle\n3\tend"\n', ['"start', "middle", 'end"']),
        ("quotes.csv", 'id,passage\n1,"a, b"\n2,c\n', ["a, b", "c"]),
        ("title.csv", "Id,Title,text,Passage\n1,Rain,falls,no\n", ["Rain falls"]),
        ("more_cells.csv", "id,passage\n1,hello, world\n", None),
        ("fewer_cells.csv", "passage,id\nhello,1\nworld\n", None),
        ("latin.csv", b"passage\nna\xefve\n", None),
        ("no_column.csv", "id,words\n1,a\n", None),
        ("empty.csv", "passage\n \n", None),
    ],
)
def test_tables_are_read_like_imports(tmp_path: Path, name: str, content: str | bytes, texts: list[str] | None) -> None:
    """Quotes in a .tsv are letters. A row with an extra comma is refused, since half of its text would be lost."""
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    if texts is None:
        with pytest.raises(ValueError, match=name):
            read_documents(tmp_path / name)
    else:
        assert read_documents(tmp_path / name) == texts


def test_unread_text_columns_are_named(tmp_path: Path) -> None:
    """With several columns that may hold the document, one is read. The others must not be dropped silently."""
    corpus = write_lines(tmp_path / "corpus.csv", ["ID,passage,answer", "x7,long text,short"])
    lines: list[str] = []
    assert read_distinct_documents(find_corpus(str(corpus)), lines.append) == ["short"]
    assert "'answer'" in lines[0] and "['passage']" in lines[0]
    assert find_corpus(str(corpus)).read() == {"x7": "short"}


def test_folders_are_named_as_in_evaluate(tmp_path: Path) -> None:
    """`search` and `evaluate` draw a context by the name of the collection, so both must use the same one."""
    folder = tmp_path / "My things"
    write_beir_folder(folder, Retrieval("things", ("a",), ("rain",), ("q",), ("rain",), {"q": {"a": 1}}))
    assert find_corpus(str(folder)).name == find_collections(folder)[0].name == "My-things"


def test_role_of_questions_follows_the_content(tmp_path: Path) -> None:
    """A folder with the name of Quora may lack queries. If it has some, they decide the prompt of its documents."""
    folder = tmp_path / "quora"
    documents = ("is it rain", "will it rain")
    write_beir_folder(folder, Retrieval("quora", ("a", "b"), documents, ("a",), documents[:1], {"a": {"b": 1}}))
    import_source(folder, name="asked")
    # the peculiarities of an imported collection are stored with it
    assert find_corpus("asked").document_role == find_corpus(str(folder)).document_role == "query"
    (folder / "queries.jsonl").unlink()
    assert find_corpus(str(folder)).document_role == "document"


def test_equal_texts_are_one_document(tmp_path: Path) -> None:
    """White space and the Unicode form do not make another document."""
    rows = [{"query": f"q {n}", "document": f"caf\u00e9 number {n}"} for n in range(200)]
    rows += [{"query": f"ask {n}", "document": f"cafe\u0301  number {n} \n"} for n in range(200)]
    import_source(write_rows(tmp_path / "x.jsonl", rows), name="twice")
    assert len(find_corpus("twice").read()) == 200


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


def test_impossible_requests_write_nothing(tmp_path: Path) -> None:
    export_sentence_transformers(make_model("biencoder"), tmp_path / "plain")
    single = write_lines(tmp_path / "single.txt", DOCUMENTS[:1])
    with pytest.raises(ValueError, match="at least 2"):
        run_command("adapt", str(tmp_path / "plain"), "--corpus", str(single), "--to", str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    with pytest.raises(ValueError, match="not empty"):
        run_command("adapt", str(tmp_path / "plain"), "--corpus", str(single), "--to", str(tmp_path / "plain"))


@pytest.mark.parametrize("name", ["quora", "my things"])
def test_adapted_folder_scores_like_whitening(tmp_path: Path, name: str) -> None:
    """The folder scores as `evaluate --whiten own` does, also if documents have the prompt of queries.

    The printed command compares it with its model.
    """
    model, corpus = tmp_path / "plain", tmp_path / name
    export_sentence_transformers(make_model("biencoder"), model)
    # as in Quora, queries are documents, and another document is relevant
    ids = tuple(f"d{n}" for n in range(len(DOCUMENTS)))
    judgements = {f"d{n}": {f"d{n + 1}": 1} for n in range(4)}
    write_beir_folder(corpus, Retrieval("c", ids, tuple(DOCUMENTS), ids[:4], tuple(DOCUMENTS[:4]), judgements))
    output = run_command("adapt", str(model), "--corpus", str(corpus), "--to", str(tmp_path / "out"))
    program, *command = shlex.split(output.splitlines()[-1])
    words = ("--suite", str(corpus), "--no-bm25", "--json")
    whitened = json.loads(run_command("evaluate", *words, "--model", str(model), "--whiten", "own"))["metrics"]
    compared = json.loads(run_command(*command, "--no-bm25", "--json"))
    suite = name.replace(" ", "-")
    path = f"{suite}/mean/ndcg_at_10"
    assert program == "repro" and compared["beside"]["plain"][path] == whitened[path]
    assert compared["metrics"][path] == pytest.approx(whitened[f"{suite}+whitened/mean/ndcg_at_10"], abs=1e-6)


@pytest.mark.parametrize("verb", ["export", "adapt"])
def test_leftovers_of_killed_writers_are_removed(tmp_path: Path, verb: str) -> None:
    """Only those of dead writers of the same folder."""
    make_model("biencoder").save_pretrained(tmp_path / "ours")
    corpus = write_lines(tmp_path / "corpus.txt", DOCUMENTS)
    dead, living, other = (tmp_path / f".{name}.part" for name in ("out.1", "out.2", "another.1"))
    for folder in (dead, living, other):
        folder.mkdir()
        (folder / "model.safetensors").touch()
    options = {"export": ("--to", "transformers"), "adapt": ("--corpus", str(corpus), "--to")}[verb]
    lock = os.open(living, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    target = str(tmp_path / "out")
    words = (target, *options) if verb == "export" else (*options, target)
    run_command(verb, str(tmp_path / "ours"), *words)
    os.close(lock)
    assert not dead.exists() and living.exists() and other.exists() and (tmp_path / "out" / "README.md").is_file()


@pytest.mark.parametrize("verb", ["export", "adapt"])
def test_full_disk_is_one_line(
    tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """safetensors has an error of its own for it. Nothing stays behind."""
    make_model("biencoder").save_pretrained(tmp_path / "ours")
    corpus = write_lines(tmp_path / "corpus.txt", DOCUMENTS)

    def fail(*arguments: Any, **options: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    for place in ("transformers.modeling_utils.safe_save_file", "repro.model.encoding.save_file"):
        monkeypatch.setattr(place, fail)
    target = str(tmp_path / "out")
    words = {"export": (target, "--to", "transformers"), "adapt": ("--corpus", str(corpus), "--to", target)}[verb]
    assert get_exit_code(verb, str(tmp_path / "ours"), *words) == 2
    assert "No space left" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == []


def test_contextual_models_are_refused(tmp_path: Path) -> None:
    """Stock modules cannot hold a context."""
    export_sentence_transformers(make_model("contextual"), tmp_path / "plain")
    corpus = write_lines(tmp_path / "corpus.txt", DOCUMENTS)
    runs = find_experiment("table1").runs("smoke")
    untrained = next(run_id(run) for run in runs if run.architecture == "contextual")
    for source in (str(tmp_path / "plain"), untrained):
        with pytest.raises(ValueError, match=f"contextual.*--model {source} --suite"):
            adapt_model(source, str(corpus), tmp_path / "out", progress=ignore)


def test_late_truncation_is_refused(tmp_path: Path) -> None:
    """A model that is truncated after its last module would cut the map."""
    corpus = write_lines(tmp_path / "corpus.txt", DOCUMENTS)
    export_sentence_transformers(make_model("biencoder"), tmp_path / "plain")
    cut = SentenceTransformer(str(tmp_path / "plain"), device="cpu", truncate_dim=8)
    cut.save_pretrained(str(tmp_path / "cut"), create_model_card=False)
    with pytest.raises(ValueError, match="8 dimensions"):
        adapt_model(str(tmp_path / "cut"), str(corpus), tmp_path / "other", progress=ignore)

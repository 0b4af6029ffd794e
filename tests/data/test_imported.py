"""Imported corpora: identified by name and content, evaluated as requested, and never left half imported."""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from repro.cli.main import app
from repro.data.beir import Retrieval, Suite, load_beir, write_beir_folder
from repro.data.columns import Columns
from repro.data.own import imported
from repro.data.own.holdout import select_set_apart
from repro.data.own.imported import ImportedCorpus, find_imported, import_source, list_imported_corpora
from repro.data.pairs import Row, read_pairs
from repro.data.wording import normalize_loosely
from repro.evaluate.suites import evaluate_bm25
from repro.execute import execute
from repro.interop.corpus import find_corpus
from repro.pipeline.corpora import check_available, describe_corpus, load_run_suite, make_corpus_stage
from repro.planning.imported import Planned, plan_imported
from repro.records.lookup import read_runs, resolve_runs
from repro.spec import MTEB_SUITES, TRAINED, base
from repro.spec.identity import run_id
from repro.spec.scales import get_scale
from repro.storage.lease import acquire, lease_folder
from repro.storage.paths import get_corpora_folder, is_imported
from tests.commands import ignore
from tests.data.files import write_rows


def make_rows(num: int = 400, tail: str = "") -> list[dict[str, Any]]:
    """Return pairs of two domains. `tail` is appended to every document."""
    texts = [(f"how to mend thing {n}", f"thing {n} is mended with tool {n}{tail}") for n in range(num)]
    return [{"query": query, "document": text, "domain": "ab"[n % 2]} for n, (query, text) in enumerate(texts)]


def write_evaluation_set(folder: Path) -> Path:
    """Write a BEIR folder with one judged query, and return it."""
    write_beir_folder(folder, Retrieval(folder.name, ("d",), ("text",), ("q",), ("ask",), {"q": {"d": 1}}))
    return folder


def import_rows(tmp_path: Path, rows: list[dict[str, Any]] | None = None, **options: Any) -> ImportedCorpus:
    """Import rows as the corpus `mine`. The default is 400 pairs of two domains."""
    return import_source(write_rows(tmp_path / "x.jsonl", rows or make_rows()), **{"name": "mine", **options})


def plan(name: str = "mine", scale: str = "smoke") -> Planned:
    """Build an imported corpus and plan its runs."""
    return plan_imported(name, scale, ignore)


def load_built_suite(corpus: ImportedCorpus) -> Suite:
    """Build the corpus and return its suite."""
    make_corpus_stage(corpus.corpus).build()
    return load_run_suite(base("smoke", corpus=corpus.corpus, suite=corpus.name))


def open_collection(corpus: ImportedCorpus) -> Retrieval:
    """Build the corpus and return the only collection of its suite."""
    (dataset,) = load_built_suite(corpus).datasets
    return load_beir(dataset.path)


def find_answers(collection: Retrieval) -> dict[str, set[str]]:
    """Return the texts of the relevant documents of each query."""
    texts = dict(zip(collection.document_ids, collection.documents, strict=True))
    ids = zip(collection.queries, collection.query_ids, strict=True)
    return {query: {texts[key] for key in collection.judgements[query_id]} for query, query_id in ids}


def run_data(*words: str) -> Result:
    """Run `repro data` with these words."""
    return CliRunner().invoke(app, ["data", *words])


def test_imported_corpus_has_pairs_and_suite(tmp_path: Path) -> None:
    """A run file may use the name of the corpus. The run itself contains the digest. Stray folders are no corpora."""
    corpus = import_rows(tmp_path)
    (tmp_path / "runs.json").write_text('[{"scale": "smoke", "corpus": "mine", "suite": "mine", "num_pairs": null}]')
    (run,) = read_runs(tmp_path / "runs.json")
    assert (run.corpus, run.suite) == (corpus.corpus, "mine")
    check_available([run])
    folder = make_corpus_stage(run.corpus).build()
    report = json.loads((folder / "report.json").read_text())
    assert len(read_pairs(folder / "train.arrow")) == report["num_pairs"] == 400 - sum(report["left_out"].values())
    assert {dataset.name for dataset in load_run_suite(run).datasets} == {"all"} == set(report["suite"])
    assert describe_corpus(corpus.corpus, 1, ignore)["num_domains"] == 2
    for name in (".mine.0123.part", "mine.BAK", "a b"):
        shutil.copytree(corpus.folder, get_corpora_folder() / name)
    assert list_imported_corpora() == {"mine": corpus} and is_imported("mine") and not is_imported("desk")
    with pytest.raises(ValueError, match=r"unknown corpus 'desl'.*'mine'"):
        make_corpus_stage("desl")


def test_other_content_is_another_corpus(tmp_path: Path) -> None:
    first = import_rows(tmp_path)
    folder = make_corpus_stage(first.corpus).path
    shutil.rmtree(first.folder)
    second = import_rows(tmp_path, make_rows(tail=" today"))
    assert second.corpus != first.corpus and make_corpus_stage(second.corpus).path != folder
    with pytest.raises(ValueError, match=f"'{first.corpus}' is not available"):
        make_corpus_stage(first.corpus)
    shutil.rmtree(second.folder)
    restored = import_rows(tmp_path)
    assert restored.corpus == first.corpus and make_corpus_stage(restored.corpus).path == folder
    shutil.rmtree(restored.folder)
    assert import_rows(tmp_path, hold_out=["a"]).corpus != first.corpus


def make_collection(number: int) -> Retrieval:
    """Return two documents and a query. The relevant document has this number, BM25 ranks number 0 first."""
    documents = ("red apples grow here", "green pears grow there")
    return Retrieval("c", ("0", "1"), documents, ("q",), ("where do apples grow",), {"q": {str(number): 1}})


def test_new_text_is_another_run(tmp_path: Path) -> None:
    """Otherwise the score of the old text would be reported for the new one."""
    path, results = tmp_path / "runs.json", []
    path.write_text('[{"scale": "smoke", "architecture": "bm25", "suite": "exam"}]')
    for number in range(2):
        write_beir_folder(tmp_path / str(number) / "c", make_collection(number))
        corpus = import_source(tmp_path / str(number), name="exam")
        (run,) = read_runs(path)
        assert run.suite == corpus.corpus
        results.append((run_id(run), execute(run, progress=ignore).metrics[f"{run.suite}/mean/ndcg_at_10"]))
        shutil.rmtree(corpus.folder)
    (first, best), (second, worse) = results
    assert first != second and best == 1 > worse


@pytest.mark.parametrize("field", ["corpus", "suite"])
def test_grids_name_the_content(tmp_path: Path, field: str) -> None:
    """A grid over an imported corpus has other runs after another import, like a file of runs."""
    path = tmp_path / "grid.json"
    path.write_text(json.dumps({"runs": "table1", "scale": "smoke", "axes": {field: "mine"}}))
    identifiers: list[set[str]] = []
    for tail in ("", " again"):
        corpus = import_rows(tmp_path, make_rows(tail=tail))
        runs = [run for run in resolve_runs(["table1", f"{field}=mine"], "smoke") if run.architecture in TRAINED]
        assert {getattr(run, field) for run in runs} == {corpus.corpus} and {*runs} <= {*read_runs(path)}
        identifiers.append({run_id(run) for run in runs})
        shutil.rmtree(corpus.folder)
    assert identifiers[0].isdisjoint(identifiers[1])


def test_digest_of_earlier_text_is_refused(tmp_path: Path) -> None:
    """`search` and `adapt` take a corpus with its digest, which means this text and no other."""
    corpus = import_rows(tmp_path)
    assert find_corpus(corpus.corpus) == find_corpus("mine") and find_corpus("mine").name == "mine"
    with pytest.raises(ValueError, match="is not available"):
        find_corpus("mine@01234567")


@pytest.mark.parametrize("name", ["exam", "exam@digest"])
def test_bm25_reads_any_script_of_imports(tmp_path: Path, name: str) -> None:
    """The tokenizer of published rows drops words of one letter, with which Chinese is searched."""
    documents = ("梨长在那里", "苹果长在这里")
    collection = Retrieval("c", ("0", "1"), documents, ("q",), ("苹",), {"q": {"1": 1}})
    write_beir_folder(tmp_path / "c", collection)
    corpus = import_source(tmp_path / "c", name="exam")
    run = base("smoke", architecture="bm25", suite=corpus.corpus if "@" in name else name)
    assert execute(run, progress=ignore).metrics[f"{run.suite}/mean/ndcg_at_10"] == 1


INVALID_NAMES = ["Mine", "../mine", "mine@1", "a b", "x" * 50, "-x"]
PROJECT_NAMES = ["desk", "planted-validation", "nomic-unsupervised", "beir", *MTEB_SUITES]


@pytest.mark.parametrize("name", [*INVALID_NAMES, *PROJECT_NAMES])
def test_unusable_names_are_refused(tmp_path: Path, name: str) -> None:
    result = run_data("import", str(write_rows(tmp_path / "x.jsonl", make_rows(1))), "--name", name)
    assert isinstance(result.exception, ValueError) and f"name={name!r}" in str(result.exception)


def test_taken_names_are_refused(tmp_path: Path) -> None:
    """The message says how to continue with a corpus to train on."""
    corpus = import_rows(tmp_path)
    exam = import_source(write_evaluation_set(tmp_path / "exam"), name="exam")
    (get_corpora_folder() / "empty").mkdir()
    for name in (corpus.name, exam.name, "empty"):
        with pytest.raises(ValueError, match="exists already") as caught:
            import_rows(tmp_path, name=name)
        assert ("repro data plan mine" in str(caught.value)) == (name == "mine")


def test_import_killed_before_plan_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["import", str(write_rows(tmp_path / "x.jsonl", make_rows())), "--name", "mine", "--scale", "smoke"]
    with monkeypatch.context() as patch:
        patch.setattr("repro.cli.data._plan_or_undo", lambda *args, **options: sys.exit(137))
        assert run_data(*words).exit_code == 137
    [command] = re.findall("`repro data (.*?)`", str(run_data(*words).exception))
    assert run_data(*command.split(), "--scale", "smoke").exit_code == 0
    assert read_runs(get_corpora_folder() / "mine" / "mine-smoke.json")


@pytest.mark.parametrize(("words", "scale"), [([], "mini"), (["--from-words"], "desk"), (["--scale", "lab"], "lab")])
def test_default_start_is_minilm(tmp_path: Path, words: list[str], scale: str) -> None:
    """The name is that of the file. Scale `mini` sets steps by the number of pairs, truncates no text and filters none."""
    result = run_data("import", str(write_rows(tmp_path / "My pairs.jsonl", make_rows(600))), *words)
    assert result.exit_code == 0, result.exception
    runs = read_runs(get_corpora_folder() / f"my-pairs/my-pairs-{scale}.json")
    runs = [run for run in runs if run.architecture in TRAINED]
    fields = get_scale(scale).fields
    assert {(run.scale, run.start) for run in runs} == {(scale, fields["start"])}
    assert {run.filter for run in runs} == {"none" if scale == "mini" else "surrogate"}
    steps = {run.num_steps for run in runs}
    if scale != "mini":
        assert steps == {fields["num_steps"]}
        return
    num_pairs = len(read_pairs(make_corpus_stage(runs[0].corpus).path / "train.arrow"))
    assert steps == {3 * num_pairs // runs[0].batch_size} and {run.max_tokens for run in runs} == {40}
    rates = [1e-4 * (run.batch_size / 128) ** 0.5 for run in runs]
    assert [run.learning_rate for run in runs] == pytest.approx(rates, rel=0.05)


def test_manifests_need_a_mined_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("repro.data.mined.manifests.write_manifests", lambda *args: calls.append(args))
    for miner in ("mining.mine_all", "mining.mine_added_sources", "mining.mine_functions"):
        monkeypatch.setattr(f"repro.data.mined.{miner}", lambda: "mined")
    for name in ("dsek", "mine", "planted", "desk-views"):
        assert isinstance(run_data(name, "--write-manifests").exception, ValueError), name
    assert not calls
    for name in ("desk", "wide", "functions"):
        assert run_data(name, "--write-manifests").exit_code == 0, name
    assert [args[0] for args in calls] == ["mined", "mined", ["mined"]]
    assert len({args[1:] for args in calls}) == 3, "each has a folder of its own"


@pytest.mark.parametrize("first_is_evaluation", [False, True])
def test_concurrent_imports_exclude_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_is_evaluation: bool
) -> None:
    """While an import runs, another one of the same name is refused and changes nothing."""
    source, other = write_rows(tmp_path / "x.jsonl", make_rows()), write_rows(tmp_path / "other.jsonl", make_rows(60))
    if first_is_evaluation:
        source = write_evaluation_set(tmp_path / "exam")
    step = "write_given" if first_is_evaluation else "import_corpus"
    run_step = getattr(imported, step)

    def import_again_first(*args: Any, **options: Any) -> Any:
        result = run_data("import", str(other), "--name", "mine", "--scale", "smoke")
        assert "is being imported by" in str(result.exception)
        return run_step(*args, **options)

    monkeypatch.setattr(imported, step, import_again_first)
    corpus = import_source(source, name="mine")
    assert corpus.only_evaluates == first_is_evaluation
    assert first_is_evaluation or corpus.found.num_kept == 400
    assert [path.name for path in get_corpora_folder().iterdir()] == ["mine"]


@pytest.mark.parametrize("cleaner", ["next import", "prune"])
def test_killed_imports_are_cleaned_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cleaner: str) -> None:
    """A killed import of an archive leaves two folders. The next import of any name removes them, and so does prune."""
    from slurm.prune import list_leftovers, remove

    source = write_rows(tmp_path / "x.jsonl", make_rows())
    with ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.write(source, "x.jsonl")
    running = get_corpora_folder() / ".other.1.part"  # belongs to an import that is still running
    running.mkdir(parents=True)
    with acquire(lease_folder(get_corpora_folder() / "other")):
        child = os.fork()
        if child == 0:
            imported.import_corpus = lambda *args, **options: os._exit(9)
            import_source(tmp_path / "x.zip", name="mine")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        parts = {path for path in get_corpora_folder().iterdir() if path != running}
        assert len(parts) == 2 and sum(len(list(path.rglob("x.jsonl"))) for path in parts) == 1
        assert {path for path, _ in list_leftovers([])} == parts
        if cleaner == "prune":
            for path in parts:
                remove(path)
        else:
            import_source(source, name="another")
        assert running.is_dir() and not any(path.exists() for path in parts)


def test_failed_import_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"query": "a", "document": "b"}\n{"query": ')
    with pytest.raises(ValueError, match="line 2"):
        import_source(tmp_path / "bad.jsonl", name="mine")
    assert not list(get_corpora_folder().rglob("*")) and not is_imported("mine")
    with pytest.raises(ValueError, match="no corpus 'mine' was imported"):
        find_imported("mine")


def test_planned_runs_fit_the_corpus(tmp_path: Path) -> None:
    import_rows(tmp_path)
    for scale in ("smoke", "desk", "small", "large"):
        planned = plan(scale=scale)
        runs = read_runs(planned.path)
        assert list(planned.runs) == runs
        assert [run.architecture for run in runs] == ["biencoder", "contextual", "bm25", "surrogate"]
        assert all(run.scale == scale and run.suite == "mine" for run in runs)
        assert runs[0].batch_size <= get_scale(scale).fields["batch_size"]
        assert runs[0].num_pairs is None and runs[0].cluster_size == runs[0].batch_size
    assert any("query <- query, document <- document, domain <- domain" in line for line in planned.lines())


def test_near_duplicates_stay_evaluated(tmp_path: Path) -> None:
    """Queries whose document has a near-duplicate are evaluated and counted, also if these are all queries."""
    thanks = "thank you very much indeed for asking us in our little shop today about an item the item"
    rows = [{"query": f"price of item {n}?", "document": f"{thanks} {n} is sold for {3 * n}"} for n in range(300)]
    import_rows(tmp_path, rows)
    planned = plan()
    num_queries = planned.report["suite"]["mine"]["num_queries"]
    assert planned.report["near_duplicates"]["mine"] == num_queries > 20
    assert any(f"{num_queries} queries have a near-duplicate" in line for line in planned.lines())


def test_copies_among_all_documents_are_counted(tmp_path: Path) -> None:
    """The queries search all documents, so a near-duplicate of the right one counts wherever it is."""
    rows = make_rows(400) + [
        {"query": f"shout {n}", "document": f"{row['document'].upper()} today", "domain": "c"}
        for n, row in enumerate(make_rows(400))
    ]
    import_rows(tmp_path, rows)
    planned = plan()
    (suite,) = planned.report["suite"].values()
    assert sum(planned.report["near_duplicates"].values()) == suite["num_queries"] > 30


def test_all_positives_of_a_row_are_judged(tmp_path: Path) -> None:
    """If a row has several documents, each is relevant to the query, and none is trained on if the query is evaluated."""
    texts = [f"answer number {n} in the list of all answers" for n in range(300)]
    rows = [{"query": f"what is {n}?", "document": [text, texts[n - 1]]} for n, text in enumerate(texts)]
    corpus = import_rows(tmp_path, rows)
    planned = plan()
    assert any("300 further pairs of rows" in line for line in planned.lines())
    collection = open_collection(corpus)
    answers = {row["query"]: set(row["document"]) for row in rows}
    assert find_answers(collection) == {query: answers[query] for query in collection.queries}
    assert len(collection.queries) > 20 and planned.report["num_pairs"] < 600


def test_query_is_not_searched_for_itself(tmp_path: Path) -> None:
    """A text may be query and document, as in pairs of paraphrases. Its own text is no hit unless it is relevant."""
    texts = [(f"pump{n} leaks{n}", f"pump{n} drips{n}") for n in range(300)]
    rows = [{"query": a, "document": b} for pair in texts for a, b in (pair, pair[::-1])]
    rows += [{"query": f"identity {n}", "document": f"identity {n}"} for n in range(300)]
    suite = load_built_suite(import_rows(tmp_path, rows))
    evaluation = evaluate_bm25(suite)
    (values_Q,) = evaluation.per_query.values()
    assert len(values_Q) > 30 and values_Q.min() == 1
    assert "taken out of the query's own ranking" in str(evaluation.provenance["datasets"])


def test_documents_of_a_row_are_no_negatives(tmp_path: Path) -> None:
    """A negative that is another document of its row is taken out, and the next one is trained on."""
    rows = [{"query": f"q {n}", "pos": [f"a {n}", f"b {n}"], "neg": [f"b {n}", f"c {n}"]} for n in range(300)]
    corpus = import_rows(tmp_path, rows)
    pairs = read_pairs(make_corpus_stage(corpus.corpus).build(ignore) / "train.arrow")
    negatives = pairs.negatives(np.arange(len(pairs)))
    assert {len(texts) for texts in negatives} == {1} and {texts[0][0] for texts in negatives} == {"c"}
    assert corpus.found.counts["negatives_taken_out"] == 600


@pytest.mark.parametrize("hold_out", [[], ["b"]], ids=["a tenth", "a domain"])
def test_held_out_queries_search_everything(tmp_path: Path, hold_out: list[str]) -> None:
    """All documents are searched, all relevant ones are judged, and no held-out text is trained on."""
    rows = [
        {"query": f"about {n // 2}", "document": f"thing {n} of all", "domain": "ab"[n % 4 // 2]} for n in range(1000)
    ]
    corpus = import_rows(tmp_path, rows, hold_out=hold_out)
    planned = plan()
    assert set(planned.report["suite"]) == set(hold_out or ["all"])
    collection = open_collection(corpus)
    assert set(collection.documents) == {row["document"] for row in rows} and len(collection.documents) == 1000
    for query, texts in find_answers(collection).items():
        assert texts == {row["document"] for row in rows if row["query"] == query} and len(texts) == 2
    assert len(set(collection.queries)) == len(collection.queries) > 40
    pairs = read_pairs(make_corpus_stage(corpus.corpus).path / "train.arrow")
    assert not set(pairs.texts("query", range(len(pairs)))) & set(collection.queries)
    assert len(pairs) + sum(planned.report["left_out"].values()) == 1000


def write_training_folder(folder: Path) -> Path:
    """Write a BEIR folder of 400 documents, of which 300 are relevant to a training query, and return it."""
    documents, queries = ([f"{kind} number {n} of all" for n in range(400)] for kind in ("document", "query"))
    judgements = {f"q{n}": {f"d{n}": 1 + n % 2} for n in range(300)}
    collection = Retrieval(
        "c", tuple(f"d{n}" for n in range(400)), tuple(documents), tuple(judgements), tuple(queries[:300]), judgements
    )
    write_beir_folder(folder, collection, "train")
    return folder


def test_all_documents_of_a_beir_folder_are_searched(tmp_path: Path) -> None:
    """Documents without a judgement are searched by held-out queries and by `search`, and are not trained on."""
    folder = write_training_folder(tmp_path / "c")
    corpus = import_source(folder, name="mine")
    planned, texts = plan(), {f"document number {n} of all" for n in range(400)}
    collection = open_collection(corpus)
    assert set(collection.documents) == texts and len(collection.documents) == 400
    assert set(find_corpus("mine").read()[0].values()) == texts
    assert planned.report["num_pairs"] < corpus.found.num_kept == 300
    (folder / "qrels" / "test.tsv").write_text("q0\td0\t1\n")
    other = import_source(folder, name="other")
    assert not list(other.folder.rglob("documents.arrow")), "the given collection has them"


def test_options_that_cannot_apply_are_refused(tmp_path: Path) -> None:
    """A BEIR folder has grades, to which a threshold applies, and no columns. A table needs labels for a threshold."""
    folder = write_training_folder(tmp_path / "c")
    with pytest.raises(ValueError, match=r"--query: .* is a BEIR folder"):
        import_source(folder, name="mine", columns=Columns({"query": "text"}))
    assert import_source(folder, name="high", columns=Columns(threshold=2)).found.num_kept == 150
    with pytest.raises(ValueError, match=r"--threshold: .* to evaluate on"):
        import_source(write_evaluation_set(tmp_path / "exam"), name="mine", columns=Columns(threshold=2))
    with pytest.raises(ValueError, match=r"--threshold 2: .* has no labels"):
        import_rows(tmp_path, columns=Columns(threshold=2))


def test_pairs_next_to_collections_are_not_ignored(tmp_path: Path) -> None:
    """A folder with both is refused. The message has the option that trains on the pairs. Other tables are skipped."""
    exam = write_evaluation_set(tmp_path / "all" / "exam")
    (tmp_path / "all" / "scores.csv").write_text("model,ndcg\nminilm,0.5\n")
    (tmp_path / "all" / "scores.jsonl").write_text('{"model": "minilm", "ndcg": 0.5}\n')
    assert import_source(tmp_path / "all", name="judged").only_evaluates
    for ending in ("csv", "jsonl"):
        (tmp_path / "all" / f"scores.{ending}").unlink()
    write_rows(tmp_path / "all" / "x.jsonl", make_rows())
    with pytest.raises(ValueError, match=r"files of pairs \(x\.jsonl\) and collections .*\(exam\).*--evaluate-on"):
        import_source(tmp_path / "all", name="mine")
    assert import_source(tmp_path / "all", name="mine", evaluate_on=exam).found.num_kept == 400


def test_given_collections_decide_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given queries do not search the other documents of a BEIR folder, so the name of the corpus ignores these."""
    folder, exam = write_training_folder(tmp_path / "c"), write_evaluation_set(tmp_path / "exam")
    digests = []
    for extra in ("", '{"_id": "extra", "text": "a document without a judgement"}\n'):
        with (folder / "corpus.jsonl").open("a") as corpus:
            corpus.write(extra)
        monkeypatch.setenv("REPRO_HOME", str(tmp_path / f"home{len(extra)}"))
        judged = import_source(folder, name="judged", evaluate_on=exam)
        digests.append((judged.digest, import_source(folder, name="own").digest))
    assert [len(set(each)) for each in zip(*digests, strict=True)] == [1, 2]


@pytest.mark.parametrize(("num_documents", "recipe"), [(1, 11), (3, 12), (10, 12)])
def test_tenth_of_pairs_is_held_out(tmp_path: Path, num_documents: int, recipe: int) -> None:
    """If queries have several documents, a tenth of the queries is drawn, and pairs are set apart."""
    rows = [
        {"query": f"what is {n}?", "pos": [f"answer {m} about thing {n}" for m in range(num_documents)]}
        for n in range(600)
    ]
    corpus = import_rows(tmp_path, rows)
    planned, collection, num_pairs = plan(), open_collection(corpus), 600 * num_documents
    assert corpus.recipe == recipe and len(collection.documents) == num_pairs
    answers = {row["query"]: set(row["pos"]) for row in rows}
    assert find_answers(collection) == {query: answers[query] for query in collection.queries}
    folder = make_corpus_stage(corpus.corpus).path
    trained, set_apart = (read_pairs(folder / name) for name in ("train.arrow", "set_apart.arrow"))
    counts = planned.report["left_out"]
    assert num_documents * len(collection.queries) == counts["evaluated"] == pytest.approx(num_pairs / 10, rel=0.3)
    assert len(set_apart) == 32 and len(trained) == num_pairs - counts["evaluated"] - 32 * num_documents
    queries = [set(pairs.texts("query", range(len(pairs)))) for pairs in (trained, set_apart)]
    assert not queries[0] & queries[1] and not set(collection.queries) & queries[0].union(queries[1])


def test_much_more_than_a_tenth_is_warned_about(tmp_path: Path) -> None:
    """If queries and documents both repeat, no draw holds out a tenth."""
    rows = [{"query": f"query {n % 200}", "document": f"document {n * 7 % 201}"} for n in range(1600)]
    import_rows(tmp_path, rows)
    planned = plan()
    share = 1 - planned.report["num_pairs"] / 1600
    assert any(f"warning: {share:.0%} of the pairs are held out instead of a tenth" in line for line in planned.lines())


def make_shared_rows() -> list[dict[str, Any]]:
    """Return 600 pairs: each document answers two queries, and is the negative of a third one."""
    texts = [f"the answer about thing {n} of all" for n in range(300)]
    return [
        {"query": f"what is {n}?", "document": text, "negative": texts[n - 7]}
        for n in range(300)
        for text in (texts[n], texts[n - 1])
    ]


def test_many_answers_are_kept_with_warning(tmp_path: Path) -> None:
    """If each document answers many queries, their pairs stay, or nothing would be left. Negatives are removed still."""
    rows = [
        {"query": f"what is {n % 19}?", "document": f"the answer is {n // 19}", "negative": f"the answer is {n % 16}"}
        for n in range(300)
    ]
    corpus = import_rows(tmp_path, rows)
    report = json.loads((make_corpus_stage(corpus.corpus).build() / "report.json").read_text())
    pairs, collection = read_pairs(make_corpus_stage(corpus.corpus).path / "train.arrow"), open_collection(corpus)
    relevant = set[str]().union(*find_answers(collection).values())
    indices = np.arange(len(pairs))
    num_trained = sum(document in relevant for document in pairs.texts("document", indices))
    assert report["trained_answers"] == num_trained > 0.2 * len(pairs)
    assert not relevant & {text for texts in pairs.negatives(indices) for text in texts or ()}
    assert any(f"warning: {num_trained} training pairs with a document" in line for line in plan().lines())


def test_answers_of_held_out_queries_are_not_trained_on(tmp_path: Path) -> None:
    """No relevant document is trained on, in a pair or as a negative."""
    corpus = import_rows(tmp_path, make_shared_rows())
    planned, collection = plan(), open_collection(corpus)
    relevant = {normalize_loosely(text) for texts in find_answers(collection).values() for text in texts}
    pairs = read_pairs(make_corpus_stage(corpus.corpus).path / "train.arrow")
    rows = np.arange(len(pairs))
    documents = set(map(normalize_loosely, pairs.texts("document", rows)))
    negatives = {normalize_loosely(text) for texts in pairs.negatives(rows) for text in texts or ()}
    counts, text = planned.report["left_out"], "\n".join(planned.lines())
    assert relevant and not relevant & documents and not relevant & negatives
    assert counts["evaluated_negatives"] > 0 and f"{counts['evaluated_negatives']} negatives that are held out" in text
    assert "relevant_to_held_out_query" in counts and "further pairs whose document" in text
    num_dropped = sum(count for key, count in counts.items() if key != "evaluated_negatives")
    assert len(pairs) + num_dropped == 600


def test_pairs_set_apart_share_no_text(tmp_path: Path) -> None:
    """They share no text with training pairs or evaluated queries, and every row is counted once."""
    rows = [
        {"query": f"About {n // 2}!", "document": f"thing {n} of all", "negative": f"thing {n // 9} of all"}
        for n in range(900)
    ]
    rows += [{"query": "about 7", "document": "thing 15, of all"}, {"query": "about 7", "document": ""}]
    corpus = import_rows(tmp_path, rows)
    planned = plan()
    folder = make_corpus_stage(corpus.corpus).path
    trained, set_apart = (read_pairs(folder / name) for name in ("train.arrow", "set_apart.arrow"))
    texts = [
        {normalize_loosely(text) for side in ("query", "document") for text in pairs.texts(side, range(len(pairs)))}
        for pairs in (trained, set_apart)
    ]
    evaluated = {normalize_loosely(text) for text in open_collection(corpus).queries}
    negatives = {text for row in trained.negatives(range(len(trained))) for text in row or ()}
    assert negatives and not set(map(normalize_loosely, negatives)) & texts[1]
    assert not texts[0] & texts[1] and not evaluated & (texts[0] | texts[1])
    counts = planned.report["left_out"]
    assert len(set_apart) == counts["set_apart"] >= 32 and counts["with_a_query_set_apart"] > 0
    num_dropped = sum(count for key, count in counts.items() if key != "evaluated_negatives")
    assert len(trained) + num_dropped == corpus.found.num_kept == 901
    (line,) = [line for line in planned.lines() if " given = " in line]
    total, *parts = [int(number) for number in re.findall(r"(?:^|= |\+ )(\d+)", line)]
    assert total == sum(parts) == 902
    assert {run.kept_weights for run in planned.runs if run.architecture in TRAINED} == {"best"}


def test_domains_smaller_than_a_batch_are_named(tmp_path: Path) -> None:
    """Batches of one domain never use a domain that cannot fill one. The plan says so, and how to use it."""
    rows = [row | {"domain": "large" if n < 600 else f"small {n % 2}"} for n, row in enumerate(make_rows(606))]
    import_rows(tmp_path, rows)
    planned = plan()
    assert planned.runs[0].domain_column == "domain"
    (line,) = [line for line in planned.lines() if "smaller than a batch" in line]
    assert line.startswith("  warning: 5 pairs in 2 domains smaller than a batch of 16 are never trained on")
    rows = json.loads(planned.path.read_text())
    planned.path.write_text(json.dumps([row | {"domain_column": "source"} for row in rows]))
    assert not [line for line in plan().lines() if "smaller than a batch" in line]


def test_too_large_holdout_is_named(tmp_path: Path) -> None:
    """The message has the number of pairs that are left, and the remedy is to hold out less."""
    rows = [row | {"domain": "faq" if n < 1000 else "rest"} for n, row in enumerate(make_rows(1099))]
    import_rows(tmp_path, rows, hold_out=["faq"])
    with pytest.raises(ValueError, match=r"99 of 1099 pairs left .* --hold-out"):
        plan()


@pytest.mark.parametrize(("num_documents", "num_queries"), [(300, 300), (900, 3)])
def test_few_documents_are_not_set_apart(num_documents: int, num_queries: int) -> None:
    """All pairs are trained on if documents are few or if most pairs would be lost."""
    rows = [Row(str(n), f"about {n % num_queries}", f"thing {n}", "a", "a", ()) for n in range(num_documents)]
    assert not select_set_apart(lambda: rows)


def test_older_recipe_is_not_rebuilt(tmp_path: Path) -> None:
    """A corpus of an older version is read as long as its split exists. Without it, the error asks for a new import."""
    corpus = import_rows(tmp_path)
    content = json.loads((corpus.folder / "corpus.json").read_text())
    assert content["recipe"] == imported.RECIPES["document"] == 11 and "recipe 11" in corpus.origin
    (corpus.folder / "corpus.json").write_text(json.dumps(content | {"recipe": 8}))
    with pytest.raises(ValueError, match=r"recipe 8, .* import it again"):
        make_corpus_stage(list_imported_corpora()["mine"].corpus).build()


@pytest.mark.parametrize(
    ("sizes", "is_explained", "is_warned"),
    [((400, 400), False, False), ((400,), False, True), ((250, *[150] * 6), True, True)],
)
def test_held_out_share_is_explained(
    tmp_path: Path, sizes: tuple[int, ...], is_explained: bool, is_warned: bool
) -> None:
    """A share below a tenth is explained, and fewer than 50 queries are warned about."""
    rows = [
        {"query": f"about {domain} ask {n}", "document": f"the thing {n} of {domain}", "domain": f"d{domain}"}
        for domain, size in enumerate(sizes)
        for n in range(size)
    ]
    corpus = import_rows(tmp_path, rows)
    planned = plan()
    text = "\n".join(planned.lines())
    collection = open_collection(corpus)
    assert len(collection.documents) == sum(sizes)
    num = planned.report["held_out_documents"]
    assert f"held out: {num} documents with {num} of {sum(sizes)} pairs ({num / sum(sizes):.1%})" in text
    assert ("less than a tenth" in text) == is_explained
    assert ("wide intervals" in text) == is_warned == (len(collection.queries) < 50)
    assert ("--hold-out" in text) == (len(sizes) > 1 and (is_explained or is_warned))


def test_tiny_domains_are_batched_as_one(tmp_path: Path) -> None:
    rows = [{"query": f"q {n}", "document": f"text {n}", "domain": f"d{n % 100}"} for n in range(500)]
    import_rows(tmp_path, rows)
    planned = plan()
    assert planned.runs[0].domain_column == "source" and planned.runs[0].batch_size == 16


def test_small_domains_are_trained_on(tmp_path: Path) -> None:
    """Batches mix domains if more than a tenth of the pairs is in domains smaller than a batch."""
    names = [f"small {n}" for n in range(200) for _ in range(2)] + ["big"] * 1000
    rows = [{"query": f"q {n}", "document": f"text {n}", "domain": name} for n, name in enumerate(names)]
    import_rows(tmp_path, rows)
    assert plan().runs[0].domain_column == "source"


def test_edited_run_file_is_kept(tmp_path: Path) -> None:
    import_rows(tmp_path)
    planned = plan()
    assert not planned.was_edited
    rows = json.loads(planned.path.read_text())
    edited = json.dumps([row | {"num_steps": 77} for row in rows[:2]])
    planned.path.write_text(edited)
    replanned = plan()
    assert replanned.was_edited and [run.num_steps for run in replanned.runs] == [77, 77]
    assert planned.path.read_text() == edited
    planned.path.unlink()
    assert plan().runs == planned.runs


@pytest.mark.parametrize("num_lines", [0, 6])
def test_broken_pipe_keeps_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_lines: int) -> None:
    printed: list[str] = []

    def head(line: str) -> None:
        printed.append(line)
        if len(printed) > num_lines:
            raise BrokenPipeError

    monkeypatch.setattr("repro.cli.data.print_line", head)
    source = write_rows(tmp_path / "x.jsonl", make_rows())
    result = run_data("import", str(source), "--name", "mine", "--scale", "smoke")
    assert isinstance(result.exception, BrokenPipeError)
    assert is_imported("mine") and plan().report["num_pairs"] > 0


@pytest.mark.parametrize("words", [["--hold-out", "misspelt"], ["--scale", "desk"]])
def test_unplanned_import_keeps_no_name(tmp_path: Path, words: list[str]) -> None:
    source = write_rows(tmp_path / "x.jsonl", make_rows(60 if "--scale" in words else 400))
    result = run_data("import", str(source), "--name", "mine", *words)
    assert isinstance(result.exception, ValueError), result.output
    assert not is_imported("mine") and not list(get_corpora_folder().glob("*"))


@pytest.mark.parametrize("name", ["mean", "given"])
def test_ambiguous_collection_is_refused_first(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="name both a dataset and a mean"):
        import_rows(tmp_path, evaluate_on=write_evaluation_set(tmp_path / name))
    assert not is_imported("mine")


def test_given_ids_do_not_replace_documents(tmp_path: Path) -> None:
    """Documents of the pairs are numbered. A given collection may have ids of the same form."""
    exam = tmp_path / "exam"
    write_beir_folder(exam, Retrieval("exam", ("pair-1",), ("text",), ("q",), ("ask",), {"q": {"pair-1": 1}}))
    import_rows(tmp_path, evaluate_on=exam)
    documents, _ = find_corpus("mine").read()
    assert len(documents) == 401 and documents["evaluation-pair-1"] == "text"

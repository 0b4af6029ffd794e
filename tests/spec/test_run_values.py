"""A file of runs is checked by type, range and meaning before anything starts. Errors name the file and the run."""

import json
from pathlib import Path
from typing import Any

import pytest

from repro.records.lookup import read_runs
from repro.spec import FIELDS, Run, base, format_widths, list_standard_widths, nested_widths
from repro.spec.validation import RANGES


def write_file(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


BAD_VALUES: dict[str, list[Any]] = {
    "batch_size": ["16", None, True, 16.0, 10**30],
    "batches_a_step": [0, None],
    "num_steps": [-4, -1],
    "num_test_contexts": [0],
    "seed": [-1, "0"],
    "learning_rate": [-1.0, [0.1]],
    "first_stage_rate": [True],
    "temperature": [0],
    "residual": [1, "false"],
    "sources": [["a"], ""],
    "corpus": ["../../x", "/tmp/x", "a\nb"],
    "suite": [".."],
    "surrogate": ["x" * 10_000, "a\nb"],
    "num_layers": [10**5],
    "sequence_dropout": [2],
    "test_contexts": ["own+own", "mine"],
    "scale": [["smoke"], "mars"],
    "sampler": [{"a": 1}],
    "nested_sizes": ["32+16", "12+32", "64", "0+8", "8+8", "8+wide", "8,16", "8+", "-8", "²"],
    "batchsize": [3],
}
PHASES = {"pretraining_corpus": "desk", "num_pretraining_steps": 5, "sampler": "domain", "mixing_alpha": 0.5}
BLIND: dict[str, Any] = {"architecture": "contextual", "sequence_dropout": 1.0, "test_contexts": "null"}
NOT_BLIND = (("test_contexts", "own+null"), ("architecture", "biencoder"), ("pooling", "frequency"),
             ("measure", "cross"), ("num_test_contexts", 2))  # fmt: skip
"""Values that a run without context documents cannot have."""
BAD_COMBINATIONS: list[dict[str, Any]] = [
    *({"num_test_contexts": 2, "measure": name} for name in ("spread", "cross", "mteb", "adaptive")),
    {"architecture": "contextual", "num_contexts": 4, "num_test_contexts": 5},
    {"architecture": "biencoder", "measure": "steps", "kept_weights": "best"},
    *(
        {"architecture": "contextual", "sequence_dropout": 0.0, "test_contexts": "own", "num_contexts": 8, **number}
        for number in ({"num_test_contexts": 2}, {"num_test_contexts": 8})
    ),
    {"architecture": "contextual", "sequence_dropout": 0.0},  # has no null vector, so it cannot be scored under null
    {"measure": "steps", "num_steps": 4, "num_warmup_steps": 1},
    {"architecture": "contextual", "measure": "steps", "test_contexts": "wrong+null"},
    *({"architecture": "biencoder", "measure": name, "nested_sizes": "8+16"} for name in ("adaptive", "disagreement")),
    *({"sampler": "domain", "mixing_alpha": alpha} for alpha in (1.5, -0.1)),
    {"sampler": "random", "mixing_alpha": 0.5},
    {"filter": "random", "loss": "icl"},
    {"architecture": "biencoder", "measure": "cross"},
    {"architecture": "contextual", "measure": "probe"},
    {"architecture": "none", "measure": "mteb"},
    {"protocol": "rerank"},
    {"rerank_depth": 9},
    {"protocol": "rerank", "rerank_depth": 0},
    *({"protocol": "rerank-bm25", "rerank_depth": 9, "measure": name} for name in ("widths", "adaptive", "mteb")),
    PHASES | {"pretraining_cluster_size": 8},
    *(BLIND | {name: value} for name, value in NOT_BLIND),
]
BAD_RUNS = [{name: value} for name, values in BAD_VALUES.items() for value in values] + BAD_COMBINATIONS


@pytest.mark.parametrize("values", BAD_RUNS, ids=lambda values: str(values)[:40])
def test_impossible_runs_are_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    path = write_file(tmp_path / "runs.json", [{"scale": "smoke"}, {"scale": "smoke", **values}])
    with pytest.raises(ValueError, match=r"runs\.json, run 2: ") as caught:
        read_runs(path)
    assert len(str(caught.value)) < 1200 and "\n" not in str(caught.value)
    assert any(name in str(caught.value) for name in values)


@pytest.mark.parametrize(
    "text",
    ["", "3", "null", "{}", "[]", '"x"', "[3]", "[[]]", '[{"seed": 1}]', "[" * 100_000, '[{"scale": "smoke", "seed": NaN}]',
     '[{"scale": "smoke", "learning_rate": 1e400}]', '{"missing": 3}', "\x00", '[{"scale": "smoke"', "1" * 5000],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_malformed_run_files_are_refused(tmp_path: Path, text: str) -> None:
    folder = tmp_path / ("a folder with a long name, " * 5)  # paths are never shortened
    folder.mkdir()
    with pytest.raises(ValueError, match=r"runs\.json") as caught:
        read_runs(write_file(folder / "runs.json", text))
    assert "\n" not in str(caught.value)


def test_every_number_has_a_range() -> None:
    numbers = {name for name in FIELDS if Run.__annotations__[name].split(" | ")[0] in ("int", "float")}
    assert numbers == set(RANGES)


def test_run_names_its_widths() -> None:
    assert nested_widths(base("desk", nested_sizes="8+32+full")) == (8, 32, 128)
    assert nested_widths(base("desk")) == ()


@pytest.mark.parametrize(
    ("size", "widths"),
    [
        (4, "4"),
        (128, "8+16+32+64+128"),
        (384, "8+16+32+64+128+384"),
        (2048, "8+16+32+64+128+256+512+1024+2048"),  # as in MRL
    ],
)
def test_standard_widths_are_powers_of_two(size: int, widths: str) -> None:
    assert format_widths(list_standard_widths(size)) == widths

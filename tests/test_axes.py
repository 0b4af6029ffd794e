"""Grids of fields and values: what is typed is what runs, and nothing else."""

import json
from itertools import product
from pathlib import Path

import pytest

from repro.cli.fields import fields
from repro.records.lookup import get_sweep_name, read_runs, resolve_runs
from repro.spec import FIELDS, TRAINED, base, grid
from repro.spec.axes import expand, is_axis, parse_axes


def test_axes_are_parsed_by_the_type_of_their_field() -> None:
    """Numbers, ranges, text, truth and none, each checked as a field of a run is."""
    found = parse_axes(["learning_rate=1e-4,3e-5", "seed=1..3,7", "residual=true,false", "num_pairs=none,100"])
    assert found == {
        "learning_rate": (1e-4, 3e-5),
        "seed": (1, 2, 3, 7),
        "residual": (True, False),
        "num_pairs": (None, 100),
    }
    assert parse_axes(["filter=none,surrogate"]) == {"filter": ("none", "surrogate")}
    assert is_axis("seed=1") and not is_axis("table1") and not is_axis("a=b.json") and not is_axis("x/seed=1")


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("learning_rat=1", "learning_rate"),
        ("seed=1.5", "seed=1.5"),
        ("seed=1_0", "seed=1_0"),
        ("seed=5..1", "5..1"),
        ("seed=", "missing"),
        ("seed=1,,2", "missing"),
        ("learning_rate=nan", "learning_rate=nan"),
        ("scale=desk", "--scale"),
        ("residual=yes", "residual=yes"),
        ("batch_size=-3", "batch_size=-3"),
    ],
)
def test_wrong_axes_are_refused(word: str, named: str) -> None:
    """The value or the nearest field is in the message."""
    with pytest.raises(ValueError) as refused:
        parse_axes([word])
    assert named in str(refused.value)


def test_grid_is_the_product_over_trained_rows() -> None:
    """As `grid` gives it from Python; a row that is not trained stays one run."""
    trained, bm25 = base("smoke"), base("smoke", architecture="bm25")
    axes = parse_axes(["learning_rate=1e-4,3e-5", "seed=1..5"])
    found = expand([trained, bm25], axes)
    assert found == [*grid(trained, learning_rate=(1e-4, 3e-5), seed=(1, 2, 3, 4, 5)), bm25]
    [epochs] = expand([trained], parse_axes(["num_epochs=2"]))
    assert (epochs.num_epochs, epochs.num_steps) == (2, None)


def test_words_of_a_command_line_make_a_grid(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of an artefact times the axes, each run once, with the numbers in one line."""
    rows = resolve_runs(["table1"], "smoke")
    found = resolve_runs(["table1", "learning_rate=1e-4,3e-5", "seed=1..2"], "smoke")
    settings = {run for run in expand(rows, {"seed": (0,)}) if run.architecture in TRAINED}
    assert {(run.learning_rate, run.seed) for run in found if run.architecture in TRAINED} == set(
        product((1e-4, 3e-5), (1, 2))
    )
    assert sum(run.architecture in TRAINED for run in found) == 4 * len(settings)
    assert f"= {len(found)} runs" in capsys.readouterr().err
    assert get_sweep_name(["table1", "seed=1,2"], "smoke") != get_sweep_name(["table1", "seed=1-2"], "smoke")
    with pytest.raises(ValueError, match="name the runs"):
        resolve_runs(["seed=1"], "smoke")
    with pytest.raises(ValueError, match="do not go together"):
        resolve_runs(["table1", "seed=1"], "smoke", seeds=[2])


@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_grid_file_is_the_typed_grid(tmp_path: Path, ending: str) -> None:
    """The same runs from a file as from words."""
    axes = {"learning_rate": [0.0001, 0.00003], "seed": "1..2"}
    content = {"runs": "table1", "scale": "smoke", "axes": axes}
    path = tmp_path / f"grid.{ending}"
    path.write_text(json.dumps(content))  # which is YAML, too
    assert read_runs(path) == resolve_runs(["table1", "learning_rate=1e-4,3e-5", "seed=1..2"], "smoke")
    path.write_text(json.dumps(content | {"sale": "smoke"}))
    with pytest.raises(ValueError, match="sale"):
        read_runs(path)


def test_every_field_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """`repro fields` has type, defaults and a meaning for each field; a word chooses, a slip gets a suggestion."""
    fields(None, as_json=True)
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {*rows} == {*FIELDS} - {"scale"}
    assert not [name for name, row in rows.items() if not row["meaning"] or not row["takes"]]
    assert rows["learning_rate"]["defaults"]["smoke"] == base("smoke").learning_rate
    fields("warmup", as_json=True)
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["num_warmup_steps"]
    with pytest.raises(ValueError, match="did you mean 'learning_rate'"):
        fields("lerning_rate")

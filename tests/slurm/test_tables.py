"""The table of a sweep: a line a run, and no column that nobody fills."""

import pytest

from repro.spec import base
from repro.spec.identity import run_id
from slurm.status import RunStatus, TrainingProgress
from slurm.tables import make_status_table, show_status

RUNS = [base("smoke", seed=seed) for seed in range(2)]
DONE = [RunStatus(run_id(run), "recorded") for run in RUNS]


@pytest.mark.parametrize(
    ("found", "columns"),
    [
        (DONE, ["run", "what", "state"]),
        ([DONE[0], RunStatus(DONE[1].id, "failed", "killed")], ["run", "what", "state", "reason"]),
        (
            [RunStatus(DONE[0].id, "running", progress=TrainingProgress(3, 9, None, None)), DONE[1]],
            ["run", "what", "state", "step"],
        ),
    ],
)
def test_columns_that_nobody_fills_are_left_out(found: list[RunStatus], columns: list[str]) -> None:
    table = make_status_table(RUNS, found)
    assert [column.header for column in table.columns] == columns and table.row_count == 2
    assert [str(cell) for cell in table.columns[2].cells] == [status.state for status in found]


@pytest.mark.usefixtures("own_home")
def test_without_a_run_that_was_launched_there_is_no_table_but_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    show_status([base("smoke", seed=2**20)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1 missing") and "1 never launched: `repro plan` lists them" in lines
    assert not any("what" in line.split() for line in lines), "no header of a table without rows"

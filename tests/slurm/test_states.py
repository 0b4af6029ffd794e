"""The state of a job is read while others write and remove it."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm import states
from slurm.states import JobState, WorkItem


def test_a_state_that_another_launcher_forgets_meanwhile_never_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item, read = WorkItem("run", "r", tmp_path), states.read_json
    item.write(JobState(state="failed"))

    def forgotten_meanwhile(path: Path) -> object:
        item.forget()
        return read(path)

    monkeypatch.setattr(states, "read_json", forgotten_meanwhile)
    assert item.read() is None


@pytest.mark.parametrize("torn", ["", '{"state": "fai'])
@pytest.mark.parametrize("then", ["removed", "replaced"])
def test_a_state_that_is_torn_for_a_moment_ends_no_queue(torn: str, then: str, tmp_path: Path) -> None:
    item = WorkItem("run", "r", tmp_path)
    (tmp_path / "job.json").write_text(torn)
    ends: dict[str, Callable[[], None]] = {
        "removed": item.forget,
        "replaced": lambda: item.write(JobState(state="done")),
    }
    later = threading.Timer(0.05, ends[then])
    later.start()
    found = item.read()
    later.join()
    assert (found and found.state) == {"removed": None, "replaced": "done"}[then]


def test_a_state_that_stays_torn_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"state": "fai')
    with pytest.raises(ValueError, match=r"job\.json is not JSON.*; remove it, and launch again with --retry"):
        WorkItem("run", "r", tmp_path).read()

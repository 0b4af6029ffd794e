"""SIGINT and SIGTERM stop every verb, wherever it is and however it was started, with 130 and 143."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from repro.cli.errors import run_with_error_handling
from repro.spec import Run, base
from repro.spec.identity import run_id
from repro.stopping import Stopped, stop, unbroken, unwrap_stop
from repro.storage.paths import CHECKOUT, get_local_records, get_stage_folder, run_folder
from slurm.job import Job
from slurm.signals import Stop, handle_stop_signals
from slurm.states import JobState, get_run_item
from slurm.status import statuses
from tests.slurm.stand_in import traced

WAYS = {
    "INT": (signal.SIGINT, False, 130),
    "INT ignored": (signal.SIGINT, True, 130),
    "TERM": (signal.SIGTERM, False, 143),
}
UNTRAINED = base("smoke", architecture="bm25")
TRAINED = base("smoke", num_steps=1_000_000)

PROGRAM = """
import sys, time
from contextlib import contextmanager
import repro.execute, repro.storage.stages
from repro.cli.main import main

def linger(*words, **named):
    print("HERE", flush=True)
    while True:
        try:
            time.sleep(0.05)
        except Exception:
            pass  # as a library might

place, whole_folder = sys.argv.pop(1), repro.storage.stages.whole_folder

@contextmanager
def never_whole(path):
    with whole_folder(path) as part:
        (part / "half").touch()
        linger()
        yield part

if place == "launching":
    from tests.slurm.stand_in_job import replace_all
    replace_all()
elif place == "measuring":
    repro.execute.measure_run = linger
elif place == "building":
    repro.storage.stages.whole_folder = never_whole
elif place == "showing":
    import repro.report.artefacts
    repro.report.artefacts.make_artefact_views = linger
elif place == "reporting":
    import repro.report.html
    repro.report.html.write_report = linger
elif place == "evaluating":
    import repro.interop.evaluating
    repro.interop.evaluating.run_evaluation = linger
main()
"""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[signal.Signals, bool, int]:
    """A signal, whether the process was started with SIGINT ignored, and the exit status a shell expects."""
    return WAYS[request.param]


def begin(place: str, *words: str, is_deaf: bool) -> subprocess.Popen[str]:
    """Start the command line in a process of its own, as a terminal does or as a script does in its background."""
    shell = ["sh", "-c", ('trap "" INT; ' if is_deaf else "") + 'exec "$@"', "sh"]
    command = [*shell, sys.executable, "-u", "-c", PROGRAM, place, *words]
    env = os.environ | {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(process: subprocess.Popen[str], number: int, *, after: str) -> str:
    """Send a signal once a line matches; return all that was printed."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if re.search(after, line):
            break
    else:
        pytest.fail(f"it ended before {after!r}: {said}")
    process.send_signal(number)
    return said + process.communicate(timeout=120)[0]


def file_of(tmp_path: Path, *runs: Run) -> str:
    """A file of runs."""
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([asdict(run) for run in runs]))
    return str(path)


def test_run_stops_while_measured(way: tuple[signal.Signals, bool, int], tmp_path: Path) -> None:
    number, is_deaf, status = way
    process = begin("measuring", "run", file_of(tmp_path, UNTRAINED), "--scale", "smoke", is_deaf=is_deaf)
    said = end(process, number, after="HERE")
    assert process.returncode == status, said
    assert "Traceback" not in said
    assert re.search(rf"stopped: .*{number.name}.*run the same command again", said)
    assert not list(get_local_records().glob("*.json"))
    note = get_run_item(UNTRAINED).read()
    assert note is not None
    assert (note.state, number.name in note.reason) == ("interrupted", True)


def test_run_stops_while_stage_is_built(way: tuple[signal.Signals, bool, int], tmp_path: Path) -> None:
    number, is_deaf, status = way
    process = begin("building", "run", file_of(tmp_path, UNTRAINED), "--scale", "smoke", is_deaf=is_deaf)
    said = end(process, number, after="HERE")
    assert process.returncode == status, said
    assert not list(get_stage_folder().rglob("half"))
    assert not list(get_stage_folder().rglob("*.part"))


def test_training_stops_with_checkpoint(tmp_path: Path) -> None:
    """It stops at its next step, in a process that was started with SIGINT ignored."""
    number = signal.SIGINT
    process = begin("training", "run", file_of(tmp_path, TRAINED), "--scale", "smoke", is_deaf=True)
    said = end(process, number, after=r"step \d+/")
    assert process.returncode == 128 + number, said
    assert re.search(r"stopped after step (\d+) of 1000000; the checkpoint is written", said)
    assert f"run {run_id(TRAINED)} has a checkpoint: run the same command again to resume" in said
    assert (run_folder(run_id(TRAINED)) / "checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    ("place", "way"), [("training", "INT ignored"), ("training", "TERM"), ("measuring", "INT"), ("measuring", "TERM")]
)
def test_local_queue_stops_its_children(
    place: str, way: str, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, is_deaf, status = WAYS[way]
    own_home.mkdir()
    run = base("smoke", num_steps=3 if place == "measuring" else 10_000)
    if place == "measuring":
        (own_home / "measures-long").touch()
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.1")
    process = begin("launching", "launch", file_of(tmp_path, run), "--scale", "smoke", "--on", "local", is_deaf=is_deaf)
    said = end(process, number, after="measuring" if place == "measuring" else "counting")
    assert process.returncode == status, said
    assert "Traceback" not in said
    assert "1 of 1 running job stopped by itself" in said
    assert [status.state for status in statuses([run])] == ["interrupted"]
    assert [line for line in traced() if line.startswith("end")] == []
    assert any(line.startswith("stop") for line in traced()) == (place == "training")


@pytest.mark.parametrize(
    ("place", "words", "way"),
    [
        ("showing", ["show", "table1", "--scale", "smoke"], "INT"),
        ("reporting", ["report", "--scale", "smoke", "--out", "/nowhere/report.html"], "TERM"),
        ("evaluating", ["evaluate", "--model", "somebody/untrained", "--suite", "planted"], "INT ignored"),
    ],
)
def test_reading_verbs_stop_immediately(place: str, words: list[str], way: str) -> None:
    number, is_deaf, status = WAYS[way]
    process = begin(place, *words, is_deaf=is_deaf)
    said = end(process, number, after="HERE")
    assert process.returncode == status, said
    assert "Traceback" not in said
    assert "stopped: " in said


@pytest.fixture
def heard() -> Iterator[Stop]:
    """A process that listens."""
    found = Stop()
    with handle_stop_signals(found):
        yield found


def test_unbroken_block_ends_first(heard: Stop) -> None:
    done = []
    with pytest.raises(Stopped) as stopped:
        with unbroken():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("inside")
        done.append("after")
    assert done == ["inside"]
    assert heard()
    assert stopped.value.exit_status == 143


def test_failed_block_keeps_its_error() -> None:
    with pytest.raises(ValueError, match="full"), unbroken():
        stop(Stopped("later"))
        raise ValueError("full")
    with unbroken():
        pass


def break_off_an_import(run: Run, *, should_stop: Stop, progress: object) -> None:
    """Stand in for `execute`: a module in C++ that is being imported makes an error of its own of a stop."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except Stopped as stopped:
        raise ImportError("initialization failed") from stopped


def test_wrapped_stop_is_a_stop(
    heard: Stop, execute_with: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    execute_with(break_off_an_import)
    job = Job(run=asdict(UNTRAINED))
    with pytest.raises(Stopped):
        job(heard, where=JobState(state="running"))
    note = get_run_item(UNTRAINED).read()
    assert note is not None and (note.state, note.trace) == ("interrupted", "")
    assert run_with_error_handling(lambda: break_off_an_import(UNTRAINED, should_stop=Stop(), progress=None)) == 143
    assert "stopped: told to end" in capsys.readouterr().err
    with pytest.raises(ImportError, match="of its own"), unwrap_stop():
        raise ImportError("of its own")


def test_double_signal_stops_once(heard: Stop) -> None:
    with pytest.raises(Stopped), unbroken():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        heard.at -= 2
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second Ctrl-C should have ended the block")


def test_handlers_are_restored() -> None:
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)}
    with handle_stop_signals(Stop()):
        assert signal.getsignal(signal.SIGTERM) != former[signal.SIGTERM]
    assert {number: signal.getsignal(number) for number in former} == former

"""SIGINT and SIGTERM stop every command, with exit codes 130 and 143, however its process was started."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Never

import pytest

from repro.spec import Run, base
from repro.stopping import Stopped, delay_stops
from repro.storage.paths import CHECKOUT, get_local_records, get_stage_folder
from repro.storage.stages import atomic_folder
from slurm.job import Job, JobState
from slurm.signals import Stop, handle_stop_signals
from tests.commands import get_exit_code
from tests.slurm.launching import get_states, read_state, write_runs
from tests.slurm.stand_in import read_trace

UNTRAINED = base("smoke", architecture="bm25")

PROGRAM = """
import sys, time
from repro.cli.main import main

def linger(*args, **options):
    print("HERE", flush=True)
    while True:
        try:
            time.sleep(0.05)
        except Exception:
            pass  # as a library might

place = sys.argv.pop(1)
if place == "launching":
    from tests.slurm.stand_in_job import replace_all
    replace_all()
elif place == "measuring":
    import repro.execute
    repro.execute.measure_run = linger
main()
"""


def start_command(place: str, *words: str, is_deaf: bool = False) -> subprocess.Popen[str]:
    """Start a command as a terminal does or, with `is_deaf`, as a script starts background processes."""
    shell = ["sh", "-c", ('trap "" INT; ' if is_deaf else "") + 'exec "$@"', "sh"]
    command = [*shell, sys.executable, "-u", "-c", PROGRAM, place, *words]
    env = os.environ | {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def stop_command(process: subprocess.Popen[str], number: int, *, after: str) -> str:
    """Send a signal once a line matches, check the exit code that a shell expects, and return the whole output."""
    output = ""
    for line in process.stdout or ():
        output += line
        if re.search(after, line):
            break
    else:
        pytest.fail(f"the process ended before {after!r}: {output}")
    process.send_signal(number)
    output += process.communicate(timeout=120)[0]
    assert process.returncode == 128 + number and "Traceback" not in output, output
    return output


def test_run_stops_while_measured(tmp_path: Path) -> None:
    process = start_command("measuring", "run", write_runs(tmp_path, UNTRAINED), "--scale", "smoke")
    output = stop_command(process, signal.SIGINT, after="HERE")
    assert re.search(r"stopped: .*SIGINT.*run the same command again", output)
    assert not list(get_local_records().glob("*.json"))
    state = read_state(UNTRAINED)
    assert state.state == "interrupted" and "SIGINT" in state.reason


def terminate_oneself(*args: object, **options: object) -> Never:
    """Send SIGTERM to this process while a library ignores errors."""
    with suppress(Exception):
        os.kill(os.getpid(), signal.SIGTERM)
    pytest.fail("the signal was ignored")


def test_run_stops_while_stage_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No partial folder remains."""

    @contextmanager
    def atomic_folder_with_signal(path: Path) -> Iterator[Path]:
        with atomic_folder(path) as part:
            (part / "half").touch()
            terminate_oneself()
            yield part

    monkeypatch.setattr("repro.storage.stages.atomic_folder", atomic_folder_with_signal)
    assert get_exit_code("run", write_runs(tmp_path, UNTRAINED), "--scale", "smoke") == 143
    assert not list(get_stage_folder().rglob("half"))
    assert not list(get_stage_folder().rglob("*.part"))


def test_reading_verbs_stop_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.report.artefacts.make_artefact_views", terminate_oneself)
    assert get_exit_code("show", "table1", "--scale", "smoke") == 143


def test_local_queue_stops_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its process was started with SIGINT ignored, as a script starts background processes."""
    run = base("smoke", num_steps=10_000)
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.1")
    words = ["launch", write_runs(tmp_path, run), "--scale", "smoke"]
    process = start_command("launching", *words, is_deaf=True)
    output = stop_command(process, signal.SIGINT, after="counting")
    assert "launch again to resume" in output
    assert get_states(run) == ["missing"]
    assert [line.split()[0] for line in read_trace()] == ["build", "begin", "stop"]


@pytest.fixture
def stop_request() -> Iterator[Stop]:
    """Handle stop signals in this process, and return the request that they set."""
    request = Stop()
    with handle_stop_signals(request):
        yield request


def test_unbroken_block_ends_first(stop_request: Stop) -> None:
    has_continued = False
    with pytest.raises(Stopped) as stopped, delay_stops():
        os.kill(os.getpid(), signal.SIGTERM)
        has_continued = True
    assert has_continued and stop_request()
    assert stopped.value.exit_status == 143


def wrap_stop(run: Run, *, should_stop: Stop, progress: object) -> None:
    """Replace `execute`: a C++ module that is interrupted while it is imported wraps the stop in its own error."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except Stopped as stopped:
        raise ImportError("initialization failed") from stopped


def test_wrapped_stop_is_a_stop(stop_request: Stop, execute_with: Callable[..., None]) -> None:
    execute_with(wrap_stop)
    with pytest.raises(Stopped):
        Job(run=asdict(UNTRAINED))(stop_request, where=JobState(state="running"))
    assert read_state(UNTRAINED).state == "interrupted"


def test_double_signal_stops_once(stop_request: Stop) -> None:
    with pytest.raises(Stopped), delay_stops():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        stop_request.at -= 2
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second Ctrl-C should have ended the block")

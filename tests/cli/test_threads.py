"""Threads that wait soon sleep: a process of the command line, and those that it starts, leave busy cores to others."""

import os
import subprocess
import sys

import pytest

LOOK = "import os, sys; from repro.cli.main import prepare_process; prepare_process()"
SAYS = "print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules, 'faiss' in sys.modules)"


@pytest.mark.parametrize(
    ("given", "found"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
)
def test_waiting_threads_soon_sleep_unless_told_otherwise_and_no_library_was_loaded_before(
    given: dict[str, str], found: str
) -> None:
    told = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in told} | given
    words = [sys.executable, "-c", f"{LOOK}; {SAYS}"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [found, "False", "False"]

"""Threads that wait sleep: a process of the command line, and those that it starts, leave busy cores to others."""

import os
import subprocess
import sys

import pytest

LOOK = "import os, sys; from repro.cli.main import prepare_process; prepare_process()"
SAYS = "print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules, 'faiss' in sys.modules)"


@pytest.mark.parametrize(("given", "found"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_sleep_unless_told_otherwise_and_no_library_was_loaded_before(
    given: str | None, found: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
    done = subprocess.run(
        [sys.executable, "-c", f"{LOOK}; {SAYS}"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [found, "False", "False"]

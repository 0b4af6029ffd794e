"""Cancelling signals the process that does the work, and no other that happens to have its number."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from repro.spec import base
from repro.storage.lease import acquire
from slurm.start import cancel
from slurm.states import get_run_item

RUN = base("smoke", num_steps=5)


def test_a_process_that_only_has_the_number_of_the_owner_elsewhere_is_left_alone(own_home: Path) -> None:
    item = get_run_item(RUN)
    item.lease_folder.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        told = {"host": socket.gethostname(), "pid": stranger.pid, "machine": "this boot pid:[another]", "born": "1"}
        (item.lease_folder / "000001.json").write_text(json.dumps(told | {"dead_after_seconds": 180, "note": {}}))
        assert [status.state for status in cancel([RUN])] == ["running"]
        assert item.is_cancelled, "it notices at its next heart-beat"
        stranger.communicate(b"\n")
        assert stranger.returncode == 0


def test_the_process_that_holds_the_lease_is_told_at_once(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *words: told.append(words))
    lease = acquire(get_run_item(RUN).lease_folder)
    assert lease is not None
    with lease:
        cancel([RUN])
    assert told == [(os.getpid(), signal.SIGTERM)]

"""Run tests marked slurm on the Slurm that answers, or skip them with the reason. REPRO_TEST_SLURM=1 makes it an error."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.slurm import stand_in as work

DEV_CLUSTER = Path(
    os.environ.get("REPRO_DEV_CLUSTER", Path(tempfile.gettempdir()) / f"repro-dev-cluster-{os.getuid()}")
)


def pytest_configure() -> None:
    """Find the developer's cluster when it is up and nothing else is configured."""
    if "SLURM_CONF" not in os.environ and (DEV_CLUSTER / "slurm.conf").is_file():
        os.environ["SLURM_CONF"] = str(DEV_CLUSTER / "slurm.conf")


def explain_missing_slurm() -> str:
    """Return why Slurm is not available, or an empty string if it answers."""
    if shutil.which("sbatch") is None:
        return "no sbatch; `slurm/dev-cluster.sh up` installs and starts Slurm"
    ping = subprocess.run(["scontrol", "ping"], capture_output=True, text=True)
    return "" if ping.returncode == 0 and "UP" in ping.stdout else "Slurm does not answer; `slurm/dev-cluster.sh up`"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked slurm with the reason."""
    marked = [item for item in items if item.get_closest_marker("slurm")]
    reason = explain_missing_slurm() if marked else ""
    if reason and os.environ.get("REPRO_TEST_SLURM"):
        pytest.exit(f"REPRO_TEST_SLURM requires the tests on Slurm, but: {reason}", returncode=1)
    for item in marked if reason else []:
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def stand_in() -> Iterator[None]:
    """Launch and execute with the stand-in. Its patches do not end with `monkeypatch.undo` in a test."""
    from tests.slurm.stand_in_job import SUBSTITUTES

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "repro.execute", work.make_execute_module(work.execute))
        for module, name, value in SUBSTITUTES:
            patch.setattr(module, name, value)
        yield


@pytest.fixture
def execute_with() -> Iterator[Callable[[Callable[..., object]], None]]:
    """Yield a function that replaces `execute` in this process until the test ends.

    Its patch ends before that of `stand_in`. `monkeypatch` is undone after it, and would restore the stand-in.
    """
    with pytest.MonkeyPatch.context() as patch:

        def replace(function: Callable[..., object]) -> None:
            patch.setitem(sys.modules, "repro.execute", work.make_execute_module(function))

        yield replace

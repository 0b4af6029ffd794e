"""Where things lie on disk: what is committed lies in the checkout, all else under one folder that REPRO_HOME names."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def home() -> Path:
    """Gives the folder of everything the program makes (default: out/ in the checkout)."""
    return Path(os.environ.get("REPRO_HOME", CHECKOUT / "out")).resolve()


def published_records() -> Path:
    """Gives the folder of the committed records."""
    return CHECKOUT / "experiments" / "records"


def local_records() -> Path:
    """Gives the folder of the records made on this machine."""
    return home() / "records"


def run_folder(run_id: str) -> Path:
    """Gives the folder in which one run works: metrics, checkpoints, TREC runs."""
    return home() / "runs" / run_id


def stage_folder() -> Path:
    """Gives the folder of the shared stages."""
    return home() / "stages"


def corpora_folder() -> Path:
    """Gives the folder of the corpora that readers have imported."""
    return home() / "corpora"


def data_folder() -> Path:
    """Gives the folder of local copies of the paper's data (REPRO_DATA names another)."""
    return Path(os.environ.get("REPRO_DATA", home() / "data")).resolve()

"""Run one training run in several processes, one per GPU: where they meet, and what they agree on before they start.

The queue starts all processes of a run, each with the same job: Slurm one task per GPU, the local queue one child per
GPU. Rank 0 holds the lease and reports the state. Ranks of one machine meet in a file that only this user can write,
and communicate over loopback, so nothing listens on the network. Ranks of several nodes meet at an address and port of
the first node, without authentication or encryption.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from repro.records.provenance import compute_source_digest, list_versions
from repro.storage.digests import hash_json

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
"""Environment variables that set the number of threads of a process. A job receives its number of cores in them."""
STORE_VARIABLE = "REPRO_RANKS_STORE"
"""Where ranks meet, for `repro.train.parallel`: `file://PATH` or `tcp://ADDRESS:PORT`."""
LOOPBACK = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo" if sys.platform == "linux" else "lo0")


def describe_rank(rank: int, num_local: int, num_nodes: int, store: str) -> dict[str, str]:
    """Return the environment variables of a rank: its number, and where it meets the others."""
    return {
        **({} if store.startswith("tcp:") else LOOPBACK),
        STORE_VARIABLE: store,
        "RANK": str(rank),
        "WORLD_SIZE": str(num_local * num_nodes),
        "LOCAL_RANK": str(rank % num_local),
        "LOCAL_WORLD_SIZE": str(num_local),
    }


def get_private_folder() -> Path:
    """Return a folder on this machine that only this user can write."""
    folder = Path(tempfile.gettempdir()) / f"repro-ranks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise ValueError(f"others can write {folder}: remove it, or set TMPDIR to a folder of your own")
    return folder


@contextmanager
def join_ranks(num_processes: int) -> Iterator[None]:
    """Join the other ranks of this run for the block. Do nothing in a run of one process.

    Raises ValueError in every rank if their code or packages differ. Files are compared by the training run.
    """
    if num_processes == 1:
        yield
        return
    # Imported late, because it loads torch.
    from repro.train.parallel import check_same_value, join_processes, leave_processes
    from repro.train.trainer import device

    join_processes(device())
    try:
        check_same_value("code", compute_source_digest())
        check_same_value("set of package versions", hash_json(list_versions()))
        yield
    finally:
        leave_processes()


def any_rank(flag: bool, num_processes: int) -> bool:
    """Return whether the flag is set in any rank of this run."""
    if num_processes == 1:
        return flag
    from repro.train.parallel import any_process
    from repro.train.trainer import device

    return any_process(flag, device())

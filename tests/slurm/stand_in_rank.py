"""A process of the local queue that calls a function of test_ranks, named in STAND_IN_EXECUTE, instead of `execute`."""

import os
import sys

from slurm import children
from tests.slurm import test_ranks
from tests.slurm.stand_in import make_execute_module

if __name__ == "__main__":
    sys.modules["repro.execute"] = make_execute_module(getattr(test_ranks, os.environ["STAND_IN_EXECUTE"]))
    sys.exit(children.main())

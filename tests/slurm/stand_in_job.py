"""Launch with the stand-in: in this process, in children of the local queue, and in jobs of Slurm."""

from dataclasses import dataclass

from repro.pipeline import stages as pipeline_stages
from slurm import launch, local
from slurm.launch import SubmittedJob
from tests.slurm import stand_in


@dataclass(frozen=True)
class StandInJob(SubmittedJob):
    """A job that works with the stand-in in the process that unpickles it."""

    def __call__(self) -> str:
        """Execute the job."""
        stand_in.replace_work()
        return super().__call__()


SUBSTITUTES = (
    (pipeline_stages, "list_stages", stand_in.stages_of),
    (local, "CHILD_MODULE", "tests.slurm.stand_in"),
    (launch, "SubmittedJob", StandInJob),
)


def replace_all() -> None:
    """Launch with the stand-in for the rest of this process."""
    stand_in.replace_work()
    for module, name, value in SUBSTITUTES:
        setattr(module, name, value)

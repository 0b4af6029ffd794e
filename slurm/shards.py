"""Compute the number of shards of a run's large stages, from the profile's number or its pairs per shard.

`plan` imports this module, so it must not load torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from repro.pipeline import stages as pipeline_stages
from repro.planning.pairs import count_pairs
from repro.spec import Run
from repro.spec.identity import run_id
from repro.storage.stages import Stage
from slurm.profiles import MAXIMA, Profile


def count_shards(run: Run, profile: Profile) -> int:
    """Return the number of shards of tokens, embeddings and keys of a run. 1 means no sharding.

    If the number of pairs is unknown before the corpus is built, this is 1 unless the profile sets the number. Raises
    ValueError if there are more shards than pairs or than can be managed.
    """
    num_pairs = count_pairs(run)
    if profile.num_shards:
        if num_pairs is not None and profile.num_shards > num_pairs:
            raise ValueError(
                f"profile {profile.name}: num_shards={profile.num_shards} is more than the {num_pairs} pairs of run "
                f"{run_id(run)}; a shard has at least one pair: choose fewer shards, or set pairs_per_shard instead"
            )
        return profile.num_shards
    if profile.pairs_per_shard is None:
        return 1
    num_shards = max(1, math.ceil((num_pairs or 0) / profile.pairs_per_shard))
    maximum = MAXIMA["num_shards"]
    if num_shards > maximum:
        raise ValueError(
            f"profile {profile.name}: pairs_per_shard={profile.pairs_per_shard} splits the {num_pairs} pairs of run "
            f"{run_id(run)} into {num_shards} shards; the maximum is {maximum}: put more pairs into each"
        )
    return num_shards


def count_shards_by_stage(
    runs: Iterable[Run], profile: Profile, list_stages: Callable[[Run], Sequence[Stage]]
) -> dict[str, int]:
    """Return the number of shards of each stage of the runs, by title: the largest number that any of them needs.

    A stage of the first of two phases counts the pairs of that phase.
    """
    num_shards: dict[str, int] = {}
    for run in runs:
        for stage, owner in pipeline_stages.stages_by_phase(run, list_stages):
            num_shards[stage.title] = max(num_shards.get(stage.title, 1), count_shards(owner, profile))
    return num_shards

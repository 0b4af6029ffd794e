"""How many shards a profile cuts the large stages of a run into: so many as it says, or by the pairs of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from repro.pipeline.stages import stages_by_phase
from repro.planning.pairs import count_pairs
from repro.spec import Run
from repro.spec.identity import run_id
from repro.storage.stages import Stage
from slurm.profiles import MOST, Profile


def count_shards(run: Run, profile: Profile) -> int:
    """Return into how many shards tokens, embeddings and keys of a run are cut; 1: they are made at once.

    Where nobody knows the number of pairs before the corpus is made it is 1, unless the profile says how many.
    ValueError for more shards than pairs, or than can be kept track of.
    """
    num_pairs = count_pairs(run)
    if profile.num_shards:
        if num_pairs is not None and profile.num_shards > num_pairs:
            raise ValueError(
                f"profile {profile.name}: num_shards={profile.num_shards} is more than the {num_pairs} pairs of run "
                f"{run_id(run)}; a shard has at least one pair: choose fewer, or say pairs_per_shard"
            )
        return profile.num_shards
    if profile.pairs_per_shard is None:
        return 1
    found, most = max(1, -(-(num_pairs or 0) // profile.pairs_per_shard)), MOST["num_shards"]
    if found > most:
        raise ValueError(
            f"profile {profile.name}: pairs_per_shard={profile.pairs_per_shard} cuts the {num_pairs} pairs of run "
            f"{run_id(run)} into {found} shards; at most {most} are launched: put more pairs into each"
        )
    return found


def shards_of_stages(
    runs: Iterable[Run], profile: Profile, stages_of: Callable[[Run], Sequence[Stage]]
) -> dict[str, int]:
    """Return into how many shards each stage of some runs is cut, by its title: as many as the largest of them needs.

    A stage of the first of two phases is counted by the pairs of that phase.
    """
    found: dict[str, int] = {}
    for run in runs:
        for stage, owner in stages_by_phase(run, stages_of):
            found[stage.title] = max(found.get(stage.title, 1), count_shards(owner, profile))
    return found

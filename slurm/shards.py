"""How many shards a profile cuts the large stages of a run into: so many as it says, or by the pairs of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from repro.inputs.stages import stages_by_phase
from repro.planning.pairs import num_pairs_of
from repro.spec import Run
from repro.storage.stages import Stage
from slurm.profiles import Profile


def num_shards(run: Run, profile: Profile) -> int:
    """Return into how many shards tokens, embeddings and keys of a run are cut; 1: they are made at once.

    Where nobody knows the number of pairs before the corpus is made, as of mined corpora, which are small, it is 1.
    """
    if profile.num_shards:
        return profile.num_shards
    if profile.pairs_per_shard is None:
        return 1
    return max(1, -(-(num_pairs_of(run) or 0) // profile.pairs_per_shard))


def shards_of_stages(
    runs: Iterable[Run], profile: Profile, stages_of: Callable[[Run], Sequence[Stage]]
) -> dict[str, int]:
    """Return into how many shards each stage of some runs is cut, by its title: as many as the largest of them needs.

    A stage of the first of two phases is counted by the pairs of that phase.
    """
    found: dict[str, int] = {}
    for run in runs:
        for stage, owner in stages_by_phase(run, stages_of):
            found[stage.title] = max(found.get(stage.title, 1), num_shards(owner, profile))
    return found

"""Shards: parts of a large stage that are built separately, verified like stages, and then joined.

1. Shard i of n is a stage of its own in the folder KEY.shards/i-of-n, next to the whole stage. It has its own lease and
   digests, and it is complete or absent. After a kill, only the interrupted shards are built again.
2. A shard stores the commit of its encoder. Shards of different commits are not joined.
3. The join verifies every shard and writes the whole stage. Its bytes do not depend on the number of shards. Then the
   shards are removed.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from repro.storage.paths import get_stage_folder
from repro.storage.stages import STAGE_FILE, Part, Stage

SUFFIX = ".shards"


@dataclass(frozen=True, kw_only=True)
class Shard(Stage):
    """One part of a stage, itself a stage. It counts as built if the whole stage is."""

    whole: Stage
    part: Part

    @property
    def folder_name(self) -> str:
        """The part and the number of parts, for example "3-of-8"."""
        return f"{self.part.number}-of-{self.part.of}"

    @property
    def is_built(self) -> bool:
        """Whether the shard or the whole stage exists."""
        return super().is_built or self.whole.is_built

    def check(self, *, deep: bool = False) -> None:
        """Raise ValueError if the files of the shard have changed."""
        # A join removes its shards.
        if not self.whole.is_built or self.path.is_dir():
            super().check(deep=deep)


def make_shard(stage: Stage, part: Part) -> Shard:
    """Return one shard of a stage. The stage must have `sharding`."""
    sharding = stage.sharding
    assert sharding is not None, f"{stage.name} cannot be built in shards"
    return Shard(
        name=f"{stage.title}{SUFFIX}",
        key=stage.key | {"shard": part.number, "of": part.of},
        make=lambda folder: sharding.make(folder, part),
        needs=stage.needs,
        made_with=stage.made_with,
        whole=stage,
        part=part,
    )


def list_shards(stage: Stage, num_shards: int) -> tuple[Shard, ...]:
    """Return all shards of a stage, or none if it is not built in shards."""
    if num_shards == 1 or stage.sharding is None:
        return ()
    return tuple(make_shard(stage, Part(number, num_shards)) for number in range(1, num_shards + 1))


def build_from_shards(stage: Stage, num_shards: int, progress: Callable[[str], None] = lambda line: None) -> Path:
    """Build missing shards of a stage, join and remove them. A stage that is not built in shards is built as a whole."""
    shards = list_shards(stage, num_shards)
    sharding = stage.sharding
    if sharding is None or not shards:
        return stage.build(progress)

    def make(folder: Path) -> None:
        for shard in shards:
            shard.build()
            # Shards may come from other machines, so their files are read again.
            shard.check(deep=True)
        _check_made_with(shards)
        sharding.join(folder, [shard.path for shard in shards])

    joined = replace(stage, make=make, made_with=lambda: shards[0].read_build_metadata().get("made_with", {}))
    path = joined.build(progress)
    for folder in list_shard_folders(path):
        # `repro prune` finds it after a kill
        aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.part")
        # Renamed first, so that no process reads a half-removed shard. It is missing if another process was faster.
        with suppress(FileNotFoundError):
            folder.rename(aside)
            shutil.rmtree(aside)
    return path


def _check_made_with(shards: tuple[Shard, ...]) -> None:
    """Raise ValueError if shards were built with different encoders, such as two commits of the hub."""
    first = shards[0].read_build_metadata()
    for shard in shards:
        if (other := shard.read_build_metadata()) != first:
            found = f"{shards[0].title} was built with {first}, {shard.title} with {other}"
            raise ValueError(f"{found}: remove {shard.path.parent}, and all shards are built again")


def find_stage(name: str, stages: tuple[Stage, ...]) -> Stage:
    """Return the stage or shard with this title. `stages` are the whole stages."""
    whole, _, part = name.partition(f"{SUFFIX}/")
    stage = next(stage for stage in stages if stage.title == whole)
    return make_shard(stage, Part(*map(int, part.split("-of-")))) if part else stage


def find_parent_stage(name: str) -> str:
    """Return the title of the whole stage, given the title of a shard. Empty for the title of a stage."""
    whole, separator, _ = name.partition(f"{SUFFIX}/")
    return whole if separator else ""


def list_shard_folders(stage: Path) -> Iterator[Path]:
    """Yield the folders of the existing shards of a stage, given the folder of the stage."""
    return (path.parent for path in sorted(stage.with_name(f"{stage.name}{SUFFIX}").glob(f"*-of-*/{STAGE_FILE}")))


def list_redundant_shards() -> Iterator[Path]:
    """Yield shards whose whole stage exists. They remain after a killed join, or were built in parallel to it."""
    for folder in sorted(get_stage_folder().glob(f"*/*{SUFFIX}")):
        stage_folder = folder.with_name(folder.name.removesuffix(SUFFIX))
        if (stage_folder / STAGE_FILE).is_file():
            yield from list_shard_folders(stage_folder)

"""Shards: parts of a large stage that are made apart, each kept and verified as a stage is, then joined.

1. Shard i of n is a stage of its own, in the folder KEY.shards/i-of-n beside the whole: built under its own lease,
   complete or not at all, with the digests of its files. A killed one is the only one that is made again.
2. It notes the digests of what it was made from. Where that has changed since, it is refused, not joined.
3. The join reads every shard against its digests and writes the whole, whose bytes do not depend on the number of
   shards. Then the shards are removed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from repro.storage.json_files import read_json
from repro.storage.paths import get_stage_folder
from repro.storage.stages import STAGE_FILE, Part, Stage

SUFFIX = ".shards"


@dataclass(frozen=True, kw_only=True)
class Shard(Stage):
    """One part of a stage, itself a stage; it counts as built where the whole is."""

    whole: Stage
    part: Part

    @property
    def folder_name(self) -> str:
        """Which part of how many."""
        return f"{self.part.number}-of-{self.part.of}"

    @property
    def is_built(self) -> bool:
        """Whether it, or the whole, is there."""
        return super().is_built or self.whole.is_built

    def check(self, *, deep: bool = False) -> None:
        """ValueError when it is not what was made, or was made from something else than what is there now."""
        if self.whole.is_built and not self.path.is_dir():
            return
        super().check(deep=deep)
        told = read_json(self.path / STAGE_FILE).get("made_from")
        then, now = told if isinstance(told, dict) else {}, self._made_from()
        if changed := [name for name in now if then.get(name) != now[name]]:
            raise ValueError(
                f"shard {self.title} was made from another {changed[0]} (digest {str(then.get(changed[0]))[:12]}, now "
                f"{now[changed[0]][:12]}): remove the folder {self.path} and it is made again"
            )

    def told(self) -> dict[str, Any]:
        """Return also the digests of all it is made from."""
        return super().told() | {"made_from": self._made_from()}

    def _made_from(self) -> dict[str, str]:
        needs = (need for stage in self.needs for need in stage.all())
        return {
            need.title: hashlib.sha256(json.dumps(need.files, sort_keys=True).encode()).hexdigest() for need in needs
        }


@dataclass(frozen=True, kw_only=True)
class Joined(Stage):
    """A stage that is made by joining its shards, which are removed when it is there."""

    def build(self, progress: Callable[[str], None] = lambda line: None) -> Path:
        """Return the folder, after joining; shards that are not there are made first."""
        path = super().build(progress)
        for folder in left_shards(path):
            aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.part")  # which `repro prune` would find
            with suppress(FileNotFoundError):  # another process that joined was first
                folder.rename(aside)
                shutil.rmtree(aside)
        return path


def make_shard(stage: Stage, part: Part) -> Shard:
    """Return one shard of a stage that has `sharding`."""
    sharding = stage.sharding
    assert sharding is not None, f"{stage.name} cannot be made in shards"
    return Shard(
        name=f"{stage.title}{SUFFIX}",
        key=stage.key | {"shard": part.number, "of": part.of},
        make=lambda folder: sharding.make(folder, part),
        needs=stage.needs,
        num_bytes=lambda: _bytes_to_come(stage, part.of),
        made_with=stage.made_with,
        whole=stage,
        part=part,
    )


def _bytes_to_come(stage: Stage, num_shards: int) -> int:
    """Return what shards that are not there and the whole will take: both lie on the disk when it is joined."""
    there = sum(folder.name.endswith(f"-of-{num_shards}") for folder in left_shards(stage.path))
    whole = stage.num_bytes() if stage.num_bytes else 0
    return whole + whole * (num_shards - there) // num_shards


def list_shards(stage: Stage, num_shards: int) -> tuple[Shard, ...]:
    """Return all shards of a stage; none where it is not made in shards."""
    if num_shards == 1 or stage.sharding is None:
        return ()
    return tuple(make_shard(stage, Part(number, num_shards)) for number in range(1, num_shards + 1))


def merge_shards(stage: Stage, num_shards: int) -> Stage:
    """Return the stage as one that is made by joining its shards; the very stage where it is not made in shards."""
    shards, sharding = list_shards(stage, num_shards), stage.sharding
    if sharding is None or not shards:
        return stage

    def make(folder: Path) -> None:
        for shard in shards:
            shard.build()
            shard.check(deep=True)
        sharding.join(folder, [shard.path for shard in shards])

    return Joined(**{one.name: getattr(stage, one.name) for one in fields(Stage)} | {"make": make})


def find_stage(name: str, stages: tuple[Stage, ...]) -> Stage:
    """Return the stage, or the shard of one, that has this title; `stages` has the whole stages."""
    whole, _, part = name.partition(f"{SUFFIX}/")
    stage = next(stage for stage in stages if stage.title == whole)
    return make_shard(stage, parse_part(part)) if part else stage


def parse_part(name: str) -> Part:
    """Return the part that a folder's name tells: 3-of-8."""
    number, _, of = name.partition("-of-")
    return Part(int(number), int(of))


def find_parent_stage(name: str) -> str:
    """Return the title of the stage that a shard's title belongs to; empty for the title of a stage."""
    whole, found, _ = name.partition(f"{SUFFIX}/")
    return whole if found else ""


def left_shards(stage: Path) -> Iterator[Path]:
    """Return the folders of the shards that lie beside a stage's folder."""
    return (path.parent for path in sorted(stage.with_name(f"{stage.name}{SUFFIX}").glob(f"*-of-*/{STAGE_FILE}")))


def needless_shards() -> Iterator[Path]:
    """Return shards whose whole is there: left by a join that was killed, or made beside it."""
    for folder in sorted(get_stage_folder().glob(f"*/*{SUFFIX}")):
        whole = folder.with_name(folder.name.removesuffix(SUFFIX))
        if (whole / STAGE_FILE).is_file():
            yield from left_shards(whole)

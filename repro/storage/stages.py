"""Stages: shared intermediate results such as corpora, tokens, embeddings and clusters.

A stage is a folder named by a hash of its origin. It is built once and shared by all runs that need it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from repro.storage.digests import check_digests, hash_folder, hash_samples
from repro.storage.files import atomic_folder, json_object, remove_dead_parts
from repro.storage.lease import acquire_when_free
from repro.storage.paths import get_building_folder, get_stage_folder

STAGE_FILE = "stage.json"

Maker = Callable[[Path], None]


class Part(NamedTuple):
    """One of `of` parts of nearly equal length. `number` counts from 1."""

    number: int = 1
    of: int = 1

    def span(self, length: int, step: int = 1) -> slice:
        """Return the slice of this part. The parts meet at multiples of `step` and cover all `length` entries."""
        num_steps = -(-length // step)
        # Consecutive parts share this rounding, so they meet without gaps or overlaps.
        start = num_steps * (self.number - 1) // self.of * step
        stop = num_steps * self.number // self.of * step
        return slice(min(start, length), min(stop, length))


WHOLE = Part()


@dataclass(frozen=True)
class Sharding:
    """How to build a stage in parts: `make` fills the folder of one part, `join` merges the folders of all parts."""

    make: Callable[[Path, Part], None]
    join: Callable[[Path, Sequence[Path]], None]


@dataclass(frozen=True)
class Stage:
    """One stage: its kind, the key that determines its content, the function that builds it, and its inputs."""

    name: str
    key: dict[str, Any]
    make: Maker
    needs: tuple[Stage, ...] = ()
    sharding: Sharding | None = None
    """How to build the stage in shards, with identical bytes, or None. See `repro/storage/shards.py`."""
    made_with: Callable[[], dict[str, Any]] = dict
    """Returns metadata on the build that the key does not determine. Called after the build."""

    @property
    def path(self) -> Path:
        """The folder of the stage, inside the folder of its kind."""
        return get_stage_folder() / self.name / self.folder_name

    @cached_property
    def folder_name(self) -> str:
        """Twelve hex digits of a hash of the key and of the keys of all inputs."""
        # Keys of inputs are included, so a change anywhere upstream gives another folder.
        text = json.dumps([self.key, [need.folder_name for need in self.needs]], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        """The kind and the name of the folder, which identify the stage in jobs and messages."""
        return f"{self.name}/{self.folder_name}"

    @property
    def is_built(self) -> bool:
        """Whether the folder is complete. Its key file is written last."""
        return (self.path / STAGE_FILE).is_file()

    def all(self) -> tuple[Stage, ...]:
        """Return the stage and all of its inputs in build order, each once."""
        stages: dict[Path, Stage] = {}
        for need in self.needs:
            stages |= {stage.path: stage for stage in need.all()}
        return (*stages.values(), self)

    def build(self, progress: Callable[[str], None] = lambda line: None) -> Path:
        """Build the stage and its inputs if they are missing, and return the folder.

        `make` fills an empty temporary folder, which is renamed when it is complete. A killed build therefore never
        leaves a partial stage. If several processes need the same stage, one builds it and the others wait.
        """
        for stage in self.all():
            if not stage.is_built:
                stage._build_alone(progress)
            # Also for existing stages: a damaged input would otherwise give a valid-looking result.
            stage.check()
        return self.path

    def check(self, *, deep: bool = False) -> None:
        """Raise ValueError if a file of a built stage has changed. Each machine checks once, or always with `deep`."""
        samples = json_object(self.path / STAGE_FILE).get("samples")
        check_digests(self.path, self.files, self.building_folder, samples, deep=deep)

    @property
    def files(self) -> dict[str, str]:
        """The sha256 of each file at the time of the build. Raises ValueError if the key file is damaged."""
        files = json_object(self.path / STAGE_FILE).get("files")
        if not isinstance(files, dict):
            raise ValueError(f"{self.path / STAGE_FILE} does not describe a stage: remove the folder")
        return files

    def read_build_metadata(self) -> dict[str, Any]:
        """Return what `made_with` returned at the build, as `{"made_with": …}`, or an empty dict."""
        made_with = json_object(self.path / STAGE_FILE).get("made_with") if self.is_built else None
        return {"made_with": made_with} if made_with else {}

    @property
    def building_folder(self) -> Path:
        """The folder of the build's lease and digests, next to the stage."""
        return get_building_folder(self.path)

    def _build_alone(self, progress: Callable[[str], None]) -> None:
        """Build the stage under its lease, or wait until another process has built it."""
        with acquire_when_free(
            self.building_folder / "owner", lambda owner: progress(f"waiting for {self.name}, built by {owner}")
        ):
            # The files of killed builds can be as large as the stage. This also lists the folder, which renews the cache of
            # a network disk. It may have hidden a finished stage.
            remove_dead_parts(self.path, is_leased=True)
            # another process may have finished before the lease was acquired
            if self.is_built:
                return
            if self.path.exists():
                raise ValueError(f"{self.path} has no {STAGE_FILE}: remove the folder and it is built again")
            progress(f"building {self.name}: {', '.join(f'{name}={value}' for name, value in self.key.items())}")
            metadata: dict[str, Any] = {"name": self.name, "key": self.key}
            with atomic_folder(self.path) as part:
                self.make(part)
                made_with = self.made_with()
                if made_with:
                    metadata["made_with"] = made_with
                # the key file comes last and marks the stage as complete
                metadata |= {"files": hash_folder(part), "samples": hash_samples(part)}
                (part / STAGE_FILE).write_text(json.dumps(metadata, indent=1))
            if not self.is_built:
                raise ValueError(f"{self.path} appeared without {STAGE_FILE} while it was built: remove the folder")

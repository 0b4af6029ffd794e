"""Shared artefacts (corpora, tokens, embeddings, clusters): folders named by their origin, each built once."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from repro.storage.atomic import check_room, whole_folder
from repro.storage.digests import check_digests, hash_folder
from repro.storage.json_files import read_json
from repro.storage.lease import acquire, look
from repro.storage.paths import get_stage_folder

STAGE_FILE = "stage.json"

Maker = Callable[[Path], None]


class Part(NamedTuple):
    """One part of something that is cut into `of` parts of nearly equal length; `number` counts from 1."""

    number: int = 1
    of: int = 1

    def span(self, length: int, step: int = 1) -> slice:
        """Return which of `length` entries are its own: cut at multiples of `step`, all parts together give all."""
        num_steps = -(-length // step)
        start, stop = (num_steps * place // self.of * step for place in (self.number - 1, self.number))
        return slice(min(start, length), min(stop, length))


WHOLE = Part()


@dataclass(frozen=True)
class Sharding:
    """How a stage is made in parts: one part into a folder, and the folders of all parts into that of the whole."""

    make: Callable[[Path, Part], None]
    join: Callable[[Path, Sequence[Path]], None]


@dataclass(frozen=True)
class Stage:
    """One shared artefact: what kind it is, what decides its content, how it is made, and what must be there first."""

    name: str
    key: dict[str, Any]
    make: Maker
    needs: tuple[Stage, ...] = ()
    num_bytes: Callable[[], int] | None = None
    """About how large it will be, told from what it needs when that is built; None where nobody knows."""
    sharding: Sharding | None = None
    """How it is made in shards, to the same bytes; None for one that cannot be. `repro/storage/shards.py` does so."""
    made_with: Callable[[], dict[str, Any]] = dict
    """What its key file tells of what it was made with and its key does not fix, asked once it is made."""

    @property
    def path(self) -> Path:
        """The folder: the kind, then twelve hex digits of the key and of the keys of all it needs."""
        return get_stage_folder() / self.name / self.folder_name

    @cached_property
    def folder_name(self) -> str:
        """Twelve hex digits of the key and of the keys of all it needs."""
        text = json.dumps([self.key, [need.folder_name for need in self.needs]], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        """The kind and the folder's name: how jobs and messages call it."""
        return f"{self.name}/{self.folder_name}"

    @property
    def is_built(self) -> bool:
        """Whether the folder is complete; its key file is written last."""
        return (self.path / STAGE_FILE).is_file()

    def all(self) -> tuple[Stage, ...]:
        """Return the stage and everything it needs, in the order of building, each once."""
        found: dict[Path, Stage] = {}
        for need in self.needs:
            found |= {stage.path: stage for stage in need.all()}
        return (*found.values(), self)

    def build(self, progress: Callable[[str], None] = lambda line: None) -> Path:
        """Return the folder, building it and what it needs when they are not there.

        `make` fills an empty folder; it appears under its name by rename when it is complete, so a killed build leaves
        nothing that could be mistaken for a stage. Two processes that want the same stage build it once.
        """
        for stage in self.all():
            if not stage.is_built:
                stage._build_alone(progress)
            stage.check()
        return self.path

    def check(self, *, deep: bool = False) -> None:
        """ValueError naming the file when a built stage is not what was made; each machine compares once, or `deep`.

        Stages of before digests were kept have none, and are believed.
        """
        check_digests(self.path, self.files, self.building_folder, deep=deep)

    @property
    def files(self) -> dict[str, str]:
        """The digests of a built stage's files when it was made; ValueError when its key file is damaged."""
        told = read_json(self.path / STAGE_FILE)
        files = told.get("files", {}) if isinstance(told, dict) else None
        if not isinstance(files, dict) or not all(isinstance(digest, str) for digest in files.values()):
            raise ValueError(f"{self.path / STAGE_FILE} tells of no stage: remove the folder and it is built again")
        return files

    def told(self) -> dict[str, Any]:
        """Return what its key file tells besides the digests; asked before it is made."""
        return {"name": self.name, "key": self.key}

    @property
    def building_folder(self) -> Path:
        """The folder, beside the stage, that says who is building it and how that went."""
        return self.path.with_name(f"{self.path.name}.building")

    def _build_alone(self, progress: Callable[[str], None]) -> None:
        said = ""
        while not self.is_built:
            lease = acquire(self.building_folder / "owner")
            if lease is None:
                said = self._say_who_builds(progress, said)
                time.sleep(1.0)
                continue
            with lease:
                if self.is_built:
                    return
                self._move_aside(progress)
                check_room(self.num_bytes() if self.num_bytes else 0, self.path.parent, f"the stage {self.name}")
                progress(f"building {self.name}: {', '.join(f'{name}={value}' for name, value in self.key.items())}")
                told = self.told()
                with whole_folder(self.path) as part:
                    self.make(part)
                    told |= {"made_with": found} if (found := self.made_with()) else {}
                    (part / STAGE_FILE).write_text(json.dumps(told | {"files": hash_folder(part)}, indent=1))
                if not self.is_built:
                    raise ValueError(f"{self.path} appeared without {STAGE_FILE} while it was built: remove the folder")

    def _move_aside(self, progress: Callable[[str], None]) -> None:
        """Make room where a folder without its key file lies; `repro prune` removes it later."""
        if self.path.exists():
            aside = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}.part")
            progress(f"{self.path} has no {STAGE_FILE}: it is incomplete, and moved to {aside.name}")
            self.path.rename(aside)

    def _say_who_builds(self, progress: Callable[[str], None], said: str) -> str:
        owner = look(self.building_folder / "owner")
        line = f"waiting for {self.name}: {owner.host} process {owner.pid} is building it" if owner else said
        if line != said:
            progress(line)
        return line

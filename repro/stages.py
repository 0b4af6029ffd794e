"""Shared artefacts (corpora, tokens, embeddings, clusters): folders named by their origin, each built once."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.lease import acquire, look
from repro.places import stage_folder
from repro.writing import whole_folder


@dataclass(frozen=True)
class Stage:
    """One shared artefact: what kind it is, what decides its content, how it is made, and what must be there first."""

    name: str
    key: dict[str, Any]
    make: Callable[[Path], None]
    needs: tuple[Stage, ...] = ()

    @property
    def path(self) -> Path:
        """The folder: the kind, then twelve hex digits of the key and of the keys of all it needs."""
        text = json.dumps([self.key, [str(need.path.name) for need in self.needs]], sort_keys=True)
        return stage_folder() / self.name / hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def is_built(self) -> bool:
        """Whether the folder is complete; its key file is written last."""
        return (self.path / "stage.json").is_file()

    def all(self) -> tuple[Stage, ...]:
        """Gives the stage and everything it needs, in the order of building, each once."""
        found: dict[Path, Stage] = {}
        for need in self.needs:
            found |= {stage.path: stage for stage in need.all()}
        return (*found.values(), self)

    def build(self, progress: Callable[[str], None] = lambda line: None) -> Path:
        """Gives the folder, building it and what it needs when they are not there.

        `make` fills an empty folder; it appears under its name by rename when it is complete, so a killed build leaves
        nothing that could be mistaken for a stage. Two processes that want the same stage build it once.
        """
        for stage in self.all():
            if not stage.is_built:
                stage._build_alone(progress)
        return self.path

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
                progress(f"building {self.name} {self.key}")
                with whole_folder(self.path) as part:
                    self.make(part)
                    (part / "stage.json").write_text(json.dumps({"name": self.name, "key": self.key}, indent=1))

    def _say_who_builds(self, progress: Callable[[str], None], said: str) -> str:
        owner = look(self.building_folder / "owner")
        line = f"waiting for {self.name}: {owner.host} process {owner.pid} is building it" if owner else said
        if line != said:
            progress(line)
        return line

"""Scores any model on any suite, and keeps scores, their origin and TREC runs in a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.evaluate.suites import evaluate_suite
from repro.identity import run_id
from repro.interop.opening import Opened, open_model, open_suite
from repro.places import home
from repro.provenance import code_identity, machine, versions
from repro.report import View, format_number
from repro.scores import POINTS, contexts_of, notes_of
from repro.writing import whole_file

SHOWN = {"ndcg_at_10": "NDCG@10", "recall_at_100": "recall@100", "mrr_at_10": "MRR@10"}


@dataclass(frozen=True)
class Asked:
    """What is to be scored, and how."""

    model: str
    suite: str
    contexts: tuple[str, ...] = ("own",)
    context_seed: int = 0
    num_contexts: int | None = None
    revision: str | None = None
    device: str | None = None


@dataclass(frozen=True)
class Scores:
    """Metrics by path and how they came about."""

    suite: str
    metrics: Mapping[str, float]
    provenance: Mapping[str, Any]
    folder: Path

    def as_dict(self) -> dict[str, Any]:
        """Gives them as plain values."""
        return {"suite": self.suite, "metrics": dict(self.metrics), "provenance": dict(self.provenance)}

    def view(self) -> View:
        """Gives a table: a line for each collection and context, points."""
        lines = []
        for name, context in contexts_of(self.metrics, self.suite):
            for dataset in [*(row["name"] for row in self.provenance["suite"]["datasets"]), "mean"]:
                cells = (self.metrics[f"{name}/{dataset}/{measure}"] for measure in SHOWN)
                lines.append((dataset, context, *(format_number(POINTS * value) for value in cells)))
        drawn = {row["num_documents"] for row in self.provenance["suite"]["contexts"] if "num_documents" in row}
        notes = [*notes_of(self.provenance["suite"])]
        if drawn:
            counts, seed = (
                "–".join(map(str, sorted({min(drawn), max(drawn)}))),
                self.provenance["asked"]["context_seed"],
            )
            notes.append(f"context: {counts} documents, drawn with seed {seed}; their digests are in scores.json")
        title = f"{self.provenance['model']['called']} on {self.suite}, points"
        return View(title, ("collection", "context", *SHOWN.values()), tuple(lines), tuple(notes))


def evaluate_anything(asked: Asked, folder: Path | None = None, *, report: Callable[[str], None] = print) -> Scores:
    """Gives the scores, and writes them as scores.json beside one TREC run for each collection and context.

    ValueError when model or suite is nothing we know, or for a context that the model or the suite cannot have.
    """
    suite = open_suite(asked.suite, report)
    opened = open_model(asked.model, revision=asked.revision, report=report)
    _to_device(opened.model, asked.device)
    count = opened.num_contexts if asked.num_contexts is None else asked.num_contexts
    if not opened.num_contexts and (asked.contexts != ("own",) or asked.num_contexts):
        raise ValueError(f"{opened.called} has no context: evaluate it without --context and --num-contexts")
    target = folder or home() / "evaluations" / _folder_name(opened.called, suite.name)
    found = evaluate_suite(
        opened.model,
        suite,
        contexts=asked.contexts,
        num_contexts=count,
        seed=asked.context_seed,
        folder=target / "trec",
    )
    provenance = {
        **code_identity(),
        "versions": versions(),
        "machine": machine(),
        "asked": asdict(asked),
        "model": described(opened),
        "suite": found.provenance,
    }
    scores = Scores(suite.name, found.metrics, provenance, target)
    with whole_file(target / "scores.json") as part:
        part.write_text(json.dumps(scores.as_dict(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return scores


def described(opened: Opened) -> dict[str, Any]:
    """Gives what a score keeps of a model: its name, run, digest of its weights, prompts and length."""
    from repro.interop.mteb_meta import digest

    told: dict[str, Any] = {"called": opened.called, "run": None if opened.run is None else run_id(opened.run)}
    config = getattr(opened.model, "config", None)
    if config is not None:
        told |= {"weights": digest(opened.model), "prompts": config.prompts, "max_tokens": config.max_tokens}
        told |= {"architecture": config.architecture, "num_contexts": opened.num_contexts}
    return told


def _to_device(model: Any, device: str | None) -> None:
    import torch

    if hasattr(model, "to"):
        model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _folder_name(model: str, suite: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{model}-{suite}")

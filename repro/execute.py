"""Execute one run: build its stages, train, measure, and write the record. Laptops, tests and clusters all use it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from repro.analyses import measure_run
from repro.batches.surrogate import get_trained_folder
from repro.evaluate.result_cache import FOLDER
from repro.model.progress import make_encoding_reporter
from repro.pipeline.corpora import check_available
from repro.pipeline.encoders import find_commit
from repro.pipeline.inputs import Inputs
from repro.records.lookup import find_run_by_id
from repro.records.provenance import MADE, describe_machine, get_code_identity, list_versions, now_utc
from repro.records.store import Record, get_score, has_record, read_record, write_record
from repro.spec import TRAINED, Run
from repro.spec.identity import RUN_ID, run_id
from repro.spec.start import find_encoder
from repro.storage.digests import hash_file
from repro.storage.files import atomic_folder
from repro.storage.paths import get_local_records, run_folder

Progress = Callable[[str], None]


def execute(run: Run, *, should_stop: Callable[[], bool] = lambda: False, progress: Progress = print) -> Record:
    """Return the record of a run, and execute the run first if it has none.

    A stopped run resumes from its last checkpoint, or after the last collection that was scored. Its numbers are those
    of an uninterrupted run.

    Raises:
        ValueError: if the data is not available. This is checked before any work starts.
        Interrupted: if `should_stop` returned True. A checkpoint is written first.
    """
    record_file = get_local_records() / f"{run_id(run)}.json"
    if has_record(get_local_records(), run):
        return read_record(record_file)
    # Read first: a run can take days, and edits made meanwhile did not affect its numbers.
    code = get_code_identity()
    check_available([run])
    if run.architecture in TRAINED:
        from repro.train.setup import check_model

        check_model(run)
    filter_model = train_filter_model(run, should_stop=should_stop, progress=progress)
    inputs = Inputs(run)
    inputs.build(progress)
    if filter_model:
        _check_filter_vectors(inputs, filter_model["filter_model"]["weights"])
    # Only rank 0 measures and records. The other ranks encode for it, and wait for its record.
    is_first = int(os.environ.get("RANK", "0")) == 0
    model: Any = None
    # before hours of training, during which packages and the cache of the hub may change
    versions = {"versions": list_versions(), **_describe_encoder(run)}
    metrics: dict[str, float] = {}
    arrays: dict[str, Any] = {}
    training: dict[str, Any] = {}
    shared_encoding: AbstractContextManager[None] = nullcontext()
    if run.architecture in TRAINED:
        from repro.train.shared_encoding import serve_encoding, share_encoding
        from repro.train.trainer import train_run

        model, (metrics, arrays, training) = train_run(inputs, should_stop=should_stop, progress=progress)
        if is_first:
            shared_encoding = share_encoding(model)
        else:
            serve_encoding(model)
    if not is_first:
        while not has_record(get_local_records(), run):
            time.sleep(0.5)
        return read_record(record_file)
    progress(f"measuring {run.measure}")
    started = time.monotonic()
    cpu_started = time.process_time()
    encoder: Any = inputs.surrogate.loaded if run.architecture == "surrogate" else model
    if encoder is not None:
        encoder.report = make_encoding_reporter(progress)
    with shared_encoding:
        measured = measure_run(inputs, model, run_folder(run_id(run)))
    seconds = time.monotonic() - started
    cpu_seconds = time.process_time() - cpu_started
    score = get_score(run, measured.metrics)
    headline = "" if score is None else f": NDCG@10 {100 * score:.1f} on {run.suite}"
    progress(f"measured {run.measure} in {seconds:.0f} s{headline}")
    record = write_record(
        get_local_records(),
        run,
        metrics={**metrics, **measured.metrics},
        arrays={**arrays, **measured.arrays},
        exhibits=measured.exhibits,
        provenance={
            **code,
            MADE: now_utc(),
            **versions,
            "machine": describe_machine(narrow=getattr(model, "is_narrow", False)),
            "stages": {
                stage.title: {"id": stage.path.name, **stage.key, **stage.read_build_metadata()}
                for stage in inputs.graph.stages
            },
            "training": training,
            **filter_model,
            "suite": measured.provenance,
            "evaluation_seconds": round(seconds, 1),
            "evaluation_cpu_seconds": round(cpu_seconds, 1),
        },
    )
    shutil.rmtree(run_folder(run_id(run)) / FOLDER, ignore_errors=True)
    return record


def train_filter_model(
    run: Run, *, should_stop: Callable[[], bool] = lambda: False, progress: Progress = print
) -> dict[str, Any]:
    """Train the run that `filter_model` names, and save its weights where stages read them. Return its provenance.

    Does nothing, and returns an empty dict, if the filter of `run` is no run. One process trains, the others wait.

    Raises:
        ValueError: if the run of the filter is unknown, or is no biencoder without prompts.
    """
    name = run.filter_model
    if name is None or run.filter == "none" or not RUN_ID.fullmatch(name):
        return {}
    from repro.model.encoding import WEIGHTS_FILE
    from repro.train.trainer import train_run

    folder = get_trained_folder(name)
    if not folder.is_dir():
        trained = find_run_by_id(name)
        if trained.architecture != "biencoder" or trained.prompts != "none" or trained.filter_model:
            raise ValueError(
                f"filter_model={name}: name a run of a biencoder without prompts and without a filter of its own"
            )
        progress(f"training the filter, run {name}")
        inputs = Inputs(trained)
        inputs.build(progress)
        model, _ = train_run(inputs, should_stop=should_stop, progress=progress)
        with atomic_folder(folder, must_be_first=False) as part:
            model.to("cpu").save_pretrained(part)
    return {"filter_model": {"run": name, "weights": hash_file(folder / WEIGHTS_FILE)}}


def _check_filter_vectors(inputs: Inputs, weights: str) -> None:
    """Raise ValueError if the stored vectors of the trained filter come from weights with another digest."""
    for stage in inputs.graph.stages:
        made_with = stage.read_build_metadata().get("made_with", {})
        if stage.key.get("surrogate") == inputs.run.filter_model and made_with.get("weights", weights) != weights:
            raise ValueError(
                f"{inputs.run.filter_model} was trained again: remove {stage.path}, which it embedded before"
            )


def _describe_encoder(run: Run) -> dict[str, Any]:
    """Return the encoder that a run starts from: the sha256 of its files, or its commit. Empty without an encoder."""
    if run.architecture not in TRAINED:
        return {}
    encoder = find_encoder(run.start)
    if encoder is not None:
        return {"encoder": {"name": encoder.name, "files": dict(encoder.files or {})}}
    commit = find_commit(run.start)
    return {"encoder": commit} if commit else {}

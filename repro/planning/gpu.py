"""What `doctor --gpu` tries, the first thing to type on a machine with one: each switch, then shapes of real trainings.

1. A small model of each backbone gives vectors and gradients on the GPU as on the CPU, under each switch. 2. A step in
chunks has the gradient of a step at once, with the same contexts dropped; a training is taken up from its checkpoint as
it was left; `encode` gives the CPU's vectors. 3. Ten steps of the contextual model at the shapes of
`small` and `large`, on drawn tokens: memory, tokens a second. 4. K-means by FAISS on the GPU finds as good centroids as
on the CPU. What was found is written to a record.

Nothing here needs data or weights. Without a GPU it says so in one line; all but FAISS runs on a CPU as well, which is
how it is tested: the numbers that a GPU gives were never seen where this was written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from repro.data.tokens import Tokens
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel, Model
from repro.model.start import build_model
from repro.model.texts import Texts
from repro.planning.doctor import Finding
from repro.records.provenance import get_code_identity, machine, versions
from repro.spec import CHOICES, base
from repro.storage.atomic import whole_file
from repro.storage.paths import home
from repro.train.checkpoint import TrainState, read_checkpoint, write_checkpoint
from repro.train.chunks import ChunkSizes, chunks_for, estimate_graph_bytes
from repro.train.feed import Feed
from repro.train.gradcache import StepTexts, add_gradients
from repro.train.loop import (
    TrainSettings,
    measure_gpu_bytes,
    measure_memory_bytes,
    optimizer_for,
    prepare,
    stages_for,
    take_step,
)
from repro.train.switches import Switches, switches_from
from repro.train.trainer import make_base_config

SWITCHES = ("no-autocast", "no-autocast checkpoint", "no-autocast compile", "")
"""Words to try, each against float32 on the CPU; the last is what a training uses when nothing is said."""
CLOSE, CLOSE_NARROW = 1e-3, 5e-2
"""Largest difference between vectors of length 1, and share of the gradient's length; in float32 and in bfloat16."""
NUM_STEPS = 10
PIECE = 5
GIB = 1024**3


@dataclass(frozen=True)
class Shape:
    """How large a training is tried: pairs of a batch, tokens of each text; chunks are those of a training."""

    config: ModelConfig
    batch_size: int
    num_tokens: int


def examine_gpu(device: torch.device, shapes: Sequence[str] = ("small", "large")) -> Iterator[Finding]:
    """Give what was found, each as soon as it is known; a thing that fails is a finding with its reason."""
    for backbone in CHOICES["backbone"]:
        for words in SWITCHES:
            yield _run_check(
                f"{backbone}, {words or 'as by default'}", lambda b=backbone, w=words: _equal(device, b, w)
            )
    yield _run_check("a step in chunks", lambda: _in_chunks(device))
    yield _run_check("a checkpoint", lambda: _taken_up(device))
    yield _run_check("encode", lambda: _compare_encoding(device))
    for name in shapes:
        yield _run_check(f"ten steps of {name}", lambda one=name: _steps(get_model_shape(one), device))
    yield _run_check("FAISS", _faiss)


def found_gpu() -> Finding:
    """Say which GPU torch sees; not good without one."""
    if not torch.cuda.is_available():
        return Finding("gpu", False, f"torch {torch.__version__} sees none here: it takes a GPU and a build for it")
    memory = torch.cuda.get_device_properties(0).total_memory / GIB
    return Finding("gpu", True, f"{torch.cuda.get_device_name()}, {memory:.0f} GiB, torch {torch.__version__}")


def write_findings(findings: Sequence[Finding]) -> Path:
    """Write what was found, with versions and code, below the home; return where."""
    path = home() / "doctor" / "gpu.json"
    told = {"findings": [asdict(one) for one in findings], "versions": versions(), "code": get_code_identity()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        part.write_text(json.dumps({**told, "machine": machine(narrow=True)}, indent=1) + "\n", encoding="utf-8")
    return path


def get_model_shape(scale: str) -> Shape:
    """Return the shape of a scale's contextual model; start weights are not needed, sizes are."""
    run = base(scale, architecture="contextual")
    return Shape(make_base_config(run), run.batch_size, run.max_tokens)


def _run_check(what: str, look: Any) -> Finding:
    if torch.cuda.is_initialized():  # what was tried before shall not count, nor stand in the way of FAISS
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        is_good, says = look()
    except Exception as error:  # noqa: BLE001 — whatever a GPU's libraries raise is what was looked for
        lines = str(error).split("\n") if str(error).strip() else [type(error).__name__]
        said = " ".join(lines[: 1 + lines[0].rstrip().endswith(":")])
        return Finding(what, False, said[:300])
    return Finding(what, is_good, says)


def _equal(device: torch.device, backbone: str, words: str) -> tuple[bool, str]:
    """Compare vectors and gradients under these switches with those of float32 on the CPU."""
    switches = switches_from(words)
    reference, found = _gradient(torch.device("cpu"), backbone, Switches()), _gradient(device, backbone, switches)
    allowed = CLOSE_NARROW if switches.autocast and device.type == "cuda" else CLOSE
    apart = float((found[0] - reference[0]).abs().max())
    share = float((found[1] - reference[1]).norm() / reference[1].norm())
    return max(apart, share) <= allowed, f"vectors apart by {apart:.1e}, gradient by {share:.1e} of its length"


def _gradient(device: torch.device, backbone: str, switches: Switches) -> tuple[Tensor, Tensor]:
    """Return unit vectors (N, D) and the whole gradient of one step, on the CPU."""
    config = ModelConfig(architecture="contextual", backbone=backbone, vocab_size=500, sequence_dropout=0.0)
    shape = Shape(config, batch_size=24, num_tokens=17)
    model, feed, settings = _measure_training(shape, device, switches)
    add_gradients(stages_for(model, feed, settings), feed.texts, settings.chunks)
    with torch.no_grad():
        second, contexts = feed.texts.queries, feed.texts.contexts
        vectors_ND = torch.nn.functional.normalize(model(second, contexts).float(), dim=-1).cpu()
    weights = [weight for weight in model.parameters() if weight.grad is not None]
    return vectors_ND, torch.cat([weight.grad.to_dense().float().flatten().cpu() for weight in weights])


def _in_chunks(device: torch.device) -> tuple[bool, str]:
    """Compare the gradient of a step in chunks with that of one at once, where contexts are dropped at random."""
    config = ModelConfig(architecture="contextual", vocab_size=500, sequence_dropout=0.3)
    found = []
    for sizes in (ChunkSizes(piece=PIECE), ChunkSizes(PIECE, PIECE, PIECE)):
        model, feed, settings = _measure_training(Shape(config, 24, 17), device, switches_from("no-autocast"))
        torch.manual_seed(0)
        add_gradients(stages_for(model, feed, settings), feed.texts, sizes)
        found.append(torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]))
    share = float((found[1] - found[0]).norm() / found[0].norm())
    return share <= CLOSE, f"gradient apart by {share:.1e} of its length"


def _taken_up(device: torch.device) -> tuple[bool, str]:
    """Write a checkpoint after a step, read it into another model and optimiser, compare these, and take a step."""
    config = ModelConfig(architecture="contextual", vocab_size=500)
    model, feed, settings = _measure_training(Shape(config, 24, 17), device, switches_from(""))
    optimizer, other = optimizer_for(model, settings), build_model(config, seed=1).to(device).train()
    resumed = optimizer_for(other, settings)
    take_step(model, optimizer, [feed], settings, step=1)
    with TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), TrainState("doctor", 1), model, optimizer)
        read_checkpoint(Path(folder), "doctor", other, resumed)
    kept, read = _numbers(model, optimizer), _numbers(other, resumed)
    is_same = len(kept) == len(read) and all(map(torch.equal, kept, read))
    loss = take_step(other, resumed, [feed], settings, step=2)["loss"]
    return is_same, f"{'taken up as it was' if is_same else 'not taken up as it was'}; loss of the next step {loss:.3f}"


def _numbers(model: Model, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    states = [optimizer.state.get(weight, {}) for weight in model.parameters()]
    return [*model.parameters(), *(state[name] for state in states for name in sorted(state))]


def _compare_encoding(device: torch.device) -> tuple[bool, str]:
    """Compare what is served, unit vectors under a context, with that of the CPU in float32."""
    config = ModelConfig(architecture="contextual", vocab_size=500)
    rng, found = np.random.default_rng(0), []
    tokens = Tokens(rng.integers(1, 500, 24 * 17).astype(np.int32), np.arange(25, dtype=np.int64) * 17)
    for place in (torch.device("cpu"), device):
        model = build_model(config).to(place).eval()
        assert isinstance(model, ContextualModel)
        model.is_narrow = True
        model.set_context_tokens(tokens)
        found.append(model.encode_tokens(tokens))
    apart = float(np.abs(found[1] - found[0]).max())
    return apart <= CLOSE_NARROW, f"vectors apart by {apart:.1e}"


def _steps(shape: Shape, device: torch.device) -> tuple[bool, str]:
    """Take a training's own steps on drawn tokens; return what they cost. ValueError when a loss is not finite."""
    model, feed, settings = _measure_training(shape, device, switches_from(""))
    optimizer, seconds, loss = optimizer_for(model, settings), [], 0.0
    for step in range(1, NUM_STEPS + 1):
        started = time.monotonic()
        loss = take_step(model, optimizer, [feed], settings, step=step)["loss"]  # waits for the device
        seconds.append(time.monotonic() - started)
    num_tokens = 2 * shape.batch_size * shape.num_tokens
    speed, memory = num_tokens / float(np.median(seconds)), measure_memory_bytes(device) / GIB
    return (
        True,
        f"loss {loss:.3f}, {speed:.0f} tokens/s, {memory:.1f} GiB at most; {_report_chunk_memory(shape, settings)}",
    )


def _report_chunk_memory(shape: Shape, settings: TrainSettings) -> str:
    """Say the sizes of chunks and what their graphs were reckoned to keep, to compare with what was used."""
    sizes, count = settings.chunks, {"num_texts": 2 * shape.batch_size, "num_contexts": shape.config.num_contexts}
    reckoned = estimate_graph_bytes(shape.config, sizes, settings.switches, **count) / GIB
    return f"chunks of {sizes.words}, graphs reckoned at {reckoned:.1f} GiB of it"


def _measure_training(shape: Shape, device: torch.device, switches: Switches) -> tuple[Any, Feed, TrainSettings]:
    config, generator = shape.config, torch.Generator().manual_seed(0)
    model: Model = build_model(config).to(device).train()
    prepare(model, switches)

    def drawn(num_texts: int) -> Texts:
        lengths_N1 = torch.randint(3, shape.num_tokens + 1, (num_texts, 1), generator=generator)
        mask_NS = (torch.arange(shape.num_tokens) < lengths_N1).long()
        ids_NS = torch.randint(1, config.vocab_size, mask_NS.shape, generator=generator)
        return Texts(ids_NS * mask_NS, mask_NS).to(device)

    texts = StepTexts(drawn(shape.batch_size), drawn(shape.batch_size), drawn(config.num_contexts))
    feed = Feed(texts, shape.batch_size, None, None)
    chunks = chunks_for(config, measure_gpu_bytes(device), switches)
    values: dict[str, Any] = {"seed": 0, "num_steps": NUM_STEPS, "learning_rate": 1e-5, "num_warmup_steps": 0}
    return model, feed, TrainSettings(run_id="doctor", chunks=chunks, switches=switches, **values)


def _faiss() -> tuple[bool, str]:
    """Compare K-means on the GPU with that on the CPU, by how far points lie from their centroids."""
    import faiss

    points_ND = np.random.default_rng(0).standard_normal((100_000, 64), np.float32)
    far, seconds = {}, {}
    with suppress(AttributeError):
        faiss.omp_set_num_threads(1)
    if not faiss.get_num_gpus():
        return False, f"faiss {faiss.__version__} sees no GPU: install faiss-gpu instead of faiss-cpu"
    for name, gpu in (("CPU", False), ("GPU", True)):
        started = time.monotonic()
        kmeans = faiss.Kmeans(64, 256, niter=20, seed=0, gpu=gpu)
        far[name] = float(kmeans.train(points_ND))
        seconds[name] = time.monotonic() - started
    error = far["GPU"] / far["CPU"]
    return abs(error - 1) < 0.01, f"{seconds['GPU']:.1f} s, a core {seconds['CPU']:.1f} s; error {error:.3f} of its"

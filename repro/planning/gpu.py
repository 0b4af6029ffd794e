"""Checks of `doctor --gpu`, the first command to run on a machine with a GPU.

1. A small model of each backbone gives the same vectors and gradients on GPU and CPU, under each performance switch.
2. A step in chunks has the gradient of an undivided step, with the same contexts dropped. Training resumes from a
   checkpoint with identical state. `encode` gives the same vectors as on the CPU.
3. Ten steps of the contextual model at the shapes of `small` and `large`, on random tokens, measure memory and tokens
   per second.
4. K-means by FAISS finds equally good centroids on GPU and CPU.

The findings are written to a file. The checks need neither data nor weights. Without a GPU one line reports this. All
checks except FAISS also run on a CPU, and the tests use this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
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
from repro.records.provenance import describe_machine, get_code_identity, list_versions
from repro.spec import CHOICES, base
from repro.storage.files import write_json
from repro.storage.paths import get_home
from repro.text import GIB
from repro.train.checkpoint import TrainState, read_checkpoint, write_checkpoint
from repro.train.chunks import ChunkSizes, choose_chunks, estimate_graph_bytes
from repro.train.feed import Feed
from repro.train.gradcache import StepTexts, add_gradients
from repro.train.loop import (
    TrainSettings,
    make_optimizer,
    measure_gpu_bytes,
    measure_memory_bytes,
    prepare,
    stages_for,
    take_step,
)
from repro.train.switches import Switches, parse_switches
from repro.train.trainer import make_base_config

SWITCHES = ("no-autocast", "no-autocast checkpoint", "no-autocast compile", "")
"""Switches to compare with float32 on the CPU. The last one is the default of training."""
FLOAT32_TOLERANCE, BFLOAT16_TOLERANCE = 1e-3, 5e-2
"""Largest difference of unit vectors in float32 and in bfloat16. In float32 also the relative difference of gradients."""
BFLOAT16_GRADIENT_TOLERANCE = 0.15
"""Largest relative difference of gradients in bfloat16. On a CPU it is 0.02 to 0.08, by backbone."""
NUM_STEPS = 10
MEASURED_SCALES = ("small", "large")
CHUNK_SIZE = 5


@dataclass(frozen=True)
class Shape:
    """Size of a training run: the model, pairs per batch and tokens per text. Chunk sizes are those of training."""

    config: ModelConfig
    batch_size: int
    num_tokens: int


def check_gpu(device: torch.device) -> Iterator[Finding]:
    """Run all checks, and yield each finding as soon as it is available. An exception becomes a failed finding."""
    for backbone, switches in product(CHOICES["backbone"], SWITCHES):
        yield _run_check(f"{backbone}, {switches or 'default'}", _compare_switches, device, backbone, switches)
    yield _run_check("a step in chunks", _compare_chunked_step, device)
    yield _run_check("a checkpoint", _check_resume, device)
    yield _run_check("encode", _compare_encoding, device)
    for scale in MEASURED_SCALES:
        yield _run_check(f"ten steps of {scale}", _measure_steps, get_model_shape(scale), device)
    yield _run_check("FAISS", _compare_faiss)


def find_gpu() -> Finding:
    """Return a finding with the GPU that torch sees, or a failed one without a GPU."""
    if not torch.cuda.is_available():
        return Finding("gpu", False, f"torch {torch.__version__} finds no GPU: install a build of torch for your GPU")
    memory = torch.cuda.get_device_properties(0).total_memory / GIB
    return Finding("gpu", True, f"{torch.cuda.get_device_name()}, {memory:.0f} GiB, torch {torch.__version__}")


def write_findings(findings: Sequence[Finding]) -> Path:
    """Write the findings with versions and code identity below the home folder, and return the path."""
    path = get_home() / "doctor" / "gpu.json"
    content = {
        "findings": [asdict(finding) for finding in findings],
        "versions": list_versions(),
        "code": get_code_identity(),
        "machine": describe_machine(narrow=True),
    }
    write_json(path, content)
    return path


def get_model_shape(scale: str) -> Shape:
    """Return the shape of the contextual model of a scale. Start weights are not loaded."""
    run = base(scale, architecture="contextual")
    return Shape(make_base_config(run), run.batch_size, run.max_tokens)


def _run_check(name: str, check: Callable[..., tuple[bool, str]], *arguments: Any) -> Finding:
    if torch.cuda.is_initialized():
        # earlier checks must not count, or occupy the memory that FAISS needs
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        is_good, description = check(*arguments)
    except Exception as error:  # noqa: BLE001 — any error of a GPU library is a finding
        lines = str(error).split("\n") if str(error).strip() else [type(error).__name__]
        # A first line that ends in a colon only announces the second.
        num_lines = 2 if lines[0].rstrip().endswith(":") else 1
        message = " ".join(lines[:num_lines])
        return Finding(name, False, message[:300])
    return Finding(name, is_good, description)


def _compare_switches(device: torch.device, backbone: str, switch_names: str) -> tuple[bool, str]:
    """Compare vectors and gradients under these switches with float32 on the CPU."""
    switches = parse_switches(switch_names)
    expected_vectors, expected_gradient = _compute_gradient(torch.device("cpu"), backbone, Switches())
    vectors, gradient = _compute_gradient(device, backbone, switches)
    is_narrow = switches.autocast and device.type == "cuda"
    vector_error = float((vectors - expected_vectors).abs().max())
    gradient_error = float((gradient - expected_gradient).norm() / expected_gradient.norm())
    message = f"vectors apart by {vector_error:.1e}, gradient by {gradient_error:.1e} of its length"
    vector_tolerance = BFLOAT16_TOLERANCE if is_narrow else FLOAT32_TOLERANCE
    gradient_tolerance = BFLOAT16_GRADIENT_TOLERANCE if is_narrow else FLOAT32_TOLERANCE
    return vector_error <= vector_tolerance and gradient_error <= gradient_tolerance, message


def _compute_gradient(device: torch.device, backbone: str, switches: Switches) -> tuple[Tensor, Tensor]:
    """Return unit vectors (N, D) and the whole gradient of one step, on the CPU."""
    config = ModelConfig(architecture="contextual", backbone=backbone, vocab_size=500, sequence_dropout=0.0)
    shape = Shape(config, batch_size=24, num_tokens=17)
    model, feed, settings = _prepare_trainer(shape, device, switches)
    add_gradients(stages_for(model, feed, settings), feed.texts, settings.chunks)
    with torch.no_grad():
        outputs_ND = model(feed.texts.queries, feed.texts.contexts)
        vectors_ND = torch.nn.functional.normalize(outputs_ND.float(), dim=-1).cpu()
    weights = [weight for weight in model.parameters() if weight.grad is not None]
    return vectors_ND, torch.cat([weight.grad.to_dense().float().flatten().cpu() for weight in weights])


def _compare_chunked_step(device: torch.device) -> tuple[bool, str]:
    """Compare the gradient of a chunked step with that of an undivided step, with random dropping of contexts."""
    config = ModelConfig(architecture="contextual", vocab_size=500, sequence_dropout=0.3)
    gradients = []
    for sizes in (ChunkSizes(piece=CHUNK_SIZE), ChunkSizes(CHUNK_SIZE, CHUNK_SIZE, CHUNK_SIZE)):
        model, feed, settings = _prepare_trainer(Shape(config, 24, 17), device, parse_switches("no-autocast"))
        torch.manual_seed(0)
        add_gradients(stages_for(model, feed, settings), feed.texts, sizes)
        gradients.append(torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]))
    relative_error = float((gradients[1] - gradients[0]).norm() / gradients[0].norm())
    return relative_error <= FLOAT32_TOLERANCE, f"gradient apart by {relative_error:.1e} of its length"


def _check_resume(device: torch.device) -> tuple[bool, str]:
    """Write a checkpoint after a step, load it into another model and optimiser, compare both, and take a step."""
    config = ModelConfig(architecture="contextual", vocab_size=500)
    model, feed, settings = _prepare_trainer(Shape(config, 24, 17), device, parse_switches(""))
    optimizer = make_optimizer(model, settings)
    # Another seed, so that equal weights can come only from the checkpoint.
    resumed_model = build_model(config, seed=1).to(device).train()
    resumed_optimizer = make_optimizer(resumed_model, settings)
    take_step(model, optimizer, [feed], settings, step=1)
    with TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), TrainState("doctor", 1), model, optimizer)
        read_checkpoint(Path(folder), "doctor", resumed_model, resumed_optimizer)
    expected = _list_state(model, optimizer)
    restored = _list_state(resumed_model, resumed_optimizer)
    is_same = len(expected) == len(restored) and all(map(torch.equal, expected, restored))
    loss = take_step(resumed_model, resumed_optimizer, [feed], settings, step=2)["loss"]
    state = "the same state" if is_same else "another state"
    return is_same, f"resumed with {state}; loss of the next step {loss:.3f}"


def _list_state(model: Model, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    states = [optimizer.state.get(weight, {}) for weight in model.parameters()]
    return [*model.parameters(), *(state[name] for state in states for name in sorted(state))]


def _compare_encoding(device: torch.device) -> tuple[bool, str]:
    """Compare encoded unit vectors under a context with those of the CPU in float32."""
    config = ModelConfig(architecture="contextual", vocab_size=500)
    rng = np.random.default_rng(0)
    vectors = []
    tokens = Tokens(rng.integers(1, 500, 24 * 17).astype(np.int32), np.arange(25, dtype=np.int64) * 17)
    for target in (torch.device("cpu"), device):
        model = build_model(config).to(target).eval()
        assert isinstance(model, ContextualModel)
        model.is_narrow = True
        model.set_context_tokens(tokens)
        vectors.append(model.encode_tokens(tokens))
    max_error = float(np.abs(vectors[1] - vectors[0]).max())
    return max_error <= BFLOAT16_TOLERANCE, f"vectors apart by {max_error:.1e}"


def _measure_steps(shape: Shape, device: torch.device) -> tuple[bool, str]:
    """Measure training steps on random tokens. Raises ValueError if a loss is not finite."""
    model, feed, settings = _prepare_trainer(shape, device, parse_switches(""))
    optimizer = make_optimizer(model, settings)
    seconds = []
    for step in range(1, NUM_STEPS + 1):
        started = time.monotonic()
        loss = take_step(model, optimizer, [feed], settings, step=step)["loss"]  # waits for the device
        seconds.append(time.monotonic() - started)
    num_tokens = 2 * shape.batch_size * shape.num_tokens
    speed = num_tokens / float(np.median(seconds))
    memory = measure_memory_bytes(device) / GIB
    # The estimated memory of the graphs is compared with the measured memory.
    sizes = {"num_texts": 2 * shape.batch_size, "num_contexts": shape.config.num_contexts}
    graphs = estimate_graph_bytes(shape.config, settings.chunks, settings.switches, **sizes) / GIB
    chunks = f"chunks of {settings.chunks.words}, graphs estimated at {graphs:.1f} GiB of it"
    return True, f"loss {loss:.3f}, {speed:.0f} tokens/s, {memory:.1f} GiB at most; {chunks}"


def _prepare_trainer(shape: Shape, device: torch.device, switches: Switches) -> tuple[Any, Feed, TrainSettings]:
    config = shape.config
    generator = torch.Generator().manual_seed(0)
    model: Model = build_model(config).to(device).train()
    prepare(model, switches)

    def draw(num_texts: int) -> Texts:
        lengths_N1 = torch.randint(3, shape.num_tokens + 1, (num_texts, 1), generator=generator)
        mask_NS = (torch.arange(shape.num_tokens) < lengths_N1).long()
        ids_NS = torch.randint(1, config.vocab_size, mask_NS.shape, generator=generator)
        return Texts(ids_NS * mask_NS, mask_NS).to(device)

    # Lengths vary, so that padding and pieces of different lengths are exercised.
    texts = StepTexts(draw(shape.batch_size), draw(shape.batch_size), draw(config.num_contexts))
    feed = Feed(texts, shape.batch_size, None, None)
    chunks = choose_chunks(config, measure_gpu_bytes(device), switches)
    settings = TrainSettings(
        run_id="doctor",
        chunks=chunks,
        switches=switches,
        seed=0,
        num_steps=NUM_STEPS,
        learning_rate=1e-5,
        num_warmup_steps=0,
    )
    return model, feed, settings


def _compare_faiss() -> tuple[bool, str]:
    """Compare K-means on GPU and CPU by the distance of points from their centroids."""
    import faiss

    points_ND = np.random.default_rng(0).standard_normal((100_000, 64), np.float32)
    objectives: dict[str, float] = {}
    seconds: dict[str, float] = {}
    with suppress(AttributeError):
        faiss.omp_set_num_threads(1)
    if not faiss.get_num_gpus():
        return False, f"faiss {faiss.__version__} sees no GPU: install faiss-gpu instead of faiss-cpu"
    for name, gpu in (("CPU", False), ("GPU", True)):
        started = time.monotonic()
        kmeans = faiss.Kmeans(64, 256, niter=20, seed=0, gpu=gpu)
        objectives[name] = float(kmeans.train(points_ND))
        seconds[name] = time.monotonic() - started
    # Centroids may differ by rounding and order. The objective must not.
    ratio = objectives["GPU"] / objectives["CPU"]
    return abs(ratio - 1) < 0.01, f"{seconds['GPU']:.1f} s, a core {seconds['CPU']:.1f} s; error {ratio:.3f} of its"

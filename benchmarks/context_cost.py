"""Measure what context adds to a training step, compared with the number of tokens.

    python -m benchmarks.context_cost --size desk

By token count, a text of T tokens with C context vectors and P soft prompts costs (T + C + P) / T times the text alone.
The first stage adds its documents. A contextual model and a biencoder of the same size process the same real texts, in
the size's batch or in `--batch-size`, with their own prompts. Forward and backward passes are timed in turns.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.harness import SIZES, describe_machine, load_pairs, make_parser, make_run, time_in_turns, write_rows
from repro.model.backbone import Backbone
from repro.model.start import build_model
from repro.model.texts import Texts, make_texts
from repro.train.chunks import ChunkSizes
from repro.train.gradcache import Stages, StepTexts, add_gradients
from repro.train.loss import info_nce
from repro.train.trainer import make_model_config

ARCHITECTURES = ("biencoder", "contextual")


def make_stages(model: Any) -> Stages:
    """Return the stages of a training step of either architecture, with a plain InfoNCE loss."""
    is_contextual = hasattr(model, "first_stage")
    return Stages(
        model.second_stage if is_contextual else lambda texts, contexts: model.embed_texts(texts),
        lambda queries_QD, documents_MD: info_nce(queries_QD, documents_MD, temperature=0.02),
        model.first_stage if is_contextual else None,
    )


def make_steps(size: str, models: dict[str, Any], batch_size: int) -> dict[str, StepTexts]:
    """Return the same batch for both architectures. Context documents are those of the batch, repeated if necessary."""
    pairs = load_pairs(make_run(size))
    rows = np.random.default_rng(0).permutation(len(pairs))[:batch_size]
    texts: dict[str, Texts] = {}
    for side in ("query", "document"):
        texts[side] = make_texts(*models["biencoder"].tokenize(pairs.texts(side, rows), side).pad(range(batch_size)))
    contexts = texts["document"].rows(torch.arange(models["contextual"].config.num_contexts) % batch_size)
    return {
        "biencoder": StepTexts(texts["query"], texts["document"]),
        "contextual": StepTexts(texts["query"], texts["document"], contexts),
    }


def compute_token_ratio(step: StepTexts, config: Any) -> float:
    """Return the cost ratio by token count: tokens of both stages divided by tokens of the texts."""
    assert step.contexts is not None, "a contextual model's step has context documents"
    num_texts = step.queries.num_texts + step.documents.num_texts
    num_tokens = float(step.queries.mask_NS.sum() + step.documents.mask_NS.sum())
    prefix = config.num_context_vectors + config.num_soft_prompts
    return (num_tokens + num_texts * prefix + float(step.contexts.mask_NS.sum())) / num_tokens


def main() -> None:
    """Time the steps of both models, print rows and update the record."""
    parser = make_parser(__doc__, batch_size=None, num_rounds=5)
    parser.add_argument("--size", default="desk", choices=SIZES, help="default: desk")
    parser.add_argument("--unpacked", action="store_true", help="also time transformers' padded forward pass")
    options = parser.parse_args()
    run = make_run(options.size)
    batch_size = options.batch_size or run.batch_size
    models = {}
    for architecture in ARCHITECTURES:
        config = make_model_config(make_run(options.size, architecture=architecture))
        models[architecture] = build_model(config, start=run.start, heads=run.heads).train()
    steps = make_steps(options.size, models, batch_size)

    def take_step(architecture: str, *, packs: bool) -> None:
        Backbone.packs = packs
        models[architecture].zero_grad()
        add_gradients(make_stages(models[architecture]), steps[architecture], ChunkSizes())

    modes = {"packed": True, "padded": False} if options.unpacked else {"packed": True}
    actions = {
        f"{architecture} {mode}": partial(take_step, architecture, packs=packs)
        for mode, packs in modes.items()
        for architecture in ARCHITECTURES
    }
    medians = time_in_turns(actions, options.num_rounds, num_warmups=1).medians
    by_count = compute_token_ratio(steps["contextual"], models["contextual"].config)
    for mode, packs in modes.items():
        seconds = {name: round(medians[f"{name} {mode}"], 4) for name in ARCHITECTURES}
        ratio = seconds["contextual"] / seconds["biencoder"]
        row = {"size": options.size, "batch_size": batch_size, "packed": packs, **seconds, "ratio": round(ratio, 3)}
        row |= {"by_count": round(by_count, 3), "over_count": round(ratio / by_count, 3)}
        print(row, flush=True)
        row |= describe_machine() | {"num_threads": torch.get_num_threads()}
        write_rows(options.write, [row], ("size", "batch_size", "packed"))


if __name__ == "__main__":
    main()

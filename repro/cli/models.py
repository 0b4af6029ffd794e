"""The verbs in and out: evaluate a model from anywhere, export one to other libraries; thin, as all verbs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from repro.cli.options import AsJson, say
from repro.cli.patience import tell
from repro.interop.typed import EXPORT_CONTEXTS, check_evaluated, check_export, check_model, check_upload

Model = Annotated[
    str | None, typer.Option(help="a run's id, a folder (ours, the authors', an export), a hub id, or bm25")
]
SuiteName = Annotated[str, typer.Option(help="a suite's or an imported corpus' name, or a BEIR folder, or some in one")]
WrongFrom = Annotated[
    str | None, typer.Option(help="suite or folder that lends the wrong corpus (default: the suite; of one, desk)")
]


def _two_models(two: tuple[str, str] | None) -> tuple[str, str] | None:
    """Return the models to compare; ValueError where an option was taken for one of them."""
    for word in two or ():
        if word.startswith("--"):
            raise ValueError(f"--compare takes two models, --compare A B, but {word!r} is an option: name both")
    return two


Two = Annotated[
    tuple[str, str] | None,
    typer.Option(metavar="A B", help="two models instead, and their difference", callback=_two_models, is_eager=True),
]


def evaluate(
    suite: SuiteName,
    model: Model = None,
    compare: Two = None,
    context: Annotated[list[str] | None, typer.Option(help=f"{', '.join(EXPORT_CONTEXTS)}; may be given again")] = None,
    wrong_from: WrongFrom = None,
    context_seed: Annotated[int, typer.Option(min=0, help="draws the context documents")] = 0,
    num_contexts: Annotated[int | None, typer.Option(help="context documents (default: the model's own)")] = None,
    bm25: Annotated[
        bool | None, typer.Option("--bm25/--no-bm25", help="BM25 beside it (default: up to 200 000 documents)")
    ] = None,
    whiten: Annotated[
        list[str] | None,
        typer.Option(help="also with vectors whitened by this corpus: own, wrong, random; may be given again"),
    ] = None,
    shrinkage: Annotated[float | None, typer.Option(help="of the whitening, 0 to 1 (default: 0.95)")] = None,
    width: Annotated[str | None, typer.Option(help="prefixes of the vectors beside the whole: 16,32,full")] = None,
    revision: Annotated[str | None, typer.Option(help="of a hub id")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, … (default: a GPU when there is one)")] = None,
    leave_out_seen: Annotated[
        bool, typer.Option("--leave-out-seen", help="score only the queries that the model was not trained on")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="where scores.json and the TREC runs go (default: below out/)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score a model on a suite, under each context and beside BM25; interrupted, it resumes at the next collection."""
    if (model is None) == (compare is None):
        raise ValueError("name one model with --model M, or two with --compare A B")
    first, other = (str(model), None) if compare is None else compare
    check_evaluated(suite, compare or (first,), context or ())
    tell(f"opening {suite} and {' and '.join(compare or (first,))}")
    from repro.interop.evaluating import Asked, evaluate_anything
    from repro.report.formats import render

    whitened = (tuple(dict.fromkeys(whiten or ())), shrinkage)
    how = (context_seed, num_contexts, revision, device, bm25, other, width, wrong_from, *whitened, leave_out_seen)
    asked = Asked(first, suite, tuple(context or ("own",)), *how)
    scores = evaluate_anything(asked, out, progress=tell if as_json else say)
    if as_json:
        return print(json.dumps(scores.as_dict(), indent=1, sort_keys=True))
    for view in scores.views():
        render(view)
    for line in scores.advice:
        say(line)
    say(f"scores.json and TREC runs are in {scores.folder}")


def export(
    model: Annotated[str, typer.Argument(help="a run's id, a folder, or a hub id")],
    folder: Annotated[Path, typer.Argument(help="a folder that is not there yet, or empty")],
    to: Annotated[str, typer.Option(help="sentence-transformers, transformers, or official (the authors' format)")],
    width: Annotated[
        int | None, typer.Option(help="only the first so many dimensions of a biencoder's vectors")
    ] = None,
    push_to: Annotated[str | None, typer.Option(help="upload the folder to this hub id, too")] = None,
    private: Annotated[bool, typer.Option("--private", help="make the uploaded repository private")] = False,
) -> None:
    """Write a model as a folder that another library opens, with a model card told from its record."""
    check_upload(push_to, private=private)
    check_model(model)
    check_export(model, folder, to, width)
    tell(f"opening {model}")  # before torch is loaded, which takes seconds
    from repro.interop.exporting import export_model, push_to_hub

    for line in export_model(model, folder, to, width=width, progress=say):
        say(line)
    if push_to is not None:
        say(f"uploaded to {push_to_hub(folder, push_to, private=private)}")


def adapt(
    model: Annotated[str, typer.Argument(help="a run's id, a folder, or a hub id")],
    corpus: Annotated[
        str,
        typer.Option(help="a BEIR folder, a .jsonl, .csv, .tsv or .txt file of documents, or a corpus by its name"),
    ],
    to: Annotated[Path, typer.Option(help="a folder that does not exist yet, or is empty")],
    shrinkage: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="of the covariance, 0 to 1 (default: 0.95)"),
    ] = None,
    average: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="share of --base in the weights, e.g. 0.5")
    ] = None,
    base: Annotated[str | None, typer.Option(help="the encoder that the model was fine-tuned from")] = None,
) -> None:
    """Whiten an encoder by a corpus, without training: writes a folder that sentence-transformers opens."""
    if (average is None) != (base is None):
        raise ValueError(f"--average {average} with --base {base}: give both or neither")
    check_model(model)
    if base is not None:
        check_model(base)
    check_export(model, to, "sentence-transformers")
    from repro.interop.corpus_documents import check_corpus

    check_corpus(corpus)
    tell(f"opening {model}")
    from repro.interop.adapting import adapt_model

    lines = adapt_model(model, corpus, to, shrinkage=shrinkage, average=average, base_model=base, progress=say)
    for line in lines:
        say(line)


def score(
    run: Annotated[Path, typer.Argument(help="a TREC run file, gzipped or not")],
    judgements: Annotated[Path, typer.Argument(help="TREC qrels, or a .tsv of a BEIR folder")],
    as_json: AsJson = False,
) -> None:
    """Score somebody's TREC run against judgements, by trec_eval's definitions."""
    from repro.evaluate.trec import score_files

    found = score_files(run, judgements, tell)
    if as_json:
        return print(json.dumps(found, indent=1, sort_keys=True))
    for name, value in found.items():
        say(f"{name} {value}" if isinstance(value, int) else f"{name} {value:.4f}")


VERBS = (evaluate, export, adapt, score)

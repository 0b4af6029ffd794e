"""Open a biencoder's export with sentence-transformers 3, 4, 5 and 6, and compare its vectors with ours.

    python -m benchmarks.open_exports

pip installs each version and the transformers of its time into a folder below --folder, which needs a network. torch
and numpy are those of this environment. One line is printed per version. The exit code is 1 if a version cannot open the
export, or if vectors differ by more than 1e-5. The export is a BERT, because transformers has NomicBERT only from
version 5 on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import make_parser
from repro.interop.sentence_transformers_folder import export_sentence_transformers
from repro.model.config import ModelConfig
from repro.model.start import build_model

VERSIONS = {
    "3": "sentence-transformers==3.4.1 transformers==4.49.0 tokenizers==0.21.1 huggingface-hub==0.29.3",
    "4": "sentence-transformers==4.1.0 transformers==4.52.4 tokenizers==0.21.1 huggingface-hub==0.33.0",
    "5": "sentence-transformers==5.1.0 transformers==4.56.2 tokenizers==0.22.1 huggingface-hub==0.35.3",
    "6": "",  # the version of this environment
}
# Later versions of datasets require a later huggingface-hub. This one imports aiohttp, which needs the others.
DATASETS = (
    "datasets==3.3.2 aiohttp==3.14.5 aiosignal==1.4.0 aiohappyeyeballs==2.7.1 frozenlist==1.8.0 multidict==7.2.1 "
    "propcache==0.5.4 yarl==1.25.1 attrs==26.1.0"
)
TEXTS = ["one", "a somewhat longer text about rain", "rain falls, it does: on hills", "snow " * 60]
TRIAL = """
import json, sys
import numpy as np, sentence_transformers
from sentence_transformers import SentenceTransformer
folder, texts, out = json.loads(sys.argv[1])
model = SentenceTransformer(folder, device="cpu")
vectors = {name: model.encode(texts, prompt_name=name, show_progress_bar=False) for name in ("query", "document")}
np.savez(out, **vectors)
print(sentence_transformers.__version__, model.similarity_fn_name, model.max_seq_length, dict(model.prompts))
"""
TOLERANCE = 1e-5


def install(folder: Path, packages: str) -> None:
    """Install packages into a folder without dependencies, which this environment provides."""
    if not folder.is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        subprocess.run([*command, *packages.split(), *DATASETS.split()], check=True)


def main() -> int:
    """Test each version and return the exit code."""
    parser = make_parser(__doc__, has_record=False)
    folder_help = "folder of the installed versions, which are not removed"
    default_folder = Path(tempfile.gettempdir()) / "cde-repro-versions"
    parser.add_argument("--folder", type=Path, default=default_folder, help=folder_help)
    parser.add_argument("--only", nargs="*", choices=[*VERSIONS], default=[*VERSIONS], help="default: all versions")
    options = parser.parse_args()
    sizes: dict[str, Any] = {"backbone": "bert", "hidden_size": 64, "num_heads": 2, "intermediate_size": 128}
    model = build_model(ModelConfig(architecture="biencoder", prompts="task", **sizes), start="words").eval()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder, out = Path(scratch) / "model", Path(scratch) / "vectors.npz"
        export_sentence_transformers(model, folder)
        for version in options.only:
            out.unlink(missing_ok=True)
            path = ""
            if VERSIONS[version]:
                install(options.folder / version, VERSIONS[version])
                path = str(options.folder / version)
            command = [sys.executable, "-c", TRIAL, json.dumps([str(folder), TEXTS, str(out)])]
            process = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
            if process.returncode:
                failed += 1
                print(f"{version}: cannot open the export: {process.stderr.strip().splitlines()[-1]}", flush=True)
                continue
            with np.load(out) as vectors:
                largest = max(float(np.abs(vectors[name] - model.encode(TEXTS, name)).max()) for name in vectors.files)
            failed += largest > TOLERANCE
            print(f"{version}: {process.stdout.strip()}; largest difference {largest:.1e}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

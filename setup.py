"""Build steps that pyproject.toml cannot express: store the commit, and ship a single package.

In the repository, experiments/, figures/ and slurm/ are top-level packages. In a wheel they are in repro/bundled/,
because such common names would clash with other packages. An editable install uses the checkout as it is.
"""

import json
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from repro.import_hooks import FOLDERS  # noqa: E402
from repro.records.provenance import BUILT_FROM, get_code_identity  # noqa: E402


def write_commit(root: Path) -> None:
    """Write the commit into a copy of the sources."""
    path = root / BUILT_FROM.relative_to(ROOT)
    path.unlink(missing_ok=True)  # files of an sdist may be hard links to those of the checkout
    path.write_text(json.dumps(get_code_identity()) + "\n")


class BuildAsOnePackage(build_py):
    """Build the package, then move the three folders into it and write the commit."""

    def run(self) -> None:
        """Build from scratch, because files of an earlier build would be included."""
        if self.editable_mode:
            return super().run()
        built = Path(self.build_lib)
        shutil.rmtree(built, ignore_errors=True)
        super().run()
        bundled = built / "repro" / "bundled"
        bundled.mkdir()
        for folder in FOLDERS:
            (built / folder).rename(bundled / folder)
        write_commit(built)


class SourcesWithCommit(sdist):
    """Store the commit in the source package, which has no history."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files, then write the commit."""
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir))


setup(cmdclass={"build_py": BuildAsOnePackage, "sdist": SourcesWithCommit})

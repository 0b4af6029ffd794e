"""What pyproject.toml cannot say: a built copy knows its commit, and is one package.

In the repository experiments/, figures/ and slurm/ stand beside repro/. In a wheel they lie inside it, in
repro/beside/, since names as common as these would hide other people's, or be hidden by them. An editable install
stays as the checkout is.
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
    """Write into a copy of the sources which commit it is."""
    path = root / BUILT_FROM.relative_to(ROOT)
    path.unlink(missing_ok=True)  # an sdist's files can be hard links to the checkout's
    path.write_text(json.dumps(get_code_identity()) + "\n")


class BuildAsOnePackage(build_py):
    """Build the package as pyproject.toml says, then move the three folders into it and write the commit."""

    def run(self) -> None:
        """Build afresh: what an earlier build left behind would travel too."""
        if self.editable_mode:
            return super().run()
        built = Path(self.build_lib)
        shutil.rmtree(built, ignore_errors=True)
        super().run()
        beside = built / "repro" / "beside"
        beside.mkdir()
        for folder in FOLDERS:
            (built / folder).rename(beside / folder)
        write_commit(built)


class SourcesWithCommit(sdist):
    """Pack the sources with their commit, since a source package has no history."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files, then write the commit."""
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir))


setup(cmdclass={"build_py": BuildAsOnePackage, "sdist": SourcesWithCommit})

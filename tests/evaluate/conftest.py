"""A suite of three numbered collections."""

from pathlib import Path

import pytest

from repro.data.beir import Retrieval, Suite, load_suite, write_beir_folder, write_suite
from tests.evaluate.scored import FAMILIES


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Query n of a collection has the relevant document n. Queries are stored in reverse order."""
    for size, name in zip((12, 8, 14), FAMILIES, strict=True):
        numbers = [f"{number:02d}" for number in range(size)]
        collection = Retrieval(
            name,
            tuple(f"d{number}" for number in numbers),
            tuple(f"document {name} {int(number)}" for number in numbers),
            tuple(f"q{number}" for number in reversed(numbers)),
            tuple(f"query {name} {int(number)}" for number in reversed(numbers)),
            {f"q{number}": {f"d{number}": 1} for number in numbers},
        )
        write_beir_folder(tmp_path / name, collection)
    write_suite(tmp_path, "zoo", list(FAMILIES.items()))
    return load_suite(tmp_path)

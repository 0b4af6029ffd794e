"""Every field of a run is read by the code that carries runs out: a record never says what nobody looked at."""

import ast
import inspect
from pathlib import Path

import pytest

from repro.spec import FIELDS, get_first_phase, nested_widths

ROOT = Path(__file__).resolve().parents[2] / "repro"
ROOMS_THAT_CARRY_OUT = ("batches", "evaluate", "pipeline", "analyses", "model", "train")


def names_read(source: str) -> set[str]:
    """Attributes of something called a run, and names of fields listed for `getattr(run, name)`."""
    tree = ast.parse(source)
    reads = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and "run" in (getattr(node.value, "id", ""), getattr(node.value, "attr", ""))
    }
    if "getattr(run, " in source:
        listed = (node for node in ast.walk(tree) if isinstance(node, ast.Tuple))
        reads |= {str(one.value) for node in listed for one in node.elts if isinstance(one, ast.Constant)}
    return reads


READ = set[str]().union(
    *(names_read(path.read_text()) for room in ROOMS_THAT_CARRY_OUT for path in sorted((ROOT / room).rglob("*.py"))),
    *(
        names_read(inspect.getsource(one)) for one in (get_first_phase, nested_widths)
    ),  # called where runs are carried out
)


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "scale"])  # the scale only gives the others
def test_every_field_of_a_run_is_read_where_runs_are_carried_out(name: str) -> None:
    assert name in READ, f"nothing reads Run.{name}: a record that names it would say what was not done"

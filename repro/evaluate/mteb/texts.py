"""The texts of a loaded task of mteb: what its context is drawn from where no corpus is searched.

The paper's appendix, MTEB: contextual documents are subsampled "from the full corpus available in each dataset". A task
that classifies hands over a few balanced examples first, of which a context would show nothing but these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def collect_task_texts(task: Any, subset: str) -> list[str]:
    """Return the distinct texts of the evaluated splits, without labels; the task's data is loaded, as mteb does it."""
    data = task.dataset.get(subset, task.dataset)
    columns = task._get_content_columns()  # mteb has no public word for it
    cells = (data[split][column] for split in task.eval_splits for column in columns)
    return list(dict.fromkeys(text for cell in cells for text in _flat(cell) if text.strip()))


def _flat(cell: Any) -> Iterator[str]:
    if isinstance(cell, str):
        yield cell
    else:  # older tasks have lists of texts, or lists of these, in a cell
        for inner in cell:
            yield from _flat(inner)

"""Where a run stands is told from little of what it has written."""

import time

from repro.spec import base
from repro.spec.identity import get_training_id
from repro.storage.paths import run_folder
from slurm.status import read_progress

RUN = base("smoke", num_steps=9_000_000)


def test_progress_is_read_from_the_end_of_a_log_of_any_length() -> None:
    folder = run_folder(get_training_id(RUN))
    folder.mkdir(parents=True)
    assert read_progress(RUN) is None
    line = '{"step": %d, "pairs_per_second": 100.0, "batch": "' + "b" * 200 + '"}\n'
    with (folder / "metrics.jsonl").open("w") as file:
        file.write(line % 1 + '{"step": 2, "pai')
        file.flush()
        first = read_progress(RUN)
        file.seek(300 * 2**20)  # a hole: a log of many steps
        file.write("\n" + "".join(line % step for step in range(3, 1000)) + '{"step": 1000, "pairs')
    assert first is not None and first.step == 1
    before = time.process_time()
    last = read_progress(RUN)
    assert time.process_time() - before < 0.05
    assert last is not None and (last.step, last.pairs_per_second) == (999, 100.0)

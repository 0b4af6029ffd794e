"""An estimate follows from arithmetic and from records, and says how far off it was on those."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from experiments.e04_batch_by_cluster import runs as grid_runs
from repro.planning import cost
from repro.planning.cost import (
    ASSUMED_FLOPS_PER_SECOND,
    BASE_MEMORY_BYTES,
    BYTES_PER_WEIGHT,
    TEXT_SHARE,
    RecordedCosts,
    count_operations,
    estimate,
    get_machine_kind,
)
from repro.planning.plan import make_plan
from repro.planning.requirements import list_requirements
from repro.records.store import Record, records_in
from repro.spec import Run, base, get_first_phase
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import get_published_records
from repro.train.chunks import estimate_first_stage_bytes, estimate_second_stage_bytes
from repro.train.switches import Switches

GIB = 2**30
PLAIN = base("desk", num_steps=100)
CONTEXTUAL = replace(PLAIN, architecture="contextual")


def record(run: Run, seconds: float, *, device: str = "x86_64", evaluation_seconds: float = 5.0) -> Record:
    """A record of a run that took so long."""
    trained = {"seconds": seconds} if run.architecture in ("biencoder", "contextual") else {}
    provenance = {
        "machine": {"device": device}, "training": trained, "evaluation_seconds": evaluation_seconds,
    }  # fmt: skip
    return Record("x", run, {}, provenance, Path("x.json"))


def test_the_arithmetic_of_a_biencoder_is_that_of_its_two_texts() -> None:
    run = replace(PLAIN, num_layers=1, hidden_size=10, max_tokens=10, batch_size=7, num_steps=3)
    tokens = TEXT_SHARE * 10
    a_token = (
        2 * 12 * 10 * 10 + 4 * tokens * 10
    )  # two operations a weight; queries times keys, and weights times values
    assert count_operations(run).flops == pytest.approx(3 * (3 * 7) * 2 * tokens * a_token)
    assert count_operations(run).num_pairs == 21


@pytest.mark.parametrize("num_records", [2, 3, 6, 7])
def test_the_error_of_a_speed_is_that_of_each_record_told_by_the_others(num_records: int) -> None:
    records = [record(PLAIN, 7.0 + (13 * number) % 5) for number in range(num_records)]
    rates = [count_operations(PLAIN).flops / one.provenance["training"]["seconds"] for one in records]
    others = [median(rates[:place] + rates[place + 1 :]) for place in range(num_records)]
    expected = median(abs(rate / other - 1) for rate, other in zip(rates, others, strict=True))
    assert RecordedCosts(records, "cpu").get_speed(PLAIN).relative_error == pytest.approx(expected)


def test_however_many_runs_are_planned_a_speed_is_taken_from_the_records_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    measure = cost._estimate_speed
    monkeypatch.setattr(
        cost, "_estimate_speed", lambda records, width: asked.append(len(records)) or measure(records, width)
    )
    made = make_plan([base("smoke", seed=seed) for seed in range(900, 920)], [])
    assert len(made.estimates) == 20 and len(asked) == 1


def test_a_plan_for_a_cpu_says_first_which_machines_the_papers_scales_are_meant_for() -> None:
    lines = make_plan([base("small")], []).lines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith("small is meant for ")]
    assert "--profile NAME" in lines[place] and lines[place + 1].startswith("cost on CPU: ")
    for lines in (make_plan([base("small")], [], num_gpus=1).lines(), make_plan([PLAIN], []).lines()):
        assert not [line for line in lines if "--profile" in line]


def test_hard_negatives_are_texts_like_any_other() -> None:
    few, many = (count_operations(replace(PLAIN, filter="surrogate", num_hard_negatives=count)) for count in (0, 6))
    assert many.flops == pytest.approx(few.flops * 8 / 2) and many.num_tokens == pytest.approx(few.num_tokens * 8 / 2)
    assert many.num_pairs == few.num_pairs


def test_a_step_that_does_not_fit_at_once_is_counted_with_its_second_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    run = base("large", architecture="contextual")
    found = []
    for words in ("9999,9999", "1023,9999", "9999,511"):
        monkeypatch.setenv("REPRO_CHUNKS", words)
        found.append(estimate(run, [], kind="gpu").arithmetic.flops)
    assert found == pytest.approx([found[0], found[0] * 4 / 3, found[0] * 4 / 3])


def test_a_speed_counts_the_second_forward_of_its_record() -> None:
    at_once, in_chunks = record(PLAIN, 10.0), record(PLAIN, 10.0)
    in_chunks.provenance["training"]["chunks"] = "8,8"
    speeds = [RecordedCosts([one], "cpu").get_speed(PLAIN).flops_per_second for one in (at_once, in_chunks)]
    assert speeds[1] == pytest.approx(speeds[0] * 4 / 3)


def test_context_costs_its_tokens_and_its_first_stage() -> None:
    plain, contextual = count_operations(PLAIN).flops, count_operations(CONTEXTUAL).flops
    assert contextual > plain * (1 + PLAIN.num_contexts / (TEXT_SHARE * PLAIN.max_tokens))
    assert count_operations(replace(PLAIN, architecture="bm25", sampler="random")).flops == 0


def test_the_papers_scales_count_their_epochs() -> None:
    assert count_operations(base("small")).num_pairs == pytest.approx(3 * 238_998_494, rel=1e-5)


def test_epochs_of_a_selection_count_its_pairs_only() -> None:
    assert count_operations(base("desk", num_pairs=4096, num_steps=None, num_epochs=8)).num_pairs == 8 * 4096
    assert count_operations(base("desk", num_pairs=2**30, num_steps=None, num_epochs=2)).num_pairs == pytest.approx(
        2 * 168_464, rel=0.001
    )


def test_a_speed_comes_from_the_nearest_records_with_its_error() -> None:
    plain, contextual = count_operations(PLAIN).flops, count_operations(CONTEXTUAL).flops
    records = [
        *(record(replace(PLAIN, seed=seed), plain / rate) for seed, rate in enumerate((90.0, 100.0, 120.0))),
        record(CONTEXTUAL, contextual / 50.0),
        record(PLAIN, plain / 1e6, device="NVIDIA H100 80GB HBM3"),
    ]
    speed = RecordedCosts(records, "cpu").get_speed(PLAIN)
    assert (speed.flops_per_second, speed.num_records) == (pytest.approx(100.0), 3)
    # each from the other two: 90 by 110, 100 by 105, 120 by 95
    assert speed.relative_error == pytest.approx(abs(90 / 110 - 1))
    assert RecordedCosts(records, "cpu").get_speed(CONTEXTUAL).flops_per_second == pytest.approx(50.0)
    assert RecordedCosts(records, "gpu").get_speed(PLAIN).flops_per_second == pytest.approx(1e6)
    other_scale = RecordedCosts(records, "cpu").get_speed(base("lab"))
    assert other_scale.flops_per_second == pytest.approx(100.0)


def test_an_estimate_of_a_measured_run_is_its_time() -> None:
    again = estimate(PLAIN, [record(PLAIN, 60.0)])
    assert again.seconds == pytest.approx(65.0)
    assert estimate(replace(PLAIN, num_steps=200), [record(PLAIN, 60.0)]).seconds == pytest.approx(125.0)
    assert estimate(PLAIN, [record(PLAIN, 60.0)], num_devices=2).seconds == pytest.approx(35.0)


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
@pytest.mark.parametrize("num_gpus", [1, 2, 8])
def test_the_gpus_of_a_run_share_both_stages(architecture: str, num_gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_CHUNKS", "9999,9999")  # else a share may fit at once where the whole does not
    run = base("large", architecture=architecture)
    alone, together = (estimate(run, [], kind="gpu", num_devices=number).seconds for number in (1, num_gpus))
    assert alone / together == pytest.approx(num_gpus)


def test_a_gpu_keeps_the_graph_of_its_share_of_the_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all fits at once, memory beyond the weights' is that of a 24th of texts and contexts, rounded up."""
    monkeypatch.setenv("REPRO_CHUNKS", "9999,9999")
    run = base("large", architecture="contextual")
    found = estimate(run, [], kind="gpu", num_devices=24)
    texts, contexts = (
        -(-1024 // 24) * estimate_second_stage_bytes(run, Switches()),
        22 * estimate_first_stage_bytes(run, Switches()),
    )
    weights = BASE_MEMORY_BYTES + BYTES_PER_WEIGHT * found.arithmetic.num_weights
    assert found.memory_bytes == pytest.approx(weights + texts + contexts)


def test_a_plan_says_what_its_times_on_several_gpus_leave_out() -> None:
    run = [base("large", architecture="contextual")]
    told = (
        "the 8 GPUs of a run share each batch and its context documents, and the times exclude waiting for each other"
    )
    assert told in make_plan(run, [Path("/nowhere")], num_gpus=8).lines()
    for num_gpus in (0, 1):
        assert not any(
            "share each batch" in line for line in make_plan(run, [Path("/nowhere")], num_gpus=num_gpus).lines()
        )


@pytest.mark.parametrize("scale", ["small", "large"])
@pytest.mark.parametrize("batch_size", [512, 16384])
def test_a_gpu_holds_what_is_planned_whatever_the_batch(scale: str, batch_size: int) -> None:
    run = base(scale, architecture="contextual", batch_size=batch_size)
    for num_devices in (1, 8):
        assert estimate(run, [], kind="gpu", num_devices=num_devices).memory_bytes < 0.75 * 80 * GIB


def test_what_is_planned_follows_the_chunks_that_a_training_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    run = base("large", architecture="contextual")
    usual = estimate(run, [], kind="gpu").memory_bytes
    monkeypatch.setenv("REPRO_CHUNKS", "4,4")
    assert estimate(run, [], kind="gpu").memory_bytes < usual / 2
    monkeypatch.setenv("REPRO_CHUNKS", "4096,4096")
    # 1024 texts of 1032 tokens in twelve layers keep 39.5 to 45 KB a token and layer
    assert estimate(run, [], kind="gpu").memory_bytes > 1024 * 1032 * 12 * 39.5e3


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_memory_on_a_cpu_grows_with_the_batch_as_in_the_records(architecture: str) -> None:
    measured = defaultdict(list)  # over one grid, whose trainings differ in little else
    for one in records_in(
        get_published_records(), [run for run in grid_runs("desk") if run.architecture == architecture]
    ):
        measured[one.run.batch_size].append(one.provenance["training"]["memory_bytes"])
    planned = {size: estimate(base("desk", architecture=architecture, batch_size=size), []) for size in (128, 512)}
    more = planned[512].memory_bytes - planned[128].memory_bytes
    assert more == pytest.approx(median(measured[512]) - median(measured[128]), rel=0.15)


def test_without_records_the_speed_is_assumed_and_said_to_be() -> None:
    speed = estimate(PLAIN, []).speed
    assert (speed.num_records, speed.relative_error) == (0, None)
    assert speed.flops_per_second == ASSUMED_FLOPS_PER_SECOND["cpu"]
    assert any("assumed" in line for line in make_plan([base("smoke")], [Path("/nowhere")], num_gpus=1).lines())


def test_a_plan_names_stages_costs_and_what_is_not_here() -> None:
    made = make_plan([base("smoke"), base("smoke"), base("small")], [Path("/nowhere")], num_at_once=2)
    told = made.as_dict()
    assert (told["num_asked"], told["num_unique"], len(told["missing"])) == (3, 2, 2)
    assert any(name.startswith("corpus/") for name in told["stages"])
    names = [need.name for need in list_requirements([base("small")]) if not need.is_here()]
    assert len(names) > 10 and [lack.partition(": ")[0] for lack in told["lacks"]] == names, (
        "all of them, not the first"
    )
    assert told["cost"]["hours"] <= told["cost"]["hours_one_after_another"]


def test_a_plan_names_the_stages_that_can_be_told_whatever_else_is_not_here() -> None:
    here = make_plan([replace(CONTEXTUAL, test_contexts="own", filter="surrogate")], [Path("/nowhere")])
    without_suite = make_plan(
        [replace(CONTEXTUAL, test_contexts="own", filter="surrogate", suite="beir")], [Path("/nowhere")]
    )
    assert {"tokens", "embeddings"} <= {stage.name for stage in without_suite.stages}
    assert [stage.path for stage in without_suite.stages] == [stage.path for stage in here.stages]
    assert any(line.startswith("  stage tokens/") for line in without_suite.lines()) and without_suite.lacks


def test_what_a_first_phase_lacks_is_told() -> None:
    second = base("desk", corpus="desk", pretraining_corpus="nomic-unsupervised", num_pretraining_steps=2)
    assert any(lack.startswith("data nomic-unsupervised: ") for lack in make_plan([second], [Path("/nowhere")]).lacks)


@pytest.mark.parametrize(("device", "kind"), [("NVIDIA H100 80GB HBM3", "gpu"), ("x86_64", "cpu"), ("arm", "cpu")])
def test_a_device_is_known_by_its_name(device: str, kind: str) -> None:
    assert get_machine_kind(device) == kind


def test_a_training_that_runs_share_is_counted_once(tmp_path: Path) -> None:
    run = base("desk", architecture="contextual")
    variants = [run, replace(run, num_test_contexts=4), replace(run, context_seed=1)]
    plan = make_plan(variants, [tmp_path])
    assert plan.totals["num_pairs"] == count_operations(run).num_pairs
    assert [one.arithmetic.num_pairs > 0 for one in plan.estimates] == [True, False, False]


def test_a_first_phase_is_counted_unless_it_is_there() -> None:
    second = base("desk", corpus="desk", pretraining_corpus="desk", num_pretraining_steps=240, num_steps=30)
    alone, first = estimate(second, []).arithmetic, get_first_phase(second)
    assert first is not None
    assert alone.num_pairs == (240 + 30) * second.batch_size
    assert estimate(second, [], trained={get_training_id(first)}).arithmetic.num_pairs == 30 * second.batch_size


def test_what_is_done_beside_training_counts_by_the_context() -> None:
    one = replace(CONTEXTUAL, test_contexts="own")
    records = [record(replace(CONTEXTUAL, test_contexts="own+wrong+null"), 0.001, evaluation_seconds=30.0)]
    known = {get_training_id(one), get_training_id(replace(one, seed=1))}
    assert estimate(one, records, trained=known).seconds == pytest.approx(10.0)
    assert estimate(replace(one, measure="shape"), records, trained=known).seconds == 0.0


def test_an_evaluation_that_nobody_measured_is_a_dash_and_no_zero(tmp_path: Path) -> None:
    words, trained = base("small", architecture="bm25", sampler="random"), base("small")
    assert not estimate(words, []).counts_evaluation and not estimate(words, []).is_known
    assert estimate(PLAIN, [record(PLAIN, 60.0)]).counts_evaluation
    made = make_plan([words, trained], [tmp_path])
    seconds = made.as_dict()["seconds"]
    assert seconds[run_id(words)] is None and seconds[run_id(trained)] > 0
    lines = made.lines()
    [line] = [line for line in lines if line.startswith(f"  {run_id(words)}")]
    assert line.split()[1] == "–"
    assert "evaluation excluded for 2 runs: no similar evaluation was measured on a CPU yet, on beir" in lines
    [told] = [line for line in make_plan([words], [tmp_path]).lines() if line.startswith("evaluation excluded")]
    assert told.startswith("evaluation excluded for 1 run: ")
    known = make_plan([PLAIN], [tmp_path])
    assert known.totals["num_not_evaluated"] == 0 and not any("excluded" in line for line in known.lines())


@pytest.mark.parametrize(("num_gpus", "words"), [(0, "GiB per run"), (2, "GiB of each GPU's memory")])
def test_a_plan_says_whose_memory_it_means(num_gpus: int, words: str) -> None:
    lines = make_plan([base("small")], [Path("/nowhere")], num_gpus=num_gpus).lines()
    assert sum(words in line for line in lines) == 1


def test_hours_of_a_scale_that_nobody_ran_are_said_to_be_extrapolated() -> None:
    never_run, published = (
        make_plan([base(scale, seed=999)], [Path("/nowhere")]).lines() for scale in ("small", "desk")
    )
    assert any("no run at small was measured" in line for line in never_run)
    assert any("based on records" in line for line in published)


def test_a_plan_for_whole_batches_has_their_memory_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_CHUNKS", "9999,9999")
    run = base("large", architecture="contextual")
    by_eight, nowhere = replace(run, batches_a_step=8), [Path("/nowhere")]
    alone = estimate(run, [], kind="gpu").memory_bytes
    memory = [estimate(by_eight, [], kind="gpu", num_devices=number).memory_bytes for number in (1, 4, 8)]
    assert memory == [alone] * 3 > [estimate(run, [], kind="gpu", num_devices=8).memory_bytes] * 3
    whole = (
        "the 8 GPUs of a run take whole batches if batches_a_step is 8 or a multiple of it, "
        "and the times exclude waiting for each other"
    )
    told = [make_plan([one], nowhere, num_gpus=8).lines() for one in (by_eight, run)]
    assert [whole in lines for lines in told] == [True, False]
    assert [any("share each batch" in line for line in lines) for lines in told] == [False, True]


def test_a_plan_says_which_number_of_gpus_cannot_be() -> None:
    run = base("large", batches_a_step=8)
    [line] = make_plan([run], [Path("/nowhere")], num_gpus=3).impossible
    assert "a batch of 512 cannot be shared equally by 3 processes" in line and line.endswith("must divide 512 or 8")
    assert not make_plan([run], [Path("/nowhere")], num_gpus=16).impossible

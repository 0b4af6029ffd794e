"""Published claims: effects that do not move, no records older than their claim, one family of headlines."""

import json
from functools import cache
from pathlib import Path

import pytest

from experiments.e01_table1 import TABLE
from repro.report.artefacts import load_records
from repro.report.gains import list_gain_rows
from repro.report.tables import in_unit
from repro.spec import Identity
from repro.spec.registry import experiments, find_experiment
from repro.statistics.judge import WORDS, Judgement, is_early, judge_all

EFFECTS = json.loads(Path(__file__).with_name("effects.json").read_text())
"""Effects as printed, and their seeds, of each claim by scale before the plain judge."""
RESTATED = {"T1.k", "F2.a", "F3.a", "F3.b", "F4.a", "F9.a", "F9.b", "F9.c", "F12.a"}
"""Claims that compare something else since."""


@cache
def judged(scale: str) -> dict[str, Judgement]:
    found = {}
    for experiment in experiments():
        runs = experiment.runs(scale)
        for one in judge_all(experiment.claims, scale, runs, load_records(runs, "published")):
            found[one.claim.id] = one
    return found


@pytest.mark.parametrize("scale", ["desk", "lab"])
def test_effects_did_not_move(scale: str) -> None:
    """To the printed digit, on the same seeds; claims over queries alone have no seeds now."""
    same = {id: row for id, row in EFFECTS[scale].items() if id not in RESTATED}
    now = {id: judged(scale)[id] for id in same}
    assert {id: [in_unit(c.effect, one.unit) for c in one.comparisons] for id, one in now.items()} == {
        id: effects for id, (effects, _) in same.items()
    }
    assert all(list(one.seeds) in ([], same[id][1]) for id, one in now.items())


@pytest.mark.parametrize("scale", ["desk", "lab"])
def test_no_word_from_records_older_than_claim(scale: str) -> None:
    """Every record of a claim with a word was made on the day the claim was stated, or later."""
    for experiment in experiments():
        records = load_records(experiment.runs(scale), "published")
        for claim in experiment.claims:
            one = judged(scale)[claim.id]
            if isinstance(claim, Identity) or one.word not in WORDS:
                continue
            assert claim.stated, f"{claim.id} says no day"
            matching = [
                r for r in records if any(term.of.matches(r.run) for term in claim.terms) and claim.needs(r.run)
            ]
            early = {r.run.seed for r in matching if is_early(claim, r) and r.run.seed in one.seeds}
            early -= {r.run.seed for r in matching if r.run.architecture in ("bm25", "surrogate", "none")}
            assert not early, claim.id


def test_claims_worded_from_their_records_are_tentative() -> None:
    at_desk, at_lab = judged("desk"), judged("lab")
    assert {at_desk[id].word for id in ("D.a", "D.b", "D.c", "D.d", "E.f")} | {at_lab["D.b"].word} == {"tentative"}


@pytest.mark.parametrize("scale", ["desk", "lab", "small", "large"])
def test_headlines_of_scale_lie_in_one_experiment(scale: str) -> None:
    """They form one Holm family, which is judged together."""
    found = [
        (experiment.number, c.id) for experiment in experiments() for c in experiment.claims if scale in c.headlines
    ]
    assert len({number for number, _ in found}) == 1 and 3 <= len(found) <= 5


def test_picture_shows_the_claims_number() -> None:
    """The front page's gain of a row is the effect of the claim on it."""
    runs = find_experiment("table1").runs("desk")
    of = {"T1.b": "contextual batches", "T1.c": "contextual architecture"}
    seeds = judged("desk")["T1.b"].seeds
    _, rows = list_gain_rows(TABLE, "NDCG@10", runs, load_records(runs, "published"), seeds)
    for id, label in of.items():
        gains = [row["gain"] for row in rows if row["row"] == label]
        effect = judged("desk")[id].effect
        assert effect is not None and sum(gains) / len(gains) == pytest.approx(100 * effect)

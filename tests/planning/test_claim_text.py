"""A claim told in a paragraph says what the ledger says, and what was compared."""

import json
import re

import pytest

from repro.claims.levels import ENDS_AT_BAR
from repro.cli.main import app
from repro.planning.claim_text import comparisons_of, explain_claim
from repro.report.artefacts import judgements
from repro.report.view import format_signed
from repro.spec import Claim, Identity, Interaction, by_scale, term
from repro.spec.registry import experiment_of, experiments

SAID = {"source": "here", "because": "a test"}
NDCG = "{suite}/mean/ndcg_at_10"


@pytest.mark.parametrize("artefact", ["figure3", "figure10", "context_emergence"])
def test_every_claim_of_an_artefact_is_told_with_its_verdict_bar_and_comparisons(artefact: str) -> None:
    for judged in judgements(experiment_of(artefact), "desk"):
        first, *lines = explain_claim(judged.claim.id, "desk")
        assert first.startswith(f"{judged.claim.id} at desk: {judged.verdict}")
        assert any(judged.claim.says in line and judged.claim.source in line for line in lines)
        assert any(judged.claim.bar in line for line in lines)
        compared = [line for line in lines if line.startswith("  compared")]
        assert len(compared) == len(judged.estimates)
        if judged.low is not None and judged.high is not None:  # what the ledger has of the weakest
            low, high = (
                format_signed(end * judged.unit.factor, judged.unit.decimals) for end in (judged.low, judged.high)
            )
            assert any(line.endswith(f"[{low}, {high}]") for line in compared)


EFFECT_AND_INTERVAL = re.compile(r": ([+-][\d.]+) \S+ \[(\S+), (\S+)\]$")


@pytest.mark.parametrize("id", ["H.c", "F9.b", "G9.b", "T1.d", "G11.a"])
def test_each_comparison_has_a_name_of_its_own_and_lies_in_its_own_interval(id: str) -> None:
    compared = [line.split("  ", 3)[-1] for line in explain_claim(id, "desk") if line.startswith("  compared")]
    assert len({line.rpartition(": ")[0] for line in compared}) == len(compared) > 1
    for effect, low, high in (map(float, EFFECT_AND_INTERVAL.search(line).groups()) for line in compared):  # type: ignore[union-attr]
        assert low <= effect <= high


def test_an_interval_that_ends_at_the_bar_says_why() -> None:
    judged = {one.claim.id: one for one in judgements(experiment_of("figure10"), "desk")}["F11.b"]
    assert judged.verdict == "DIFFERS" and judged.low == 0 and ENDS_AT_BAR in judged.note


@pytest.mark.parametrize(
    ("id", "scale", "says"),
    [
        ("T5.f", "desk", ["DIFFERS: the printed numbers do not agree", "holds if the numbers agree: arithmetic"]),
        ("T5.a", "desk", ["HOLDS: the printed numbers agree"]),
        ("E.g", "small", ["holds if > 0, δ 0.5 points: any difference"]),
        ("F10.a", "small", ["NOT RUN", "holds if > 0 r: ", "python -m repro show figure10 figure11 --scale small"]),
        ("T1.b", "desk", ["judged on 5 seeds (3 to 7), 10 runs", "; seeds 0 to 2 had been looked at: left out"]),
        ("F3.a", "desk", ["judged on 3 seeds (0 to 2)", "; seeds 0 to 2 had been looked at: here judged post hoc"]),
    ],
)
def test_the_bar_has_its_unit_arithmetic_has_none_and_it_is_said_which_seeds_judge(
    id: str, scale: str, says: list[str]
) -> None:
    told = "\n".join(explain_claim(id, scale))
    assert [words for words in says if words not in told] == []


def test_a_claim_can_be_read_by_itself() -> None:
    leaning = {"and", "so", "it", "its", "they", "ahead", "there,"}
    assert not [claim.says for one in experiments() for claim in one.claims if claim.says.split()[0] in leaning]


def test_a_comparison_is_named_by_what_its_sides_differ_in() -> None:
    same = {"architecture": "biencoder"}
    claim = Claim.order("X.a", "…", pairs=[(term(NDCG, **same, batch_size=64), term(NDCG, **same, seed=1))], **SAID)
    assert comparisons_of(claim, "desk") == ["NDCG@10 of batch_size=64 less seed=1"]
    few, many = (term(NDCG, batch_size=by_scale(sizes)) for sizes in ({"desk": 8, "lab": 16}, {"desk": 64, "lab": 96}))
    sizes = Claim.order("X.c", "…", pairs=[(many, few)], **SAID)
    assert comparisons_of(sizes, "lab") == ["NDCG@10 of batch_size=96 less batch_size=16"]
    wrong = Claim.order("X.b", "…", pairs=[(term(NDCG, **same), term("{suite}+wrong/mean/x", **same))], **SAID)
    assert comparisons_of(wrong, "desk") == ["NDCG@10 of the same runs, less suite+wrong/mean/x"]


def test_comparisons_that_share_their_sides_are_told_apart_by_what_else_is_set() -> None:
    several = [
        (term(NDCG, seed=1, cluster_size=size, num_layers=2), term(NDCG, seed=2, cluster_size=size, num_layers=2))
        for size in (64, (256, 512))
    ]
    told = comparisons_of(Claim.order("X.a", "…", pairs=several, **SAID), "desk")
    assert told == [f"NDCG@10 of seed=1 less seed=2, at cluster_size={size}" for size in ("64", "256 or 512")]


def test_a_correlation_and_a_printed_value_say_what_they_compare() -> None:
    apart, own = term("{suite}/*/idf_divergence", measure="divergence"), {"measure": "retrieval"}
    of_systems = [term("{suite}/*/ndcg_at_10", architecture=name, **own) for name in ("biencoder", "bm25")]
    over_datasets = Claim.correlation(
        "X.a", "…", x=apart, y=of_systems[0], minus=of_systems[1], points="datasets", sign=-1, **SAID
    )
    assert comparisons_of(over_datasets, "desk") == [
        "suite/*/idf_divergence with NDCG@10 of architecture=biencoder less architecture=bm25, over datasets"
    ]
    runs = Claim.correlation(
        "X.b", "…", x=term("train/loss"), y=term(NDCG), points="runs", within="batch_size", sign=1, **SAID
    )
    assert comparisons_of(runs, "desk") == ["train/loss with NDCG@10, over settings, at each batch_size"]
    printed = Claim.value("X.c", "…", expected={term(NDCG, architecture="bm25"): 0.631}, margin=0.01, **SAID)
    assert comparisons_of(printed, "desk") == ["NDCG@10 of architecture=bm25, less 63.1 points as printed"]


def test_every_kind_of_comparison_that_is_declared_has_a_name() -> None:
    told = {
        claim.id: comparisons_of(claim, "desk")
        for experiment in experiments()
        for claim in experiment.claims
        if not isinstance(claim, Identity)
    }
    assert not [id for id, names in told.items() if not names or not all(names)]


def test_the_two_sides_of_an_interaction_are_told_apart() -> None:
    for claim in (claim for experiment in experiments() for claim in experiment.claims):
        if isinstance(claim, Interaction):
            first, second = comparisons_of(claim, "desk")[0].split(": ", 1)[-1].split(" above ")
            assert first != second, claim.id
    told = "\n".join(explain_claim("T1.j", "desk"))
    assert "(NDCG@10 of filter=surrogate, " in told and ") above (suite/services/ndcg_at_10 of filter=" in told


def test_the_verb_tells_a_claim_and_suggests_for_a_slip(capsys: pytest.CaptureFixture[str]) -> None:
    app(["why", "F4.a"], standalone_mode=False)
    assert capsys.readouterr().out.startswith("F4.a at desk: ")
    app(["why", "F4.a", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)[0].startswith("F4.a at desk: ")
    with pytest.raises(ValueError, match=r"unknown claim 'F4.q', did you mean 'F4.a'\?"):
        app(["why", "F4.q"], standalone_mode=False)


def test_check_takes_artefacts_and_suggests_for_a_slip(capsys: pytest.CaptureFixture[str]) -> None:
    app(["check", "figure4"], standalone_mode=False)
    out = capsys.readouterr().out
    assert "F4.a" in out and "T1.a" not in out
    with pytest.raises(ValueError, match=r"unknown artefact 'figur4', did you mean 'figure4'\?"):
        app(["check", "figur4"], standalone_mode=False)
    with pytest.raises(ValueError, match="pages have all claims"):
        app(["check", "figure4", "--write"], standalone_mode=False)

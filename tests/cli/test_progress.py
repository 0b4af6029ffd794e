"""Verbs say what takes long, and nothing when it does not."""

import pytest

from repro.cli import common


def test_quick_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(common.in_turn("abc", str.upper)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_slow_work_says_what_is_begun_at_most_every_two_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(common.time, "monotonic", lambda: clock[0])
    for letter in common.in_turn("abcd", str.upper):
        clock[0] += {"a": 1.5, "b": 1.5, "c": 1.5}.get(letter, 0)
    assert capsys.readouterr() == ("", "C (3 of 4)\n")

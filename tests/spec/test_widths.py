"""Widths that a run declares: what they mean, and what is refused in one line."""

import pytest

from repro.spec import base, nested_widths, standard_widths, written


def test_a_run_names_the_widths_of_its_loss() -> None:
    assert nested_widths(base("desk", nested_sizes="8+32+full")) == (8, 32, 128)
    assert nested_widths(base("desk")) == ()


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ("8+256", "256 does not divide 128, the width of the vectors"),
        ("8+48", "48 does not divide 128"),
        ("0+8", "0 does not divide 128"),
        ("32+8", "list each width once, from the narrowest to the widest"),
        ("8+8", "list each width once"),
        ("8+wide", "'wide' is no width; join whole numbers by '+'"),
        ("8,16", "'8,16' is no width"),
        ("8+", "'' is no width"),
        ("-8", "'-8' is no width"),
        ("²", "'²' is no width"),
    ],
)
def test_widths_that_make_no_sense_are_one_clear_line(sizes: str, says: str) -> None:
    with pytest.raises(ValueError, match="nested_sizes=") as raised:
        base("desk", nested_sizes=sizes)
    assert says in str(raised.value) and "\n" not in str(raised.value)


def test_the_standard_widths_are_powers_of_two_that_divide_and_the_whole() -> None:
    assert standard_widths(128) == (8, 16, 32, 64, 128)
    assert standard_widths(384) == (8, 16, 32, 64, 128, 384)
    assert standard_widths(768) == (8, 16, 32, 64, 128, 256, 768)
    assert standard_widths(2048) == (8, 16, 32, 64, 128, 256, 512, 1024, 2048), "as MRL has them"
    assert standard_widths(4) == (4,)
    assert written(standard_widths(32)) == "8+16+32"

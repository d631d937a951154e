"""Drawings in the terminal, with and without color."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from regard.render.terminal import terminal_heat_map

WEIGHTS = [[0.02, 0.98], [0.75, 0.25]]


def printed(*, color: bool) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=color, color_system="truecolor" if color else None, width=80)
    console.print(terminal_heat_map(WEIGHTS, ["six", "1"], ["a", "longer"]))
    return stream.getvalue()


def test_every_number_is_printed_in_a_pipe() -> None:
    text = printed(color=False)
    assert "\x1b" not in text
    head, first, second = text.splitlines()
    assert head.split() == ["a", "longer"]
    assert first.split() == ["six", "2", "██", "98"]
    assert second.split() == ["1", "▓▓", "75", "░░", "25"]


def test_columns_are_aligned_with_their_names() -> None:
    head, first, second = printed(color=False).splitlines()
    assert head.index("a") == first.index("2") == second.index("75") + 1
    assert head.index("r", 12) == first.index("98") + 1 == second.index("25") + 1


def test_a_color_terminal_gets_color() -> None:
    assert "\x1b[38;2;" in printed(color=True)


def test_weights_of_the_wrong_shape_are_rejected() -> None:
    with pytest.raises(ValueError, match="2 x 1"):
        terminal_heat_map(WEIGHTS, ["x", "y"], ["a"])


def test_names_are_printed_literally() -> None:
    text = terminal_heat_map([[1.0]], ["\x1b[5m[red]"], ["\u202ex"]).plain
    assert "\x1b" not in text and "\u202e" not in text
    assert r"\x1b[5m[red]" in text and r"\u202ex" in text


def test_a_wide_matrix_has_shades_without_numbers() -> None:
    columns = [str(number) for number in range(13)]
    head, row = terminal_heat_map([[0.0, 1.0, *[0.5] * 11]], ["  7"], columns).plain.splitlines()
    assert head == "   " + "".join(f"{name:>3}" for name in columns)
    assert row == "  7" + "   " + " ██" + " ▒▒" * 11

"""Layer expressions: meaning, errors, and that states after the last selected layer are not computed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from regard.errors import InputError
from regard.inference.embedding.engine import LayerSelection


@pytest.mark.parametrize(
    ("expression", "operation", "chosen"),
    [
        (0, "only", (0,)),
        (-1, "only", (6,)),
        ("-2", "only", (5,)),
        ("+3", "only", (3,)),
        (-7, "only", (0,)),
        ("sum(1:)", "sum", (1, 2, 3, 4, 5, 6)),
        ("sum(-4:)", "sum", (3, 4, 5, 6)),
        ("concat(-4:)", "concat", (3, 4, 5, 6)),
        ("mean(:)", "mean", (0, 1, 2, 3, 4, 5, 6)),
        (" mean( 1 : 3 ) ", "mean", (1, 2)),
        ("concat(:-5)", "concat", (0, 1)),
        ("sum(-100:1)", "sum", (0,)),
    ],
)
def test_parse(expression: int | str, operation: str, chosen: tuple[int, ...]) -> None:
    assert LayerSelection.parse(expression, 7) == LayerSelection(operation, chosen)


@pytest.mark.parametrize(("expression", "message"), [(7, "0 to 6"), ("-8", "-7 to -1"), ("sum(5:2)", "none of")])
def test_missing_layers(expression: int | str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LayerSelection.parse(expression, 7)


@pytest.mark.parametrize(
    "expression", ["", "last", "1.0", "sum", "sum()", "sum(1)", "max(1:)", "sum(1:2:3)", "sum(1:", True, "9" * 5000]
)
def test_invalid_expressions_are_refused_with_examples(expression: object) -> None:
    with pytest.raises(InputError, match=r"unknown layer .* a number such as -1, or sum"):
        LayerSelection.parse(expression, 7)  # type: ignore[arg-type]


def test_join() -> None:
    states = [torch.full((2, 3), float(10**i)) for i in range(4)]

    def join(expression: str) -> Tensor:
        selection = LayerSelection.parse(expression, 4)
        return selection.join(list(selection.select(states)))

    assert join("-1").equal(states[3])
    assert join("sum(1:)").equal(torch.full((2, 3), 1110.0))
    assert join("mean(:2)").equal(torch.full((2, 3), 5.5))
    assert join("concat(2:)").equal(torch.cat(states[2:], dim=-1))
    assert LayerSelection.parse("concat(2:)", 4).factor == 2
    assert LayerSelection.parse("sum(2:)", 4).factor == 1
    assert states[1].equal(torch.full((2, 3), 10.0))  # the sum must not be computed in place


@pytest.mark.parametrize(
    ("expression", "computed"), [("0", 1), ("-2", 3), ("sum(:2)", 2), ("concat(1:3)", 3), ("-1", 4)]
)
def test_states_after_the_last_selected_layer_are_not_computed(expression: str, computed: int) -> None:
    count = 0

    def states() -> Iterator[Tensor]:
        nonlocal count
        for _ in range(4):
            count += 1
            yield torch.zeros(1)

    list(LayerSelection.parse(expression, 4).select(states()))
    assert count == computed

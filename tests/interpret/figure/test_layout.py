"""The drawing: boxes lie in it and apart, from bottom to top, and lines go where they should."""

from __future__ import annotations

from itertools import combinations, pairwise

from regard.interpret.figure.layout import BoxShape
from tests.interpret.figure.conftest import Drawn


def apart(a: BoxShape, b: BoxShape) -> bool:
    across = a.x + a.width <= b.x or b.x + b.width <= a.x
    return across or a.y + a.height <= b.y or b.y + b.height <= a.y


def test_boxes_are_apart_inside_and_in_order(drawn: Drawn) -> None:
    found = drawn.figure()
    layout = found.layout()
    assert [shape.box for shape in layout.shapes] == [box.name for box in found.model_boxes]
    assert all(apart(a, b) for a, b in combinations(layout.shapes, 2))
    for shape in layout.shapes:
        assert shape.x >= 0 and shape.x + shape.width <= layout.width
        assert shape.y >= 0 and shape.y + shape.height <= layout.height
    for part in found.tokens:
        tower = [shape for shape in layout.shapes if found.box(shape.box).part == part and shape.kind != "positions"]
        assert all(above.y + above.height < below.y for below, above in pairwise(tower))
        (frame,) = [frame for frame in layout.frames if frame.part == part]
        for shape in tower:
            inside = frame.y <= shape.y and shape.y + shape.height <= frame.y + frame.height
            assert inside == (found.box(shape.box).group == "layer")
    for line in layout.lines:
        assert all(0 <= x <= layout.width for x in line.points[::2])
        assert all(0 <= y <= layout.height for y in line.points[1::2])


def test_residuals_go_around_each_sublayer_and_are_gone_where_switched_off(drawn: Drawn) -> None:
    found = drawn.figure()
    layout = found.layout()
    adds = [shape for shape in layout.shapes if shape.kind == "add"]
    ends = {line.points[-1] for line in layout.lines if line.role == "residual"}
    assert ends == {shape.y + shape.height / 2 for shape in adds}
    assert len([line for line in layout.lines if line.role == "residual"]) == len(adds)
    off = drawn.figure("residual,positions").layout()
    assert {line.role for line in layout.lines} - {line.role for line in off.lines} == {"residual", "positions"}


def test_a_mask_that_is_off_is_named(drawn: Drawn) -> None:
    if drawn.kind == "encoder":
        return
    title = "Multi-Head Attention (mask off)"
    found = drawn.figure("mask")
    assert found.box("decoder.attention").title == title and drawn.figure().box("decoder.attention").title != title
    shape = next(one for one in found.layout().shapes if one.box == "decoder.attention")
    assert " ".join(shape.lines) == title
    assert [box.name for box in found.model_boxes if box.title == title] == ["decoder.attention"]


def test_the_encoders_top_goes_to_the_cross_attention(drawn: Drawn) -> None:
    layout = drawn.figure().layout()
    memory = [line for line in layout.lines if line.role == "memory"]
    assert len(memory) == (2 if drawn.kind in ("post", "pre") else 0)  # keys and values
    for line in memory:
        cross = next(shape for shape in layout.shapes if shape.box == "decoder.cross")
        assert line.points[-1] == cross.y + cross.height
        assert cross.x < line.points[-2] < cross.x + cross.width

"""Still drawings of ablation and faithfulness results, from the data of their page views.

Blue means for, or how strong; orange means against: people with every kind of color vision can tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from regard.render.drawing import ACCENT, OTHER, QUIET, TEXT, Drawing, Label, Stroke, Tile, blend

MARGIN, LINE, WIDE = 16, 22, 940
LETTER, SMALL = 8.5, 7.4  # pixels of a letter of size 14 and of size 12
CELL = 58
FULL = 2.0  # nats at which the color of a token is full

Shape: TypeAlias = Label | Stroke | Tile
ViewData: TypeAlias = Mapping[str, Any]


def draw_ablation(data: ViewData) -> Drawing:
    """Every head removed alone as a heat map, and each target with its likeliest output before and after."""
    removed, sweep, model = data["removed"], data["sweep"], data["model"]
    heads = [f"heads {', '.join(f'{layer}.{head}' for layer, head in removed['heads'])}"] if removed["heads"] else []
    layers = [f"layers {', '.join(map(str, removed['layers']))}"] if removed["layers"] else []
    without = " and ".join([*heads, *layers])
    title = f"{model['name']} without {without}" if without else model["name"]
    caption = f"each head removed alone: {sweep['measure']}{' in nats' if sweep['measure'] == 'divergence' else ''}"
    shapes: list[Shape] = [
        Label(MARGIN, MARGIN + 12, title, 16),
        Label(MARGIN, MARGIN + LINE + 8, caption + ("; x is removed" if without else ""), 12, color=QUIET),
    ]
    left, top = MARGIN + 9 * LETTER, MARGIN + 3.5 * LINE
    largest = max((one["strength"] for one in sweep["heads"]), default=0.0) or 1.0
    for head in range(model["num_heads"]):
        shapes.append(Label(left + (head + 0.5) * CELL, top - 8, str(head), 12, "middle", QUIET))
    for layer in range(model["num_layers"]):
        shapes.append(Label(left - 8, top + (layer + 0.5) * LINE + 4, f"layer {layer}", 12, "end", QUIET))
    for one in sweep["heads"]:
        x, y = left + one["head"] * CELL, top + one["layer"] * LINE
        shapes.append(_tile(x + 1, y + 1, CELL - 2, LINE - 2, math.sqrt(one["strength"] / largest)))
        out = [one["layer"], one["head"]] in removed["heads"] or one["layer"] in removed["layers"]
        shapes.append(Label(x + CELL / 2, y + 15, f"{'x ' if out else ''}{_brief(one['strength'])}", 11, "middle"))
    bottom = top + model["num_layers"] * LINE + 2 * LINE
    targets, bottom = _draw_targets(data, bottom)
    shapes += targets
    wide = max([WIDE, left + CELL * model["num_heads"] + MARGIN, *(_end(shape) + MARGIN for shape in shapes)])
    return Drawing(title, math.ceil(wide), math.ceil(bottom + MARGIN), tuple(shapes))


def _draw_targets(data: ViewData, y: float) -> tuple[list[Shape], float]:
    shapes: list[Shape] = []
    x = float(MARGIN)
    whole = not data["removed"]["heads"] and not data["removed"]["layers"]
    high = 2 if whole else 3
    full = FULL if data["sweep"]["measure"] == "divergence" else max(one["strength"] for one in data["effects"])
    for number, effect in enumerate(data["effects"]):
        position = data["positions"][number] if data["positions"] else None
        tokens = data["tokens"]
        name = effect["target"] if position is None else tokens[position] if position < len(tokens) else "..."
        lines = [_probability(effect, effect["likeliest"], "before")]
        lines += [] if whole else [_probability(effect, effect["successors"], "after")]
        wide = max(len(name) * LETTER, *(len(line) * SMALL for line in lines)) + 14
        if x + wide > WIDE - MARGIN and x > MARGIN:
            x, y = float(MARGIN), y + high * LINE
        strength = min(1.0, math.sqrt(effect["strength"] / (full or 1.0)))
        shapes.append(_tile(x, y - 15, wide - 4, (high - 0.2) * LINE, strength))
        shapes.append(Label(x + 5, y, name))
        shapes += [Label(x + 5, y + 18 + 17 * row, line, 12) for row, line in enumerate(lines)]
        x += wide
    caption = "below each: the likeliest" if whole else "below each: the likeliest before, and after"
    return [*shapes, Label(MARGIN, y + high * LINE, caption, 12, color=QUIET)], y + high * LINE


def _probability(effect: ViewData, outputs: list[ViewData], when: str) -> str:
    value = outputs[0][when]
    return f"{effect[when]} {value:.1%}" if effect[when] else f"{value:z.3f}"


def draw_faithfulness(data: ViewData) -> Drawing:
    """The verdict with its six values, and three measures of the importance of each word on one scale."""
    evidence, verdict = data["evidence"], data["verdict"]
    value = data["model"]["problem_type"] == "regression"
    prediction = f"{evidence['label']} {evidence['probability']:{'z.3f' if value else '.1%'}}"
    passed = sum(check["passed"] for check in verdict["checks"]) if verdict else 0
    title = (
        f"{verdict['verdict']} ({passed} of {len(verdict['checks'])} passed): {prediction}" if verdict else prediction
    )
    shapes: list[Shape] = [Label(MARGIN, MARGIN + 14, title, 18)]
    y = MARGIN + 2.2 * LINE
    for check in verdict["checks"] if verdict else []:
        fraction = max(0.0, min(1.0, (check["value"] or 0) / (3 * check["threshold"])))
        shapes.append(Label(MARGIN, y + 5, f"{'passed' if check['passed'] else 'failed'}  {check['name']}"))
        shapes.append(_tile(330, y - 6, 300, 12, 0.12, QUIET))
        if fraction:
            shapes.append(_tile(330, y - 6, 300 * fraction, 12, 0.9, ACCENT if check["passed"] else OTHER))
        shapes.append(Stroke((430, y - 9), (430, y + 9), TEXT, 1.0))
        number = "none" if check["value"] is None else f"{check['value']:z.3f}"
        shapes.append(Label(645, y + 5, f"{number} of {check['threshold']:.2f} or more"))
        y += 1.2 * LINE
    which = "mean of all heads" if evidence["head"] is None else f"head {evidence['head']}"
    rows = {
        f"attention, layer {evidence['layer']}, {which}": evidence["weights"],
        "integrated gradients": evidence["integrated"]["scores"],
        "gradient x input": evidence["gradient"]["scores"],
    }
    words = np.array([not special for special in evidence["special"]])
    fractions = {name: np.array(row) / (np.abs(np.array(row))[words].sum() or 1.0) for name, row in rows.items()}
    largest = max(float(np.abs(row[words]).max(initial=0.0)) for row in fractions.values()) or 1.0
    for name, row in fractions.items():
        y += 0.6 * LINE
        shapes.append(Label(MARGIN, y, name, 14, color=QUIET))
        x, y = float(MARGIN), y + 1.1 * LINE
        for token, fraction in zip(evidence["tokens"], row.tolist(), strict=True):
            wide = len(token) * LETTER + 8
            if x + wide > WIDE - MARGIN and x > MARGIN:
                x, y = float(MARGIN), y + 1.1 * LINE
            shapes.append(
                _tile(x, y - 14, wide - 2, 19, min(1.0, abs(fraction) / largest), OTHER if fraction < 0 else ACCENT)
            )
            shapes.append(Label(x + 3, y, token))
            x += wide
        y += LINE
    caption = f"blue for, orange against; the fraction of the sum over all words, full color at {largest:.1%}"
    shapes.append(Label(MARGIN, y + 8, caption, 12, color=QUIET))
    wide = max([WIDE, *(_end(shape) + MARGIN for shape in shapes)])
    return Drawing(title, math.ceil(wide), math.ceil(y + 8 + MARGIN), tuple(shapes))


def _tile(x: float, y: float, width: float, height: float, strength: float, color: str = ACCENT) -> Tile:
    """A rectangle of one color on white; even at full strength, text on it stays legible."""
    return Tile(x, y, width, height, blend(color, 0.04 + 0.6 * strength))


def _brief(strength: float) -> str:
    return f"{strength:.0e}".replace("e-0", "e-") if 0 < strength < 0.005 else f"{strength:.2f}"


def _end(shape: Shape) -> float:
    return shape.x + len(shape.text) * LETTER if isinstance(shape, Label) and shape.anchor == "start" else 0.0

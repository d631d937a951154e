"""Surgery and honesty as files: a page, a still picture or the numbers, by the ending of a file's name.

Knows the payloads of the views "surgery" and "honesty" and shapes on a plane. Knows no browser and no model. Blue is
for, or how strong; orange against: people of every colour sight can tell them apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from regard.errors import InputError
from regard.render.drawing import ACCENT, OTHER, QUIET, TEXT, Drawing, Label, Stroke, Tile, blend, png, svg

__all__ = ["ENDINGS", "ablation_picture", "check_suffix", "faithfulness_picture", "write_result"]

ENDINGS = (".html", ".svg", ".png", ".json")
MARGIN, LINE, WIDE = 16, 22, 940
LETTER, SMALL = 8.5, 7.4  # pixels of a letter of 14 and of 12
CELL = 58
FULL = 2.0  # nats at which a token's colour is full

Shape: TypeAlias = Label | Stroke | Tile
# Payloads are JSON: what they hold is known by their makers' tests, not by their type.
Payload: TypeAlias = Mapping[str, Any]


def check_suffix(output: str) -> None:
    if not output.lower().endswith(ENDINGS):
        raise InputError(f"--output is {output!r}; expected a name that ends in {', '.join(ENDINGS)}")


def write_result(
    place: Path,
    *,
    document: Callable[[], object],
    payload: Callable[[], Payload],
    picture: Callable[[Payload], Drawing],
) -> None:
    """Put into a file what its name asks for; what is not asked for is not made."""
    match place.suffix.lower():
        case ".json":
            text = json.dumps(document(), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
            place.write_text(text, encoding="utf-8", errors="backslashreplace")
        case ".svg":
            place.write_text(svg(picture(payload())), encoding="utf-8")
        case ".png":
            place.write_bytes(png(picture(payload())))
        case _:
            from regard.render.bundle import page

            found = payload()
            place.write_text(page(found, title=f"Regard: {found['view']}"), encoding="utf-8")


def ablation_picture(payload: Payload) -> Drawing:
    """Every head alone as a heat map, and each place with what was likeliest before and, where heads are out, after."""
    gone, sweep, model = payload["gone"], payload["sweep"], payload["model"]
    heads = [f"heads {', '.join(f'{layer}.{head}' for layer, head in gone['heads'])}"] if gone["heads"] else []
    layers = [f"layers {', '.join(map(str, gone['layers']))}"] if gone["layers"] else []
    without = " and ".join([*heads, *layers])
    title = f"{model['name']} without {without}" if without else model["name"]
    said = f"each head taken out alone: {sweep['measure']}{' in nats' if sweep['measure'] == 'divergence' else ''}"
    shapes: list[Shape] = [
        Label(MARGIN, MARGIN + 12, title, 16),
        Label(MARGIN, MARGIN + LINE + 8, said + ("; x is out" if without else ""), 12, color=QUIET),
    ]
    left, top = MARGIN + 9 * LETTER, MARGIN + 3.5 * LINE
    most = max((one["strength"] for one in sweep["heads"]), default=0.0) or 1.0
    for head in range(model["heads"]):
        shapes.append(Label(left + (head + 0.5) * CELL, top - 8, str(head), 12, "middle", QUIET))
    for layer in range(model["depth"]):
        shapes.append(Label(left - 8, top + (layer + 0.5) * LINE + 4, f"layer {layer}", 12, "end", QUIET))
    for one in sweep["heads"]:
        x, y = left + one["head"] * CELL, top + one["layer"] * LINE
        shapes.append(_tile(x + 1, y + 1, CELL - 2, LINE - 2, math.sqrt(one["strength"] / most)))
        out = [one["layer"], one["head"]] in gone["heads"] or one["layer"] in gone["layers"]
        shapes.append(Label(x + CELL / 2, y + 15, f"{'x ' if out else ''}{_brief(one['strength'])}", 11, "middle"))
    bottom = top + model["depth"] * LINE + 2 * LINE
    changes, bottom = _places(payload, bottom)
    shapes += changes
    wide = max([WIDE, left + CELL * model["heads"] + MARGIN, *(_end(shape) + MARGIN for shape in shapes)])
    return Drawing(title, math.ceil(wide), math.ceil(bottom + MARGIN), tuple(shapes))


def _places(payload: Payload, y: float) -> tuple[list[Shape], float]:
    shapes: list[Shape] = []
    x = float(MARGIN)
    whole = not payload["gone"]["heads"] and not payload["gone"]["layers"]
    high = 2 if whole else 3
    full = FULL if payload["sweep"]["measure"] == "divergence" else max(one["strength"] for one in payload["effects"])
    for number, effect in enumerate(payload["effects"]):
        spot = payload["spots"][number] if payload["spots"] else None
        tokens = payload["tokens"]
        name = effect["place"] if spot is None else tokens[spot] if spot < len(tokens) else "..."
        lines = [_share(effect, effect["likeliest"], "before")]
        lines += [] if whole else [_share(effect, effect["successors"], "after")]
        wide = max(len(name) * LETTER, *(len(line) * SMALL for line in lines)) + 14
        if x + wide > WIDE - MARGIN and x > MARGIN:
            x, y = float(MARGIN), y + high * LINE
        strength = min(1.0, math.sqrt(effect["strength"] / (full or 1.0)))
        shapes.append(_tile(x, y - 15, wide - 4, (high - 0.2) * LINE, strength))
        shapes.append(Label(x + 5, y, name))
        shapes += [Label(x + 5, y + 18 + 17 * row, line, 12) for row, line in enumerate(lines)]
        x += wide
    said = "below each: what is likeliest" if whole else "below each: what was likeliest before, and what is after"
    return [*shapes, Label(MARGIN, y + high * LINE, said, 12, color=QUIET)], y + high * LINE


def _share(effect: Payload, outputs: list[Payload], when: str) -> str:
    share = outputs[0][when]
    return f"{effect[when]} {share:.1%}" if effect[when] else f"{share:z.3f}"


def faithfulness_picture(payload: Payload) -> Drawing:
    """The verdict with its six numbers, and the three ways to say which words count on one scale."""
    grounds, verdict = payload["grounds"], payload["verdict"]
    value = payload["model"]["kind"] == "value"
    said = f"{grounds['label']} {grounds['probability']:{'z.3f' if value else '.1%'}}"
    passed = sum(check["passed"] for check in verdict["checks"]) if verdict else 0
    title = f"{verdict['verdict']} ({passed} of {len(verdict['checks'])} passed): {said}" if verdict else said
    shapes: list[Shape] = [Label(MARGIN, MARGIN + 14, title, 18)]
    y = MARGIN + 2.2 * LINE
    for check in verdict["checks"] if verdict else []:
        share = max(0.0, min(1.0, (check["value"] or 0) / (3 * check["threshold"])))
        shapes.append(Label(MARGIN, y + 5, f"{'passed' if check['passed'] else 'failed'}  {check['name']}"))
        shapes.append(_tile(330, y - 6, 300, 12, 0.12, QUIET))
        if share:
            shapes.append(_tile(330, y - 6, 300 * share, 12, 0.9, ACCENT if check["passed"] else OTHER))
        shapes.append(Stroke((430, y - 9), (430, y + 9), TEXT, 1.0))
        number = "none" if check["value"] is None else f"{check['value']:z.3f}"
        shapes.append(Label(645, y + 5, f"{number} of {check['threshold']:.2f} or more"))
        y += 1.2 * LINE
    which = "mean of all heads" if grounds["head"] is None else f"head {grounds['head']}"
    rows = {
        f"attention, layer {grounds['layer']}, {which}": grounds["weights"],
        "integrated gradients": grounds["integrated"]["scores"],
        "gradient x input": grounds["gradient"]["scores"],
    }
    words = np.array([not special for special in grounds["special"]])
    shares = {name: np.array(row) / (np.abs(np.array(row))[words].sum() or 1.0) for name, row in rows.items()}
    most = max(float(np.abs(row[words]).max(initial=0.0)) for row in shares.values()) or 1.0
    for name, row in shares.items():
        y += 0.6 * LINE
        shapes.append(Label(MARGIN, y, name, 14, color=QUIET))
        x, y = float(MARGIN), y + 1.1 * LINE
        for token, share in zip(grounds["tokens"], row.tolist(), strict=True):
            wide = len(token) * LETTER + 8
            if x + wide > WIDE - MARGIN and x > MARGIN:
                x, y = float(MARGIN), y + 1.1 * LINE
            shapes.append(_tile(x, y - 14, wide - 2, 19, min(1.0, abs(share) / most), OTHER if share < 0 else ACCENT))
            shapes.append(Label(x + 3, y, token))
            x += wide
        y += LINE
    said = f"blue for, orange against; a token's part of all words' sizes, full colour at {most:.1%}"
    shapes.append(Label(MARGIN, y + 8, said, 12, color=QUIET))
    wide = max([WIDE, *(_end(shape) + MARGIN for shape in shapes)])
    return Drawing(title, math.ceil(wide), math.ceil(y + 8 + MARGIN), tuple(shapes))


def _tile(x: float, y: float, width: float, height: float, strength: float, colour: str = ACCENT) -> Tile:
    """A rectangle of one colour on white, as full as it is strong; never so full that letters on it are lost."""
    return Tile(x, y, width, height, blend(colour, 0.04 + 0.6 * strength))


def _brief(strength: float) -> str:
    return f"{strength:.0e}".replace("e-0", "e-") if 0 < strength < 0.005 else f"{strength:.2f}"


def _end(shape: Shape) -> float:
    return shape.x + len(shape.text) * LETTER if isinstance(shape, Label) and shape.anchor == "start" else 0.0

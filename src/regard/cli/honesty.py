"""`regard honesty`: may an attention map be read as the reason for a class?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, SeedOption
from regard.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.inside.reasons.honesty import Honesty
    from regard.inside.reasons.meter import Check

__all__ = ["register"]

BAR = 20
MEANS = {
    "honest": "the class depends on this map, and on what it points at",
    "doubtful": "the class depends on this map, but too little speaks for what it points at",
    "decoration": "the class stays as it is wherever this map looks: do not show it as a reason",
}


def register(app: typer.Typer) -> None:
    app.command("honesty")(honesty)


def honesty(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A classifier that `regard train` wrote.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text to classify.")],
    second: Annotated[str | None, typer.Argument(metavar="[TEXT_B]", help="The second text, for pairs.")] = None,
    label: Annotated[
        str | None,
        typer.Option("--label", metavar="NAME", help="The class to explain.", show_default="the predicted one"),
    ] = None,
    layer: Annotated[
        int | None, typer.Option("--layer", metavar="N", help="Whose map is shown, from 0.", show_default="the last")
    ] = None,
    head: Annotated[
        int | None, typer.Option("--head", metavar="N", help="Which head, from 0.", show_default="the mean of all")
    ] = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Judge the attention map of a classified text: may it be read as the reason for the class?

    Six tests with fixed thresholds (docs/honesty.md) give one verdict: honest, doubtful or decoration. The map is what
    the token that speaks for the text looks at.
    """
    from regard.device import choose
    from regard.inside.reasons.honesty import measure_honesty
    from regard.inside.reasons.trial import task_trial
    from regard.tasks.folder import read_task

    trial = task_trial(read_task(folder, device=choose(device)), text, second)
    found = measure_honesty(trial, label=label, layer=layer, head=head, seed=seed)
    if as_json:
        print_json(found.document())
    else:
        print("\n".join(_lines(found)))


def _lines(found: Honesty) -> Iterator[str]:
    from rich.cells import cell_len

    heads = "mean of all heads" if found.head is None else f"head {found.head}"
    yield f"{found.label} {found.probability:.1%}; the map of layer {found.layer}, {heads}"
    yield ""
    width = max(cell_len(token) for token in found.tokens)
    yield f"  {'':{width}}  weight  gradient x input  integrated gradients"
    rows = zip(found.tokens, found.weights, found.gradient.scores, found.integrated.scores, strict=True)
    for token, weight, gradient, integrated in rows:
        space = " " * (width - cell_len(token))
        bar = "█" * round(weight * BAR)
        yield f"  {token}{space}  {weight:6.3f}  {gradient:16.3f}  {integrated:20.3f}  {bar}".rstrip()
    yield ""
    for check in found.checks:
        yield _told(check)
    passed = sum(check.passed for check in found.checks)
    yield ""
    yield f"verdict: {found.verdict} ({passed} of {len(found.checks)} passed): {MEANS[found.verdict]}"


def _told(check: Check) -> str:
    value = "none: the map points at nothing" if check.value is None else f"{check.value:.3f}"
    numbers = ", ".join(f"{name} {number:.3f}" for name, number in check.numbers.items())
    mark = "passed" if check.passed else "failed"
    return f"  {mark}  {check.name:26}  {value} (at least {check.threshold:.2f}; {numbers})"

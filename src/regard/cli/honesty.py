"""`regard honesty`: may an attention map be read as the reason for a class?"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, SeedOption, ShownOption
from regard.cli.output import note, print_json
from regard.escaping import escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.interpret.attribution.evidence import Evidence
    from regard.interpret.attribution.probe import Probe
    from regard.interpret.faithfulness.checks import FaithfulnessCheck
    from regard.interpret.faithfulness.faithfulness import Faithfulness

__all__ = ["register"]

BAR = 20


def register(app: typer.Typer) -> None:
    app.command("honesty")(honesty)


def honesty(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="A classifier that `regard train` wrote; or another model.")
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text to classify; of a pretrained BERT with a blank.")],
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
    output: ShownOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Judge the attention map of a classified text: may it be read as the reason for the class?

    Six tests with fixed thresholds (docs/honesty.md) give one verdict: honest, doubtful or decoration. The map is what
    the token that speaks for the text looks at. Other models have no class to judge: of them the map and the
    attributions of one answer are told, a BERT's at the blank, a GPT's at the end.
    """
    from regard.files.disk import replacing
    from regard.interpret.attribution.evidence import gather_evidence
    from regard.interpret.faithfulness.drawing import check_suffix, faithfulness_picture, write_result
    from regard.interpret.faithfulness.faithfulness import measure_faithfulness
    from regard.interpret.faithfulness.payload import faithfulness_payload, has_verdict, no_verdict_reason

    if output is not None:
        check_suffix(output)
    with ExitStack() as stack:
        # Whether it can be written is known before the work.
        place = None if output is None else stack.enter_context(replacing(output))
        trial = _opened(folder, text, second, device)
        found: Faithfulness | Evidence
        if has_verdict(trial):
            found = measure_faithfulness(trial, label=label, layer=layer, head=head, seed=seed)
        else:
            found = gather_evidence(trial, label=label, layer=layer, head=head)
            note(no_verdict_reason(trial))
        if place is not None:
            write_result(
                place,
                document=found.document,
                payload=lambda: faithfulness_payload(
                    folder, trial, label=label, layer=layer, head=head, seed=seed, found=found
                ),
                picture=faithfulness_picture,
            )
    if as_json:
        print_json(found.document())
    elif output is not None:
        print(output)
    else:
        print("\n".join(_lines(found)))


def _opened(name: str, text: str, second: str | None, device: str) -> Probe:
    from regard.device import choose
    from regard.interpret.attribution.probe import open_probe, task_probe
    from regard.known import builtins
    from regard.tasks.folder import is_solved, read_task

    known = name in builtins() or (os.path.isdir(name) and not is_solved(name))
    if known:
        return open_probe(name, text, second, device=choose(device))
    return task_probe(read_task(name, device=choose(device)), text, second)


def _lines(found: Faithfulness | Evidence) -> Iterator[str]:
    from rich.cells import cell_len

    from regard.interpret.faithfulness.faithfulness import Faithfulness
    from regard.interpret.faithfulness.wording import VERDICTS

    heads = "mean of all heads" if found.head is None else f"head {found.head}"
    form = ".1%" if isinstance(found, Faithfulness) or found.kind != "value" else "z.3f"
    yield f"{found.label} {found.probability:{form}}; the map of layer {found.layer}, {heads}"
    yield ""
    tokens = [escape_controls(token) for token in found.tokens]
    width = max(map(cell_len, tokens))
    yield f"  {'':{width}}  weight  gradient x input  integrated gradients"
    rows = zip(tokens, found.weights, found.gradient.scores, found.integrated.scores, strict=True)
    for token, weight, gradient, integrated in rows:
        space = " " * (width - cell_len(token))
        bar = "█" * round(weight * BAR)
        yield f"  {token}{space}  {weight:6.3f}  {gradient:z16.3f}  {integrated:z20.3f}  {bar}".rstrip()
    if not isinstance(found, Faithfulness):
        return
    yield ""
    for check in found.checks:
        yield _told(check)
    passed = sum(check.passed for check in found.checks)
    yield ""
    yield f"verdict: {found.verdict} ({passed} of {len(found.checks)} passed): {VERDICTS[found.verdict]}"


def _told(check: FaithfulnessCheck) -> str:
    value = "none: the map points at nothing" if check.value is None else f"{check.value:z.3f}"
    numbers = ", ".join(f"{name} {number:z.3f}" for name, number in check.numbers.items())
    mark = "passed" if check.passed else "failed"
    return f"  {mark}  {check.name:26}  {value} (at least {check.threshold:.2f}; {numbers})"

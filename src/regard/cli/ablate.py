"""`regard ablate`: knock out heads or layers, and see how a model's answers change."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelOption, ShownOption
from regard.cli.output import note, print_json
from regard.escaping import escape_controls
from regard.known import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from regard.interpret.ablation.ablation import Ablation, AblationEffect, HeadSweep, OutputChange

__all__ = ["register"]

At = Literal["blanks", "masked", "plain"]


def register(app: typer.Typer) -> None:
    app.command("ablate")(ablate_text)


def ablate_text(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="For a BERT with a blank, _ or [MASK], or any with --at.")
    ],
    second: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT_B]", help="For a tuned model that reads two: of a pair, or a question's context."
        ),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option("--heads", metavar="L.H,...", help="Heads, from 0: 3.1, 4.* (all of layer 4), *.0."),
    ] = None,
    layers: Annotated[
        str | None, typer.Option("--layers", metavar="L,...", help="Layers to leave out altogether, from 0.")
    ] = None,
    at: Annotated[
        At,
        typer.Option(
            "--at", help="Ask at the blanks or the end; at every token, masked in turn; or at every token, plain."
        ),
    ] = "blanks",
    model: ModelOption = DEFAULT,
    output: ShownOption = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="How many answers or heads to list.")] = 10,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Take heads or layers out of a model, and see how its answers change.

    A BERT is asked for the words of the blanks, a GPT for the next token, a folder that `regard train` wrote for its
    labels; with --at also at every token of the text: a BERT with each one masked in turn or as they stand (plain), a
    GPT for what follows each one (plain). Without --heads and --layers every head is taken out alone, and all are
    ranked by how much that changes: the Kullback-Leibler divergence of the new answer from the old one, in nats, over
    the full vocabulary or all labels.

    Example: regard ablate "In winter the fields are _ with snow." --heads 3.1,2.*
    """
    from regard.device import choose
    from regard.files.disk import replacing
    from regard.interpret.ablation.ablation import HeadSweep, ablate
    from regard.interpret.ablation.edits import parse_heads, parse_layers
    from regard.interpret.ablation.payload import ablation_payload, sweep_subsample
    from regard.interpret.attribution.probe import open_probe
    from regard.interpret.faithfulness.drawing import ablation_picture, check_suffix, write_result

    if output is not None:
        check_suffix(output)
    with ExitStack() as stack:
        # Whether it can be written is known before the work.
        place = None if output is None else stack.enter_context(replacing(output))
        trial = open_probe(model, text, second, at=at, device=choose(device))
        gone = () if heads is None else parse_heads(heads, depth=trial.num_layers, heads=trial.num_heads)
        left = () if layers is None else parse_layers(layers, depth=trial.num_layers)
        found: Ablation | HeadSweep
        tried = None
        if gone or left:
            found = ablate(trial, heads=gone, layers=left, top=top)
        else:
            tried = sweep_subsample(trial)
            found = tried[1]
            if len(found.places) < len(trial.targets):
                note(f"every head was tried at {len(found.places)} of the {len(trial.targets)} tokens, evenly spread")
        if place is not None:
            write_result(
                place,
                document=found.document,
                payload=lambda: ablation_payload(model, trial, heads=gone, layers=left, at=at, tried=tried),
                picture=ablation_picture,
            )
    if as_json:
        print_json(found.document())
    elif output is not None:
        print(output)
    else:
        print("\n".join(_ranking(found, top) if isinstance(found, HeadSweep) else _lines(found)))


def _lines(found: Ablation) -> Iterator[str]:
    yield from found.texts
    said = [f"heads {', '.join(f'{layer}.{head}' for layer, head in found.heads)}"] if found.heads else []
    said += [f"layers {', '.join(map(str, found.layers))}"] if found.layers else []
    yield f"without {' and '.join(said)}"
    for effect in found.effects:
        yield ""
        yield f"{effect.place}: {_told(effect)}"
        if effect.divergence is None:
            yield from _table(effect.likeliest, "z11.4f")
            continue
        yield "  likeliest before"
        yield from _table(effect.likeliest, "9.3%")
        if {one.output for one in effect.changes} != {one.output for one in effect.likeliest}:
            yield "  changed most"
            yield from _table(effect.changes, "9.3%")


def _told(effect: AblationEffect) -> str:
    if effect.divergence is None:
        return f"changed by {effect.distance:.4f}"
    same = effect.before == effect.after
    answer = f"{effect.before} stays the likeliest" if same else f"{effect.before} becomes {effect.after}"
    return f"{answer}; divergence {effect.divergence:.4f} nats, total variation {effect.distance:.3f}"


def _table(changes: Sequence[OutputChange], form: str) -> Iterator[str]:
    from rich.cells import cell_len

    names = [escape_controls(one.output) for one in changes]
    width = max(map(cell_len, names))
    for name, one in zip(names, changes, strict=True):
        space = " " * (width - cell_len(name))
        yield f"    {name}{space}{one.before:{form}} -> {one.after:{form}}"


def _ranking(found: HeadSweep, top: int) -> Iterator[str]:
    yield from found.texts
    count = found.depth * found.heads
    yield f"each of {count} heads taken out alone; the {min(top, count)} whose absence changes the answer most"
    yield ""
    nats = "divergence" if found.measure == "divergence" else "change"
    yield f"  {'head':>6}{nats:>13}{'distance':>11}  best answer changes at"
    for one in found.ranked[:top]:
        name = f"{one.layer}.{one.head}"
        yield f"  {name:>6}{one.strength:13.5f}{one.distance:11.4f}  {', '.join(one.changed)}".rstrip()

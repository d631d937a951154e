"""`regard figure`: Figure 1 of the Transformer with the tensors of a sentence, and what its parts are good for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption
from regard.cli.output import note, print_json
from regard.errors import InputError
from regard.known import DEFAULT, builtin_folder, builtins

if TYPE_CHECKING:
    from regard.interpret.figure.ablation import AblationOutcome
    from regard.interpret.figure.figure import Figure

__all__ = ["register"]

ENDINGS = (".html", ".svg", ".png")


def register(app: typer.Typer) -> None:
    app.command("figure")(figure)


def figure(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the model reads.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help=f"A model folder, a hub name or a built-in name; else a built-in translator, or {DEFAULT}.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="TEXT", help="Of a translator: what its decoder is told; else its own."),
    ] = None,
    without: Annotated[
        str,
        typer.Option("--without", metavar="A,B", help="Switch off: mask, positions, scaling, residual."),
    ] = "",
    layer: Annotated[int, typer.Option("--layer", metavar="L", min=0, help="Which layer is told, from 0.")] = 0,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="A page (.html) or a drawing (.svg, .png).")
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Draw Figure 1 of "Attention Is All You Need" of a model and a sentence: every box with its tensors and its code.

    Switches take a part of the model away; what that costs is measured for each of them over this text, and over a few
    sentences of our own. A page has every layer, the attention maps and the positional encodings.

    Example: regard figure "The cat sat on the mat." --without positions --output page.html
    """
    from regard.files.disk import replace_file

    if output is not None and not output.lower().endswith(ENDINGS):
        raise InputError(f"--output is {output!r}; expected a name that ends in {', '.join(ENDINGS)}")
    name = model or _default()
    with ExitStack() as stack:
        # Whether it can be written is known before the work.
        place = None if output is None else stack.enter_context(replace_file(output))
        from regard.device import choose
        from regard.inference.load_model import load_model
        from regard.interpret.figure.figure import draw_figure as drawn

        network, reader = load_model(name, device=choose(device))
        found = drawn(network, reader, text, target, without=without, name=name)
        document = found.document(layer=layer)
        if place is not None:
            _write(found, place, layer)
    for line in found.notes():
        note(line)
    if as_json:
        print_json({"model": name, **document, "output": output})
    elif output is not None:
        print(output)
    else:
        print("\n".join(_lines(found, name, layer)))


def _default() -> str:
    """A translator has both halves of the figure."""
    translators = [name for name in builtins() if (builtin_folder(name) / "translate.json").is_file()]
    return translators[0] if translators else DEFAULT


def _write(found: Figure, place: Path, layer: int) -> None:
    if place.suffix.lower() == ".html":
        from regard.interpret.figure.document import figure_document
        from regard.render.bundle import page

        payload = figure_document(found, place=f"#figure?layer={layer}")
        place.write_text(page(payload, title="Regard: figure 1"), encoding="utf-8")
        return
    from regard.interpret.figure.drawing import figure_picture
    from regard.render.drawing import png, svg

    picture = figure_picture(found)
    if place.suffix.lower() == ".svg":
        place.write_text(svg(picture), encoding="utf-8")
    else:
        place.write_bytes(png(picture))


def _lines(found: Figure, name: str, layer: int) -> Iterator[str]:
    first = "pre" if found.norm_first else "post"
    yield f"{name} ({found.family}): {found.depth} layers of {found.heads} heads, width {found.width}, {first}-norm"
    for part, tokens in found.tokens.items():
        yield f"{part}: {' '.join(' '.join(token.split()) for token in tokens)}"
    yield f"\nBoxes, from the bottom; inside the stack, layer {layer}:"
    for box in found.boxes:
        step = box.steps[min(layer, len(box.steps) - 1)]
        shapes = ", ".join(f"{one.name} {tuple(one.tensor.shape)}" for one in step.values)
        yield f"  {box.part:8} {box.title:31} {shapes}"
    yield f"\nWhat the switches cost: {found.ablation.measure}"
    whole = found.ablation.outcomes[0]
    for one in found.ablation.outcomes:
        yield from _outcome(one, whole, len(found.ablation.sentences))
    yield from found.ablation.remarks
    yield from (f"no {switch}: {reason}" for switch, reason in found.disabled.items())


def _outcome(one: AblationOutcome, whole: AblationOutcome, count: int) -> Iterator[str]:
    name = ", ".join(f"no {switch}" for switch in one.without) or "the whole model"
    ours = f", {_loss(one.sentences_loss, whole.sentences_loss)} over {count} sentences of ours" if count else ""
    yield f"  {name}: loss {_loss(one.loss, whole.loss)}{ours}"
    yield f"      says: {one.says}"


def _loss(loss: float | None, whole: float | None) -> str:
    if loss is None or whole is None:
        return "not known"
    return f"{loss:.3f}" if loss == whole else f"{loss:.3f} ({loss - whole:+z.3f})"

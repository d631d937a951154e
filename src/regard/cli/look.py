"""`regard look`: where a model looks in a text, a pair or a picture, as a page, a drawing, JSON or a table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelOption
from regard.cli.output import note, print_json
from regard.errors import InputError
from regard.escaping import escape_controls
from regard.known import DEFAULT_MODEL

if TYPE_CHECKING:
    from regard.interpret.attention.maps import AttentionRecord

__all__ = ["register"]

ENDINGS = (".html", ".svg", ".png")
Kind = Literal["encoder", "decoder", "cross", "lstm", "vit"]


def register(app: typer.Typer) -> None:
    app.command("look")(look)


def look(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the model reads.")] = "",
    text_b: Annotated[
        str | None,
        typer.Argument(metavar="TEXT_B", help="A second text; for a T5 or a translator the answer to look at."),
    ] = None,
    model: ModelOption = DEFAULT_MODEL,
    image: Annotated[
        str | None, typer.Option("--image", metavar="FILE", help="A picture, for a Vision Transformer.")
    ] = None,
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="Which maps, where a model has several; a page has them all.")
    ] = None,
    layer: Annotated[int | None, typer.Option("--layer", metavar="L", help="Only this layer, from 0.")] = None,
    head: Annotated[int | None, typer.Option("--head", metavar="H", help="Only this head of it, from 0.")] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="A page (.html) or a drawing (.svg, .png).")
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Look at a model's attention: which token looks at which, in every layer and head.

    A page shows all of it and needs no network. A drawing shows one head, all heads of a layer in colours, or, without
    --layer, a small map of every head. Without --output a table says where each token looks most, by the mean of the
    heads that were chosen; without --layer those of the last layer.
    """
    from regard.files.disk import replacing

    _check(text, image, layer, head, output)
    with ExitStack() as stack:
        # Whether it can be written is known before the work.
        place = None if output is None else stack.enter_context(replacing(output))
        from regard.device import choose_device
        from regard.inference.load_model import load_model
        from regard.interpret.attention.recording import record_attention
        from regard.interpret.images import read_image

        shown = None if image is None else read_image(image)
        network, reader = load_model(model, device=choose_device(device))
        if place is not None and place.suffix.lower() == ".html":
            from regard.interpret.attention.document import attention_document, record_attention_for_page
            from regard.render.bundle import page

            found, limit = record_attention_for_page(network, reader, text, text_b, image=shown)
            payload = attention_document(model, found, limit=limit, kind=kind, layer=layer, head=head)
            place.write_text(page(payload), encoding="utf-8")
        else:
            found, limit = record_attention(network, reader, text, text_b, image=shown), None
            for one in found.maps if kind is None else (found.map(kind),):
                one.check(layer, head)
            if place is not None:
                _draw(found, place, kind=kind, layer=layer, head=head)
    if found.num_truncated:
        note(found.truncation_note + (", as many as a page has room for" if limit else ""))
    if as_json:
        document = found.document(kind=kind, layer=layer, head=head)
        print_json({"model": model, **document, "output": output})
    elif output is not None:
        print(output)
    else:
        print("\n".join(_lines(found, kind=kind, layer=layer, head=head)))


def _check(text: str, image: str | None, layer: int | None, head: int | None, output: str | None) -> None:
    if not text.strip() and image is None:
        raise InputError("the text is empty; expected a text, or --image FILE with a Vision Transformer")
    if head is not None and layer is None:
        raise InputError(f"--head {head} of which layer? name it with --layer")
    if output is not None and not output.lower().endswith(ENDINGS):
        raise InputError(f"--output is {os.fspath(output)!r}; expected a name that ends in {', '.join(ENDINGS)}")


def _draw(found: AttentionRecord, place: Path, *, kind: str | None, layer: int | None, head: int | None) -> None:
    from regard.interpret.attention.drawing import attention_drawing
    from regard.render.drawing import png, svg

    picture = attention_drawing(found, kind=kind, layer=layer, head=head)
    if place.suffix.lower() == ".svg":
        place.write_text(svg(picture), encoding="utf-8")
    else:
        place.write_bytes(png(picture))


def _lines(found: AttentionRecord, *, kind: str | None, layer: int | None, head: int | None) -> Iterator[str]:
    from rich.cells import cell_len

    one = found.map(kind)
    layer = one.layers - 1 if layer is None else layer
    weights = one.select(layer, head)[0].mean(axis=0)
    which = f"head {head}" if head is not None else "the mean of its heads"
    yield f"{one.kind} attention of {found.family}, layer {layer}, {which}: where each token looks most"
    yield ""
    names = [escape_controls(" ".join(token.split())) for token in one.rows.tokens]
    width = max(map(cell_len, names))
    for name, row in zip(names, weights, strict=True):
        best = int(row.argmax())
        looked = " ".join(one.columns.tokens[best].split())
        yield f"  {name}{' ' * (width - cell_len(name))}  {float(row[best]):6.1%}  {looked}"

"""`regard next`: how likely one text follows another."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelOption
from regard.cli.output import note, print_json
from regard.known import DEFAULT_MODEL

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("next")(next_sentence)


def next_sentence(
    first: Annotated[str, typer.Argument(metavar="FIRST", help="A text.")],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="The text that may follow it.")],
    model: ModelOption = DEFAULT_MODEL,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Judge how likely the second text follows the first, with a BERT's next-sentence head."""
    from regard.checkpoints.loading import load
    from regard.device import choose_device
    from regard.inference import predict_next_sentence

    found = predict_next_sentence(*load(model, device=choose_device(device)), first, second)
    if found.cut:
        note(f"the two texts are {found.cut} tokens too long for this model; the longer one was cut at its end first")
    if as_json:
        print_json({"is_next": found.is_next})
    else:
        print(f"{found.is_next:.3%} likely that the second text follows the first")

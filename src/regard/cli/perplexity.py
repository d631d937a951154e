"""`regard perplexity`: how well a model predicts the text of a file."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, ModelOption, SeedOption
from regard.cli.output import note, print_json, stages
from regard.known import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.inference import Perplexity

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("perplexity")(perplexity)


def perplexity(
    source: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A text; - is standard input; .gz, .xz, .bz2 and .zst are read."),
    ],
    model: ModelOption = DEFAULT_MODEL,
    stride: Annotated[
        int | None,
        typer.Option("--stride", metavar="N", min=1, help="GPT: tokens from window to window. Default: half of one."),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", metavar="N", min=1, help="Tokens of a window. Default: the model's positions."),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option("--sample", metavar="N", min=1, help="BERT: score N tokens, chosen by chance, for long files."),
    ] = None,
    seed: SeedOption = 0,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure how well a model predicts the text of a file: perplexity and bits per byte.

    A GPT predicts each token once, from what stands before it in windows that overlap; the first token of the text
    counts where the model has a begin token. A BERT gets pseudo-perplexity: each token is masked in turn, in the middle
    of a window of its own, which takes long. The two kinds do not compare; models of one kind that differ in their
    vocabularies compare in bits per byte alone.
    """
    from regard.device import choose_device
    from regard.inference import measure_perplexity, read_text_file

    place, text = (
        choose_device(device),
        read_text_file(source),
    )
    from regard.checkpoints.loading import load

    with ExitStack() as stack:
        found = measure_perplexity(
            *load(model, device=place),
            text,
            stride=stride,
            max_length=max_length,
            sample=sample,
            seed=seed,
            on_progress=partial(stages(stack, {"scoring": "tokens"}), "scoring"),
        )
    for remark in _remarks(found):
        note(remark)
    if as_json:
        from dataclasses import asdict

        print_json({"model": model, **asdict(found)})
    else:
        print("\n".join(_lines(model, found)))


def _remarks(found: Perplexity) -> Iterator[str]:
    if found.kind == "pseudo-perplexity":
        yield "pseudo-perplexity: each token was masked in turn and predicted from both sides; no GPT's number compares"
        if found.tokens < found.text_tokens:
            yield f"a sample: {found.tokens:,} of {found.text_tokens:,} tokens were scored"
    elif found.tokens < found.text_tokens:
        yield "the first token was not scored: this model has no begin token to predict it from"
    if found.unknown:
        yield (
            f"{found.unknown:,} of {found.text_tokens:,} tokens stand for words that the vocabulary cannot spell: "
            "they are easy to predict and make the numbers smaller"
        )


def _lines(model: str, found: Perplexity) -> Iterator[str]:
    yield f"{found.kind:<18} {found.perplexity:,.4g}"
    yield f"{'bits per byte':<18} {found.bits_per_byte:.4f}"
    yield f"{'nll':<18} {found.nll:,.2f} nats"
    yield f"{'tokens scored':<18} {found.tokens:,}"
    yield f"{'bytes':<18} {found.bytes:,}"
    yield f"{'model':<18} {model}"

"""`regard cost`: what training a model would take, by arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.options import JsonOption
from regard.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.training.cost import Cost, Subject

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("cost")(cost)


def cost(
    model: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG|NAME", help="A TOML file of `regard pretrain`, a model folder, gpt3, or a known name."
        ),
    ],
    tokens: Annotated[str, typer.Option("--tokens", metavar="N", help="Tokens read in training: 300B, 1.5e9.")],
    gpu: Annotated[
        Literal["v100", "a100", "h100", "h200"], typer.Option("--gpu", help="Whose hours are counted.")
    ] = "v100",
    price: Annotated[
        float | None, typer.Option("--price", metavar="P", help="Of an hour of one GPU, in any currency.")
    ] = None,
    utilisation: Annotated[
        float | None,
        typer.Option("--utilisation", metavar="U", help="Share of the GPU's peak that is reached. Default: 0.3."),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option("--length", metavar="N", min=1, help="Tokens of a row. Default: the TOML's, or all positions."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate what training takes: parameters, operations, hours of a GPU, and money where a price is given.

    Operations are 6 x parameters x tokens; what attention adds is told apart. Nothing is built, fetched or measured.
    """
    from regard.training import cost as costs

    count = costs.parse_count(tokens)
    subject = _configured(model, length) if model.endswith(".toml") else costs.subject_named(model, length=length)
    share = costs.UTILISATION if utilisation is None else utilisation
    found = costs.cost(subject, tokens=count, gpu=gpu, utilisation=share, price=price)
    if as_json:
        from dataclasses import asdict

        print_json(asdict(found))
    else:
        print("\n".join(_lines(found, assumed=utilisation is None)))


def _configured(path: str, length: int | None) -> Subject:
    """The model that a file of settings describes; its vocabulary is as large as the file asks for."""
    from dataclasses import fields

    from regard.models.family import get_family
    from regard.training.cost import Subject
    from regard.training.pretraining.build import SHAPE
    from regard.training.pretraining.config import PretrainingConfig

    settings = PretrainingConfig.load(path)
    family = {"gpt": "gpt2"}.get(settings.model.family, settings.model.family)
    kind = get_family(family).config_class
    names = {field.name for field in fields(kind)}
    shape = {SHAPE.get(name, name): value for name, value in settings.model}
    shape = {name: value for name, value in shape.items() if name in names}
    config = kind(**{**shape, "family": family, "vocab_size": settings.vocabulary.vocab_size})
    heads = ("masked",) if family == "bert" and settings.objective.sentence_pairs == "none" else None
    return Subject.of(path, config, heads=heads, length=length or settings.data.max_length)


def _lines(found: Cost, *, assumed: bool) -> Iterator[str]:
    yield f"{'model':<22} {found.model}"
    yield f"{'parameters':<22} {found.parameters:,}"
    if found.active_parameters != found.parameters:
        yield f"{'  a token passes':<22} {found.active_parameters:,} (the encoder's or the decoder's half)"
    yield f"{'tokens':<22} {found.tokens:,}"
    yield f"{'operations':<22} {found.flops:.3g} (6 x parameters x tokens)"
    more = found.flops_with_attention / found.flops - 1
    yield f"{'  with attention':<22} {found.flops_with_attention:.3g} ({more:+.1%}, rows of {found.length:,} tokens)"
    reached = f"{found.utilisation:.1%} of {found.peak_flops / 1e12:g} teraflop/s{', assumed' if assumed else ''}"
    hours = f"{found.gpu_hours:,.0f}" if found.gpu_hours >= 1000 else f"{found.gpu_hours:.4g}"
    yield f"{f'{found.gpu.upper()} hours':<22} {hours} ({found.gpu_years:,.3g} years; {reached})"
    if found.money is None or found.price is None:
        yield f"{'money':<22} give the price of an hour with --price"
    else:
        yield f"{'money':<22} {found.money:,.0f} (at {found.price:g} an hour)"

"""`regard senses`: one word in several texts, and how like its vectors are in every layer."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, check_page
from regard.cli.output import note, print_json
from regard.errors import InputError
from regard.files.disk import replace_file
from regard.known import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from regard.interpret.probes.senses import Senses

__all__ = ["register"]

COLUMN = 10


def register(app: typer.Typer) -> None:
    app.command("senses")(senses)


def senses(
    word: Annotated[str, typer.Argument(metavar="WORD", help="A word that all texts have.")],
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="Texts in which it may mean other things.")],
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="A model folder, a hub name or a built-in name; may be given several times.",
            show_default=DEFAULT_MODEL,
        ),
    ] = None,
    static: Annotated[
        str | None,
        typer.Option(
            "--static", metavar="FILE", help="Static vectors to compare with: word2vec's or GloVe's text file."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PAGE.html", help="Write a page of one model's vectors for a browser."),
    ] = None,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Compare the vectors of one word in several texts: does a model know that it has another sense there?

    For every layer of a BERT, GPT, T5 or ELMo the cosine of the word's vectors in each pair of texts is shown. Static
    vectors do not know the text, so theirs are alike in all. The word is looked for as a whole, its first place counts,
    and the vectors of its pieces are averaged.

    Example: regard senses train "He took a train." "He likes to train in the mornings."
    """
    from dataclasses import asdict

    named = list(dict.fromkeys(models or [DEFAULT_MODEL]))
    if output is not None:
        _check_page(output, named, static)
    with ExitStack() as stack:
        # Whether it can be written is known before the work.
        place = None if output is None else stack.enter_context(replace_file(output))
        from regard.interpret.probes.senses import compare_senses

        found = compare_senses(word, texts, models=named, static=static, device=device)
        if place is not None:
            _write_page(place, word, texts, model=named[0], device=device)
    if as_json:
        print_json(asdict(found))
    else:
        print("\n".join(_lines(found, static)))
        if output is not None:
            print(f"\nThe page is in {output}")


def _check_page(output: Path, models: Sequence[str], static: str | None) -> None:
    check_page(output)
    if len(models) > 1 or static is not None:
        other = "static vectors" if static is not None else f"{len(models)} models"
        raise InputError(f"a page shows the vectors of one model, got {other} too; leave --output or the others out")


def _write_page(place: Path, word: str, texts: Sequence[str], *, model: str, device: str) -> None:
    from regard.interpret.embeddings.contexts import LIMIT, contexts
    from regard.render.bundle import page

    payload = contexts(model, word, texts, device=device).payload(model)
    if len(texts) > LIMIT:
        note(f"the page shows {LIMIT} of the {len(texts)} texts, drawn by lot")
    place.write_text(page(payload, title="Regard: senses"), encoding="utf-8", errors="backslashreplace")


def _lines(found: Senses, static: str | None) -> Iterator[str]:
    yield f"The cosine of the vectors of {found.word!r} in each pair of texts"
    yield ""
    for number, text in enumerate(found.texts, start=1):
        yield f"{number:4}  {text}"
    pairs = list(combinations(range(len(found.texts)), 2))
    for model, layers in found.similarity.items():
        yield ""
        yield model
        yield " " * 22 + "".join(f"{f'{a + 1} and {b + 1}':>{COLUMN}}" for a, b in pairs)
        for number, matrix in enumerate(layers):
            name = "static" if model == static else "layer 0 (embeddings)" if number == 0 else f"layer {number}"
            yield f"{name:22}" + "".join(f"{matrix[a][b]:{COLUMN}.3f}" for a, b in pairs)

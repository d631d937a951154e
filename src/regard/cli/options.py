"""Options that mean the same in every verb, as types for a verb's parameters.

Knows names, help texts and defaults, not what a verb does with them:

    def embed(model: ModelOption = DEFAULT, device: DeviceOption = "auto", seed: SeedOption = 0) -> None: ...
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from regard.data.line_limit import allow_lines, parse_size
from regard.errors import InputError

__all__ = [
    "MAX_LINE",
    "ColumnsOption",
    "DelimiterOption",
    "Device",
    "DeviceOption",
    "HeaderOption",
    "JsonOption",
    "LayerOption",
    "MaxLineOption",
    "ModelOption",
    "QuotedOption",
    "ResumeOption",
    "SeedOption",
    "ShownOption",
    "ThresholdOption",
    "check_page",
]


Device: TypeAlias = Literal["auto", "cpu", "cuda"]
MAX_LINE = "64MiB"

ResumeOption: TypeAlias = Annotated[
    bool, typer.Option("--resume", help="Continue the run in DIR; start it if there is none.")
]
ModelOption: TypeAlias = Annotated[
    str,
    typer.Option("--model", "-m", metavar="MODEL", help="A model folder, a hub name or a built-in name."),
]
DeviceOption: TypeAlias = Annotated[
    Device,
    typer.Option("--device", help="Where to compute; auto takes a GPU where there is one."),
]
LayerOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--layer", metavar="EXPRESSION", help="-1 is the last, 0 the embeddings' output; or such as concat(-4:)."
    ),
]
SeedOption: TypeAlias = Annotated[
    int,
    typer.Option("--seed", metavar="N", min=0, max=2**63 - 1, help="The same seed gives the same result."),
]
ShownOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="A page (.html), a drawing (.svg, .png) or what --json prints (.json)."
    ),
]
JsonOption: TypeAlias = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document instead of text."),
]


def _allow_lines(size: str) -> str:
    """Lines of this length pass in every file that the run opens."""
    try:
        allow_lines(parse_size(size))
    except InputError as error:
        raise InputError(f"--max-line: {error}") from None
    return size


MaxLineOption: TypeAlias = Annotated[
    str,
    typer.Option("--max-line", metavar="SIZE", help="Longest line that a text file may have.", callback=_allow_lines),
]

# Of a table. What is not said is decided by looking at the file, and told.
ColumnsOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--columns", metavar="A,B", help="Columns by name or number from 0: texts first, then the label."),
]
HeaderOption: TypeAlias = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether the first row names the columns.")
]
DelimiterOption: TypeAlias = Annotated[
    str | None, typer.Option("--delimiter", metavar="C", help="What stands between columns; \\t is a tab.")
]
QuotedOption: TypeAlias = Annotated[
    bool | None, typer.Option("--quoted/--unquoted", help="Whether quotes around a value belong to the format.")
]
ThresholdOption: TypeAlias = Annotated[
    float | None,
    typer.Option("--threshold", metavar="X", help="answer: by how much the best must beat no answer at all."),
]


def check_page(output: Path | None) -> None:
    """Refuse a name for a page that no browser would take for one."""
    if output is not None and output.suffix.lower() != ".html":
        raise InputError(f"--output {output}: expected a name that ends in .html")

"""Options that several commands share, as types of parameters.

def embed(model: ModelOption = DEFAULT, device: DeviceOption = "auto", seed: SeedOption = 0) -> None: ...
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from regard.errors import InputError
from regard.files.file_input import parse_size, set_max_line

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
    typer.Option("--device", help="Device to compute on; auto uses a GPU if there is one."),
]
LayerOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--layer",
        metavar="EXPRESSION",
        help="-1 is the last layer, 0 the output of the embeddings; or concat(-4:), mean(1:3), ...",
    ),
]
SeedOption: TypeAlias = Annotated[
    int,
    typer.Option("--seed", metavar="N", min=0, max=2**63 - 1, help="The same seed gives the same result."),
]
ShownOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write a page (.html), a drawing (.svg, .png) or the JSON document (.json).",
    ),
]
JsonOption: TypeAlias = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document instead of text."),
]


def _allow_lines(size: str) -> str:
    """Accept lines up to this length in every file that the run opens."""
    try:
        set_max_line(parse_size(size))
    except InputError as error:
        raise InputError(f"--max-line: {error}") from None
    return size


MaxLineOption: TypeAlias = Annotated[
    str,
    typer.Option("--max-line", metavar="SIZE", help="Maximum length of a line in a text file.", callback=_allow_lines),
]

# Options of tables. What is not given is inferred from the file, and reported.
ColumnsOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--columns", metavar="A,B", help="Columns by name or index from 0: texts first, then the label."),
]
HeaderOption: TypeAlias = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether the first row names the columns.")
]
DelimiterOption: TypeAlias = Annotated[
    str | None, typer.Option("--delimiter", metavar="C", help="Separator between columns; \\t is a tab.")
]
QuotedOption: TypeAlias = Annotated[
    bool | None, typer.Option("--quoted/--unquoted", help="Whether quotes around values are part of the format.")
]
ThresholdOption: TypeAlias = Annotated[
    float | None,
    typer.Option("--threshold", metavar="X", help="answer: minimum margin of the best answer over no answer."),
]


def check_page(output: Path | None) -> None:
    """InputError unless the name of a page ends in .html."""
    if output is not None and output.suffix.lower() != ".html":
        raise InputError(f"--output {output}: expected a file name that ends in .html")

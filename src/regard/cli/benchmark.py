"""`regard benchmark`: how often a model finds the right ending the most likely one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, ModelOption
from regard.cli.output import note, print_json, progress
from regard.known import DEFAULT_CAUSAL_LM
from regard.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.inference.benchmark import BenchmarkResult

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("benchmark")(benchmark)


def benchmark(
    task: Annotated[
        Literal["lambada", "hellaswag", "piqa", "winogrande"], typer.Argument(metavar="TASK", help="Which one.")
    ],
    data: Annotated[str, typer.Option("--data", metavar="FILE", help="Its examples.")],
    labels: Annotated[
        str | None, typer.Option("--labels", metavar="FILE", help="Its right answers, one a line, where apart.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N examples.")] = None,
    model: ModelOption = DEFAULT_CAUSAL_LM,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Rank endings by their likelihood: lambada, hellaswag, piqa or winogrande, beside the lectures' table.

    lambada: a passage a line, whose last word is to be told; accuracy is how often all its tokens are the model's first
    choice, perplexity is that of the whole word. hellaswag: six lines an example, or JSON lines. piqa: JSON lines, and
    labels; scored behind "Question: GOAL, Answer:". winogrande: JSON lines; what follows the blank is scored, behind
    either option. Normalised: by the bytes of the ending.
    """
    from regard.device import choose_device
    from regard.inference.benchmark import run_benchmark
    from regard.inference.benchmark_data import read_items

    place, items = choose_device(device), read_items(task, data, labels=labels, limit=limit)
    from regard.checkpoints.loading import load

    loaded = load(model, device=place)
    with progress("scoring", total=len(items), unit="examples") as count:
        found = run_benchmark(*loaded, task, items, on_progress=count)
    if found.cut:
        note(f"{found.cut:,} of {found.n:,} examples are too long for this model: their contexts were cut on the left")
    if as_json:
        from dataclasses import asdict

        print_json({"model": model, **asdict(found)})
    else:
        print("\n".join(_lines(model, found)))


def _lines(model: str, found: BenchmarkResult) -> Iterator[str]:
    from regard.inference.benchmark_data import published

    low, high = found.interval
    yield f"{found.task}: {count_of(found.n, 'example')}, {model}"
    yield f"{'accuracy':<20} {found.accuracy:6.2f} % (95%: {low:.2f} to {high:.2f})"
    if found.accuracy_normalised is not None:
        yield f"{'normalised by bytes':<20} {found.accuracy_normalised:6.2f} %"
    if found.chance is not None:
        yield f"{'chance':<20} {found.chance:6.2f} %"
    if found.perplexity is not None:
        yield f"{'perplexity of a word':<20} {found.perplexity:,.4g}"
    yield ""
    yield f"In the lectures' table ({'perplexity' if found.perplexity is not None else 'percent'}):"
    for name, figure in published(found.task).items():
        yield f"  {name:<18} {figure:g}"

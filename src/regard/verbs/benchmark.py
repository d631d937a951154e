"""`regard benchmark`: how often a model finds the right ending the most likely one."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.events import Event, Note
from regard.known import DEFAULT_CAUSAL_LM
from regard.verbs.base import ModelName, Models, Request, argument, model_option, option, verb

if TYPE_CHECKING:
    from regard.inference.benchmark import BenchmarkResult


class BenchmarkRequest(Request):
    task: Literal["lambada", "hellaswag", "piqa", "winogrande"] = argument(help="The benchmark.", metavar="TASK")
    data: Path = option(..., help="The file with its examples.", metavar="FILE")
    labels: Path | None = option(None, help="A file with the right answers, one per line.", metavar="FILE")
    limit: int | None = option(None, help="Use only the first N examples.", metavar="N", ge=1)
    model: ModelName = model_option(DEFAULT_CAUSAL_LM)


@verb(BenchmarkRequest, result="regard.inference.benchmark:BenchmarkResult", formats=(".json",), http=False)
def benchmark(request: BenchmarkRequest, models: Models) -> Generator[Event, None, BenchmarkResult]:
    """Rank endings by their likelihood: lambada, hellaswag, piqa or winogrande, next to the lectures' table.

    lambada: one passage per line, whose last word is to be predicted; accuracy is how often all its tokens are the
    model's first choice, perplexity is that of the whole word. hellaswag: six lines per example, or JSON lines. piqa:
    JSON lines and labels, scored after "Question: GOAL, Answer:". winogrande: JSON lines; the text after the blank is
    scored, given either option. Normalised: by the bytes of the ending.
    """
    from regard.inference.benchmark import benchmark_events, read_items

    items = read_items(request.task, request.data, labels=request.labels, limit=request.limit)
    with models.use(request.model) as loaded:
        result = yield from benchmark_events(loaded.model, loaded.tokenizer, request.task, items, name=request.model)
    if result.cut:
        yield Note(
            message=f"{result.cut:,} of {result.n:,} examples are too long for this model: "
            "their contexts were truncated on the left"
        )
    return result

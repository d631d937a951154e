"""`regard compare`: the words a model predicts at a blank, in two sentences, a grid of them, or over the years."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationInfo, field_validator

from regard.errors import InputError
from regard.events import Note
from regard.verbs.base import PAGE, ModelName, Models, Request, argument, model_option, option, verb

if TYPE_CHECKING:
    from regard.interpret.masked_lm.charts import CompareResult


class CompareRequest(Request):
    text: str | None = argument(None, help="A sentence with a blank, _, or with slots: [he|she].")
    text_b: str | None = argument(None, help="A second sentence with a blank.")
    top: int | Literal["all"] | None = option(
        None, "-k", help="Number of tokens to show, or all; 30 by default, 150 in a sweep.", metavar="N"
    )
    chart: Literal["likelihoods", "differences"] = option(
        "likelihoods", help="One sentence against the other, or their difference over their mean."
    )
    values: Literal["log-probabilities", "logits"] = option(
        "log-probabilities", help="What is compared: a difference of log-probabilities is a log ratio of probabilities."
    )
    model: ModelName = model_option()
    other: ModelName | None = option(None, help="A second model to compare with.", metavar="MODEL")
    logits: list[str] | None = option(
        None, help="Two JSON lists of logits instead of a model.", metavar="A,B", min_length=2, max_length=2
    )
    vocab: Path | None = option(None, help="With --logits: the tokens, one per line.", metavar="FILE")

    @field_validator("top")
    @classmethod
    def _at_least_one(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, int) and value < 1:
            raise ValueError("expected a number from 1, or all")
        return value

    @field_validator("logits", "vocab")
    @classmethod
    def _no_files_over_http(cls, value: object, info: ValidationInfo) -> object:
        if value is not None and not (info.context or {}).get("files", True):
            raise ValueError("a server does not read files of logits; use the command line or Python")
        return value


@verb(CompareRequest, result="regard.interpret.masked_lm.charts:CompareResult", formats=(*PAGE, ".json"))
def compare(request: CompareRequest, models: Models) -> Generator[Note, None, CompareResult]:
    """Compare what a masked language model predicts at the blank of two sentences.

    One sentence shows completions of each of its words. [he|she] in a sentence stands for two; two slots make a grid
    with its differences of differences; [1860..2018] is every number of a range. Differences are of log-probabilities
    over the whole vocabulary: 0.69 is a factor of 2. --values logits compares raw scores, whose normalizer differs
    between sentences, as the explorable "What Have Language Models Learned?" does.

    Example: regard compare "Jane worked as a _." "Jim worked as a _."
    """
    from regard.interpret.masked_lm.comparison import compare_models, compare_stored
    from regard.interpret.masked_lm.predictions import WARNING

    texts = [text for text in (request.text, request.text_b) if text is not None]
    number = 0 if request.top == "all" else request.top
    chart, values = request.chart, request.values
    if request.logits is not None:
        if request.vocab is None:
            raise InputError("--logits A,B needs --vocab FILE, the tokens one per line")
        yield Note(message=f"note: {WARNING}")
        return compare_stored(request.logits, request.vocab, texts=texts, number=number, chart=chart, values=values)
    if request.vocab is not None:
        raise InputError("--vocab goes with --logits A,B; a model brings its own vocabulary")
    if not texts:
        raise InputError('expected a sentence with a blank, such as "Jane worked as a _.", or --logits A,B')
    names = list(dict.fromkeys(name for name in (request.model, request.other) if name is not None))
    with ExitStack() as stack:
        # In one order for all requests, or two could wait for each other's model forever.
        loaded = {name: stack.enter_context(models.use(name)) for name in sorted(names)}
        result = compare_models(texts, [loaded[name] for name in names], number=number, chart=chart, values=values)
    yield Note(message=f"note: {WARNING}")
    return result

"""`regard perplexity`: how well a model predicts a text."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.events import Event, Note
from regard.verbs.base import ModelName, Models, Request, Texts, argument, model_option, option, seed_option, verb

if TYPE_CHECKING:
    from regard.inference.likelihood import Perplexity


class PerplexityRequest(Request):
    source: Texts = argument(
        help="A text file; - is standard input; .gz, .xz, .bz2 and .zst are unpacked.", metavar="FILE"
    )
    model: ModelName = model_option()
    stride: int | None = option(
        None, help="GPT: tokens between the starts of two windows. Default: half a window.", metavar="N", ge=1
    )
    max_length: int | None = option(None, help="Tokens per window. Default: the model's positions.", metavar="N", ge=1)
    sample: int | None = option(
        None, help="BERT: score N random tokens instead of all, for long files.", metavar="N", ge=1
    )
    seed: int = seed_option()


@verb(PerplexityRequest, result="regard.inference.likelihood:Perplexity", formats=(".json",))
def perplexity(request: PerplexityRequest, models: Models) -> Generator[Event, None, Perplexity]:
    """Measure how well a model predicts a text: perplexity and bits per byte.

    A GPT predicts each token once, from the tokens before it in overlapping windows; the first token of the text counts
    if the model has a begin token. For a BERT the measure is pseudo-perplexity: each token is masked in turn, in the
    middle of its own window, which takes long. The two are not comparable; models with different vocabularies are
    comparable in bits per byte only.
    """
    from regard.inference.likelihood import perplexity_events, read_text_file

    text = read_text_file(request.source) if isinstance(request.source, Path) else "\n".join(request.source)
    if not text.strip():
        raise InputError("the text is empty; expected a text to score")
    with models.use(request.model) as loaded:
        result = yield from perplexity_events(
            loaded.model,
            loaded.tokenizer,
            text,
            stride=request.stride,
            max_length=request.max_length,
            sample=request.sample,
            seed=request.seed,
            name=request.model,
        )
    for note in result.notes():
        yield Note(message=note)
    return result

"""`regard perplexity`: how well a model predicts a text."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.events import Event, Note
from regard.verbs.base import (
    DecodingPrecision,
    ModelName,
    Models,
    Texts,
    argument,
    decoding_precision_option,
    model_option,
    option,
    seed_option,
    verb,
)
from regard.verbs.tables import RowsRequest, open_texts, table_options

if TYPE_CHECKING:
    from regard.inference.likelihood import Perplexity

TABLE_SUFFIXES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".parquet", ".pq")


class PerplexityRequest(RowsRequest):
    source: Texts = argument(
        help="A text, or a table of texts: CSV, TSV, JSONL, Parquet; compressed or not; - is standard input.",
        metavar="FILE",
    )
    model: ModelName = model_option()
    stride: int | None = option(
        None, help="GPT: tokens between the starts of two windows. Default: half a window.", metavar="N", ge=1
    )
    max_length: int | None = option(None, help="Tokens per window. Default: the model's positions.", metavar="N", ge=1)
    sample: int | None = option(
        None, help="BERT: score N random tokens instead of all, for long files.", metavar="N", ge=1
    )
    precision: DecodingPrecision = decoding_precision_option()
    seed: int = seed_option()


@verb(PerplexityRequest, result="regard.inference.likelihood:Perplexity", formats=(".json",))
def perplexity(request: PerplexityRequest, models: Models) -> Generator[Event, None, Perplexity]:
    """Measure how well a model predicts a text: perplexity and bits per byte.

    A GPT predicts each token once, from the tokens before it in overlapping windows; the first token of the text counts
    if the tokenizer puts another before it, or the model has a begin token that separates texts, as GPT-2 does. For a
    BERT the measure is pseudo-perplexity: each token is masked in turn, in the middle of its own window, which takes
    long. The two are not comparable; models with different vocabularies are comparable in bits per byte only. The texts
    of a table are read as one, with a line break between them.
    """
    from regard.inference.likelihood import perplexity_events

    text = yield from _read(request)
    if not text.strip():
        raise InputError("the text is empty; expected a text to score")
    with models.use(request.model, precision=request.precision) as loaded:
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


def _read(request: PerplexityRequest) -> Generator[Event, None, str]:
    from regard.data.files import content_suffix
    from regard.data.rows import PLAIN
    from regard.inference.likelihood import read_text_file

    # Other files are running text, whatever their lines look like.
    if isinstance(request.source, Path):
        is_table = content_suffix(request.source) in TABLE_SUFFIXES
        if not is_table and table_options(request).infers_format:
            return read_text_file(request.source, request.encoding)
    rows = yield from open_texts(request.source, request)
    # A blank line of a text belongs to it; a row without a text does not.
    is_text = rows.description == PLAIN[0]
    missing = "skip" if request.missing == "keep" and not is_text else request.missing
    text = "\n".join(row.texts[0] or "" for row in rows.read(missing))
    if not is_text and (note := rows.missing_note(missing)) is not None:
        yield Note(message=f"warning: {note}")
    return text

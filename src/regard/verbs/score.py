"""`regard score`: the log-probability of each line of a file."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from regard.events import Event, Note
from regard.known import DEFAULT_CAUSAL_LM
from regard.verbs.base import (
    DecodingPrecision,
    ModelName,
    Models,
    Texts,
    argument,
    decoding_precision_option,
    model_option,
    verb,
)
from regard.verbs.tables import RowsRequest, open_texts

if TYPE_CHECKING:
    from regard.inference.likelihood import LineScores


class ScoreRequest(RowsRequest):
    source: Texts = argument(
        help="Texts, one per line, or a table: CSV, TSV, JSONL, Parquet; compressed or not; - is standard input.",
        metavar="FILE",
    )
    model: ModelName = model_option(DEFAULT_CAUSAL_LM)
    precision: DecodingPrecision = decoding_precision_option()


@verb(ScoreRequest, result="regard.inference.likelihood:LineScores", formats=(".csv", ".json"), items="lines")
def score(request: ScoreRequest, models: Models) -> Generator[Event, None, LineScores]:
    """Print the log-probability of each text in nats, its number of tokens and the mean per token.

    Three columns and the text itself, separated by tabs. Each text is scored by itself, but not its end. The first
    token counts if the tokenizer puts another before it, or the model has a begin token that separates texts, as GPT-2
    does. A line that is longer than the model reads is scored in windows that overlap by half. A BERT gives
    pseudo-log-likelihoods: each token is masked in turn, which is not a probability of the line and not comparable with
    the scores of a GPT.
    """
    from regard.inference.likelihood import scoring_events

    rows = yield from open_texts(request.source, request)  # refused before the model is loaded
    with models.use(request.model, precision=request.precision) as loaded:
        result = yield from scoring_events(
            loaded.model, loaded.tokenizer, rows, missing=request.missing, name=request.model
        )
    for note in result.notes():
        yield Note(message=note)
    return result

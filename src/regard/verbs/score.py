"""`regard score`: the log-probability of each line of a file."""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.events import Event, Note
from regard.known import DEFAULT_CAUSAL_LM
from regard.verbs.base import ModelName, Models, Request, Texts, argument, model_option, verb

if TYPE_CHECKING:
    from regard.inference.likelihood import LineScores


class ScoreRequest(Request):
    source: Texts = argument(
        help="Texts, one per line; - is standard input; .gz, .xz, .bz2 and .zst are unpacked.", metavar="FILE"
    )
    model: ModelName = model_option(DEFAULT_CAUSAL_LM)


@verb(ScoreRequest, result="regard.inference.likelihood:LineScores", formats=(".csv", ".json"), items="lines")
def score(request: ScoreRequest, models: Models) -> Generator[Event, None, LineScores]:
    """Print the log-probability of each line in nats, its number of tokens and the mean per token.

    Three columns and the line itself, separated by tabs. Each line is scored by itself, including its first token if
    the model has a begin token, but not its end. A line that is longer than the model reads is scored in windows that
    overlap by half. A BERT gives pseudo-log-likelihoods: each token is masked in turn, which is not a probability of
    the line and not comparable with the scores of a GPT.
    """
    from regard.inference.likelihood import read_lines_to_score, scoring_events

    lines = read_lines_to_score(request.source) if isinstance(request.source, Path) else iter(request.source)
    first = next(lines, None)  # a file that cannot be read is refused before the model is loaded
    if first is None:
        raise InputError("there are no texts; expected at least one")
    with models.use(request.model) as loaded:
        texts = chain([first], lines)
        result = yield from scoring_events(loaded.model, loaded.tokenizer, texts, name=request.model)
    for note in result.notes():
        yield Note(message=note)
    return result

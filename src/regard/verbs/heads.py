"""`regard heads`: which known pattern every attention head follows over a set of texts."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

from regard.events import Event
from regard.verbs.base import PAGE, ModelName, Models, Texts, model_option, option, seed_option, verb
from regard.verbs.tables import TableRequest, open_texts

if TYPE_CHECKING:
    from regard.interpret.heads import HeadCensus


class HeadsRequest(TableRequest):
    text: Texts = option(
        ..., "-t", help="Texts, one per line, or a table of texts or pairs; - is standard input.", metavar="FILE"
    )
    model: ModelName = model_option()
    limit: int = option(100, help="Number of texts or pairs to read.", metavar="N", ge=1)
    seed: int = seed_option()


@verb(HeadsRequest, result="regard.interpret.heads:HeadCensus", formats=(*PAGE, ".csv", ".json"), notes=True)
def heads(request: HeadsRequest, models: Models) -> Generator[Event, None, HeadCensus]:
    """Take a census of a model's heads: next word, previous word, same word, delimiter and other known patterns.

    A score is the share of attention that falls on the targets of a pattern. Chance is the score with shuffled key
    tokens. A head is named after a pattern that is significant at 5% after Holm's correction for all heads and
    patterns, and exceeds chance by at least 10 points; of several, after the one furthest above chance.
    """
    from regard.interpret.heads import head_census, read_text_pairs

    if isinstance(request.text, list):
        lines: Iterable[str] = [text or "" for text in request.text]
    else:
        rows = yield from open_texts(request.text, request, num_texts=None)
        lines = ("\t".join(" ".join((text or "").split()) for text in row.texts) for row in rows.read(request.missing))
    pairs, left_out = read_text_pairs(lines, limit=request.limit)
    with models.use(request.model) as loaded:
        result = yield from head_census(
            loaded.model, loaded.tokenizer, pairs, left_out=left_out, name=request.model, seed=request.seed
        )
    return result

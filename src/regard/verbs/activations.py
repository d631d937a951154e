"""`regard activations`: the texts of a corpus in which one attention head attends most strongly."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Literal

from regard.events import Event, Note
from regard.verbs.base import PAGE, ModelName, Models, Texts, argument, model_option, option, verb
from regard.verbs.tables import RowsRequest, open_texts

if TYPE_CHECKING:
    from regard.interpret.activations import HeadActivations


class ActivationsRequest(RowsRequest):
    source: Texts = argument(
        help="Texts, one per line, or a table: CSV, TSV, JSONL, Parquet; compressed or not; - is standard input.",
        metavar="FILE",
    )
    model: ModelName = model_option()
    layer: int = option(help="Layer of the head, counted from 1; -1 is the last.", metavar="L")
    head: int = option(help="The head, counted from 0.", metavar="H", ge=0)
    top: int = option(10, "-k", help="Number of texts to list.", metavar="K", ge=1, le=1000)
    pattern: Literal["any", "previous", "next", "same"] = option(
        "any", help="What counts: attention to any other token, the previous or next one, or the same token elsewhere."
    )
    min_distance: int = option(1, help="Tokens between query and key, at least.", metavar="N", ge=1)


@verb(
    ActivationsRequest,
    result="regard.interpret.activations:HeadActivations",
    formats=(*PAGE, ".csv", ".json"),
    notes=True,
    max_characters=300_000,
)
def activations(request: ActivationsRequest, models: Models) -> Generator[Event, None, HeadActivations]:
    """Search a corpus by head: list the texts in which one attention head attends most strongly.

    The score of a text is the largest weight of the head from one token to another. Special tokens and attention of a
    token to itself do not count. The file is read in a stream: memory does not grow with the number of texts.

    Example: regard activations reviews.txt --layer 5 --head 2
    """
    from regard.interpret.activations import head_activations

    rows = yield from open_texts(request.source, request)
    with models.use(request.model) as loaded:
        result = yield from head_activations(
            loaded,
            rows.read(request.missing),
            layer=request.layer,
            head=request.head,
            top=request.top,
            pattern=request.pattern,
            min_distance=request.min_distance,
        )
    if (note := rows.missing_note(request.missing)) is not None:
        yield Note(message=note)
    return result

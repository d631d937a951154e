"""`regard layers`: which layer of a model is best for a task."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.errors import InputError
from regard.events import Event
from regard.verbs.base import PAGE, ModelName, Models, model_option, option, seed_option, verb
from regard.verbs.tables import LabeledTexts, TableRequest, read_labeled_texts, read_table

if TYPE_CHECKING:
    from regard.data.examples import TextExample
    from regard.interpret.probes.layers import LayersResult


class LayersRequest(TableRequest):
    train: LabeledTexts = option(help="Examples to train the heads on.", metavar="FILE")
    dev: LabeledTexts | None = option(
        None, help="Examples to score the heads on. Default: a random quarter of the others.", metavar="FILE"
    )
    model: ModelName = model_option()
    task: Literal["tag", "classify"] = option(
        "tag", help="Tag words (CoNLL columns or JSONL), or classify texts (TSV, CSV, JSONL)."
    )
    head: Literal["linear", "bilstm"] = option(
        "linear", help="Head for the combinations of the deck; every single layer gets a linear one."
    )
    limit: int | None = option(None, help="Use only the first N examples of each file.", metavar="N", ge=1)
    pooling: Literal["mean", "cls"] = option(
        "mean", help="classify: how token vectors become one text vector, for a linear head."
    )
    seed: int = seed_option()


@verb(
    LayersRequest,
    result="regard.interpret.probes.layers:LayersResult",
    formats=(*PAGE, ".csv", ".json"),
    notes=True,
    max_characters=300_000,
)
def layers(request: LayersRequest, models: Models) -> Generator[Event, None, LayersResult]:
    """Score every layer of a frozen model for a task, with the deck's six combinations of layers and a learned mix.

    The model reads each text once; probing heads are trained on its hidden states. Scores come with a 95% bootstrap
    interval over the dev examples.
    """
    from regard.interpret.probes.layers import hold_out, score_layers

    train = yield from _read(request.train, request)
    if request.dev is None:
        train, dev = hold_out(train[: request.limit], seed=request.seed)
    else:
        dev = yield from _read(request.dev, request)
    with models.use(request.model) as loaded:
        result = yield from score_layers(
            loaded,
            train[: request.limit],
            dev[: request.limit],
            head=request.head,
            pooling=request.pooling,
            seed=request.seed,
        )
    return result


def _read(
    source: list[tuple[str | None, str | None]] | Path, request: LayersRequest
) -> Generator[Event, None, list[TextExample]]:
    if isinstance(source, Path):
        return (yield from read_table(request.task, source, request, labeled=True))
    if request.task != "classify":
        raise InputError("texts with one label each can only be classified: give task classify, or a file of tags")
    return (yield from read_labeled_texts(source, request, labeled=True))

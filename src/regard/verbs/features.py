"""`regard features`: from sentences to vectors to a classifier, stage by stage."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Literal

from regard.events import Event
from regard.verbs.base import PAGE, ModelName, Models, layers_option, model_option, option, seed_option, verb
from regard.verbs.tables import LabeledTexts, TableRequest, read_labeled_texts

if TYPE_CHECKING:
    from regard.interpret.probes.feature_walk import FeatureWalk


class FeaturesRequest(TableRequest):
    data: LabeledTexts = option(help="Texts with labels: TSV, CSV, JSONL; - is standard input.", metavar="FILE")
    limit: int = option(2000, help="Use the first N texts.", metavar="N", ge=1)
    sample: int | None = option(None, help="Sample at most N of these texts at random.", metavar="N", ge=1)
    model: ModelName = model_option()
    pooling: Literal["cls", "mean"] = option("cls", help="The vector of a text: of its first token, or the mean.")
    layers: str = layers_option()
    as_in_deck: bool = option(
        True, help="Repeat it without attention mask, as the slides do, and compare; a page needs it."
    )
    seed: int = seed_option()


@verb(
    FeaturesRequest,
    result="regard.interpret.probes.feature_walk:FeatureWalk",
    formats=(*PAGE, ".json"),
    notes=True,
    max_characters=300_000,
)
def features(request: FeaturesRequest, models: Models) -> Generator[Event, None, FeatureWalk]:
    """Walk from sentences to a classifier on a frozen model's vectors: tokens, ids, padding, hidden states, a slice.

    Logistic regression is then cross-validated on all texts, and fitted on three quarters of them and scored on the
    rest. Needs scikit-learn.
    """
    from regard.interpret.probes.feature_walk import feature_walk

    examples = yield from read_labeled_texts(request.data, request, labeled=True)
    with models.use(request.model) as loaded:
        result = yield from feature_walk(
            loaded,
            examples[: request.limit],
            pooling=request.pooling,
            layer=request.layers,
            as_in_deck=request.as_in_deck,
            limit=request.sample,
            seed=request.seed,
        )
    return result

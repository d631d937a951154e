"""`regard map`: sentences on a plane, and the nearest neighbors of each."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Literal

from regard.events import Event
from regard.known import DEFAULT_EMBEDDING_MODEL
from regard.verbs.base import PAGE, ModelName, Models, argument, layers_option, model_option, option, seed_option, verb
from regard.verbs.tables import LabeledTexts, TableRequest, read_labeled_texts

if TYPE_CHECKING:
    from regard.interpret.embeddings import SentenceMap


class MapRequest(TableRequest):
    texts: LabeledTexts = argument(
        help="Sentences, one per line, or TSV, CSV, JSONL with labels; - is standard input.", metavar="FILE"
    )
    model: ModelName = model_option(DEFAULT_EMBEDDING_MODEL)
    layers: str = layers_option()
    neighbors: int = option(5, "-k", help="Number of nearest neighbors of each sentence.", metavar="K", ge=1, le=50)
    pooling: Literal["mean", "cls", "max"] = option("mean", help="How the token vectors become one sentence vector.")
    projection: Literal["pca", "tsne", "umap"] = option(
        "pca", help="How vectors become points: pca, tsne (needs scikit-learn) or umap (needs umap-learn)."
    )
    limit: int = option(2000, help="Maximum number of sentences; more are sampled at random.", metavar="N", ge=2)
    seed: int = seed_option()


@verb(
    MapRequest,
    result="regard.interpret.embeddings:SentenceMap",
    formats=(*PAGE, ".csv", ".json"),
    notes=True,
    max_characters=300_000,
)
def map(request: MapRequest, models: Models) -> Generator[Event, None, SentenceMap]:
    """Map sentences: the first two principal components of their vectors, and the nearest neighbors of each by cosine.

    With --projection, t-SNE or UMAP place the points instead, if scikit-learn or umap-learn is installed. The labels of
    the file become colors on the page. Neighbors are exact and computed in the full space, not on the plane.

    Example: regard map sentences.txt --output map.html
    """
    from regard.interpret.embeddings import sentence_map

    examples = yield from read_labeled_texts(request.texts, request)
    with models.use(request.model) as loaded:
        result = yield from sentence_map(
            loaded,
            examples,
            layer=request.layers,
            pooling=request.pooling,
            neighbors=request.neighbors,
            limit=request.limit,
            seed=request.seed,
            projection=request.projection,
        )
    return result

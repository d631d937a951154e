"""`regard cluster`: groups of texts about the same."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from regard.events import Event
from regard.verbs.base import Models, option, seed_option, verb
from regard.verbs.search import IndexedTextsRequest, open_source

if TYPE_CHECKING:
    from regard.inference.search.clusters import ClusterResult


class ClusterRequest(IndexedTextsRequest):
    num_clusters: int | None = option(
        None, "-n", help="Number of clusters. Default: the one with the best silhouette.", metavar="K", ge=2, le=10_000
    )
    seed: int = seed_option()


@verb(
    ClusterRequest,
    result="regard.inference.search.clusters:ClusterResult",
    formats=(".html", ".csv", ".jsonl", ".json"),
    max_characters=300_000,
)
def cluster(request: ClusterRequest, models: Models) -> Generator[Event, None, ClusterResult]:
    """Divide texts into clusters by k-means on their vectors, with the central texts and the words of each.

    --output writes a row per text with its cluster; rows without a text have none.

    Example: regard cluster reviews.csv --num-clusters 8 --keep all --output clusters.csv
    """
    from regard.inference.search.clusters import find_clusters

    with ExitStack() as stack:
        index, without_text = yield from open_source(request, models, stack)
        result = yield from find_clusters(
            index, num_clusters=request.num_clusters, seed=request.seed, without_text=without_text
        )
    return result

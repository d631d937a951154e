"""`regard duplicates`: texts that say nearly the same."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from regard.events import Event
from regard.verbs.base import Models, option, verb
from regard.verbs.search import IndexedTextsRequest, open_source

if TYPE_CHECKING:
    from regard.inference.search.duplicates import DuplicatesResult


class DuplicatesRequest(IndexedTextsRequest):
    threshold: float = option(0.9, help="Smallest cosine similarity of a pair.", metavar="X", ge=-1, le=1)


@verb(
    DuplicatesRequest,
    result="regard.inference.search.duplicates:DuplicatesResult",
    formats=(".csv", ".jsonl", ".json"),
    max_characters=300_000,
)
def duplicates(request: DuplicatesRequest, models: Models) -> Generator[Event, None, DuplicatesResult]:
    """Find near-duplicates: texts whose vectors are closer than a threshold, in groups.

    All pairs are compared exactly, in constant memory. Pairs that share a text belong to one group, and its first text
    represents it: whoever keeps that one and removes the others has no near-duplicates left.

    Example: regard duplicates reviews.csv --threshold 0.95 --keep all --output duplicates.csv
    """
    from regard.inference.search.duplicates import find_duplicates

    with ExitStack() as stack:
        index, _ = yield from open_source(request, models, stack)
        result = yield from find_duplicates(index, threshold=request.threshold)
    return result

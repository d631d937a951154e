"""`regard rerank`: texts in the order in which they fit a query, by a model that reads both together."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from regard.events import Event, Note
from regard.verbs.base import ModelName, Models, Precision, Texts, argument, option, precision_option, verb
from regard.verbs.tables import RowsRequest, open_texts

if TYPE_CHECKING:
    from regard.inference.reranking import RerankResult


class RerankRequest(RowsRequest):
    query: str = argument(help="What the texts are to answer or to fit.", metavar="QUERY")
    source: Texts = argument(
        help="Texts, one per line, or a table: CSV, TSV, JSONL, Parquet; compressed or not; - is standard input.",
        metavar="FILE",
    )
    model: ModelName = option(
        ...,
        "-m",
        help="A published reranker, a multi-vector model (ColBERT), or a folder of `regard train pair`.",
        metavar="MODEL",
    )
    top: int | None = option(None, "-k", help="Keep only the best K. Default: all rows.", metavar="K", ge=1)
    keep: list[str] = option([], help="Columns of a table that results carry, or all.", metavar="A,B|all")
    precision: Precision | None = precision_option()


@verb(RerankRequest, result="regard.inference.reranking:RerankResult", formats=(".csv", ".jsonl", ".json"), http=False)
def rerank(request: RerankRequest, models: Models) -> Generator[Event, None, RerankResult]:
    """Order texts by how well they fit a query, as a model that reads query and text together scores them.

    The model is a cross-encoder, such as cross-encoder/ms-marco-MiniLM-L6-v2: scores and order are those of
    sentence-transformers' CrossEncoder. `logit` is the output of the model and decides the order; `score` is the logit
    after the activation that the model states. Without one it is a sigmoid, but none if problem_type is regression,
    where CrossEncoder has a sigmoid; the order is the same. With a multi-vector model both are MaxSim.

    Memory does not grow with the file if --top is given. To search many texts, build an index and use `regard search
    --rerank`. A server answers POST /rerank and POST /v1/rerank.

    Example: regard rerank "battery does not last" reviews.csv --columns review --top 10 --model MODEL
    """
    from regard.inference.reranking import rerank_rows
    from regard.inference.search.index import require_reranker, reranker_of
    from regard.inference.search.results import check_queries

    (query,) = check_queries(request.query)
    rows = yield from open_texts(request.source, request)  # refused before the model is loaded
    with models.use(request.model, require_reranker) as loaded:
        reranker = reranker_of(loaded, precision=request.precision)
        result = yield from rerank_rows(
            reranker, query, rows, top=request.top, keep=request.keep, missing=request.missing, name=request.model
        )
    for note in (*reranker.precision_notes(), *result.notes()):
        yield Note(message=note)
    return result

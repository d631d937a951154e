"""`regard search`: the texts of an index that are nearest to a query."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationInfo, field_validator

from regard.data.files import refuse_file_name
from regard.data.text_inputs import DataFrameSource
from regard.errors import InputError
from regard.events import Event, ResultItem
from regard.known import DEFAULT_EMBEDDING_MODEL
from regard.verbs.base import ModelName, Models, Texts, argument, in_python, option, text_sizes, verb
from regard.verbs.tables import RowsRequest, table_options

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel
    from regard.inference.search.documents import IndexedText
    from regard.inference.search.explain import Explainer
    from regard.inference.search.index import AnyReranker, Index
    from regard.inference.search.results import SearchResult


MAX_EXPLAINED = 100  # texts per query: each takes the model many passes
HIT_BYTES = 120  # of a text that is found, besides the text


class IndexedTextsRequest(RowsRequest):
    """Options of verbs that read an index, or texts that are indexed first."""

    source: Texts = argument(
        help="The folder of an index, or texts: one per line, CSV, TSV, JSONL, Parquet; - is standard input.",
        metavar="INPUT",
    )
    model: ModelName | None = option(
        None,
        "-m",
        help=f"A model folder, hub name or built-in name. Default: that of the index, or {DEFAULT_EMBEDDING_MODEL}.",
        metavar="MODEL",
    )
    keep: list[str] = option([], help="Columns of a table that results carry, or all.", metavar="A,B")
    id: str | None = option(None, help="Column of ids of a table. Default: the row's number.", metavar="COLUMN")

    @field_validator("source", mode="before")
    @classmethod
    def _read_string(cls, value: object, info: ValidationInfo) -> object:
        """In Python a string is the folder of an index: one text alone has no neighbors."""
        if isinstance(value, str) and in_python(info):
            if os.path.isdir(value):
                return Path(value)
            refuse_file_name(value)
            raise ValueError("expected a list of texts, a DataFrame, or the folder of an index, which must exist")
        return value


class SearchRequest(IndexedTextsRequest):
    query: list[str] = argument([], help="What to find; several queries are several arguments.", metavar="QUERY")
    queries: Texts | None = option(None, help="File with one query per line; - is standard input.", metavar="FILE")
    top: int = option(10, "-k", help="Number of texts per query.", metavar="K", ge=1, le=10_000)
    method: Literal["dense", "bm25", "splade", "hybrid"] = option(
        "dense",
        help="dense compares vectors, bm25 the words in common, splade sparse vectors, if the index has them; hybrid "
        "combines the ranks of all that there are.",
    )
    sparse: ModelName | None = option(
        None,
        help="The model of the sparse vectors (SPLADE). Default: that of the index, or for texts none.",
        metavar="MODEL",
    )
    approximate: bool = option(False, help="Use the approximate index, if DIR has one.")
    explain: bool = option(
        False, help="Say for every hit what adds up to its score: words, tokens, ranks, or tokens by their gradients."
    )
    prompt: str | None = option(
        None,
        help="What to put before every query. Default: the prompt for queries that the index has stored.",
        metavar="TEXT",
    )
    prompt_name: str | None = option(
        None, help="A prompt of the model's folder by name, such as query.", metavar="NAME"
    )
    rerank: ModelName | None = option(
        None,
        help="A reranker: a published one, a multi-vector model (ColBERT), or a folder of `regard train pair`. It "
        "scores the best texts again.",
        metavar="MODEL",
    )
    rerank_top: int = option(50, help="Number of texts to score again.", metavar="N", ge=1, le=10_000)


def _answer(request: SearchRequest) -> dict[str, int]:
    """Each query has up to `top` texts of the source, at worst the longest ones."""
    longest = sorted(text_sizes(request.source), reverse=True)[: request.top]
    queries = len(request.query) + len(text_sizes(request.queries))
    return {"items": queries * len(longest), "bytes": queries * (sum(longest) + HIT_BYTES * len(longest))}


@verb(
    SearchRequest,
    result="regard.inference.search.results:SearchResult",
    formats=(".html", ".csv", ".jsonl", ".json"),
    max_characters=300_000,
    http_limits={"top": 1000, "rerank_top": 200},
    http_answer=_answer,
    items="results",
)
def search(request: SearchRequest, models: Models) -> Generator[Event, None, SearchResult]:
    """Find the texts of an index that are nearest to a query: by their vectors, their words, or both.

    Search is exact unless --approximate is given. The score is the cosine similarity (dense), the BM25 score, the
    product of the sparse vectors (splade), the sum of reciprocal ranks (hybrid), or what the model of --rerank
    predicts.

    Example: regard search reviews.index "battery does not last" --method hybrid
    """
    from regard.inference.search.index import require_reranker, reranker_of
    from regard.inference.search.results import check_queries

    if not request.query and request.queries is None:
        raise InputError("there is no query; expected a text, or a file of queries with --queries")
    with ExitStack() as stack:
        index, _ = yield from open_source(request, models, stack, embeds=request.method in ("dense", "hybrid"))
        index.use_prompt(request.prompt, request.prompt_name, request.method)
        rerank = None
        if request.rerank is not None:
            loaded_reranker = stack.enter_context(models.use(request.rerank, require_reranker))
            rerank = reranker_of(loaded_reranker)
        count = 0
        for one in index.search_steps(
            _queries(check_queries(request.query) if request.query else [], request.queries),
            request.top,
            method=request.method,
            approximate=request.approximate,
            rerank=rerank,
            rerank_top=request.rerank_top,
            explain=request.explain,
            explainers=_explainers(request, index, rerank),
        ):
            yield ResultItem(text=("\n" if count else "") + one.to_text() + "\n", item=one)
            count += 1
    if not count:
        raise InputError(f"{request.queries} holds no query; expected one per line")
    return index.search_result([], method=request.method, approximate=request.approximate, rerank=request.rerank)


def _explainers(request: SearchRequest, index: Index, rerank: AnyReranker | None) -> list[Explainer]:
    """What explains the parts of a score that models compute."""
    from regard.inference.search.maxsim import MaxSimReranker
    from regard.interpret.search_hits import dense_explainer, rerank_explainer

    if not request.explain:
        return []
    if request.top > MAX_EXPLAINED:
        raise InputError(f"--explain is for at most {MAX_EXPLAINED} texts per query, and --top is {request.top}")
    found = []
    if request.method in ("dense", "hybrid"):
        found.append(dense_explainer(index.engine(), index.manifest.model.prompt))
    if isinstance(rerank, MaxSimReranker):
        return [*found, rerank.explain]
    return found if rerank is None else [*found, rerank_explainer(rerank)]


def _queries(given: list[str], source: list[str | None] | Path | DataFrameSource | None) -> Iterator[str]:
    from regard.data.rows import open_rows

    yield from given
    if source is not None:  # a sender of queries may wait for each answer
        rows = open_rows(source, sample=1)
        yield from (row.texts[0] for row in rows.read("skip") if row.texts[0] is not None)


def open_source(
    request: IndexedTextsRequest, models: Models, stack: ExitStack, *, embeds: bool = False
) -> Generator[Event, None, tuple[Index, list[IndexedText]]]:
    """The index of a request, and the rows of a table without a text. With `embeds` its model is loaded; texts that are
    not indexed yet are embedded in any case."""
    from regard.inference.search.build import temporary_index
    from regard.inference.search.index import open_index

    def load(name: str | None) -> LoadedModel:
        return stack.enter_context(models.use(request.model or name or DEFAULT_EMBEDDING_MODEL))

    sparse = request.sparse if isinstance(request, SearchRequest) else None
    searches_sparse = isinstance(request, SearchRequest) and request.method in ("splade", "hybrid")

    if isinstance(request.source, Path) and request.source.is_dir():
        for name in ("columns", "header", "delimiter", "quoted", "encoding", "keep", "id"):
            if getattr(request, name) not in (None, []):
                raise InputError(f"--{name} is for a table, and {request.source} is an index; leave it out")
        index = open_index(request.source)
        if embeds:
            index.use_model(load(index.model_name))
        if searches_sparse and index.sparse_name is not None:
            index.use_sparse_model(stack.enter_context(models.use(sparse or index.sparse_name)))
        return index, []
    loaded = load(None)
    sparse_model = None if sparse is None else stack.enter_context(models.use(sparse))
    key = hash(repr((request.source, request.keep, request.id, sparse))) if isinstance(request.source, list) else None
    if key is not None and loaded.cache is not None and key in loaded.cache:  # the page asks again about the same texts
        found: tuple[Index, list[IndexedText]] = loaded.cache[key]
    else:
        found = yield from temporary_index(
            request.source,
            loaded,
            table=table_options(request),
            keep=request.keep,
            id_column=request.id,
            sparse=sparse_model,
        )
    return found if key is None else loaded.cached(key, lambda: found)

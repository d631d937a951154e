"""What a search returns: for each query its hits, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from regard.escaping import escape_controls
from regard.inference.search.explain import Explanation
from regard.render.result import Result, Table
from regard.wording import count_of

MAX_LINE = 160  # characters of a text in the terminal


class Hit(BaseModel):
    """A text that matches the query. `matches` are the offsets [start, end) of the words in common.

    `score` is the cosine similarity (dense), the BM25 score, the product of the sparse vectors (splade), the sum of
    reciprocal ranks (hybrid), or what the reranker predicts.
    `explanation`, if it was asked for, says what adds up to it: of the method, of the methods that hybrid search
    combines, and of the reranker.
    """

    model_config = ConfigDict(frozen=True)

    rank: int
    id: str | int
    row: int
    score: float
    text: str
    columns: dict[str, Any]
    matches: list[tuple[int, int]]
    explanation: list[Explanation] | None = None


class QueryResult(BaseModel):
    model_config = ConfigDict(frozen=True)

    query: str
    hits: list[Hit]

    def to_text(self) -> str:
        lines = []
        for hit in self.hits:
            text = f"{one_line(hit.text)}{kept_columns(hit.columns)}"
            lines.append(f"{hit.score:8.4f}  {escape_controls(str(hit.id)):>6}  {text}")
            lines += [f"{'':18}{one.to_text()}" for one in hit.explanation or ()]
        return "\n".join([one_line(self.query), *(lines or ["  nothing found"])])


class SearchResult(Result):
    """Hits of every query. `rows` texts were searched; without a model (`method` bm25) `model` is empty."""

    page_view: ClassVar[str | None] = "search"

    source: str
    rows: int
    model: str
    method: str
    approximate: bool
    rerank: str | None
    results: list[QueryResult]

    def to_text(self) -> str:
        return "\n\n".join(one.to_text() for one in self.results)

    def to_table(self) -> Table:
        rows = [
            ([one.query, hit.rank, hit.score, hit.id, hit.row, hit.text], hit.columns)
            for one in self.results
            for hit in one.hits
        ]
        return with_columns(["query", "rank", "score", "id", "row", "text"], rows)


class IndexResult(Result):
    """An index that was written: `rows` texts in all, of which `added` are new.

    `prompt` was put before every text, and `query_prompt` is put before queries.
    """

    output: str
    rows: int
    added: int
    width: int
    model: str
    columns: list[str]
    sparse: str | None = None
    prompt: str = ""
    query_prompt: str = ""

    def to_text(self) -> str:
        kept = f", columns {', '.join(self.columns)}" if self.columns else ""
        sparse = f", sparse vectors by {self.sparse}" if self.sparse else ""
        added = f" ({self.added:,} new)" if self.added != self.rows else ""
        vectors = f"vectors of {self.width} by {self.model}{sparse}"
        return f"{self.output}: {count_of(self.rows, 'text')}{added}, {vectors}{kept}"


def with_columns(headers: list[str], rows: Sequence[tuple[Sequence[object], dict[str, Any]]]) -> Table:
    """A table of cells and kept columns; a column whose name is taken gets "input_" in front."""
    names = list(dict.fromkeys(name for _, columns in rows for name in columns))
    kept = [f"input_{name}" if name in headers else name for name in names]
    return [*headers, *kept], [[*cells, *(columns.get(name) for name in names)] for cells, columns in rows]


def one_line(text: str, length: int = MAX_LINE) -> str:
    """A text on one line of the terminal."""
    line = escape_controls(" ".join(text.split()))
    return line if len(line) <= length else line[: length - 1] + "…"


def kept_columns(columns: dict[str, Any]) -> str:
    return "".join(f"  {escape_controls(name)}={one_line(str(value), 40)}" for name, value in columns.items())


def check_queries(queries: str | Sequence[str]) -> list[str]:
    """Queries as a list."""
    from regard.errors import InputError

    found = [queries] if isinstance(queries, str) else list(queries)
    if not found:
        raise InputError("there is no query; expected at least one")
    for number, query in enumerate(found, 1):
        if not isinstance(query, str) or not query.strip():
            raise InputError(f"query {number} is {query!r}; expected a text")
    return found

"""`POST /v1/rerank` in the form of Jina's and Cohere's APIs, which vLLM and others also have.

Documents that are too long are cut, as those services do; the header X-Regard-Warning says so. An error is an object
with `detail`, which Jina's clients read, and `message`, which Cohere's read.
"""

from __future__ import annotations

import secrets
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import Response
from starlette.routing import Route

from regard.server.http.endpoint import AdmissionControl, Endpoint, RequestContext, json_response
from regard.server.models.registry import ModelRegistry
from regard.server.protocols.texts_and_vectors import check_batch

# Fields of these APIs that change the answer and that Regard does not have; clients send them as null.
REFUSED = ("max_chunks_per_doc", "max_tokens_per_doc", "rank_fields")


class RerankDocument(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str


class RerankDocumentsBody(BaseModel):
    """As Jina and Cohere define it."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)
    model: str | None = Field(None, description="The model that answers; default: the first that can.")
    query: str
    documents: list[str | RerankDocument] = Field(min_length=1)
    top_n: int | None = Field(None, ge=1, description="Return only the best ones.")
    return_documents: bool | None = Field(False, description="Return also the texts.")

    @model_validator(mode="after")
    def _check(self) -> RerankDocumentsBody:
        for name, value in (self.model_extra or {}).items():
            if value is not None and name != "user":
                known = "is not supported" if name in REFUSED else "is no field of this endpoint"
                raise ValueError(f"{name} {known}; leave it out")
        return self


class RankedDocument(BaseModel):
    index: int
    relevance_score: float
    document: RerankDocument | None = None


class RerankUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class RerankAnswer(BaseModel):
    id: str
    model: str
    results: list[RankedDocument]
    usage: RerankUsage


class RerankRoutes:
    """The endpoint over the models of a server."""

    def __init__(self, models: ModelRegistry, admission: AdmissionControl) -> None:
        self.models, self.admission = models, admission

    def routes(self) -> list[Route]:
        about = "Documents in the order of their relevance to a query."
        endpoint = Endpoint(self.admission, RerankDocumentsBody, self.rerank, RerankAnswer, about)
        return [Route("/v1/rerank", endpoint, methods=["POST"])]

    async def rerank(self, body: RerankDocumentsBody, context: RequestContext) -> Response:
        check_batch(body.documents, context.limits.max_client_batch_size, "documents")
        texts = [document if isinstance(document, str) else document.text for document in body.documents]
        process = await self.models.choose("rerank", body.model)
        arguments = {
            "texts": [(body.query, text) for text in texts],
            "truncate": True,
            "rerank": True,
            "param": "documents",
        }
        found = await context.ask(process, "task", arguments)
        order = best_first(found)[: body.top_n]
        results: list[dict[str, Any]] = [{"index": index, "relevance_score": found[index][0]} for index in order]
        if body.return_documents:
            results = [{**one, "document": {"text": texts[one["index"]]}} for one in results]
        tokens = context.record.timing.tokens
        return json_response(
            {
                "id": f"rerank-{secrets.token_hex(12)}",
                "model": process.name,
                "results": results,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )


def best_first(found: list[tuple[float, float | None]]) -> list[int]:
    """The texts in the order of their logits or, of a model that has none, of their scores; `found` has both."""
    return sorted(range(len(found)), key=lambda index: -next(one for one in found[index][::-1] if one is not None))

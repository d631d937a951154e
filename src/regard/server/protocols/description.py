"""The OpenAPI description of a server: its endpoints from pydantic models, and the verbs from a model's process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.errors import RegardError
from regard.server.http.endpoint import (
    OPENAI_STATUSES,
    Endpoint,
    ErrorShape,
    Limits,
    RequestContext,
    error_response,
    json_response,
    shape_of,
)
from regard.server.models.registry import ModelRegistry

PLAIN = {
    "/v1/models": "The models of the server.",
    "/info": "The first model and the limits of the server.",
    "/health": "Whether every model can answer.",
    "/metrics": "Prometheus metrics.",
}
ERRORS = {
    401: "The request has no valid key.",
    408: "The body did not arrive in time.",
    404: "The server has no such model.",
    413: "The body, or a text, is too large.",
    415: "The body is not JSON.",
    422: "A field has no valid value; the message names it.",
    429: "The server is full; Retry-After says when to try again.",
    503: "The process of the model ended; it is started again.",
    504: "The request took too long.",
}
TEMPLATE = "#/components/schemas/{model}"


class ApiDescription:
    """Answers /openapi.json; the description is made once, when it is first asked for."""

    def __init__(self, models: ModelRegistry, routes: Sequence[Route], limits: Limits) -> None:
        self.models, self._routes, self._limits = models, routes, limits
        self._document: dict[str, Any] | None = None

    async def respond(self, request: Request) -> Response:
        if self._document is None:
            try:
                process = await self.models.any_process("verbs" if self.models.options.local else "serving")
                verbs = await RequestContext(request, self._limits).ask(process, "openapi", {})
            except RegardError as error:
                return error_response(error, "regard")
            self._document = describe(self._routes, json.loads(verbs))
        return json_response(self._document)


def describe(routes: Sequence[Route], verbs: Mapping[str, Any]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of all routes; `verbs` is what `client_verbs.describe` returns."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = dict(verbs["schemas"])
    for route in routes:
        endpoint = route.endpoint
        if not isinstance(endpoint, Endpoint) or "{" in route.path:
            continue
        body = _schema(TypeAdapter(endpoint.body), schemas, "validation")
        result = _schema(TypeAdapter(endpoint.result), schemas, "serialization")
        name = route.path.strip("/").replace("/", "_")
        paths[route.path] = _post(route.path, body, result, operationId=name, summary=endpoint.summary)
    for path, summary in PLAIN.items():
        answer: dict[str, Any] = {"200": {"description": summary}, "401": {"description": ERRORS[401]}}
        if path == "/health":
            answer["503"] = {"description": ERRORS[503]}
        paths[path] = {
            "get": {"operationId": path.strip("/").replace("/", "_"), "summary": summary, "responses": answer}
        }
    for path, verb in verbs["paths"].items():
        paths[path] = {**paths.get(path, {}), **_post(path, **verb)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Regard", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def _schema(adapter: TypeAdapter[Any], schemas: dict[str, Any], mode: Any) -> dict[str, Any]:
    """The schema of a type, whose definitions join the others."""
    found = adapter.json_schema(ref_template=TEMPLATE, mode=mode)
    schemas.update(found.pop("$defs", {}))
    return found


def _post(path: str, body: Mapping[str, Any], result: Mapping[str, Any], **about: str) -> dict[str, Any]:
    return {
        "post": {
            **about,
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {"200": _answer("The result.", result), **_errors(shape_of(path))},
        }
    }


def _answer(description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _errors(shape: ErrorShape) -> dict[str, Any]:
    """Every error is an object with `error`: a message or, at OpenAI's paths, an object with the message. That of
    /v1/rerank has the message in `detail` and `message`."""
    texts = {status: text for status, text in ERRORS.items() if shape != "openai" or status not in OPENAI_STATUSES}
    texts |= {400: "The request is not valid or too large; the message says why."} if shape == "openai" else {}
    names = ["detail", "message"] if shape == "rerank" else ["error"]
    kind: Any = "string" if shape == "rerank" else ["string", "object"]
    schema = {"type": "object", "required": names, "properties": {name: {"type": kind} for name in names}}
    return {str(status): _answer(text, schema) for status, text in texts.items()}

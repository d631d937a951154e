"""Authentication of `regard serve`: requests carry `Authorization: Bearer KEY`; only /health is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.server.endpoint import ErrorShape, error_response
from regard.server.request_errors import RequestError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from regard.server.api_keys import ApiKeys

OPEN = ("/health",)  # what load balancers ask; it tells the names and states of the models
REFUSAL = "this server needs a key: send the header Authorization: Bearer KEY with one of its keys"
OPENAI = ("/v1/embeddings", "/v1/completions", "/v1/models")


class KeyMiddleware:
    """Passes on requests with a key, as requests of the client who has it, and answers all others with 401."""

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self.app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN:
            return await self.app(scope, receive, send)
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
        scheme, _, credentials = given.partition(" ")
        number = self._keys.find(credentials.strip()) if scheme.lower() == "bearer" else None
        if number is not None:
            scope["regard.record"].client = f"key {number}"
            return await self.app(scope, receive, send)
        scope["regard.record"].error = "unauthorized"
        error = RequestError(401, REFUSAL, code="invalid_api_key")
        response = error_response(error, shape_of(scope["path"]))
        response.headers["WWW-Authenticate"] = "Bearer"
        await response(scope, receive, send)


def shape_of(path: str) -> ErrorShape:
    """The form of errors at a path."""
    if path.startswith(OPENAI):
        return "openai"
    return "regard" if path.startswith(("/v1/", "/api/")) else "tei"

"""Who is answered: `regard serve` wants `Authorization: Bearer KEY`, except at /health; and only for its own hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.middleware.trustedhost import TrustedHostMiddleware

from regard.server.errors import RequestError
from regard.server.http.endpoint import error_response, shape_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from regard.server.http.api_keys import ApiKeys

OPEN = ("/health",)  # what load balancers ask; it tells the names and states of the models
REFUSAL = "this server needs a key: send the header Authorization: Bearer KEY with one of its keys"


class HostMiddleware:
    """Starlette's check of the header Host (against DNS rebinding), with an answer in the form of the path."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app = app
        self._check = TrustedHostMiddleware(_accept, allowed_hosts=list(hosts), www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._check(scope, receive, _drop)
        if scope.pop("regard.accepted", False):
            return await self.app(scope, receive, send)
        given = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        message = f"this server does not answer for the host {given[:200]!r}; use the address that it printed"
        await error_response(RequestError(400, message), shape_of(scope["path"]))(scope, receive, send)


async def _accept(scope: Scope, receive: Receive, send: Send) -> None:
    scope["regard.accepted"] = True


async def _drop(message: Message) -> None:
    """Starlette's own answer, which is plain text."""


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

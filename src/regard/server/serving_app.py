"""The HTTP application of `regard serve`: protocols of existing clients and verbs, with a process for each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.routing import Route

from regard.server.api_description import ApiDescription
from regard.server.api_routes import api_routes
from regard.server.endpoint import Gate, Limits, error_response
from regard.server.gateway import Gateway, Reporter
from regard.server.key_auth import KeyMiddleware, shape_of
from regard.server.metrics import ServerMetrics
from regard.server.process_verbs import ProcessVerbs
from regard.server.request_errors import RequestError
from regard.server.request_log import RequestLog
from regard.server.served_models import ServedModels
from regard.server.shedding import Shedder
from regard.server.verb_routes import VerbRoutes

if TYPE_CHECKING:
    from starlette.requests import Request

    from regard.server.api_keys import ApiKeys


def create_serving_app(
    models: ServedModels,
    *,
    limits: Limits | None = None,
    keys: ApiKeys | None = None,
    hosts: Sequence[str] = ("127.0.0.1", "localhost", "::1"),
    auto_truncate: bool = False,
    log: RequestLog | None = None,
    metrics: ServerMetrics | None = None,
) -> Starlette:
    """The application; the models are started by whoever runs it. `state.shed` is what `create_server` takes."""
    metrics = ServerMetrics() if metrics is None else metrics
    gate = Gate(limits or Limits())
    reporter = Reporter(log, metrics)
    middleware = [
        Middleware(Gateway, reporter=reporter),
        Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
    ]
    if keys is not None:
        middleware.append(Middleware(KeyMiddleware, keys=keys))
    routes = api_routes(models, gate, metrics, auto_truncate=auto_truncate)
    description = ApiDescription(models, routes, gate.limits)
    app = Starlette(
        routes=[
            *routes,
            Route("/openapi.json", description.respond),
            Route("/v1/openapi.json", description.respond),
            *VerbRoutes(gate, ProcessVerbs(models)).routes(),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: _on_http_error, Exception: _on_error},
    )
    app.state.shed = Shedder(gate, routes, reporter)
    return app


async def _on_http_error(request: Request, error: Exception) -> Response:
    """An unknown path, or a method that a path does not have."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    message = {404: f"there is nothing at {path[:200]}; /openapi.json lists the endpoints"}.get(
        error.status_code, f"{error.detail}: {request.method} {path[:200]}"
    )
    response = error_response(RequestError(error.status_code, message), shape_of(path))
    response.headers.update(error.headers or {})
    return response


async def _on_error(request: Request, error: Exception) -> Response:
    return error_response(error, shape_of(request.url.path))

"""The HTTP application of `regard serve`: protocols of existing clients and verbs, with a process for each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from regard.server.http.api_description import ApiDescription
from regard.server.http.endpoint import EXCEPTION_HANDLERS, Gate, Limits
from regard.server.http.gateway import Gateway, Reporter
from regard.server.http.key_auth import HostMiddleware, KeyMiddleware
from regard.server.http.metrics import ServerMetrics
from regard.server.http.request_log import RequestLog
from regard.server.http.shedding import Shedder
from regard.server.models.served_models import ServedModels
from regard.server.protocols.api_routes import api_routes
from regard.server.protocols.process_verbs import ProcessVerbs
from regard.server.protocols.verbs import VerbRoutes

if TYPE_CHECKING:
    from regard.server.http.api_keys import ApiKeys


def create_serving_app(
    models: ServedModels,
    *,
    limits: Limits | None = None,
    keys: ApiKeys | None = None,
    hosts: Sequence[str] = ("127.0.0.1", "localhost", "::1"),
    log: RequestLog | None = None,
    metrics: ServerMetrics | None = None,
) -> Starlette:
    """The application; the models are started by whoever runs it. `state.shed` is what `create_server` takes."""
    metrics = ServerMetrics() if metrics is None else metrics
    gate = Gate(limits or Limits())
    reporter = Reporter(log, metrics)
    middleware = [
        Middleware(Gateway, reporter=reporter),
        Middleware(HostMiddleware, hosts=hosts),
    ]
    if keys is not None:
        middleware.append(Middleware(KeyMiddleware, keys=keys))
    routes = api_routes(models, gate, metrics)
    description = ApiDescription(models, routes, gate.limits)
    app = Starlette(
        routes=[
            *routes,
            Route("/openapi.json", description.respond),
            Route("/v1/openapi.json", description.respond),
            *VerbRoutes(gate, ProcessVerbs(models, gate.limits)).routes(),
        ],
        middleware=middleware,
        exception_handlers=EXCEPTION_HANDLERS,
    )
    app.state.shed = Shedder(gate, routes, reporter)
    return app

"""The HTTP application: endpoints of existing clients and verbs, over models in processes of their own.

With a studio it has the page on top, and what only the page can do. Then all requests need the token or a key
(`http.access`). Against other sites open in the same browser: other host names for this address are refused (DNS
rebinding), there are no CORS headers, and a body must be JSON, which no foreign form can send.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from regard.server.http.access import (
    KEY_PAGE,
    KEY_REFUSAL,
    LOOPBACK,
    TOKEN_PAGE,
    ApiKeys,
    HostMiddleware,
    KeyMiddleware,
)
from regard.server.http.connection import BodyReader
from regard.server.http.endpoint import EXCEPTION_HANDLERS, AdmissionControl, Limits
from regard.server.http.gateway import Gateway, Reporter, RequestLog
from regard.server.http.metrics import ServerMetrics
from regard.server.http.shedding import Shedder
from regard.server.models.registry import ModelRegistry
from regard.server.protocols.description import ApiDescription
from regard.server.protocols.openai import OpenAIRoutes
from regard.server.protocols.rerank import RerankRoutes
from regard.server.protocols.tei import TeiRoutes
from regard.server.protocols.verbs import VerbRoutes
from regard.server.studio.routes import Studio, StudioRoutes

STUDIO_LIMITS = Limits(max_client_requests=16)
# The page may ask for more in one verb than other clients, and waits for it as long as it is open.
PAGE_LIMITS = replace(
    STUDIO_LIMITS,
    max_body_bytes=1_000_000,
    max_client_batch_size=20_000,
    request_timeout=math.inf,
    verb_timeout=math.inf,
)


def create_app(
    models: ModelRegistry,
    *,
    limits: Limits | None = None,
    keys: ApiKeys | None = None,
    studio: Studio | None = None,
    token: str = "",
    hosts: Sequence[str] = LOOPBACK,
    log: RequestLog | None = None,
    metrics: ServerMetrics | None = None,
    body_reader: BodyReader | None = None,
) -> Starlette:
    """The application; whoever runs it starts the models. With a `studio`, requests need the `token` or, if there are
    any, one of the `keys`. `hosts` are the Host headers that are answered. `state.shed` is what `create_server`
    takes."""
    metrics = metrics or ServerMetrics()
    admission = AdmissionControl(limits or (Limits() if studio is None else STUDIO_LIMITS), body_reader)
    verb_admission = admission if studio is None else admission.with_limits(PAGE_LIMITS if limits is None else limits)
    reporter = Reporter(metrics, log)
    routes = [
        *TeiRoutes(models, admission).routes(),
        *OpenAIRoutes(models, admission).routes(),
        *RerankRoutes(models, admission).routes(),
        Route("/metrics", metrics.respond),
    ]
    description = ApiDescription(models, routes, admission.limits)
    middleware = [Middleware(Gateway, reporter=reporter), Middleware(HostMiddleware, hosts=hosts)]
    refusal = KEY_REFUSAL if studio is None else TOKEN_PAGE if keys is None else KEY_PAGE
    if studio is not None and keys is None:
        keys = ApiKeys([token])
    if keys is not None:
        middleware.append(Middleware(KeyMiddleware, keys=keys, refusal=refusal))
    app = Starlette(
        routes=[
            *([] if studio is None else StudioRoutes(studio, verb_admission).routes()),
            *routes,
            Route("/openapi.json", description.respond),
            Route("/v1/openapi.json", description.respond),
            *VerbRoutes(models, verb_admission, None if studio is None else studio.images).routes(),
        ],
        middleware=middleware,
        exception_handlers=EXCEPTION_HANDLERS,
    )
    app.state.shed = Shedder(admission, routes, reporter)
    return app

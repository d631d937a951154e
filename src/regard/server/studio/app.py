"""The HTTP application of the studio: the endpoints of `regard serve`, the page on top, and what only the page can do.

Only requests with the token are answered (`token_auth`). Against other sites open in the same browser: other host names
for this address are refused (DNS rebinding), there are no CORS headers, and a body must be JSON, which no foreign form
can send. The page names its tab in each request, so that tabs take turns; a request whose client has gone is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from regard.errors import suggest
from regard.render.bundle import page
from regard.server.http.api_description import describe
from regard.server.http.connection import BodyReader
from regard.server.http.endpoint import EXCEPTION_HANDLERS, Call, Endpoint, Gate, Limits, json_response
from regard.server.http.gateway import Gateway, Reporter
from regard.server.http.key_auth import HostMiddleware
from regard.server.http.metrics import ServerMetrics
from regard.server.http.token_auth import TokenMiddleware
from regard.server.models import client_verbs as verbs
from regard.server.protocols.api_routes import api_routes
from regard.server.protocols.verbs import Arguments, VerbRoutes
from regard.server.request_errors import RequestError
from regard.server.studio.request_queue import RequestQueue
from regard.server.studio.studio import Studio, branch_prompt
from regard.server.studio.studio_models import StudioModels
from regard.server.studio.studio_verbs import RunVerb, StudioVerbs, TabGate, with_plain_errors
from regard.server.studio.training import cancel_training, start_training, training_options

if TYPE_CHECKING:
    from starlette.requests import Request

    from regard.server.http.api_keys import ApiKeys

HOSTS = ["127.0.0.1", "localhost"]
MAX_BODY_BYTES = 1_000_000
MAX_UPLOAD_BYTES = {"image": 12_000_000}  # of actions that accept a file; base64 makes four bytes of three

# What the page does beside the verbs: fast, and never queued, since "cancel-training" is one of them.
ACTIONS: dict[str, Callable[[Studio, Mapping[str, object]], BaseModel]] = {
    "image": lambda studio, arguments: studio.images.add(arguments),
    "branch": branch_prompt,
    "train": start_training,
    "training": lambda studio, arguments: training_options(studio),
    "cancel-training": lambda studio, arguments: cancel_training(studio),
}


def create_app(
    studio: Studio,
    *,
    token: str,
    keys: ApiKeys | None = None,
    hosts: Sequence[str] = HOSTS,
    run_verb: RunVerb = verbs.run_verb,
    queue: RequestQueue | None = None,
    body_reader: BodyReader | None = None,
) -> Starlette:
    """The application of a studio; it does not start to load the models. `keys` replace the token, `hosts` are the Host
    headers that are answered."""
    queue = RequestQueue() if queue is None else queue
    body_reader = BodyReader() if body_reader is None else body_reader

    async def home(request: Request) -> Response:
        models = [state.model_dump() for state in studio.models.states()]
        return HTMLResponse(page({"view": "studio", "models": models}, title="Regard studio", online=True))

    async def models(request: Request) -> Response:
        return json_response({"models": [state.model_dump() for state in studio.models.states()]})

    async def act(body: Arguments, call: Call) -> Response:
        name = call.request.url.path.removeprefix("/api/")
        if name not in ACTIONS:
            raise RequestError(404, f"the studio has no action {name[:80]!r}; {suggest(name[:80], ACTIONS)}")
        return json_response(with_plain_errors(partial(ACTIONS[name], studio, body.root)).model_dump())

    def action(pattern: str, max_body_bytes: int = MAX_BODY_BYTES) -> Route:
        gate = Gate(Limits(max_body_bytes=max_body_bytes), body_reader)
        return Route(f"/api/{pattern}", Endpoint(gate, Arguments, act), methods=["POST"])

    async def openapi(request: Request) -> Response:
        return json_response(verbs.openapi())

    async def description(request: Request) -> Response:
        return json_response(describe(endpoints, verbs.openapi()))

    metrics = ServerMetrics()
    endpoints = api_routes(StudioModels(studio.models), Gate(Limits()), metrics)
    tabs = TabGate(Limits(max_body_bytes=MAX_BODY_BYTES), body_reader, queue)
    return Starlette(
        routes=[
            Route("/", home),
            Route("/api/models", models),
            *(action(name, size) for name, size in MAX_UPLOAD_BYTES.items()),
            action("{name}"),
            *endpoints,
            Route("/openapi.json", description),
            Route("/v1/openapi.json", openapi),
            *VerbRoutes(tabs, StudioVerbs(studio, queue, run_verb)).routes(),
        ],
        middleware=[
            Middleware(Gateway, reporter=Reporter(metrics=metrics)),
            Middleware(HostMiddleware, hosts=hosts),
            Middleware(TokenMiddleware, token=token, keys=keys),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
    )

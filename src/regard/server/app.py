"""The HTTP application of the studio: the page, the states of the models and one address per view.

Only requests with the token are answered (`token_auth`). Against other sites open in the same browser: other host names
for this address are refused (DNS rebinding), there are no CORS headers, and a body must be JSON, which no foreign form
can send. The page names its tab in each request, so that tabs take turns; a request whose client has gone is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route as Address

from regard.errors import InputError, RegardError, suggest
from regard.render.bundle import page
from regard.server import verbs
from regard.server.arguments import Arguments, Payload, Route
from regard.server.body_reader import RETRY_AFTER, BodyReader, BodyTimeout, BodyTooLarge
from regard.server.request_queue import ClientDisconnected, RequestQueue, ServerBusy
from regard.server.routes import ACTIONS, ROUTES, STREAMS
from regard.server.streaming import internal_error, stream_endpoint, to_json
from regard.server.studio import Studio
from regard.server.token_auth import HEADERS, TokenMiddleware

if TYPE_CHECKING:
    from starlette.requests import Request

    from regard.render.result import Result

Answer = TypeVar("Answer")

HOSTS = ["127.0.0.1", "localhost"]
MAX_BODY_BYTES = 1_000_000
MAX_UPLOAD_BYTES = {"picture": 12_000_000}  # of addresses that accept a file; base64 makes four bytes of three
TAB_HEADER = "x-regard-tab"  # names the tab; requests without it share one
STATUSES = ((ServerBusy, 429), (BodyTimeout, 408), (BodyTooLarge, 413), (InputError, 400))  # the first match counts
CLIENT_CLOSED_REQUEST = 499  # nginx's code; nobody reads this answer


def create_app(
    studio: Studio,
    *,
    token: str,
    routes: Mapping[str, Route] = ROUTES,
    queue: RequestQueue | None = None,
    body_reader: BodyReader | None = None,
) -> Starlette:
    """The application of a studio; it does not start to load the models."""
    queue = RequestQueue() if queue is None else queue
    body_reader = BodyReader() if body_reader is None else body_reader

    async def read_arguments(request: Request) -> dict[str, object]:
        name = request.path_params["name"]
        if name not in ACTIONS:
            queue.check_capacity(_tab(request))  # before the body is read: refusing must be cheap under overload
        return await _read_arguments(request, body_reader)

    async def compute(request: Request, name: str, arguments: Arguments) -> Payload:
        answer = partial(_answer, studio, routes, name, arguments)
        return await queue.run(_tab(request), answer, partial(_wait_disconnect, request))

    async def home(request: Request) -> Response:
        text = page({"view": "studio", "models": studio.models.states()}, title="Regard studio", online=True)
        return HTMLResponse(text, headers=HEADERS)

    async def models(request: Request) -> Response:
        return _json({"models": studio.models.states()})

    async def view(request: Request) -> Response:
        arguments, name = await read_arguments(request), request.path_params["name"]
        if name in ACTIONS:  # fast, and never queued: "cancel-training" is one of them
            return _json(_answer(studio, ACTIONS, name, arguments))
        return _json(await compute(request, name, arguments))

    async def export(request: Request) -> Response:
        arguments, name = await read_arguments(request), request.path_params["name"]
        payload = await compute(request, name, arguments)
        place = arguments.get("place")
        if isinstance(place, str):
            payload = {**payload, "place": place}
        return HTMLResponse(page(payload, title=f"Regard: {name}"), headers=HEADERS)

    async def verb_result(request: Request) -> Result:
        queue.check_capacity(_tab(request))
        arguments, name = await _read_arguments(request, body_reader), request.path_params["name"]
        answer = partial(_with_plain_errors, partial(verbs.answer, studio.models, name, arguments))
        return await queue.run(_tab(request), answer, partial(_wait_disconnect, request))

    async def verb_document(request: Request) -> Response:
        return _json((await verb_result(request)).to_dict())

    async def verb_view(request: Request) -> Response:
        return _json((await verb_result(request)).page_data())

    async def verb_page(request: Request) -> Response:
        return HTMLResponse((await verb_result(request)).to_html(), headers=HEADERS)

    async def openapi(request: Request) -> Response:
        return _json(verbs.openapi())

    stream = stream_endpoint(
        STREAMS, studio, queue, read=read_arguments, wait_disconnect=_wait_disconnect, tab=_tab, headers=HEADERS
    )
    return Starlette(
        routes=[
            Address("/", home),
            Address("/api/models", models),
            Address("/api/{name}", view, methods=["POST"]),
            Address("/api/{name}/page", export, methods=["POST"]),
            Address("/api/{name}/stream", stream, methods=["POST"]),
            Address("/v1/openapi.json", openapi),
            Address("/v1/{name}", verb_document, methods=["POST"]),
            Address("/v1/{name}/view", verb_view, methods=["POST"]),
            Address("/v1/{name}/page", verb_page, methods=["POST"]),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
            Middleware(TokenMiddleware, token=token),
        ],
        exception_handlers={RegardError: _on_error, ClientDisconnected: _on_disconnect},
    )


def _answer(studio: Studio, routes: Mapping[str, Route], name: str, arguments: Arguments) -> Payload:
    if name not in routes:
        raise InputError(f"the studio has no view {name!r}; {suggest(name, routes)}")
    return _with_plain_errors(partial(routes[name], studio, arguments))


def _with_plain_errors(compute: Callable[[], Answer]) -> Answer:
    try:
        return compute()
    except (RegardError, ClientDisconnected):
        raise
    except Exception as error:
        raise internal_error(error) from error


async def _read_arguments(request: Request, body_reader: BodyReader) -> dict[str, object]:
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type != "application/json":
        raise InputError(f"the body must be JSON (Content-Type: application/json), got {media_type or 'no type'}")
    limit = MAX_UPLOAD_BYTES.get(request.path_params["name"], MAX_BODY_BYTES)
    body = await body_reader.read(request, limit)
    try:
        arguments = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise InputError(f"the body must be a JSON object, got {type(arguments).__name__}")
    return arguments


def _json(document: Mapping[str, object], *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    headers = {**HEADERS, **(headers or {})}
    return Response(to_json(document), status_code=status, media_type="application/json", headers=headers)


def _tab(request: Request) -> str:
    return request.headers.get(TAB_HEADER, "")[:64]


async def _wait_disconnect(request: Request) -> None:
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _on_error(request: Request, error: Exception) -> Response:
    """A coroutine: Starlette would run a plain function in a thread, and under overload wait for one."""
    headers = {"Retry-After": str(RETRY_AFTER)} if isinstance(error, ServerBusy) else {}
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    return _json({"error": str(error)}, status=status, headers=headers)


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST, headers=HEADERS)

"""The studio's HTTP side: the page, the models' states and one address for each view.

Knows requests and answers. Only who has the token may ask (`access`), and only this machine's own page: other names for
this address are refused (a site that lets its name point here must not read along), there are no CORS headers, and a
body must be JSON, which no foreign form can send. A page says with each question which tab asks, so that tabs can take
turns; a question whose tab has gone, or has broken it off for another, is dropped.
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

from regard.errors import InputError, RegardError, nearest
from regard.render.bundle import page
from regard.server import verbs
from regard.server.arguments import Payload, Route
from regard.server.body_reader import RETRY_AFTER, BodyReader, BodyTimeout, BodyTooLarge
from regard.server.model_registry import ModelRegistry
from regard.server.request_queue import ClientDisconnected, RequestQueue, ServerBusy
from regard.server.routes import ACTIONS, ROUTES, STREAMS
from regard.server.streaming import stream_endpoint
from regard.server.token_auth import HEADERS, TokenMiddleware

if TYPE_CHECKING:
    from starlette.requests import Request

    from regard.render.result import Result

Answer = TypeVar("Answer")

__all__ = ["BODY", "TAB", "create_app"]

HOSTS = ["127.0.0.1", "localhost"]
BODY = 1_000_000  # bytes of a request
ROOMY = {"picture": 12_000_000}  # of those that send a file; base64 makes four bytes of three
TAB = "x-regard-tab"  # the header that names the tab; who sends none shares one
STATUSES = ((ServerBusy, 429), (BodyTimeout, 408), (BodyTooLarge, 413), (InputError, 400))  # the first that fits
GONE = 499  # as other servers write it down; nobody reads this answer


def create_app(
    registry: ModelRegistry,
    *,
    token: str,
    routes: Mapping[str, Route] = ROUTES,
    queue: RequestQueue | None = None,
    body_reader: BodyReader | None = None,
) -> Starlette:
    """The application over the registry's models; it does not start to load them. Only requests with the token are
    answered."""
    queue = RequestQueue() if queue is None else queue
    body_reader = BodyReader() if body_reader is None else body_reader

    async def arguments_of(request: Request) -> dict[str, object]:
        name = request.path_params["name"]
        if name not in ACTIONS:
            queue.check_room(_tab(request))  # before anything is read: a crowd must cost little
        return await _arguments(request, body_reader)

    async def computed(request: Request, name: str, arguments: Mapping[str, object]) -> Payload:
        return await queue.answer(
            _tab(request), partial(_answer, registry, routes, name, arguments), partial(_gone, request)
        )

    async def home(request: Request) -> Response:
        text = page({"view": "studio", "models": registry.states()}, title="Regard studio", online=True)
        return HTMLResponse(text, headers=HEADERS)

    async def models(request: Request) -> Response:
        return _json({"models": registry.states()})

    async def view(request: Request) -> Response:
        arguments, name = await arguments_of(request), request.path_params["name"]
        if name in ACTIONS:  # quick, and not to wait behind questions: "stop" is among them
            return _json(_answer(registry, ACTIONS, name, arguments))
        return _json(await computed(request, name, arguments))

    async def export(request: Request) -> Response:
        arguments, name = await arguments_of(request), request.path_params["name"]
        payload = await computed(request, name, arguments)
        place = arguments.get("place")
        kept = {**payload, "place": place} if isinstance(place, str) else payload
        return HTMLResponse(page(kept, title=f"Regard: {name}"), headers=HEADERS)

    async def verb_result(request: Request) -> Result:
        queue.check_room(_tab(request))
        arguments, name = await _arguments(request, body_reader), request.path_params["name"]
        compute = partial(_checked, partial(verbs.answer, registry, name, arguments))
        return await queue.answer(_tab(request), compute, partial(_gone, request))

    async def verb_document(request: Request) -> Response:
        return _json((await verb_result(request)).to_dict())

    async def verb_view(request: Request) -> Response:
        return _json((await verb_result(request)).page_data())

    async def verb_page(request: Request) -> Response:
        return HTMLResponse((await verb_result(request)).to_html(), headers=HEADERS)

    async def description(request: Request) -> Response:
        return _json(verbs.openapi())

    stream = stream_endpoint(STREAMS, registry, queue, read=arguments_of, gone=_gone, tab=_tab, headers=HEADERS)
    return Starlette(
        routes=[
            Address("/", home),
            Address("/api/models", models),
            Address("/api/{name}", view, methods=["POST"]),
            Address("/api/{name}/page", export, methods=["POST"]),
            Address("/api/{name}/stream", stream, methods=["POST"]),
            Address("/v1/openapi.json", description),
            Address("/v1/{name}", verb_document, methods=["POST"]),
            Address("/v1/{name}/view", verb_view, methods=["POST"]),
            Address("/v1/{name}/page", verb_page, methods=["POST"]),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
            Middleware(TokenMiddleware, token=token),
        ],
        exception_handlers={RegardError: _refuse, ClientDisconnected: _forget},
    )


def _answer(
    registry: ModelRegistry, routes: Mapping[str, Route], name: str, arguments: Mapping[str, object]
) -> Payload:
    if name not in routes:
        raise InputError(f"the studio has no view {name!r}; {nearest(name, routes)}")
    return _checked(partial(routes[name], registry, arguments))


def _checked(compute: Callable[[], Answer]) -> Answer:
    """Unexpected errors become one line: a bad request must not end the server, and users get no traceback."""
    try:
        return compute()
    except (RegardError, ClientDisconnected):
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise RegardError(f"internal error: {type(error).__name__}: {message}") from error


async def _arguments(request: Request, body_reader: BodyReader) -> dict[str, object]:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise InputError(f"the body must be JSON (Content-Type: application/json), got {kind or 'no type'}")
    body = await body_reader.read(request, ROOMY.get(request.path_params["name"], BODY))
    try:
        arguments = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise InputError(f"the body must be a JSON object, got {type(arguments).__name__}")
    return arguments


def _json(document: Mapping[str, object], *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Half a surrogate pair has no UTF-8; its escape is JSON's own."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise RegardError(
            "the result holds NaN or infinity, which JSON cannot carry; look for a damaged checkpoint or an overflow"
        ) from None
    body = text.encode("utf-8", "backslashreplace")
    return Response(body, status_code=status, media_type="application/json", headers={**HEADERS, **(headers or {})})


def _tab(request: Request) -> str:
    return request.headers.get(TAB, "")[:64]


async def _gone(request: Request) -> None:
    """Returns when whoever asked has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refuse(request: Request, error: Exception) -> Response:
    """Not a plain function: Starlette would run it in a thread, and a crowd would wait for one."""
    headers = {"Retry-After": str(RETRY_AFTER)} if isinstance(error, ServerBusy) else {}
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    return _json({"error": str(error)}, status=status, headers=headers)


async def _forget(request: Request, error: Exception) -> Response:
    return Response(status_code=GONE, headers=HEADERS)

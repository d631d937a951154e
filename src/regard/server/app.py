"""The HTTP application of the studio: the endpoints of `regard serve`, the page on top, and what only the page can do.

Only requests with the token are answered (`token_auth`). Against other sites open in the same browser: other host names
for this address are refused (DNS rebinding), there are no CORS headers, and a body must be JSON, which no foreign form
can send. The page names its tab in each request, so that tabs take turns; a request whose client has gone is dropped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from regard.errors import InputError, RegardError, suggest
from regard.events import Event, drain
from regard.files.json_files import json_text
from regard.render.bundle import page
from regard.server import verbs
from regard.server.api_description import describe
from regard.server.api_routes import api_routes
from regard.server.connection import RETRY_AFTER, BodyReader, BodyTimeout, BodyTooLarge
from regard.server.endpoint import Gate, Limits
from regard.server.gateway import Gateway
from regard.server.metrics import ServerMetrics
from regard.server.request_queue import ClientDisconnected, RequestQueue, ServerBusy, check_connected
from regard.server.studio import Studio, branch_prompt
from regard.server.studio_models import StudioModels
from regard.server.token_auth import HEADERS, TokenMiddleware
from regard.server.training import cancel_training, start_training, training_options

if TYPE_CHECKING:
    from starlette.requests import Request

    from regard.render.result import Result
    from regard.server.api_keys import ApiKeys

Answer = TypeVar("Answer")
Send = Callable[[Mapping[str, object]], None]
RunVerb = Callable[[Studio, str, Mapping[str, object]], Generator[Event, None, "Result"]]

HOSTS = ["127.0.0.1", "localhost"]
MAX_BODY_BYTES = 1_000_000
MAX_UPLOAD_BYTES = {"image": 12_000_000}  # of actions that accept a file; base64 makes four bytes of three
TAB_HEADER = "x-regard-tab"  # names the tab; requests without it share one
STATUSES = ((ServerBusy, 429), (BodyTimeout, 408), (BodyTooLarge, 413), (InputError, 400))  # the first match counts
CLIENT_CLOSED_REQUEST = 499  # nginx's code; nobody reads this answer
EVENTS_TYPE = "application/x-ndjson"

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
        text = page({"view": "studio", "models": models}, title="Regard studio", online=True)
        return HTMLResponse(text, headers=HEADERS)

    async def models(request: Request) -> Response:
        return _json({"models": [state.model_dump() for state in studio.models.states()]})

    async def action(request: Request) -> Response:
        name, arguments = request.path_params["name"], await _read_arguments(request, body_reader)
        if name not in ACTIONS:
            raise InputError(f"the studio has no action {name!r}; {suggest(name, ACTIONS)}")
        return _json(_with_plain_errors(partial(ACTIONS[name], studio, arguments)).model_dump())

    async def run(request: Request, answer: Callable[[Result], Answer], on_event: Send | None = None) -> Answer:
        queue.check_capacity(_tab(request))  # before the body is read: refusing must be cheap under overload
        arguments, name = await _read_arguments(request, body_reader), request.path_params["name"]

        def send_event(event: Event) -> None:
            check_connected()
            if on_event is not None:
                on_event(event.model_dump(mode="json"))

        def compute() -> Answer:
            return answer(drain(run_verb(studio, name, arguments), send_event))

        work = partial(_with_plain_errors, compute)
        return await queue.run(_tab(request), work, partial(_wait_disconnect, request))

    async def verb_document(request: Request) -> Response:
        return _json(await run(request, lambda result: result.to_dict()))

    async def verb_view(request: Request) -> Response:
        return _json(await run(request, lambda result: result.page_data()))

    async def verb_page(request: Request) -> Response:
        return HTMLResponse(await run(request, lambda result: result.to_html()), headers=HEADERS)

    async def verb_events(request: Request) -> Response:
        """A line of JSON for each event, then {"type": "result", "view": ...}. An error before the first event is an
        error of the request; a later one is the last line: {"error": ...}."""
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def send(document: Mapping[str, object]) -> None:
            loop.call_soon_threadsafe(lines.put_nowait, _to_json(document) + b"\n")

        def send_result(result: Result) -> None:
            send({"type": "result", "view": result.page_data()})

        computation = asyncio.ensure_future(run(request, send_result, send))
        computation.add_done_callback(partial(_close, lines))
        try:
            first = await lines.get()
        except asyncio.CancelledError:
            computation.cancel()
            raise
        if first is None:
            computation.result()  # raises the error that came before the first line
        return StreamingResponse(_stream(first, lines, computation), media_type=EVENTS_TYPE, headers=HEADERS)

    async def openapi(request: Request) -> Response:
        return _json(verbs.openapi())

    async def description(request: Request) -> Response:
        return _json(describe(endpoints, verbs.openapi()))

    metrics = ServerMetrics()
    endpoints = api_routes(StudioModels(studio.models), Gate(Limits()), metrics)
    return Starlette(
        routes=[
            Route("/", home),
            Route("/api/models", models),
            Route("/api/{name}", action, methods=["POST"]),
            *endpoints,
            Route("/openapi.json", description),
            Route("/v1/openapi.json", openapi),
            Route("/v1/{name}", verb_document, methods=["POST"]),
            Route("/v1/{name}/view", verb_view, methods=["POST"]),
            Route("/v1/{name}/page", verb_page, methods=["POST"]),
            Route("/v1/{name}/events", verb_events, methods=["POST"]),
        ],
        middleware=[
            Middleware(Gateway, metrics=metrics),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
            Middleware(TokenMiddleware, token=token, keys=keys),
        ],
        exception_handlers={RegardError: _on_error, ClientDisconnected: _on_disconnect},
    )


def _with_plain_errors(compute: Callable[[], Answer]) -> Answer:
    """An unexpected exception becomes one line for the user: it must neither end the studio nor show a traceback."""
    try:
        return compute()
    except (RegardError, ClientDisconnected):
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise RegardError(f"internal error: {type(error).__name__}: {message}") from error


async def _stream(
    first: bytes | None, lines: asyncio.Queue[bytes | None], computation: asyncio.Future[Any]
) -> AsyncIterator[bytes]:
    try:
        line = first
        while line is not None:
            yield line
            line = await lines.get()
        error = None if computation.cancelled() else computation.exception()
        if error is not None and not isinstance(error, ClientDisconnected):
            yield _to_json({"error": str(error)}) + b"\n"
    finally:
        computation.cancel()


def _close(lines: asyncio.Queue[bytes | None], computation: asyncio.Future[Any]) -> None:
    if not computation.cancelled():
        computation.exception()  # retrieved here, or asyncio would log it when the client has gone
    lines.put_nowait(None)


async def _read_arguments(request: Request, body_reader: BodyReader) -> dict[str, object]:
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type != "application/json":
        raise InputError(f"the body must be JSON (Content-Type: application/json), got {media_type or 'no type'}")
    upload = request.url.path.startswith("/api/")
    limit = MAX_UPLOAD_BYTES.get(request.path_params["name"], MAX_BODY_BYTES) if upload else MAX_BODY_BYTES
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
    return Response(_to_json(document), status_code=status, media_type="application/json", headers=headers)


def _to_json(document: Mapping[str, object]) -> bytes:
    """UTF-8, with lone surrogates escaped as JSON does it."""
    return json_text(document).encode("utf-8", "backslashreplace")


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

"""The path of a request through the server: slot, body, validation, limits of time, errors with their status.

`Endpoint` turns a pydantic request and a handler into an ASGI route; it knows neither models nor protocols.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from regard.errors import InputError, RegardError
from regard.files.json_files import json_text
from regard.server.errors import ClientDisconnected, RequestError, busy
from regard.server.http.connection import RETRY_AFTER, BodyReader
from regard.server.models.messages import Reply, Timing
from regard.server.models.process import ModelProcess
from regard.verbs import VERBS

Body = TypeVar("Body", bound=BaseModel)
ErrorShape = Literal["openai", "tei", "rerank", "regard"]
CLIENT_CLOSED_REQUEST = 499  # nginx's code; nobody reads this answer
# The names of errors in the two protocols, by status.
OPENAI_PATHS = ("/v1/embeddings", "/v1/completions", "/v1/chat/completions", "/v1/models")
RERANK_PATH = "/v1/rerank"
OPENAI_STATUSES = {413: 400, 415: 400, 422: 400}  # what its clients raise as BadRequestError
OPENAI_TYPES = {401: "invalid_request_error", 429: "rate_limit_error", 503: "service_unavailable", 504: "timeout"}
TEI_TYPES = {422: "Validation", 413: "Validation", 429: "Overloaded", 503: "Unhealthy", 404: "Validation"}

ALTERNATIVE = re.compile(r"str|int|float|bool|function-.*|.*[\[(].*")
WARNING_HEADER = "X-Regard-Warning"  # texts that the model cannot read; bodies stay those of other servers


@dataclass(frozen=True)
class Limits:
    """The limits of a server. `request_timeout` is in seconds, from the body to the answer; `verb_timeout` is that of
    the computation of a verb; `auto_truncate` is what a request that does not say gets; without `accept_token_ids`,
    inputs must be texts."""

    max_concurrent_requests: int = 64
    max_client_requests: int = 48
    max_body_bytes: int = 4_000_000
    max_client_batch_size: int = 2048
    request_timeout: float = 60.0
    verb_timeout: float = 30.0
    body_timeout: float = 5.0
    auto_truncate: bool = False
    accept_token_ids: bool = False


@dataclass(slots=True)
class RequestRecord:
    """What the log and the metrics say of a request."""

    id: str
    client: str
    start: float
    model: str = ""
    operation: str = ""
    timing: Timing = field(default_factory=Timing)
    error: str = ""


class Slots:
    """At most `count` requests at once, `per_client` of one client. A slot is taken before a body is read.

    `messages` are the two reasons why there is no slot.
    """

    def __init__(self, count: int, per_client: int) -> None:
        self.count, self.per_client = count, min(count, per_client)
        self.used = 0
        self.messages = [
            f"the server is busy: it holds {held}. Try again in a moment"
            for held in (f"{self.count} requests", f"{self.per_client} requests of this client")
        ]
        self._clients: Counter[str] = Counter()

    def refusal(self, client: str) -> str:
        """Why a client gets no slot now; empty if it gets one."""
        if self.used >= self.count:
            return self.messages[0]
        return self.messages[1] if self._clients[_holder(client)] >= self.per_client else ""

    @contextmanager
    def hold(self, client: str) -> Iterator[None]:
        """Hold a slot; raises RequestError 429 when there is none."""
        if refusal := self.refusal(client):
            raise busy(refusal)
        holder = _holder(client)
        self.used += 1
        self._clients[holder] += 1
        try:
            yield
        finally:
            self.used -= 1
            self._clients[holder] -= 1
            if not self._clients[holder]:
                del self._clients[holder]


def _holder(client: str) -> str:
    """Whose slots a client uses: those of its key, or of its address, which all connections from there share."""
    return client.rpartition(":")[0] or client


class AdmissionControl:
    """Admits requests: what all endpoints of a server share."""

    def __init__(self, limits: Limits, body_reader: BodyReader | None = None) -> None:
        self.limits = limits
        self.slots = Slots(limits.max_concurrent_requests, limits.max_client_requests)
        self.body_reader = BodyReader(timeout=limits.body_timeout) if body_reader is None else body_reader

    def with_limits(self, limits: Limits) -> AdmissionControl:
        """For endpoints with other limits of one request: they share the slots of this one."""
        admission = AdmissionControl(limits, self.body_reader)
        admission.slots = self.slots
        return admission


class RequestContext:
    """One request of a client on its way: the record of it, and calls to models that end with it."""

    def __init__(self, request: Request, limits: Limits) -> None:
        self.request, self.limits = request, limits
        self.record: RequestRecord = request.scope["regard.record"]

    async def ask(self, process: ModelProcess, operation: str, arguments: Mapping[str, Any]) -> Any:
        """The reply of a model. Raises ClientDisconnected, and RequestError 504 when it takes too long."""
        loop = asyncio.get_running_loop()
        self.record.model, self.record.operation = process.name, operation
        answer = process.call(self.record.client, operation, arguments)
        timer = loop.call_later(self.limits.request_timeout, _fail, answer, _too_slow(self.limits.request_timeout))
        watch = loop.create_task(_watch(self.request, answer))
        try:
            payload, self.record.timing = await answer
        finally:
            timer.cancel()
            watch.cancel()
        return payload

    async def stream(
        self, process: ModelProcess, operation: str, arguments: Mapping[str, Any]
    ) -> AsyncIterator[tuple[bool, Any]]:
        """The events of a model, each with False, and its reply with True. Closing the iterator cancels the request."""
        loop = asyncio.get_running_loop()
        replies: asyncio.Queue[Reply] = asyncio.Queue()
        self.record.model, self.record.operation = process.name, operation
        number = process.send(self.record.client, operation, arguments, replies.put_nowait)
        fault = _too_slow(self.limits.request_timeout).to_tuple()
        timer = loop.call_later(self.limits.request_timeout, replies.put_nowait, Reply(number, "error", fault))
        try:
            while (reply := await replies.get()).state == "event":
                yield False, reply.payload
            if reply.state == "error":
                raise RequestError.from_tuple(reply.payload)
            self.record.timing = Timing(*(reply.timing or ()))
            yield True, reply.payload
        finally:
            process.cancel(number)
            timer.cancel()


def _too_slow(seconds: float) -> RequestError:
    message = f"the request took longer than {seconds:g} seconds; send less at once, or raise --request-timeout"
    return RequestError(504, message, code="timeout")


def _fail(answer: asyncio.Future[Any], error: RegardError | ClientDisconnected) -> None:
    if not answer.done():
        answer.set_exception(error)


async def _watch(request: Request, answer: asyncio.Future[Any]) -> None:
    """Give up an answer when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    _fail(answer, ClientDisconnected())


@dataclass(frozen=True)
class Endpoint(Generic[Body]):
    """A route that reads a JSON body and answers with what `handler` returns. `result` describes the answer."""

    admission: AdmissionControl
    body: type[Body]
    handler: Callable[[Body, RequestContext], Awaitable[Response]]
    result: Any = None
    summary: str = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        context = RequestContext(request, self.admission.limits)
        with ExitStack() as slot:
            try:
                slot.enter_context(self.admission.slots.hold(context.record.client))
                response = await self._answer(request, context)
                if context.record.timing.warning:
                    response.headers[WARNING_HEADER] = context.record.timing.warning
            except Exception as error:
                context.record.error = _class_of(error)
                response = error_response(error, shape_of(request.url.path))
            await response(scope, receive, send)  # a stream holds its slot until it ends

    async def _answer(self, request: Request, context: RequestContext) -> Response:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise RequestError(
                415, f"the body must be JSON (Content-Type: application/json), got {media_type[:80] or 'no type'}"
            )
        data = await self.admission.body_reader.read(request, self.admission.limits.max_body_bytes)
        return await self.handler(parse(self.body, data), context)


def parse(model: type[Body], data: bytes) -> Body:
    """A body as a request; RequestError names the first faulty field."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        if fault["type"] == "json_invalid":
            raise RequestError(422, f"the body is not JSON: {message}", code="invalid_json") from None
        # Between the names of fields, pydantic names the alternatives of a type, such as str and list[str].
        name = ".".join(str(part) for part in fault["loc"] if not ALTERNATIVE.fullmatch(str(part)))
        if fault["type"] == "missing":
            message = "the field is missing"
        raise RequestError(422, f"{name}: {message}" if name else message, param=name, code="invalid_value") from None


def json_response(document: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """UTF-8, with lone surrogates escaped as JSON does it."""
    data = json_text(document).encode("utf-8", "backslashreplace")
    return Response(data, status, headers=headers, media_type="application/json")


def error_response(error: Exception, shape: ErrorShape) -> Response:
    """The answer to a request that failed, in the form that clients of a protocol expect."""
    if isinstance(error, ClientDisconnected):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    status = status_of(error)
    message = str(error) if isinstance(error, RegardError) else f"internal error: {type(error).__name__}"
    param, code = getattr(error, "param", None), getattr(error, "code", None)
    document: dict[str, Any]
    if shape == "openai":
        status = OPENAI_STATUSES.get(status, status)
        kind = OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        document = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    elif shape == "tei":
        message += ", or set truncate to true" if code == "context_length_exceeded" else ""
        document = {"error": message, "error_type": TEI_TYPES.get(status, "Backend" if status >= 500 else "Validation")}
    elif shape == "rerank":
        document = {"detail": message, "message": message}
    else:
        document = {"error": message}
    retry = {"Retry-After": str(RETRY_AFTER)} if status in (429, 503) else {}
    return json_response(document, status=status, headers=retry)


def shape_of(path: str) -> ErrorShape:
    """The form of errors at a path: OpenAI's below /v1, also where there is nothing, except for verbs."""
    _, first, name, *_ = [*path.split("/"), "", ""]
    if path == RERANK_PATH:
        return "rerank"
    if first == "v1":
        return "regard" if name in ("openapi.json", *VERBS) and name != "models" else "openai"
    return "regard" if first == "api" else "tei"


async def on_http_error(request: Request, error: Exception) -> Response:
    """An unknown path, or a method that a path does not have."""
    assert isinstance(error, HTTPException)
    path, status, code = request.url.path, error.status_code, None
    shape, message = shape_of(path), f"{error.detail}: {request.method} {path[:200]}"
    if status == 405 and shape == "openai" and not path.startswith((*OPENAI_PATHS, RERANK_PATH)):
        status = 404  # every path below /v1 can be posted to: it may be that of a verb
    if status == 404:
        code, message = "unknown_url", f"there is nothing at {path[:200]}; /openapi.json lists the endpoints"
    response = error_response(RequestError(status, message, code=code), shape)
    response.headers.update(error.headers or {})
    return response


async def on_error(request: Request, error: Exception) -> Response:
    """A coroutine: Starlette would run a plain function in a thread, and under overload wait for one."""
    return error_response(error, shape_of(request.url.path))


EXCEPTION_HANDLERS: dict[Any, Any] = {HTTPException: on_http_error, RegardError: on_error, Exception: on_error}


def status_of(error: Exception) -> int:
    if isinstance(error, RequestError):
        return error.status
    return 422 if isinstance(error, InputError) else 500


def _class_of(error: Exception) -> str:
    """The label of an error in metrics, as TEI names them."""
    if isinstance(error, ClientDisconnected):
        return "disconnected"
    return {429: "overloaded", 503: "unhealthy", 504: "timeout", 408: "timeout"}.get(
        status_of(error), "validation" if status_of(error) < 500 else "inference"
    )

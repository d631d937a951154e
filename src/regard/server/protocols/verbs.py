"""`POST /v1/VERB` of `regard serve` and of the studio: paths, bodies and the forms of a result.

A runner computes the verb: in the process of a model (`process_verbs`), or in the studio (`studio_verbs`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Literal, Protocol

from pydantic import RootModel
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from regard.errors import RegardError
from regard.server.http.endpoint import Call, Endpoint, Gate, error_response
from regard.server.request_errors import RequestError, invalid

EVENTS_TYPE = "application/x-ndjson"
# The result's document; the data of the page's view; a page; the line with the view that ends a stream of events.
Form = Literal["document", "view", "page", "events"]


class Arguments(RootModel[dict[str, Any]]):
    """The arguments of a verb or an action."""

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Arguments:
        """Accepts half a surrogate pair, which a page sends for half an emoji; pydantic's own parser does not."""
        try:
            arguments = json.loads(json_data)
        except (ValueError, RecursionError) as error:
            raise RequestError(422, f"the body is not JSON: {error}", code="invalid_json") from None
        if not isinstance(arguments, dict):
            raise invalid(f"the body must be a JSON object, got {type(arguments).__name__}")
        return cls(arguments)


class VerbRunner(Protocol):
    """Runs a verb by its name and returns its result in a form, JSON or HTML in UTF-8."""

    async def run(self, name: str, arguments: Mapping[str, Any], form: Form, call: Call) -> bytes: ...

    def events(self, name: str, arguments: Mapping[str, Any], call: Call) -> AsyncIterator[tuple[bool, bytes]]:
        """Each event as JSON with False, then the result in the form "events" with True. Closing the iterator cancels
        the verb."""


class VerbRoutes:
    """The endpoints of all verbs."""

    def __init__(self, gate: Gate, runner: VerbRunner) -> None:
        self.gate, self.runner = gate, runner

    def routes(self) -> list[Route]:
        forms: dict[str, Form] = {"": "document", "/view": "view", "/page": "page"}
        found = [
            Route(f"/v1/{{name}}{suffix}", self._endpoint(partial(self.run, form=form)), methods=["POST"])
            for suffix, form in forms.items()
        ]
        return [*found, Route("/v1/{name}/events", self._endpoint(self.events), methods=["POST"])]

    def _endpoint(self, handler: Any) -> Endpoint[Arguments]:
        return Endpoint(self.gate, Arguments, handler)

    async def run(self, body: Arguments, call: Call, form: Form) -> Response:
        data = await self.runner.run(call.request.path_params["name"], body.root, form, call)
        return Response(data, media_type="text/html; charset=utf-8" if form == "page" else "application/json")

    async def events(self, body: Arguments, call: Call) -> Response:
        """A line of JSON for each event, then {"type": "result", "view": ...}. An error before the first event is an
        error of the request; a later one is the last line: {"error": ...}."""
        replies = self.runner.events(call.request.path_params["name"], body.root, call)
        first = await anext(replies)
        return StreamingResponse(_lines(first, replies), media_type=EVENTS_TYPE, headers={"Cache-Control": "no-store"})


async def _lines(first: tuple[bool, bytes], replies: AsyncIterator[tuple[bool, bytes]]) -> AsyncIterator[bytes]:
    try:
        done, line = first
        while not done:
            yield line + b"\n"
            done, line = await anext(replies)
        yield line + b"\n"
    except RegardError as error:
        yield bytes(error_response(error, "regard").body) + b"\n"
    finally:
        await replies.aclose()  # type: ignore[attr-defined]

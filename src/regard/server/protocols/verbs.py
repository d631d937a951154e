"""`POST /v1/VERB`: paths, bodies and the forms of a result.

A verb runs in the process for verbs of the first model that its request names. The process that serves the model goes
on meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Literal

from pydantic import RootModel
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from regard.errors import RegardError
from regard.server.errors import RequestError, invalid, unavailable
from regard.server.http.endpoint import AdmissionControl, Endpoint, RequestContext, error_response
from regard.server.models.client_verbs import check_request, http_verb
from regard.server.models.images import UploadedImages
from regard.server.models.process import ModelProcess
from regard.server.models.registry import ModelRegistry
from regard.verbs.base import Verb

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


class VerbRoutes:
    """The endpoints of all verbs. `images` are those of the page, which requests may name."""

    def __init__(
        self, models: ModelRegistry, admission: AdmissionControl, images: UploadedImages | None = None
    ) -> None:
        self.models, self.admission, self.images = models, admission, images or UploadedImages()
        self.server, self.max_items = models.options.server, admission.limits.max_client_batch_size

    def routes(self) -> list[Route]:
        handlers: dict[str, Any] = {
            "": partial(self.run, form="document"),
            "/view": partial(self.run, form="view"),
            "/page": partial(self.run, form="page"),
            "/events": self.events,
        }
        return [
            Route(f"/v1/{{name}}{suffix}", Endpoint(self.admission, Arguments, handler), methods=["POST"])
            for suffix, handler in handlers.items()
        ]

    async def run(self, body: Arguments, context: RequestContext, form: Form) -> Response:
        process, message = await self._message(context, body.root, form)
        data = await context.ask(process, "verb", message)
        return Response(data, media_type="text/html; charset=utf-8" if form == "page" else "application/json")

    async def events(self, body: Arguments, context: RequestContext) -> Response:
        """A line of JSON for each event, then {"type": "result", "view": ...}. An error before the first event is an
        error of the request; a later one is the last line: {"error": ...}."""
        process, message = await self._message(context, body.root, "events")
        replies = context.stream(process, "verb", message)
        first = await anext(replies)
        return StreamingResponse(_lines(first, replies), media_type=EVENTS_TYPE, headers={"Cache-Control": "no-store"})

    async def _message(
        self, context: RequestContext, arguments: Mapping[str, Any], form: Form
    ) -> tuple[ModelProcess, dict[str, Any]]:
        """The process that runs a verb, and what it is sent."""
        name, limits = context.request.path_params["name"], self.admission.limits
        model, given = self._choose(http_verb(name), arguments)
        if model is not None and not self.models.is_running(model, "verbs"):
            check_request(self, name, given)
        try:
            async with asyncio.timeout(limits.request_timeout):
                if model is None:
                    process = await self.models.any_process("verbs")
                else:
                    process = await self.models.process(model, "verbs")
        except TimeoutError:
            raise unavailable(f"the process for verbs of {model} is being started; try again in a moment") from None
        return process, {
            "verb": name,
            "arguments": given,
            "form": form,
            "seconds": limits.verb_timeout,
            "max_items": limits.max_client_batch_size,
            "paths": self.models.paths,
            "images": self.images.named_in(arguments),
        }

    def _choose(self, verb: Verb, arguments: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
        """The model for a request, None for any, and its arguments with a model: the named one; else the default of
        the verb, or the only one of the server."""
        fields, given, paths = verb.model_fields(), dict(arguments), self.models.paths
        named = [
            str(name)
            for field in fields
            for name in (given[field] if isinstance(given.get(field), list) else [given.get(field)])
            if name and str(name).strip()
        ]
        if named:
            first, *_ = [self.models.named(name) for name in named]  # all must exist
            return first, given
        if not fields:
            return None, given
        field = fields[0]
        default = verb.request.model_fields[field].default
        many = isinstance(default, list | tuple)
        if self.models.options.local:  # without a default, the verb chooses itself or refuses the request
            first = default[0] if many else default
            return self.models.named(first) if isinstance(first, str) else None, given
        if isinstance(default, str) and default in paths:
            return default, given
        if len(paths) != 1:
            raise invalid(f"{field}: name one of the server's models: {', '.join(paths)}", param=field)
        (only,) = paths
        return only, {**given, field: [only] if many else only}


async def _lines(first: tuple[bool, bytes], replies: AsyncIterator[tuple[bool, bytes]]) -> AsyncIterator[bytes]:
    async with aclosing(replies):  # type: ignore[type-var]
        try:
            done, line = first
            while not done:
                yield line + b"\n"
                done, line = await anext(replies)
            yield line + b"\n"
        except RegardError as error:
            yield bytes(error_response(error, "regard").body) + b"\n"

"""`POST /v1/VERB` on models in their own processes: which process runs a verb, and the forms of its result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

from pydantic import RootModel
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from regard.errors import RegardError, suggest
from regard.server.endpoint import Call, Endpoint, Gate, error_response
from regard.server.request_errors import RequestError, invalid
from regard.server.served_models import AnsweringModel, ModelDirectory
from regard.server.verbs import http_verbs
from regard.verbs.base import Verb

EVENTS_TYPE = "application/x-ndjson"


class VerbBody(RootModel[dict[str, Any]]):
    """The arguments of a verb."""


class VerbRoutes:
    """The verbs over the models of a server: a verb runs in the process of the first model that its request names."""

    def __init__(self, models: ModelDirectory, gate: Gate) -> None:
        self.models, self.gate, self.verbs = models, gate, http_verbs()

    def routes(self) -> list[Route]:
        forms = {"": "document", "/view": "view", "/page": "page"}
        found = [
            Route(f"/v1/{{name}}{suffix}", self._endpoint(partial(self.run, form=form)), methods=["POST"])
            for suffix, form in forms.items()
        ]
        return [*found, Route("/v1/{name}/events", self._endpoint(self.events), methods=["POST"])]

    def _endpoint(self, handler: Any) -> Endpoint[VerbBody]:
        return Endpoint(self.gate, VerbBody, handler, "regard")

    async def run(self, body: VerbBody, call: Call, form: str) -> Response:
        process, message = self._message(body, call, form)
        data = await call.ask(process, "verb", message)
        return Response(data, media_type="text/html; charset=utf-8" if form == "page" else "application/json")

    async def events(self, body: VerbBody, call: Call) -> Response:
        """A line of JSON for each event, then {"type": "result", "result": ...}. An error before the first event is an
        error of the request; a later one is the last line: {"error": ...}."""
        replies = call.stream(*_with_operation(self._message(body, call, "events")))
        first = await anext(replies)
        return StreamingResponse(_lines(first, replies), media_type=EVENTS_TYPE, headers={"Cache-Control": "no-cache"})

    def _message(self, body: VerbBody, call: Call, form: str) -> tuple[AnsweringModel, dict[str, Any]]:
        name = call.request.path_params["name"]
        if name not in self.verbs:
            raise RequestError(
                404, f"there is no verb {name[:80]!r}; {suggest(name[:80], self.verbs)}", code="not_found"
            )
        process, arguments = self._choose(self.verbs[name], body.root)
        return process, {"verb": name, "arguments": arguments, "form": form}

    def _choose(self, verb: Verb, arguments: Mapping[str, Any]) -> tuple[AnsweringModel, dict[str, Any]]:
        """The process for a request, and its arguments with a model: the named one; else the verb's default, or the
        only one of the server."""
        fields, given = verb.model_fields(), dict(arguments)
        named = [
            str(name)
            for field in fields
            for name in (given[field] if isinstance(given.get(field), list) else [given.get(field)])
            if name
        ]
        processes = self.models.processes
        if named:
            named_processes = [self.models.named(name) for name in named]  # all must exist
            return named_processes[0], given
        if not fields:
            return next(iter(processes.values())), given
        field = fields[0]
        default = verb.request.model_fields[field].default
        if isinstance(default, str) and default in processes:
            return processes[default], given
        if len(processes) > 1:
            raise invalid(f"{field}: name one of the server's models: {', '.join(processes)}", param=field)
        process = next(iter(processes.values()))
        many = isinstance(default, list | tuple)
        return process, {**given, field: [process.name] if many else process.name}


def _with_operation(found: tuple[AnsweringModel, dict[str, Any]]) -> tuple[AnsweringModel, str, dict[str, Any]]:
    return found[0], "verb", found[1]


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

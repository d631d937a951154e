"""Verbs on models in their own processes: a verb runs in the process for verbs of the first model that its request
names, which is started for the first one. The process that serves the model goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from regard.server.http.endpoint import Call, Limits
from regard.server.models.client_verbs import http_verb
from regard.server.models.served_models import AnsweringModel, ServedModels
from regard.server.protocols.verbs import Form
from regard.server.request_errors import invalid, unavailable
from regard.verbs.base import Verb


class ProcessVerbs:
    """A `VerbRunner` over the models of a server."""

    def __init__(self, models: ServedModels, limits: Limits) -> None:
        self.models, self.limits = models, limits

    async def run(self, name: str, arguments: Mapping[str, Any], form: Form, call: Call) -> bytes:
        process, message = await self._message(name, arguments, form)
        data: bytes = await call.ask(process, "verb", message)
        return data

    async def events(self, name: str, arguments: Mapping[str, Any], call: Call) -> AsyncIterator[tuple[bool, bytes]]:
        process, message = await self._message(name, arguments, "events")
        async with aclosing(call.stream(process, "verb", message)) as replies:  # type: ignore[type-var]
            async for reply in replies:
                yield reply

    async def _message(
        self, name: str, arguments: Mapping[str, Any], form: Form
    ) -> tuple[AnsweringModel, dict[str, Any]]:
        model, given = self._choose(http_verb(name), arguments)
        limits = {"seconds": self.limits.verb_timeout, "max_items": self.limits.max_client_batch_size}
        try:
            async with asyncio.timeout(self.limits.request_timeout):
                process = await self.models.verb_process(model.name)
        except TimeoutError:
            raise unavailable(
                f"the process for verbs of {model.name} is being started; try again in a moment"
            ) from None
        return process, {"verb": name, "arguments": given, "form": form, **limits}

    def _choose(self, verb: Verb, arguments: Mapping[str, Any]) -> tuple[AnsweringModel, dict[str, Any]]:
        """The model for a request, and its arguments with a model: the named one; else the verb's default, or the
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

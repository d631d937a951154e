"""The HTTP door: `POST /v1/NAME` for every verb, and the OpenAPI description of all of them.

The body is the request as a JSON object and the answer the result's document; `/v1/NAME/view` answers with the data of
the page's view, `/v1/NAME/page` with a page of it, and `/v1/NAME/events` with a line of JSON for each event while the
verb runs, then one for the view. A blank string means that an optional field is not given, as forms send it.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic.json_schema import models_json_schema

from regard.errors import InputError, suggest
from regard.events import Event
from regard.files.json_files import json_text
from regard.server.errors import RequestError
from regard.verbs import VERBS, find
from regard.verbs.base import Request, Verb

if TYPE_CHECKING:
    from regard.render.result import Result

MAX_ANSWER = {"items": 50_000, "bytes": 64_000_000}  # of a verb; compared with `Verb.http_answer` before it runs


@cache
def http_verbs() -> dict[str, Verb]:
    """The verbs that clients may call, by name."""
    found = (find(name) for name in VERBS)
    return {verb.name: verb for verb in found if verb.http}


class VerbHost(Protocol):
    """Where a verb of a client runs. `server` names it in errors, `max_items` is the length of the longest list that a
    request may have."""

    server: str
    max_items: int
    models: Any
    images: Any


def http_verb(name: str) -> Verb:
    """The verb of a path; RequestError 404 suggests a name that exists."""
    verbs = http_verbs()
    if name not in verbs:
        message = f"there is no verb {name[:80]!r}; {suggest(name[:80], verbs)}"
        raise RequestError(404, message, code="not_found")
    return verbs[name]


def encode(document: object) -> bytes:
    """JSON in UTF-8, with lone surrogates escaped."""
    return json_text(document).encode("utf-8", "backslashreplace")


def encode_result(result: Result, form: str) -> bytes:
    """A result as the answer of a server, in one of the forms of `protocols.verbs`."""
    if form == "page":
        return result.to_html().encode("utf-8", "backslashreplace")
    if form == "events":
        return encode({"type": "result", "view": result.page_data()})
    return encode(result.document() if form == "document" else result.page_data())


def run_verb(host: VerbHost, name: str, arguments: Mapping[str, object]) -> Generator[Event, None, Result]:
    """Run a verb with the arguments of a client. Strings are texts: no file of the server is read.

    A string may also be the key of an image that the client has sent.
    """
    verb, given = http_verb(name), _given(host, name, arguments)
    uploads = _uploads(host, verb, given)
    with ExitStack() as stack:
        files = {key: stack.enter_context(host.images.file(value)) for key, value in uploads.items()}
        request = _parse(host, verb, {**given, **files}, files.values())
        result = yield from verb.run(request, host.models)
        if files:  # the client knows the name of its file, not where it was for a moment
            named = request.model_copy(update={key: value.partition("/")[2] for key, value in uploads.items()})
            result.with_reproduction(verb.command_line(named), verb.python_code(named))
    return result


def check_request(host: VerbHost, name: str, arguments: Mapping[str, object]) -> None:
    """Raise the error that `run_verb` would raise before it runs the verb, unless the request names an image: a request
    that is refused starts no process."""
    verb, given = http_verb(name), _given(host, name, arguments)
    if not _uploads(host, verb, given):
        _parse(host, verb, given, ())


def _given(host: VerbHost, name: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments that are given; sizes are checked before anything is read."""
    verb = http_verb(name)
    for key, value in arguments.items():
        if isinstance(value, str) and len(value) > verb.max_characters:
            raise InputError(
                f"{key!r} has {len(value):,} characters; {host.server} takes at most {verb.max_characters:,}. "
                "Shorten it"
            )
        _check_lists(host, key, value)
    fields = verb.request.model_fields
    return {
        key: value
        for key, value in arguments.items()
        if not (isinstance(value, str) and not value.strip() and key in fields and not fields[key].is_required())
    }


def _uploads(host: VerbHost, verb: Verb, given: Mapping[str, object]) -> dict[str, str]:
    fields = verb.request.model_fields
    return {key: str(value) for key, value in given.items() if key in fields and host.images.has(value)}


def _parse(host: VerbHost, verb: Verb, given: Mapping[str, object], files: Collection[Path]) -> Request:
    request = verb.parse(given, files=False, uploads=files)
    for key, value in request:  # a string may have become a list of lines
        _check_lists(host, key, value)
    for key, limit in verb.http_limits.items():
        if getattr(request, key) > limit:
            raise InputError(f"{key} is {getattr(request, key):,}; {host.server} takes at most {limit:,}")
    if verb.http_answer is not None:
        check_answer(host, verb.http_answer(request))
    return request


def _check_lists(host: VerbHost, key: str, value: object) -> None:
    """Refuse long lists, also those within lists and objects."""
    if isinstance(value, list | tuple | dict):
        if len(value) > host.max_items:
            raise InputError(
                f"{key!r} has {len(value):,} items; {host.server} takes at most {host.max_items:,}. Send several "
                "requests"
            )
        for item in value.values() if isinstance(value, dict) else value:
            _check_lists(host, key, item)


def check_answer(host: VerbHost, sizes: Mapping[str, int]) -> None:
    """Refuse an answer of more items or bytes than a server sends."""
    for what, size in sizes.items():
        if size > MAX_ANSWER[what]:
            raise InputError(
                f"the answer has about {size:,} {what}; {host.server} sends at most {MAX_ANSWER[what]:,}. "
                "Send less at once, or ask for less"
            )


@cache
def describe() -> dict[str, Any]:
    """What the OpenAPI description says of every verb: its route, without errors, and the schemas of all types."""
    verbs = http_verbs()
    requests = [(verb.request, "validation") for verb in verbs.values()]
    results = [(verb.result_type(), "serialization") for verb in verbs.values()]
    schemas, definitions = models_json_schema(
        [*requests, *results],  # type: ignore[list-item]
        ref_template="#/components/schemas/{model}",
    )
    paths = {}
    for verb, request, result in zip(verbs.values(), requests, results, strict=True):
        summary, _, description = verb.help.partition("\n")
        paths[f"/v1/{verb.name}"] = {
            "operationId": verb.name,
            "summary": summary,
            "description": description.strip(),
            "body": schemas[request],  # type: ignore[index]
            "result": schemas[result],  # type: ignore[index]
        }
    return {"paths": paths, "schemas": _without_cli(definitions.get("$defs", {}))}


def _without_cli(schema: Any) -> Any:
    """The schema without the notes for the command line."""
    if isinstance(schema, dict):
        return {key: _without_cli(value) for key, value in schema.items() if key != "cli"}
    return [_without_cli(item) for item in schema] if isinstance(schema, list) else schema

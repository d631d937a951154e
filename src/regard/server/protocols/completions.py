"""OpenAI's /v1/completions, and what it shares with chats: fields, what is refused by name, streams and usage."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from regard.errors import RegardError
from regard.server.errors import invalid
from regard.server.http.endpoint import RequestContext, error_response, json_response
from regard.server.models.process import ModelProcess
from regard.server.protocols.texts_and_vectors import INPUTS

MAX_LOGPROBS = 20
MAX_STOP = 16
MAX_N = 16
MAX_TOKENS = 4096
# Fields that change nothing here: who asks, and how OpenAI's own servers handle a request.
IGNORED = {
    "metadata",
    "parallel_tool_calls",  # without tools, which are refused
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "user",
}
# What asks for nothing, so that it is not refused.
NEUTRAL: dict[str, object] = {"frequency_penalty": 0, "presence_penalty": 0, "store": False}


def refuse_unknown_fields(body: BaseModel) -> None:
    """Raise RequestError for a field of a body that would change the answer of another server."""
    for name, value in (body.model_extra or {}).items():
        empty = value in (None, "", [], {}) or (name in NEUTRAL and value == NEUTRAL[name])
        if not empty and name not in IGNORED:
            raise invalid(f"{name[:80]} is not supported; leave it out", param=name[:80])


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    include_usage: bool | None = False
    include_obfuscation: bool | None = Field(None, description="Accepted and ignored.")


class GenerationBody(BaseModel):
    """What completions and chats have in common. Other fields are refused unless they have no value."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)
    model: str
    max_tokens: int | None = Field(None, ge=0, le=MAX_TOKENS)
    temperature: float | None = Field(1.0, ge=0, le=100)
    top_p: float | None = Field(1.0, gt=0, le=1)
    n: int | None = Field(1, ge=1, le=MAX_N)
    stop: str | list[str] | None = None
    seed: int | None = Field(None, ge=0, le=2**62)
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    def check(self) -> None:
        """RequestError for what the server does not do, by name."""
        refuse_unknown_fields(self)
        stops = self.stops
        if "" in stops or len(stops) > MAX_STOP:
            raise invalid(f"stop: expected up to {MAX_STOP} strings that are not empty", param="stop")

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def arguments(self) -> dict[str, Any]:
        """Those of a completion job, without its prompt."""
        return {
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_p": 1.0 if self.top_p is None else self.top_p,
            "n": self.n or 1,
            "stop": self.stops,
            "seed": secrets.randbits(48) if self.seed is None else self.seed,
            "stream": bool(self.stream),
        }


class CompletionsBody(GenerationBody):
    """As OpenAI defines it. Penalties, `logit_bias` and `suffix` are refused."""

    prompt: str | list[str] | list[int] | list[list[int]] = Field(description=INPUTS)
    max_tokens: int | None = Field(16, ge=0, le=MAX_TOKENS)
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    echo: bool | None = False
    best_of: int | None = None

    def check(self) -> None:
        super().check()
        if self.best_of not in (None, 1, self.n):
            raise invalid("best_of is not supported beyond n; leave it out", param="best_of")


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class Logprobs(BaseModel):
    """The first token of an echoed prompt has no log-probability if nothing precedes it."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    text: str
    index: int
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"] | None


class CompletionsAnswer(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class CompletionForm:
    """How an answer and its stream are written. `logprobs` are lists of `LogprobEntry`."""

    prefix: ClassVar[str] = "cmpl-"
    answer, chunk = "text_completion", "text_completion"

    def choice(self, text: str, logprobs: Sequence[Any] | None) -> dict[str, Any]:
        return {"text": text, "logprobs": self.logprobs(logprobs)}

    def opening(self) -> dict[str, Any] | None:
        """The first piece of each choice of a stream, before its text."""
        return None

    def piece(self, text: str, logprobs: Sequence[Any] | None) -> dict[str, Any]:
        return self.choice(text, logprobs)

    def logprobs(self, entries: Sequence[Any] | None) -> dict[str, Any] | None:
        if entries is None:
            return None
        return {
            "tokens": [token for (token, _, _), _, _ in entries],
            "token_logprobs": [value for (_, _, value), _, _ in entries],
            "top_logprobs": [_top(token, value, top) for (token, _, value), top, _ in entries],
            "text_offset": [offset for _, _, offset in entries],
        }


def _top(token: str, value: float | None, top: Sequence[Any] | None) -> dict[str, float] | None:
    """The likeliest tokens, and the one of the text; of tokens that are spelled alike the likelier."""
    if top is None or value is None:
        return None
    found: dict[str, float] = {}
    for text, _, score in [*top, (token, None, value)]:
        found.setdefault(text, score)
    return found


async def generate(
    form: CompletionForm,
    process: ModelProcess,
    operation: str,
    arguments: Mapping[str, Any],
    body: GenerationBody,
    context: RequestContext,
) -> Response:
    """The answer of a job, whole or as a stream of events."""
    head = {
        "id": f"{form.prefix}{secrets.token_hex(12)}",
        "object": form.chunk if body.stream else form.answer,
        "created": int(time.time()),
        "model": body.model,
    }
    if not body.stream:
        reply = await context.ask(process, operation, arguments)
        choices = [
            {
                **form.choice(choice["text"], choice["logprobs"]),
                "index": index,
                "finish_reason": choice["finish_reason"],
            }
            for index, choice in enumerate(reply["choices"])
        ]
        return json_response({**head, "choices": choices, "usage": _usage(reply)})
    replies = context.stream(process, operation, arguments)
    first = await anext(replies)  # an error before the first token is an error of the request
    usage = bool(body.stream_options and body.stream_options.include_usage)
    return StreamingResponse(
        _events(form, first, replies, head, usage),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache"},
    )


def _usage(reply: dict[str, Any]) -> dict[str, int]:
    prompt, completion = reply["prompt_tokens"], reply["completion_tokens"]
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


async def _events(
    form: CompletionForm,
    first: tuple[bool, Any],
    replies: AsyncIterator[tuple[bool, Any]],
    head: dict[str, Any],
    usage: bool,
) -> AsyncIterator[bytes]:
    """Server-sent events: a chunk for each piece of text, the reason at the end of each choice, then [DONE]. With
    `usage`, every chunk has the field and the last one its value."""
    rest = {"usage": None} if usage else {}
    opened: set[int] = set()

    def chunk(index: int, piece: dict[str, Any], reason: str | None = None) -> bytes:
        return _event({**head, "choices": [{**piece, "index": index, "finish_reason": reason}], **rest})

    def opening(index: int) -> list[bytes]:
        piece = None if index in opened else form.opening()
        opened.add(index)
        return [] if piece is None else [chunk(index, piece)]

    try:
        done, payload = first
        while not done:
            index, text, logprobs = payload
            for event in opening(index):
                yield event
            yield chunk(index, form.piece(text, logprobs))
            done, payload = await anext(replies)
        for index, choice in enumerate(payload["choices"]):
            for event in opening(index):  # of an empty text
                yield event
            yield chunk(index, form.piece("", None), choice["finish_reason"])
        if usage:
            yield _event({**head, "choices": [], "usage": _usage(payload)})
        yield b"data: [DONE]\n\n"
    except RegardError as error:
        yield _event(json.loads(bytes(error_response(error, "openai").body)))
    finally:
        await replies.aclose()  # type: ignore[attr-defined]


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"

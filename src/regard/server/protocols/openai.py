"""The endpoints of OpenAI's API that apply to local models: /v1/embeddings, /v1/completions and /v1/models."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from regard.errors import RegardError
from regard.server.errors import RequestError, invalid
from regard.server.http.endpoint import AdmissionControl, Endpoint, RequestContext, error_response, json_response
from regard.server.models.registry import ModelRegistry
from regard.server.protocols.texts_and_vectors import (
    INPUTS,
    as_rows,
    base64_rows,
    embed,
    format_vectors,
    json_rows,
)

MAX_LOGPROBS = 20
MAX_STOP = 16
MAX_N = 16


class EmbeddingsBody(BaseModel):
    """As OpenAI defines it; `user` is accepted and ignored."""

    model_config = ConfigDict(extra="ignore")
    model: str
    input: str | list[str] | list[int] | list[list[int]] = Field(description=INPUTS)
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1, description="Keep the first dimensions, scaled to length 1.")
    user: str | None = None


class CompletionsBody(BaseModel):
    """As OpenAI defines it. Penalties, `logit_bias` and `suffix` must keep their defaults."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    model: str
    prompt: str | list[str] | list[int] | list[list[int]] = Field(description=INPUTS)
    max_tokens: int | None = Field(16, ge=0, le=4096)
    temperature: float | None = Field(1.0, ge=0, le=100)
    top_p: float | None = Field(1.0, gt=0, le=1)
    n: int | None = Field(1, ge=1, le=MAX_N)
    stop: str | list[str] | None = None
    seed: int | None = Field(None, ge=0, le=2**62)
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    echo: bool | None = False
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None
    best_of: int | None = None
    frequency_penalty: float | None = 0.0
    presence_penalty: float | None = 0.0
    logit_bias: dict[str, float] | None = None
    suffix: str | None = None
    user: str | None = None

    @model_validator(mode="after")
    def _check(self) -> CompletionsBody:
        for name in ("frequency_penalty", "presence_penalty", "logit_bias", "suffix"):
            if getattr(self, name):
                raise ValueError(f"{name} is not supported; leave it out")
        if self.best_of not in (None, 1, self.n):
            raise ValueError("best_of is not supported beyond n; leave it out")
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if "" in stops or len(stops) > MAX_STOP:
            raise ValueError(f"stop: expected up to {MAX_STOP} strings that are not empty")
        if self.echo and self.logprobs is not None:
            raise ValueError("logprobs of an echoed prompt are not supported; leave out echo, or use /v1/score")
        return self


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class EmbeddingObject(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsAnswer(BaseModel):
    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: Usage


class Logprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
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


class OpenAIRoutes:
    """The endpoints over the models of a server."""

    def __init__(self, models: ModelRegistry, admission: AdmissionControl) -> None:
        self.models, self.admission, self._started = models, admission, int(time.time())

    def routes(self) -> list[Route]:
        embeddings = Endpoint(
            self.admission, EmbeddingsBody, self.embeddings, EmbeddingsAnswer, "Vectors of texts, of length 1."
        )
        completions = Endpoint(
            self.admission, CompletionsBody, self.completions, CompletionsAnswer, "Continuations of prompts."
        )
        return [
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/models", self.list_models, methods=["GET"]),
            Route("/v1/models/{name:path}", self.one_model, methods=["GET"]),
        ]

    async def embeddings(self, body: EmbeddingsBody, context: RequestContext) -> Response:
        hint = " (LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))"
        inputs = as_rows(body.input, context.limits, "input", hint)
        if "" in inputs:
            raise invalid("input: expected texts that are not empty", param="input")
        vectors = await embed(self.models, context, inputs, body.model, param="input", dimensions=body.dimensions)
        rows = await format_vectors(json_rows if body.encoding_format == "float" else base64_rows, vectors)
        items = ",".join(
            f'{{"object":"embedding","index":{index},"embedding":{row}}}' for index, row in enumerate(rows)
        )
        tokens = context.record.timing.tokens
        return Response(
            f'{{"object":"list","data":[{items}],"model":{json.dumps(body.model)},'
            f'"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}}}',
            media_type="application/json",
        )

    async def completions(self, body: CompletionsBody, context: RequestContext) -> Response:
        process = await self.models.choose("generate", body.model)
        prompts = as_rows(body.prompt, context.limits, "prompt")
        if body.echo and not all(isinstance(prompt, str) for prompt in prompts):
            raise RequestError(422, "echo: expected prompts as texts, not as token ids", param="echo")
        arguments = {
            "prompts": prompts,
            "max_tokens": 16 if body.max_tokens is None else body.max_tokens,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "n": body.n or 1,
            "stop": [body.stop] if isinstance(body.stop, str) else body.stop or [],
            "seed": secrets.randbits(48) if body.seed is None else body.seed,
            "logprobs": body.logprobs,
            "stream": bool(body.stream),
        }
        echoes = [prompt if body.echo else "" for prompt in prompts for _ in range(arguments["n"])]
        head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": body.model,
        }
        if not body.stream:
            reply = await context.ask(process, "generate", arguments)
            return json_response({**head, "choices": _choices(reply, echoes), "usage": _usage(reply)})
        replies = context.stream(process, "generate", arguments)
        first = await anext(replies)  # an error before the first token is an error of the request
        usage = bool((body.stream_options or {}).get("include_usage"))
        return StreamingResponse(
            _events(first, replies, head, echoes, usage),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache"},
        )

    async def list_models(self, request: Request) -> Response:
        return json_response({"object": "list", "data": [self._model(name) for name in self.models.paths]})

    async def one_model(self, request: Request) -> Response:
        try:
            return json_response(self._model(self.models.named(request.path_params["name"])))
        except RegardError as error:
            return error_response(error, "openai")

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "regard"}


def _choices(reply: dict[str, Any], echoes: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {**choice, "text": echo + choice["text"], "index": index}
        for index, (choice, echo) in enumerate(zip(reply["choices"], echoes, strict=True))
    ]


def _usage(reply: dict[str, Any]) -> dict[str, int]:
    prompt, completion = reply["prompt_tokens"], reply["completion_tokens"]
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


async def _events(
    first: tuple[bool, Any],
    replies: AsyncIterator[tuple[bool, Any]],
    head: dict[str, Any],
    echoes: Sequence[str],
    usage: bool,
) -> AsyncIterator[bytes]:
    """Server-sent events: a chunk for each piece of text, the reason at the end of each choice, then [DONE]."""

    def chunk(choices: list[dict[str, Any]], **rest: Any) -> bytes:
        return _event({**head, "choices": choices, **rest})

    def piece(index: int, text: str, logprobs: dict[str, Any] | None = None, reason: str | None = None) -> bytes:
        return chunk([{"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}])

    try:
        for index, echo in enumerate(echoes):
            if echo:
                yield piece(index, echo)
        done, payload = first
        while not done:
            yield piece(*payload)
            done, payload = await anext(replies)
        for index, choice in enumerate(payload["choices"]):
            yield piece(index, "", reason=choice["finish_reason"])
        if usage:
            yield chunk([], usage=_usage(payload))
        yield b"data: [DONE]\n\n"
    except RegardError as error:
        yield _event(json.loads(bytes(error_response(error, "openai").body)))
    finally:
        await replies.aclose()  # type: ignore[attr-defined]


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"

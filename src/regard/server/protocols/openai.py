"""The endpoints of OpenAI's API that apply to local models: embeddings, completions, chats and models."""

from __future__ import annotations

import json
import time
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.errors import RegardError
from regard.server.errors import invalid
from regard.server.http.endpoint import AdmissionControl, Endpoint, RequestContext, error_response, json_response
from regard.server.models.registry import ModelRegistry
from regard.server.protocols.chat import ChatAnswer, ChatBody, ChatForm
from regard.server.protocols.completions import (
    CompletionForm,
    CompletionsAnswer,
    CompletionsBody,
    Usage,
    generate,
    refuse_unknown_fields,
)
from regard.server.protocols.texts_and_vectors import (
    INPUTS,
    PromptName,
    as_rows,
    base64_rows,
    embed,
    format_vectors,
    json_rows,
)


class EmbeddingsBody(BaseModel):
    """As OpenAI defines it, and `prompt_name`; `user` is accepted and ignored, other fields are refused."""

    model_config = ConfigDict(extra="allow")
    model: str
    input: str | list[str] | list[int] | list[list[int]] = Field(description=INPUTS)
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1, description="Keep the first dimensions, scaled to length 1.")
    prompt_name: PromptName = None


class EmbeddingObject(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsAnswer(BaseModel):
    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
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
        chat = Endpoint(self.admission, ChatBody, self.chat, ChatAnswer, "Answers of chat models.")
        return [
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", self.list_models, methods=["GET"]),
            Route("/v1/models/{name:path}", self.one_model, methods=["GET"]),
        ]

    async def embeddings(self, body: EmbeddingsBody, context: RequestContext) -> Response:
        refuse_unknown_fields(body)
        hint = " (LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))"
        inputs = as_rows(body.input, context.limits, "input", hint)
        if "" in inputs:
            raise invalid("input: expected texts that are not empty", param="input")
        options: Any = {"dimensions": body.dimensions, "prompt_name": body.prompt_name}
        vectors = await embed(self.models, context, inputs, body.model, param="input", **options)
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
        body.check()
        process = await self.models.choose("generate", body.model)
        arguments = {
            **body.arguments(),
            "prompts": as_rows(body.prompt, context.limits, "prompt"),
            "max_tokens": 16 if body.max_tokens is None else body.max_tokens,
            "logprobs": body.logprobs,
            "echo": bool(body.echo),
        }
        return await generate(CompletionForm(), process, "generate", arguments, body, context)

    async def chat(self, body: ChatBody, context: RequestContext) -> Response:
        body.check()
        arguments = body.arguments()
        process = await self.models.choose("chat", body.model)
        return await generate(ChatForm(), process, "chat", arguments, body, context)

    async def list_models(self, request: Request) -> Response:
        return json_response({"object": "list", "data": [self._model(name) for name in self.models.paths]})

    async def one_model(self, request: Request) -> Response:
        try:
            return json_response(self._model(self.models.named(request.path_params["name"])))
        except RegardError as error:
            return error_response(error, "openai")

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "regard"}

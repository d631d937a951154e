"""The endpoints of Text Embeddings Inference (TEI): /embed, /rerank, /predict, /similarity, /tokenize and others.

Field names, answers and errors are those of that server. Its requests name no model, because it serves one: the first
model that can answers. The field `model` of a request, an addition, names another one.
"""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.server.errors import invalid
from regard.server.http.endpoint import AdmissionControl, Endpoint, RequestContext, json_response
from regard.server.models.registry import ModelRegistry
from regard.server.protocols.rerank import best_first
from regard.server.protocols.texts_and_vectors import (
    INPUTS,
    PromptName,
    as_rows,
    check_batch,
    embed,
    embed_tokens,
    format_vectors,
    json_rows,
)

Model = Annotated[str | None, Field(description="The model that answers; default: the first that can.")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    model: Model = None


class _Truncation(_Body):
    truncate: bool | None = Field(None, description="Cut texts that are too long; else they are an error.")
    truncation_direction: Literal["Right", "right"] = Field("Right", description="Texts are cut at their end.")


class EmbedAllBody(_Truncation):
    inputs: str | list[str] | list[int] | list[list[int]] = Field(description=INPUTS)
    prompt_name: PromptName = None


class EmbedBody(EmbedAllBody):
    normalize: bool = Field(True, description="Scale every vector to length 1.")
    dimensions: int | None = Field(None, ge=1, description="Keep the first dimensions of every vector.")


class RerankBody(_Truncation):
    query: str
    texts: list[str] = Field(min_length=1)
    raw_scores: bool = Field(False, description="Scores before the sigmoid.")
    return_text: bool = False


class PredictParameters(BaseModel):
    """What huggingface_hub's client sends."""

    top_k: int | None = Field(default=None, ge=1)
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None


class PredictBody(_Truncation):
    inputs: str | list[str] | list[list[str]] = Field(
        description="A text; a list of one text, or of two, which are a pair; or a list of such lists."
    )
    raw_scores: bool = Field(False, description="Logits instead of probabilities.")
    parameters: PredictParameters | None = Field(
        None, description="As Hugging Face's inference clients send them; the answer is then a list per text."
    )


class SimilaritySentences(BaseModel):
    source_sentence: str
    sentences: list[str] = Field(min_length=1)


class SimilarityParameters(BaseModel):
    truncate: bool | None = None
    truncation_direction: Literal["Right", "right"] = "Right"
    prompt_name: PromptName = None


class SimilarityBody(_Body):
    inputs: SimilaritySentences
    parameters: SimilarityParameters | None = None


class TokenizeBody(_Body):
    inputs: str | list[str]
    add_special_tokens: bool = True
    prompt_name: str | None = Field(None, description="The prompt that is put before every text; default: none.")


class DecodeBody(_Body):
    ids: list[int] | list[list[int]]
    skip_special_tokens: bool = True


class RankedText(BaseModel):
    index: int
    score: float
    text: str | None = None


class SparseValue(BaseModel):
    index: int
    value: float


class LabelScore(BaseModel):
    label: str
    score: float


class TokenText(BaseModel):
    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class TeiRoutes:
    """The endpoints over the models of a server."""

    def __init__(self, models: ModelRegistry, admission: AdmissionControl) -> None:
        self.models, self.admission = models, admission

    def routes(self) -> list[Route]:
        posts: dict[str, tuple[Any, Any, Any, str]] = {
            "/embed": (EmbedBody, self.embed, list[list[float]], "Vectors of texts."),
            "/embed_all": (EmbedAllBody, self.embed_all, list[list[list[float]]], "Vectors of the tokens of texts."),
            "/embed_sparse": (EmbedAllBody, self.embed_sparse, list[list[SparseValue]], "Sparse vectors of texts."),
            "/similarity": (SimilarityBody, self.similarity, list[float], "Cosines of a text with others."),
            "/rerank": (RerankBody, self.rerank, list[RankedText], "Scores of texts for a query, best first."),
            "/predict": (
                PredictBody,
                self.predict,
                list[LabelScore] | list[list[LabelScore]],
                "Labels of texts or pairs.",
            ),
            "/tokenize": (TokenizeBody, self.tokenize, list[list[TokenText]], "Tokens of texts."),
            "/decode": (DecodeBody, self.decode, list[str], "Texts of token ids."),
        }
        found = [
            Route(path, Endpoint(self.admission, body, handler, result, summary), methods=["POST"])
            for path, (body, handler, result, summary) in posts.items()
        ]
        return [*found, Route("/info", self.info), Route("/health", self.health)]

    async def embed(self, body: EmbedBody, context: RequestContext) -> Response:
        inputs = as_rows(body.inputs, context.limits, "inputs")
        options: Any = body.model_dump(include={"truncate", "normalize", "dimensions", "prompt_name"})
        vectors = await embed(self.models, context, inputs, body.model, **options)
        rows = await format_vectors(json_rows, vectors)
        return Response(f"[{','.join(rows)}]", media_type="application/json")

    async def embed_all(self, body: EmbedAllBody, context: RequestContext) -> Response:
        inputs = as_rows(body.inputs, context.limits, "inputs")
        options: Any = body.model_dump(include={"truncate", "prompt_name"})
        texts = [
            f"[{','.join(await format_vectors(json_rows, vectors))}]"
            for vectors in await embed_tokens(self.models, context, inputs, body.model, **options)
        ]
        return Response(f"[{','.join(texts)}]", media_type="application/json")

    async def embed_sparse(self, body: EmbedAllBody, context: RequestContext) -> Response:
        inputs = as_rows(body.inputs, context.limits, "inputs")
        arguments = {
            "inputs": inputs,
            "truncate": self._truncate(body),
            "prompt_name": body.prompt_name,
            "param": "inputs",
        }
        found = await context.ask(await self.models.choose("embed_sparse", body.model), "embed_sparse", arguments)
        rows = [
            [{"index": index, "value": float(f"{value:.9g}")} for index, value in zip(*row, strict=True)]
            for row in found
        ]
        return json_response(rows)

    async def similarity(self, body: SimilarityBody, context: RequestContext) -> Response:
        inputs = [body.inputs.source_sentence, *body.inputs.sentences]
        check_batch(inputs, context.limits.max_client_batch_size, "inputs")
        options: Any = (body.parameters or SimilarityParameters()).model_dump(include={"truncate", "prompt_name"})
        vectors = await embed(self.models, context, inputs, body.model, **options)
        return json_response((vectors[1:] @ vectors[0]).tolist())

    async def rerank(self, body: RerankBody, context: RequestContext) -> Response:
        check_batch(body.texts, context.limits.max_client_batch_size, "texts")
        arguments = {
            "texts": [(body.query, text) for text in body.texts],
            "truncate": self._truncate(body),
            "rerank": True,
            "param": "texts",
        }
        found = await context.ask(await self.models.choose("rerank", body.model), "task", arguments)
        scores = [score if logit is None else logit if body.raw_scores else sigmoid(logit) for score, logit in found]
        order = best_first(found)
        ranks = [{"index": index, "score": scores[index]} for index in order]
        if body.return_text:
            ranks = [{**rank, "text": body.texts[index]} for rank, index in zip(ranks, order, strict=True)]
        return json_response(ranks)

    async def predict(self, body: PredictBody, context: RequestContext) -> Response:
        inputs, single = as_pairs(body.inputs)
        check_batch(inputs, context.limits.max_client_batch_size, "inputs")
        parameters = body.parameters or PredictParameters()
        arguments = {
            "texts": inputs,
            "truncate": self._truncate(body),
            "raw_scores": body.raw_scores or parameters.function_to_apply == "none",
            "rerank": False,
            "param": "inputs",
        }
        found = await context.ask(await self.models.choose("predict", body.model), "task", arguments)
        labels = [[{"label": label, "score": score} for label, score in row[: parameters.top_k]] for row in found]
        return json_response(labels[0] if single and body.parameters is None else labels)

    async def tokenize(self, body: TokenizeBody, context: RequestContext) -> Response:
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        check_batch(texts, context.limits.max_client_batch_size, "inputs")
        arguments = {"inputs": texts, **body.model_dump(include={"add_special_tokens", "prompt_name"})}
        found = await context.ask(await self.models.choose("tokenize", body.model), "tokenize", arguments)
        names = ("id", "text", "special", "start", "stop")
        return json_response([[dict(zip(names, token, strict=True)) for token in row] for row in found])

    async def decode(self, body: DecodeBody, context: RequestContext) -> Response:
        rows: Any = [body.ids] if body.ids and isinstance(body.ids[0], int) else body.ids
        check_batch(rows, context.limits.max_client_batch_size, "ids")
        if any(not 0 <= number < 2**32 for row in rows for number in row):
            raise invalid("ids should be token ids from 0", param="ids")
        arguments = {"ids": rows, "skip_special_tokens": body.skip_special_tokens}
        return json_response(await context.ask(await self.models.choose("tokenize", body.model), "decode", arguments))

    async def info(self, request: Request) -> Response:
        """What TEI tells of its model, of the first one; `models` lists all of them."""
        first = (self.models.serving() or [await self.models.any_process("serving")])[0]
        limits, about = self.admission.limits, first.info
        reranks = "rerank" in about["operations"]
        labels = dict(enumerate(about["labels"] or (["LABEL_0"] if reranks else [])))  # one output has no class
        kind: dict[str, Any] = {"embedding": {"pooling": about["pooling"]}}
        if labels:
            classes = {"id2label": labels, "label2id": {label: number for number, label in labels.items()}}
            kind = {"reranker" if reranks else "classifier": classes}
        return json_response(
            {
                "model_id": first.name,
                "model_sha": None,
                "model_dtype": about["dtype"],
                "model_type": kind,
                "max_concurrent_requests": limits.max_concurrent_requests,
                "max_input_length": about["max_length"],
                "max_batch_tokens": about["max_batch_tokens"],
                "max_batch_requests": None,
                "max_client_batch_size": limits.max_client_batch_size,
                "auto_truncate": limits.auto_truncate,
                "tokenization_workers": 1,
                "version": version("regard"),
                "sha": None,
                "docker_label": None,
                "models": [{"name": one.name, **one.info} for one in self.models.serving()],
            }
        )

    async def health(self, request: Request) -> Response:
        """200 if every model can answer, else 503. One that nobody has used is idle and will be started."""
        states = {name: "idle" for name in self.models.paths}
        states |= {process.name: process.state for process in self.models.serving()}
        ready = all(state in ("ready", "idle") for state in states.values())
        return json_response(
            {"status": "ok" if ready else "unavailable", "models": states}, status=200 if ready else 503
        )

    def _truncate(self, body: _Truncation) -> bool:
        return self.admission.limits.auto_truncate if body.truncate is None else body.truncate


def sigmoid(logit: float) -> float:
    """What TEI makes of the logit of any reranker, whatever activation the model states."""
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))


def as_pairs(inputs: str | list[str] | list[list[str]]) -> tuple[list[tuple[str, str | None]], bool]:
    """Texts with their second text or None, and whether it is a single one."""
    if isinstance(inputs, str):
        return [(inputs, None)], True
    single = not inputs or isinstance(inputs[0], str)
    rows: Any = [inputs] if single else inputs
    pairs: list[tuple[str, str | None]] = []
    for row in rows:
        if not 1 <= len(row) <= 2:
            raise invalid(
                f"inputs: expected lists of one text or of two, which are a pair, found {len(row)}; send several texts "
                'as [["one"], ["two"]]',
                param="inputs",
            )
        pairs.append((row[0], row[1] if len(row) == 2 else None))
    return pairs, single

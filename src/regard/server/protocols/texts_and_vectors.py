"""What OpenAI's and TEI's endpoints share: texts or token ids of a client, and vectors as JSON and base64.

Vectors are float32 numbers with the nine digits that identify them, formatted at once.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.errors import RegardError
from regard.server.errors import invalid
from regard.server.http.endpoint import Limits, RequestContext
from regard.server.models.registry import ModelRegistry

MANY = 32  # vectors that are formatted in a thread: it takes longer than other requests should wait
PromptName = Annotated[
    str | None, Field(description="The prompt of the model's folder that is put before every text; default: its own.")
]
INPUTS = "A text or texts; token ids if the server was started with --accept-token-ids."


def as_rows(inputs: Any, limits: Limits, param: str, hint: str = "") -> Any:
    """A list of texts, or of rows of ids, of what a client may write for one. RequestError for ids, unless the server
    accepts them: nobody could tell ids of another tokenizer from those of the model."""
    rows = [inputs] if isinstance(inputs, str) or (inputs and isinstance(inputs[0], int)) else inputs
    check_batch(rows, limits.max_client_batch_size, param)
    if not isinstance(rows[0], str) and not limits.accept_token_ids:
        raise invalid(
            f"{param}: expected texts, found token ids, which mean other words if they come from another tokenizer; "
            f"send texts{hint}. If all clients use the tokenizers of the models: regard serve --accept-token-ids",
            param=param,
        )
    return rows


def check_batch(inputs: Sequence[object], limit: int, param: str) -> None:
    if not inputs:
        raise invalid(f"{param}: expected at least one, found none", param=param)
    if len(inputs) > limit:
        raise invalid(f"{param}: expected at most {limit:,}, found {len(inputs):,}; send several requests", param=param)


async def embed(
    models: ModelRegistry,
    context: RequestContext,
    inputs: Any,
    model: str | None,
    *,
    truncate: bool | None = None,
    param: str = "inputs",
    **options: Any,
) -> NDArray[np.float32]:
    """Vectors (n, width) of texts or rows of ids, of length 1 unless `options` say otherwise. RequestError names
    `param`."""
    process = await models.choose("embed", model)
    truncate = context.limits.auto_truncate if truncate is None else truncate
    arguments = {"inputs": inputs, "truncate": truncate, "normalize": True, "param": param, **options}
    data, width = await context.ask(process, "embed", arguments)
    return _as_array(data, width)


async def embed_tokens(
    models: ModelRegistry,
    context: RequestContext,
    inputs: Any,
    model: str | None,
    *,
    truncate: bool | None,
    **options: Any,
) -> list[NDArray[np.float32]]:
    """The vectors (tokens, width) of each text or row of ids, not normalized."""
    process = await models.choose("embed", model)
    truncate = context.limits.auto_truncate if truncate is None else truncate
    arguments = {"inputs": inputs, "truncate": truncate, "param": "inputs", **options}
    data, width, lengths = await context.ask(process, "embed_all", arguments)
    return np.split(_as_array(data, width), np.cumsum(lengths)[:-1])


def _as_array(data: bytes, width: int) -> NDArray[np.float32]:
    vectors = np.frombuffer(data, dtype=np.float32).reshape(-1, width)
    if not np.isfinite(vectors).all():
        raise RegardError(
            "the model computed NaN or infinity, which JSON cannot represent; its checkpoint may be damaged"
        )
    return vectors


def json_rows(vectors: NDArray[np.float32]) -> list[str]:
    """The JSON list of each vector."""
    form = f"[{','.join(['%.9g'] * vectors.shape[1])}]"
    return [form % tuple(row) for row in vectors.tolist()]


def base64_rows(vectors: NDArray[np.float32]) -> list[str]:
    """The little-endian bytes of each vector in base64, as JSON strings."""
    return [f'"{base64.b64encode(row.astype("<f4").tobytes()).decode()}"' for row in vectors]


async def format_vectors(form: Callable[[NDArray[np.float32]], list[str]], vectors: NDArray[np.float32]) -> list[str]:
    """The vectors in a form, many of them in a thread."""
    return form(vectors) if len(vectors) <= MANY else await asyncio.to_thread(form, vectors)

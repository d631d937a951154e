"""`regard embed`: texts to vectors."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.errors import InputError
from regard.events import Event, Note
from regard.known import DEFAULT_EMBEDDING_MODEL
from regard.verbs.base import (
    RUN_GROUP,
    ModelName,
    Models,
    PoolingName,
    Precision,
    Texts,
    argument,
    layers_option,
    model_option,
    option,
    precision_option,
    text_sizes,
    verb,
)
from regard.verbs.bulk import BulkRequest, cluster_of
from regard.verbs.tables import table_options

if TYPE_CHECKING:
    from regard.inference.embedding.bulk import EmbedResult

VECTOR_BYTES, CONCATENATED = 8_400, 8  # 400 numbers in JSON; layers


class EmbedRequest(BulkRequest):
    source: Texts = argument(
        help="Texts, one per line, or a table: CSV, TSV, JSONL, Parquet; compressed or not; - is standard input.",
        metavar="INPUT",
    )
    output: Path | None = option(
        None,
        "-o",
        help="File for the vectors: .npy, .npz or .parquet; for sparse ones .jsonl, .npz or .parquet. Default: print "
        "them.",
        metavar="FILE",
        writes=True,
    )
    model: ModelName = model_option(DEFAULT_EMBEDDING_MODEL)
    kind: Literal["dense", "sparse"] = option(
        "dense", help="sparse: a weight for each token of the vocabulary, by a masked language model or SPLADE."
    )
    task: Literal["document", "query"] | None = option(
        None, help="Of sparse vectors: what the texts are. Default: document."
    )
    max_active_dims: int | None = option(
        None, help="Keep so many tokens of a sparse vector. Default: what the folder states, or all.", metavar="N", ge=1
    )
    layers: str = layers_option()
    pooling: Literal[PoolingName, "none"] | None = option(
        None, "-p", help="none gives a vector per token. Default: what the model's folder states, or mean."
    )
    normalize: bool | None = option(
        None,
        "--normalize/--no-normalize",
        help="Scale every vector to length 1. Default: what the model's folder states, or not.",
    )
    max_length: int | None = option(
        None, help="Maximum number of tokens per text. Default: what the model's files state.", metavar="N", ge=1
    )
    prompt: str | None = option(
        None, help="What to put before every text. Default: the default prompt of the model's folder.", metavar="TEXT"
    )
    prompt_name: str | None = option(
        None, help="A prompt of the model's folder by name, such as query.", metavar="NAME"
    )
    long: Literal["cut", "error", "windows"] = option("cut", help="What to do with texts that are too long.")
    precision: Precision | None = precision_option()
    shard_size: int = option(
        4096, help="Texts per shard: what a crash loses at most.", metavar="N", ge=1, group=RUN_GROUP
    )
    restart: bool = option(False, help="Embed all texts again, whatever an earlier run has finished.", group=RUN_GROUP)


def _answer(request: EmbedRequest) -> dict[str, int]:
    """A vector for each text, of as many layers as are concatenated."""
    layers = CONCATENATED if request.layers.startswith("concat") else 1
    return {"bytes": VECTOR_BYTES * layers * len(text_sizes(request.source))}


@verb(EmbedRequest, result="regard.inference.embedding.bulk:EmbedResult", max_characters=300_000, http_answer=_answer)
def embed(request: EmbedRequest, models: Models) -> Generator[Event, None, EmbedResult]:
    """Turn texts into vectors: float32, one row per text, in the order of the input.

    Finished shards are kept in FILE.partial until the end: after a crash or Ctrl-C the same command continues. A
    finished run leaves a record in FILE.regard.json: the same command again finds FILE intact and embeds nothing.
    Standard input cannot be continued.

    A row without a text is a vector of zeros, and null in Parquet and JSON. .npy holds the vectors only, so with
    --missing skip its rows no longer match those of the input; .parquet (line, vector) and .npz (lines, vectors) keep
    the line numbers, from 1. With --pooling none, Parquet has the columns line, tokens,
    starts, ends, words, vectors, and .npz the arrays vectors, starts (where each row begins), offsets, words, lines.

    With --kind sparse (SPLADE: a folder of sentence-transformers' SparseEncoder, or a masked language model), .jsonl
    has the tokens of each line with their weights, .npz what scipy.sparse.load_npz reads and lines, and Parquet the
    columns line, indices, tokens and weights.
    """
    from regard.inference.bulk.job import how_to_continue
    from regard.inference.embedding.bulk import embed_events

    options = request.model_dump(
        include={
            *("kind", "task", "max_active_dims", "layers", "pooling", "normalize", "max_length", "long"),
            *("prompt", "prompt_name"),
            *("precision", "shard_size", "restart", "force"),
        }
    )
    if request.kind == "dense" and request.task is not None:
        raise InputError(f"task {request.task} is for sparse vectors; leave it out, or choose kind sparse")
    cluster = cluster_of(request, output=request.output)
    try:
        with ExitStack() as stack:
            result = yield from embed_events(
                request.source,
                request.output,
                lambda: stack.enter_context(models.use(request.model)),
                table=table_options(request),
                cluster=cluster,
                **options,
            )
    except (Exception, GeneratorExit):
        raise
    except BaseException:  # Ctrl-C, or a signal that ends the process
        yield Note(message=how_to_continue(request.output, request.source))
        raise
    for note in result.notes():
        yield Note(message=note)
    return result

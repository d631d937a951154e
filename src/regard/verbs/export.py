"""`regard export`: a model in the format of another program."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.events import Event
from regard.verbs.base import ModelName, Models, PoolingName, Request, argument, option, verb

if TYPE_CHECKING:
    from regard.inference.export import ExportResult


class ExportRequest(Request):
    model: ModelName = argument(help="A model folder, a hub name or a built-in name.", metavar="DIR")
    format: Literal["onnx", "sentence-transformers"] = option("onnx", help="The format to write.")
    output: Path = option(
        ..., "-o", help="Folder to write: a new one, or one with an earlier export.", metavar="DIR", writes=True
    )
    pooling: PoolingName | None = option(
        None, "-p", help="How token vectors become one. Default: what the model's folder states, or mean."
    )
    normalize: bool | None = option(
        None,
        "--normalize/--no-normalize",
        help="Scale every vector to length 1. Default: what the model's folder states, or not.",
    )
    max_length: int | None = option(
        None, help="Maximum number of tokens per text. Default: what the model's files state.", metavar="N", ge=1
    )


@verb(ExportRequest, result="regard.inference.export:ExportResult", http=False)
def export(request: ExportRequest, models: Models) -> Generator[Event, None, ExportResult]:
    """Export an encoder (BERT, RoBERTa, DistilBERT), or a model fine-tuned from one, for other programs.

    onnx writes model.onnx for onnxruntime, with config.json and the tokenizer. Inputs are input_ids, attention_mask
    and, for a BERT, token_type_ids, padded on the right, in batches of any size. An encoder has the output
    last_hidden_state, and sentence_embedding if its folder states a pooling or one of --pooling, --normalize and
    --max-length is given; a fine-tuned model has the output logits, or start_logits and end_logits for answers. Needs
    the extra onnx.

    sentence-transformers writes a folder whose vectors are those of `regard embed`.

    The exported model is run on a few texts and compared with Regard before the folder gets its name. If the outputs
    differ, nothing is written.

    Example: regard export my-task --format onnx --output my-task-onnx
    """
    from regard.inference.export import export

    options = request.model_dump(include={"format", "pooling", "normalize", "max_length"})
    with models.use(request.model) as loaded:
        return (yield from export(loaded, request.output, **options))

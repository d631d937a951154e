"""`regard tokenize`: the tokens and ids of texts, as a model receives them."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.events import Event, Note
from regard.verbs.base import PAGE, ModelName, Models, TextOrFile, argument, model_option, option, text_sizes, verb
from regard.verbs.tables import RowsRequest, open_texts

if TYPE_CHECKING:
    from regard.interpret.tokenization import TokenizeResult


class TokenizeRequest(RowsRequest):
    source: TextOrFile = argument(
        help="A text, or a file: one text per line, CSV, TSV, JSONL, Parquet; - is standard input.", metavar="INPUT"
    )
    pair: str | None = argument(None, help="The second text of a pair.", metavar="PAIR")
    model: ModelName = model_option()
    vocab: Path | None = option(
        None, help="Use this vocabulary instead of a model's: one token per line, or a folder.", metavar="FILE"
    )
    special_tokens: bool = option(
        True, "--special-tokens/--no-special-tokens", help="Add the special tokens that the model expects."
    )
    limit: int | None = option(None, help="Tokenize only the first N texts.", metavar="N", ge=1)
    embeddings: bool = option(False, help="Also list the embeddings that the model adds up for each token.")


def _answer(request: TokenizeRequest) -> dict[str, int]:
    """A token has about six bytes of the text; its embeddings are three vectors of some hundred numbers."""
    tokens = sum(text_sizes(request.source)) // 6
    return {"items": tokens, "bytes": (25_000 if request.embeddings else 100) * tokens}


@verb(
    TokenizeRequest,
    result="regard.interpret.tokenization:TokenizeResult",
    formats=(*PAGE, ".csv", ".jsonl", ".json"),
    notes=True,
    max_characters=300_000,
    http_answer=_answer,
)
def tokenize(request: TokenizeRequest, models: Models) -> Generator[Event, None, TokenizeResult]:
    """Split texts into the tokens of a model: ids, segments, and the characters that each token stands for.

    Nothing is truncated or padded. --vocab needs no model, only a vocabulary such as BERT's vocab.txt.

    Example: regard tokenize "Let's stick to improvisation" --vocab bert-base-uncased/vocab.txt
    """
    from regard.checkpoints.loaded_model import require_tokenizer
    from regard.inference.translation.subwords import Subwords
    from regard.interpret.tokenization import open_vocabulary, tokenize_texts

    texts = yield from _read(request)
    if request.vocab is not None:
        if request.embeddings:
            raise InputError("--embeddings needs a model, and --vocab is a vocabulary only; leave one of them out")
        tokenizer, source = open_vocabulary(request.vocab), str(request.vocab)
        result = tokenize_texts(
            tokenizer, texts, request.pair, source=source, add_special_tokens=request.special_tokens
        )
    else:
        with models.use(request.model) as loaded:
            found = loaded.tokenizer.source if isinstance(loaded.tokenizer, Subwords) else loaded.tokenizer
            result = tokenize_texts(
                require_tokenizer(loaded.model, found),
                texts,
                request.pair,
                source=request.model,
                add_special_tokens=request.special_tokens,
                max_length=getattr(loaded.model.config, "max_position_embeddings", None),
                model=loaded.model if request.embeddings else None,
            )
    return result


def _read(request: TokenizeRequest) -> Generator[Event, None, list[str]]:
    from itertools import islice

    from regard.data.files import is_file_name

    source = request.source
    if isinstance(source, str) and not is_file_name(source):
        source = [source]
    rows = yield from open_texts(source, request)
    limit = request.limit and min(request.limit, sys.maxsize)
    texts = [row.texts[0] or "" for row in islice(rows.read(request.missing), limit)]
    if (note := rows.missing_note(request.missing)) is not None:
        yield Note(message=note)
    return texts

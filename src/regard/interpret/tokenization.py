"""How text becomes the input of a model: tokens, ids, offsets and segments, and the embeddings that are added up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import BaseModel, Field
from torch import nn

from regard.data.batch import collate
from regard.errors import InputError
from regard.escaping import escape_controls
from regard.nn.embedding import TextEmbedding
from regard.nn.training import evaluation_mode
from regard.render.result import Result, Table
from regard.render.terminal import padded, token_columns
from regard.text import Tokenizer
from regard.text.tokenizer import Encoding, readable_token
from regard.wording import count_of

TERMINAL_TEXTS = 10
PAGE_TEXTS = 50
DIMENSIONS = 8  # of an embedding that are listed
SEGMENTS = "AB"


class InputToken(BaseModel):
    """A token and where it comes from.

    `start` and `end` are characters of the text, or of the second text in segment 1; None for a token that the
    tokenizer added. `word` counts the words of that text from 0.
    """

    token: str
    id: int
    start: int | None
    end: int | None
    word: int | None
    segment: int
    special: bool


class EmbeddingRow(BaseModel):
    """One vector per token: the first numbers of each, and its length."""

    name: str
    values: list[list[float]]
    norms: list[float]


class TokenizedText(BaseModel):
    """`embeddings`: what a model adds up for each token, the sum, and what the first layer receives; or empty."""

    text: str
    pair: str | None = None
    tokens: list[InputToken]
    embeddings: list[EmbeddingRow] = []

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    def characters(self, token: InputToken) -> str:
        """The characters of the text that a token stands for."""
        if token.start is None:
            return ""
        return (self.pair if token.segment and self.pair is not None else self.text)[token.start : token.end]


class TokenizeResult(Result):
    """`source` is the model or the vocabulary file; `longest` is the largest number of tokens, that of the text with
    the index `longest_text`; `unknown` tokens stand for words that the vocabulary cannot spell."""

    page_view: ClassVar[str | None] = "tokenize"

    source: str
    vocab_size: int
    max_length: int | None = Field(description="Tokens that the model reads.")
    num_texts: int
    num_tokens: int
    longest: int
    longest_text: int
    unknown: int
    texts: list[TokenizedText]

    @property
    def notes(self) -> list[str]:
        notes = []
        long = sum(len(one.tokens) > self.max_length for one in self.texts) if self.max_length else 0
        if long:
            notes.append(f"{count_of(long, 'text')} with more tokens than the {self.max_length} that the model reads")
        if self.unknown:
            notes.append(f"{count_of(self.unknown, 'token')} for words that the vocabulary cannot spell")
        return notes

    def view_data(self) -> dict[str, object]:
        return {**self.model_copy(update={"texts": self.texts[:PAGE_TEXTS]}).to_dict(), "notes": self.notes}

    def to_text(self) -> str:
        one = self.num_texts == 1
        return "\n".join([*(self._details(self.texts[0]) if one else self._list()), *self._summary()])

    def _summary(self) -> Iterator[str]:
        special = sum(token.special for text in self.texts for token in text.tokens)
        counts = f"{count_of(self.num_tokens, 'token')}, {special:,} of them special"
        yield f"\n{counts}; {self.source} has {self.vocab_size:,} in its vocabulary"
        if self.num_texts > 1:
            yield f"{self.num_texts:,} texts; the longest, number {self.longest_text + 1:,}, has {self.longest} tokens"

    def _details(self, text: TokenizedText) -> Iterator[str]:
        heading, *names = padded(["token", *(token.token for token in text.tokens)])
        yield f"{'position':>8}  {heading}  {'id':>7}  segment  characters  text"
        for position, (name, token) in enumerate(zip(names, text.tokens, strict=True)):
            span = "" if token.start is None else f"{token.start}-{token.end}"
            words = escape_controls(text.characters(token))
            line = f"{position:>8}  {name}  {token.id:>7}  {SEGMENTS[token.segment]:<7}  {span:<10}  {words}"
            yield line.rstrip()
        for row in text.embeddings:
            yield f"\n{row.name}: length and first numbers of each vector"
            for name, norm, values in zip(names, row.norms, row.values, strict=True):
                yield f"  {name}  {norm:7.3f}   {''.join(f'{value:8.3f}' for value in values)}"

    def _list(self) -> Iterator[str]:
        for number, text in enumerate(self.texts[:TERMINAL_TEXTS], 1):
            yield f"{number}. {count_of(len(text.tokens), 'token')}"
            yield from token_columns([token.token for token in text.tokens], text.ids)
        if len(self.texts) > TERMINAL_TEXTS:
            yield f"... and {len(self.texts) - TERMINAL_TEXTS:,} more texts; --json or --output lists them all"

    def to_table(self) -> Table:
        headers = ["text", "position", *InputToken.model_fields]
        rows = [
            [number, position, *token.model_dump().values()]
            for number, text in enumerate(self.texts)
            for position, token in enumerate(text.tokens)
        ]
        return headers, rows


def open_vocabulary(path: Path) -> Tokenizer:
    """The tokenizer of a folder with tokenizer files, or of a WordPiece vocabulary: a file with one token per line."""
    if path.is_dir() or path.name == "tokenizer.json":
        return Tokenizer.open(path if path.is_dir() else path.parent)
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a vocabulary with one token per line, such as vocab.txt")
    return Tokenizer.from_vocabulary(path)


def tokenize_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pair: str | None = None,
    *,
    source: str,
    add_special_tokens: bool = True,
    max_length: int | None = None,
    model: nn.Module | None = None,
) -> TokenizeResult:
    """Tokenize texts, or one text with the second of a pair. Nothing is truncated.

    `source` names the tokenizer in the result, `max_length` is what its model reads. With `model`, the embeddings of
    each text that it can read are added.
    """
    if not texts:
        raise InputError("there is no text; expected at least one")
    if pair is not None and len(texts) > 1:
        raise InputError(f"a second text makes a pair with one text, but there are {len(texts):,}; leave it out")
    inputs = [(text, pair) for text in texts] if pair is not None else list(texts)
    encodings = tokenizer.encode_batch(inputs, add_special_tokens=add_special_tokens)
    lengths = [len(one) for one in encodings]
    found = [
        TokenizedText(
            text=text,
            pair=pair,
            tokens=_tokens(encoding),
            embeddings=[] if model is None else input_embeddings(model, encoding.ids, encoding.segments, max_length),
        )
        for text, encoding in zip(texts, encodings, strict=True)
    ]
    unknown = tokenizer.unk_token_id
    return TokenizeResult(
        source=source,
        vocab_size=len(tokenizer.vocabulary),
        max_length=max_length,
        num_texts=len(texts),
        num_tokens=sum(lengths),
        longest=max(lengths),
        longest_text=lengths.index(max(lengths)),
        unknown=0 if unknown is None else sum(one.ids.count(unknown) for one in encodings),
        texts=found,
    )


def _tokens(encoding: Encoding) -> list[InputToken]:
    columns = (encoding.tokens, encoding.ids, encoding.offsets, encoding.words, encoding.segments)
    return [
        InputToken(
            token=readable_token(token),
            id=number,
            start=None if special else start,
            end=None if special else end,
            word=word,
            segment=segment,
            special=special,
        )
        for token, number, (start, end), word, segment, special in zip(
            *columns, encoding.special_tokens_mask, strict=True
        )
    ]


def input_embeddings(
    model: nn.Module, ids: Sequence[int], segments: Sequence[int], max_length: int | None = None
) -> list[EmbeddingRow]:
    """The embeddings of each token that a model adds up, their sum, and the output of the embedding layer.

    Empty if the model has no such layer, or if the text is longer than the model reads.
    """
    embedding = getattr(model, "embedding", None)
    if not isinstance(embedding, TextEmbedding) or not ids or (max_length is not None and len(ids) > max_length):
        return []
    batch = collate([ids]).to(embedding.tokens.weight.device)
    kinds = None if embedding.segments is None else torch.tensor(segments, device=batch.ids.device)
    with evaluation_mode(model):
        parts = {name: part.float() for name, part in embedding.parts(batch.ids, batch.layout, kinds).items()}
        parts = {name: part.expand(len(ids), -1) for name, part in parts.items()}
        vectors = {**parts, "sum": torch.stack([*parts.values()]).sum(0)}
        if embedding.norm is not None:
            vectors["sum after layer norm"] = embedding(batch.ids, batch.layout, kinds).float()
    return [
        EmbeddingRow(name=name, values=part[:, :DIMENSIONS].tolist(), norms=part.norm(dim=-1).tolist())
        for name, part in vectors.items()
    ]

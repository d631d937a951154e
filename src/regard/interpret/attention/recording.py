"""Where a model looks: one text, pair or picture through any family, recorded.

Knows which inputs a family takes, and what it answers. Knows nothing of files and pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from regard.checkpoints.ready import evaluation_mode, family_name, require_tokenizer
from regard.data.examples import Picture
from regard.errors import InputError
from regard.inference.generation.search import greedy
from regard.inference.generation.speaker import speaker_of
from regard.inference.translation.align import check_attends
from regard.inference.translation.build import next_scores, translating
from regard.inference.translation.subwords import Subwords
from regard.interpret.attention import token_axis as sides
from regard.interpret.attention.maps import AttentionRecord, TokenAxis, maps_from_tape
from regard.models import T5, Bert, Gpt, Seq2Seq, Transformer, Vit
from regard.nn import Padded
from regard.nn.recording import record
from regard.tasks.model import Tuned
from regard.tasks.pictures import Frame, Seen
from regard.text import Tokenizer

__all__ = ["MAX_TOKENS", "TextTokenizer", "record_attention"]

MAX_TOKENS = 1024  # tokens; a map grows with their square
TextTokenizer: TypeAlias = (
    Tokenizer | Subwords | None
)  # subwords read for a translator, nothing for a model of pictures


def record_attention(
    model: nn.Module,
    tokenizer: TextTokenizer,
    text: str = "",
    text_b: str | None = None,
    *,
    image: Picture | None = None,
    max_tokens: int | None = None,
) -> AttentionRecord:
    """Every attention map that the model makes of a text, a pair or a picture, with queries and keys.

    BERT and its kin read a pair as they were trained to, GPT as one text with a space between. Of a T5 or a translator
    `text_b` is the answer to look at; without one it is the model's own, found greedily. Rows of a decoder's own maps
    are the tokens it has read, rows of those between two texts (cross, lstm) the tokens it says then.

    Texts are cut to `max_tokens`, at most what the model has positions for and LONGEST in any case.
    """
    model = model.encoder if isinstance(model, Tuned | Seen) else model
    if isinstance(model, Vit):
        return _seen(model, text, image)
    if image is not None:
        raise InputError(f"this {family_name(model)} model reads texts; for a picture take a Vision Transformer")
    _check_text("text", text)
    if text_b is not None:
        _check_text("second text", text_b)
    if max_tokens is not None and max_tokens < 1:
        raise InputError(f"max_tokens is {max_tokens}; expected at least 1")
    limits = (MAX_TOKENS, max_tokens, getattr(_config(model), "max_position_embeddings", None))
    limit = min(number for number in limits if number is not None)
    with evaluation_mode(model):
        if isinstance(model, Bert):
            return _encoder(model, _tokenizer(model, tokenizer), text, text_b, limit)
        if isinstance(model, Gpt):
            return _decoder(model, _tokenizer(model, tokenizer), text, text_b, limit)
        if isinstance(model, T5 | Transformer | Seq2Seq):
            return _answering(model, tokenizer, text, text_b, limit)
    raise InputError(
        f"this {family_name(model)} model has no attention to look at; take a BERT, a GPT, a T5, a translator or a ViT"
    )


def _encoder(model: Bert, tokenizer: Tokenizer, text: str, text_b: str | None, limit: int) -> AttentionRecord:
    found = tokenizer.encode(text, text_b, max_length=limit)
    known = max(found.segments, default=0) < model.config.type_vocab_size
    segments = _tensor(model, found.segments) if known else None
    with record(model) as tape:
        model(_tensor(model, found.ids), Padded(), segments)
    side = sides.axis_of_encoding(tokenizer, found)
    maps = (maps_from_tape(tape, "encoder", side, side, part="encoder", alone=True),)
    return AttentionRecord(model.config.family, _texts(text, text_b), maps, found.cut)


def _decoder(model: Gpt, tokenizer: Tokenizer, text: str, text_b: str | None, limit: int) -> AttentionRecord:
    joined = text if text_b is None else f"{text} {text_b}"
    found = tokenizer.encode(joined, max_length=limit)
    with record(model) as tape:
        model(_tensor(model, found.ids), Padded())
    side = sides.axis_of_encoding(tokenizer, found, second=None if text_b is None else len(text))
    maps = (maps_from_tape(tape, "decoder", side, side, part="decoder", alone=True),)
    return AttentionRecord(model.config.family, _texts(text, text_b), maps, found.cut)


def _answering(
    model: T5 | Transformer | Seq2Seq, tokenizer: TextTokenizer, text: str, text_b: str | None, limit: int
) -> AttentionRecord:
    """Encoder, decoder and what is between them; of a recurrent model only the last."""
    if isinstance(model, T5):
        both = _tokenizer(model, tokenizer)
        source, target, end = both, both, model.config.eos_token_id
    elif isinstance(tokenizer, Subwords):
        check_attends(translating(model))
        source, target, end = tokenizer.source, tokenizer.target, tokenizer.end
    else:
        raise InputError(
            f"this {family_name(model)} model translates, so it needs its Subwords: regard.inference.translation.load"
        )
    read, cut = _ended(_ids(source, tokenizer, text), limit, end)
    if text_b is None:
        most = min(2 * len(read) + 10, limit)
        answer = [*greedy(speaker_of(model), _tensor(model, read), Padded(), end=end, max_tokens=most)[0].ids, end]
    else:
        answer, more = _ended(_ids(target, tokenizer, text_b), limit, end)
        cut += more
    with record(model) as tape:
        if isinstance(model, T5):
            model(_tensor(model, read), _tensor(model, [model.begin, *answer[:-1]]))
        else:
            next_scores(model, _tensor(model, read), Padded(), _tensor(model, answer))
    texts = (text, target.decode(answer).strip() if text_b is None else text_b)
    columns, rows = sides.axis_of_ids(source, read, special=1), sides.axis_of_ids(target, answer, special=1)
    if isinstance(model, Seq2Seq):
        between = maps_from_tape(tape, "lstm", rows, columns, part="decoder", site="cross")
        return AttentionRecord(model.config.family, texts, (between,), cut)
    heard = sides.shift_right(target.token(model.begin), rows)
    maps = (
        maps_from_tape(tape, "encoder", columns, columns, part="encoder", alone=True),
        maps_from_tape(tape, "decoder", heard, heard, part="decoder"),
        maps_from_tape(tape, "cross", rows, columns, part="decoder", site="cross"),
    )
    return AttentionRecord(model.config.family, texts, maps, cut)


def _seen(model: Vit, text: str, image: Picture | None) -> AttentionRecord:
    if image is None:
        raise InputError("this model looks at pictures; give it an image file, not a text")
    if text:
        raise InputError("this model looks at pictures and reads no text; leave the text out")
    config = model.config
    if config.num_channels not in (1, 3):
        raise InputError(f"this model sees {config.num_channels} channels; expected 1 (grey) or 3 (colours)")
    pixels = Frame(*config.image_size, config.num_channels).pixels(image)
    parameter = next(model.parameters())
    with evaluation_mode(model), record(model) as tape:
        model((pixels[None].to(parameter.device).float() / 127.5 - 1).to(parameter.dtype))
    grid = (config.image_size[0] // config.patch_size[0], config.image_size[1] // config.patch_size[1])
    side: TokenAxis = sides.axis_of_patches(grid)
    shown = pixels[0] if config.num_channels == 1 else pixels.permute(1, 2, 0)
    maps = (maps_from_tape(tape, "vit", side, side, part="encoder", alone=True),)
    return AttentionRecord(config.family, (image.name,), maps, image=shown.contiguous().numpy(), grid=grid)


def _ids(tokenizer: Tokenizer, reader: TextTokenizer, text: str) -> list[int]:
    if isinstance(reader, Subwords):
        return (reader.sources if tokenizer is reader.source else reader.targets)([text])[0]
    return tokenizer.encode(text).ids


def _ended(ids: list[int], limit: int, end: int) -> tuple[list[int], int]:
    """At most `limit` ids of which the last is the end, and how many were cut."""
    ids = ids if ids and ids[-1] == end else [*ids, end]
    return (ids, 0) if len(ids) <= limit else ([*ids[: limit - 1], end], len(ids) - limit)


def _tokenizer(model: nn.Module, reader: TextTokenizer) -> Tokenizer:
    if isinstance(reader, Subwords):
        raise InputError(f"this {family_name(model)} model does not translate; give it its own tokenizer")
    return require_tokenizer(model, reader)


def _tensor(model: nn.Module, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=next(model.parameters()).device)


def _config(model: nn.Module) -> object:
    return getattr(model, "config", None)


def _texts(text: str, text_b: str | None) -> tuple[str, ...]:
    return (text,) if text_b is None else (text, text_b)


def _check_text(what: str, text: str) -> None:
    if not text.strip():
        raise InputError(f"the {what} is empty; expected at least a word")

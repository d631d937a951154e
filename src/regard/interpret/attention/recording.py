"""Records the attention maps of one text, pair or image, for every model family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from regard.checkpoints.loaded_model import LoadedModel, require_tokenizer
from regard.data.examples import ImageExample
from regard.data.image_processor import image_processor_of
from regard.errors import InputError
from regard.inference.generation.beam_search import greedy_search
from regard.inference.generation.decoder import as_decoder
from regard.inference.translation.subwords import Subwords
from regard.inference.translation.translator import as_translation_model, check_has_attention
from regard.interpret.attention.maps import (
    AttentionRecord,
    MapKind,
    axis_of_encoding,
    axis_of_ids,
    axis_of_patches,
    check_text,
    maps_from_tape,
    shift_right,
)
from regard.interpret.attention.view import MIN_TOKENS, max_tokens_on_page
from regard.interpret.translation import one_sentence
from regard.models.family import can, family_name
from regard.nn.masks import Padded
from regard.nn.recording import record
from regard.nn.training import evaluation_mode
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.image_classification import ImageClassifier
from regard.text import Tokenizer

MAX_TOKENS = 1024  # a map grows with the square of the number of tokens
TextTokenizer: TypeAlias = Tokenizer | Subwords | None  # Subwords of a translator; None for a Vision Transformer


def attention_result(
    loaded: LoadedModel,
    text: str = "",
    text_b: str | None = None,
    *,
    image: ImageExample | None = None,
    kind: MapKind | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> AttentionRecord:
    """The record with a selection, and a record of fewer tokens for the page if all of them would make it too large.

    A translator that decodes its own translation shows that of the first sentence.
    """
    notes: list[str] = []
    if text_b is None and image is None:
        text, notes = one_sentence(loaded, text)
    recorded = record_attention(loaded.model, loaded.tokenizer, text, text_b, image=image).select(
        kind=kind, layer=layer, head=head
    )
    shorter, limit = recorded, max_tokens_on_page(recorded)
    while limit is not None and image is None and limit >= MIN_TOKENS:
        shorter = record_attention(loaded.model, loaded.tokenizer, text, text_b, max_tokens=limit)
        limit = max_tokens_on_page(shorter)
    for_page = None if shorter is recorded or limit is not None else shorter
    return recorded.model_copy(update={"model": loaded.name, "for_page": for_page, "notes": notes})


def record_attention(
    model: nn.Module,
    tokenizer: TextTokenizer,
    text: str = "",
    text_b: str | None = None,
    *,
    image: ImageExample | None = None,
    max_tokens: int | None = None,
) -> AttentionRecord:
    """Record every attention map of a text, a pair or an image, with queries and keys.

    Encoders read a pair as in pretraining, GPT as one text with a space between. For a T5 or a translator, `text_b` is
    the output; by default it is decoded greedily. The rows of decoder maps are the decoder's inputs, the rows of
    cross-attention (cross, lstm) the tokens predicted from them.

    Texts are truncated to `max_tokens`, the model's number of positions or MAX_TOKENS, whichever is smallest.
    """
    model = model.encoder if isinstance(model, EncoderWithHead | ImageClassifier) else model
    if can(model, "image") and not (image is None and can(model, "image-text")):
        return _vision(model, text, image)
    if image is not None:
        raise InputError(f"this {family_name(model)} model reads text; an image needs a Vision Transformer")
    check_text(text)
    if text_b is not None:
        check_text(text_b, "second text")
    limits = (MAX_TOKENS, max_tokens, getattr(getattr(model, "config", None), "max_position_embeddings", None))
    limit = min(one for one in limits if one is not None)
    with evaluation_mode(model):
        if can(model, "encoder-decoder"):
            return _encoder_decoder(model, tokenizer, text, text_b, limit)
        if can(model, "text-encoder") or can(model, "causal-lm") or can(model, "image-text"):
            return _self_attention(model, _tokenizer(model, tokenizer), text, text_b, limit)
    raise InputError(
        f"this {family_name(model)} model has no attention; expected a BERT, a GPT, a T5, a translator or a ViT"
    )


def _self_attention(model: Any, tokenizer: Tokenizer, text: str, text_b: str | None, limit: int) -> AttentionRecord:
    causal, second_text = can(model, "causal-lm") or can(model, "image-text"), None
    read = model.text_hidden if can(model, "image-text") else model
    if causal and text_b is not None:
        encoding = tokenizer.encode(f"{text} {text_b}", max_length=limit)
        second_text = len(text)
    else:
        encoding = tokenizer.encode(text, text_b, max_length=limit)
    has_segments = not causal and max(encoding.segments, default=0) < model.embedding.num_segments
    with record(model) as tape:
        read(_tensor(model, encoding.ids), Padded(), *([_tensor(model, encoding.segments)] if has_segments else []))
    axis = axis_of_encoding(tokenizer, encoding, second_text=second_text)
    kind: MapKind = "decoder" if causal else "encoder"
    part = "text_encoder" if can(model, "image-text") else kind
    maps = maps_from_tape(tape, kind, axis, axis, part=part, is_self_attention=True)
    texts = [text] if text_b is None else [text, text_b]
    return AttentionRecord(family=family_name(model), texts=texts, maps=[maps], truncated=encoding.num_truncated)


def _encoder_decoder(
    model: Any, tokenizer: TextTokenizer, text: str, text_b: str | None, limit: int
) -> AttentionRecord:
    """Encoder, decoder and cross-attention; for a recurrent model cross-attention alone."""
    if not can(model, "translation"):
        source = target = _tokenizer(model, tokenizer)
        end = model.config.eos_token_id
    elif isinstance(tokenizer, Subwords):
        check_has_attention(as_translation_model(model))
        source, target, end = tokenizer.source, tokenizer.target, tokenizer.end
    else:
        raise InputError(
            f"this {family_name(model)} model translates, so it needs its Subwords: "
            "load it with regard.inference.translation.load_translator"
        )
    source_ids, truncated = _truncate(_encode(source, tokenizer, text), limit, end)
    if text_b is None:
        most = min(2 * len(source_ids) + 10, limit)
        source_batch = _tensor(model, source_ids)
        (decoded,) = greedy_search(as_decoder(model), source_batch, Padded(), end=end, max_new_tokens=most)
        target_ids = [*decoded.ids, end]
    else:
        target_ids, more = _truncate(_encode(target, tokenizer, text_b), limit, end)
        truncated += more
    recurrent = can(model, "recurrent")
    with record(model) as tape:
        decoder_ids = target_ids if recurrent else [model.begin, *target_ids[:-1]]
        model(_tensor(model, source_ids), _tensor(model, decoder_ids), Padded())
    texts = [text, target.decode(target_ids).strip() if text_b is None else text_b]
    columns, rows = axis_of_ids(source, source_ids, special=1), axis_of_ids(target, target_ids, special=1)
    maps = [maps_from_tape(tape, "lstm" if recurrent else "cross", rows, columns, part="decoder", site="cross")]
    if not recurrent:
        inputs = shift_right(target.token(model.begin), rows)
        encoder = maps_from_tape(tape, "encoder", columns, columns, part="encoder", is_self_attention=True)
        maps = [encoder, maps_from_tape(tape, "decoder", inputs, inputs, part="decoder"), *maps]
    return AttentionRecord(family=family_name(model), texts=texts, maps=maps, truncated=truncated)


def _vision(model: Any, text: str, image: ImageExample | None) -> AttentionRecord:
    if image is None:
        raise InputError("this model reads images; give it an image file, not a text")
    if text:
        raise InputError("the attention over an image is shown without a text; leave the text out")
    config = model.config
    if config.num_channels not in (1, 3):
        raise InputError(f"this model reads {config.num_channels} channels; expected 1 (gray) or 3 (color)")
    processor, parameter = image_processor_of(model), next(model.parameters())
    pixels = processor.pixels(image)
    with evaluation_mode(model), record(model) as tape:
        model(processor.normalize(pixels[None].to(parameter.device)).to(parameter.dtype))
    grid = model.embedding.grid
    axis = axis_of_patches(grid, model.embedding.num_special)
    image_pixels = pixels[0] if config.num_channels == 1 else pixels.permute(1, 2, 0)
    maps = maps_from_tape(tape, "vit", axis, axis, part="encoder", is_self_attention=True)
    return AttentionRecord(
        family=family_name(model),
        texts=[image.name],
        maps=[maps],
        image=image_pixels.contiguous().numpy(),
        grid=grid,
    )


def _encode(tokenizer: Tokenizer, reader: TextTokenizer, text: str) -> list[int]:
    if isinstance(reader, Subwords):
        return (reader.encode_sources if tokenizer is reader.source else reader.encode_targets)([text])[0]
    return tokenizer.encode(text).ids


def _truncate(ids: list[int], limit: int, end: int) -> tuple[list[int], int]:
    """At most `limit` ids, the last of which is the end token, and how many were cut."""
    ids = ids if ids and ids[-1] == end else [*ids, end]
    return (ids, 0) if len(ids) <= limit else ([*ids[: limit - 1], end], len(ids) - limit)


def _tokenizer(model: nn.Module, reader: TextTokenizer) -> Tokenizer:
    if isinstance(reader, Subwords):
        raise InputError(f"this {family_name(model)} model does not translate; give it its own tokenizer")
    return require_tokenizer(model, reader)


def _tensor(model: nn.Module, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=next(model.parameters()).device)

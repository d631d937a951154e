"""CLIP's two towers against transformers: hidden states, attention maps, vectors and similarities."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import regard
from regard.nn.masks import Packed, Padded
from tests.parity.references import LENGTHS, Pair, clip_ids, close, remove_padding

Pairs = Callable[[str], Pair]
NAMES = ["clip", "clip-legacy"]
PIXELS = torch.randn(3, 3, 10, 10, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("name", NAMES)
def test_every_state_and_map_of_both_towers(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = clip_ids()
    assert layout.mask is not None
    options = {"output_hidden_states": True, "output_attentions": True}
    with torch.no_grad():
        image = one.theirs.vision_model(PIXELS, **options)
        text = one.theirs.text_model(tokens, attention_mask=layout.mask.long(), **options)
        with regard.record(one.ours) as tape:
            hidden = one.ours(PIXELS)
            text_hidden = one.ours.text_hidden(tokens, layout)
    close(hidden[:, 0], image.pooler_output)  # transformers normalizes the output of [CLS] alone
    close(text_hidden[layout.mask], text.last_hidden_state[layout.mask])
    assert len(tape.hidden("encoder")) == 4 and len(tape.hidden("text_encoder")) == 3
    for ours, expected in zip(tape.hidden("encoder")[:-1], image.hidden_states[:-1], strict=True):
        close(ours, expected)
    for ours, expected in zip(tape.hidden("text_encoder")[:-1], text.hidden_states[:-1], strict=True):
        close(ours[layout.mask], expected[layout.mask])
    for ours, expected in zip(tape.attention(part="encoder"), image.attentions, strict=True):
        close(ours, expected)
    for ours, expected in zip(tape.attention(part="text_encoder"), text.attentions, strict=True):
        close(ours.transpose(1, 2)[layout.mask], expected.transpose(1, 2)[layout.mask])


@pytest.mark.parametrize("name", NAMES)
def test_vectors_and_similarities(pair: Pairs, name: str) -> None:
    one = pair(name)
    tokens, layout = clip_ids()
    assert layout.mask is not None
    with torch.no_grad():
        theirs = one.theirs(tokens, PIXELS, attention_mask=layout.mask.long())
        images, texts = one.ours.encode_image(PIXELS), one.ours.encode_text(tokens, layout)
        close(images, one.theirs.get_image_features(PIXELS).pooler_output)
        close(texts, one.theirs.get_text_features(tokens, attention_mask=layout.mask.long()).pooler_output)
        close(one.ours.logits_per_image(images, texts), theirs.logits_per_image)
        close(one.ours.logits_per_image(images, texts).T, theirs.logits_per_text)


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_packing_change_nothing(pair: Pairs, name: str) -> None:
    model = pair(name).ours
    tokens, layout = clip_ids()
    assert layout.mask is not None
    packed = remove_padding(tokens, layout)

    def alone(row: Tensor) -> Tensor:
        return torch.cat([model.encode_text(one[None]) for one in row.split(LENGTHS)])

    with torch.no_grad():
        expected = alone(packed)
        close(model.encode_text(packed, Packed.from_lengths(LENGTHS)), expected)
        for junk in (0, 51, 52):  # also the end token and a higher id
            close(model.encode_text(tokens.masked_fill(~layout.mask, junk), layout), expected)


def test_the_first_end_token_counts(pair: Pairs) -> None:
    """A text may contain the end token; transformers pools the first one, too."""
    one = pair("clip")
    tokens = torch.tensor([[50, 7, 51, 9, 51], [50, 8, 9, 10, 51]])
    with torch.no_grad():
        close(one.ours.encode_text(tokens), one.theirs.get_text_features(tokens).pooler_output)
        close(one.ours.encode_text(tokens)[:1], one.ours.encode_text(tokens[:1, :3]))


def test_bfloat16_is_close(pair: Pairs) -> None:
    one = pair("clip")
    tokens, layout = clip_ids()
    half, _ = regard.load(one.folder, dtype=torch.bfloat16)
    with torch.no_grad():
        images, texts = half.encode_image(PIXELS.bfloat16()), half.encode_text(tokens, layout)
        similar = torch.cosine_similarity(images.float(), one.ours.encode_image(PIXELS))
        assert similar.min() > 0.99
        assert torch.cosine_similarity(texts.float(), one.ours.encode_text(tokens, layout)).min() > 0.99


def test_padded_layout_is_the_default(pair: Pairs) -> None:
    model = pair("clip").ours
    tokens = torch.tensor([[50, 8, 9, 10, 51]])
    with torch.no_grad():
        close(model.encode_text(tokens), model.encode_text(tokens, Padded()), 0)

"""ViT and DeiT against transformers, with non-square images and patches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import regard
from regard.nn.masks import Padded
from tests.parity.references import Pair, close

Pairs = Callable[[str], Pair]


@pytest.mark.parametrize(
    ("name", "size", "tokens"),
    [
        ("vit", (8, 12), 9),
        ("vit-square", (10, 10), 5),
        ("deit", (8, 12), 10),
        ("deit-plain", (8, 12), 10),
        ("deit-bare", (8, 12), 10),
    ],
)
def test_every_hidden_state_map_and_logit(pair: Pairs, name: str, size: tuple[int, int], tokens: int) -> None:
    one = pair(name)
    pixels = torch.randn(3, 2, *size, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        theirs = one.theirs(pixels, output_hidden_states=True, output_attentions=True)
        with regard.record(one.ours) as tape:
            last = one.ours(pixels)
        base = one.theirs.base_model(pixels)
        close(last, base.last_hidden_state)
        if hasattr(theirs, "logits"):
            close(one.ours.logits(last), theirs.logits)
        elif one.ours.pooler is not None:
            close(one.ours.pooler(last, Padded()), base.pooler_output)
    assert last.shape == (3, tokens, 24)
    # The last hidden state of transformers precedes the final norm; ours includes it.
    assert len(tape.hidden()) == len(theirs.hidden_states) == 4
    for ours, expected in zip(tape.hidden()[:-1], theirs.hidden_states[:-1], strict=True):
        close(ours, expected)
    close(tape.hidden()[-1], last, 0)
    for ours, expected in zip(tape.attention(), theirs.attentions, strict=True):
        close(ours, expected)


def test_a_model_without_classifier_says_so(pair: Pairs) -> None:
    one = pair("deit-bare").ours
    with pytest.raises(ValueError, match="no classifier"):
        one.logits(one(torch.zeros(1, 2, 8, 12)))


def test_wrong_image_size_is_rejected(pair: Pairs) -> None:
    with pytest.raises(ValueError, match=r"images of \(8, 12\) pixels, got \(12, 8\)"):
        pair("vit").ours(torch.zeros(1, 2, 12, 8))


def test_bfloat16_is_close(pair: Pairs) -> None:
    one = pair("vit")
    pixels = torch.randn(3, 2, 8, 12, generator=torch.Generator().manual_seed(4))
    half, _ = regard.load(one.folder, dtype=torch.bfloat16)
    with torch.no_grad():
        close(half(pixels.bfloat16()).float(), one.ours(pixels), 0.1)

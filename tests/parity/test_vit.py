"""The Vision Transformer against transformers, with non-square images and patches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import regard
from tests.parity.references import Pair, close

Pairs = Callable[[str], Pair]


@pytest.mark.parametrize(("name", "size", "patches"), [("vit", (8, 12), 8), ("vit-square", (10, 10), 4)])
def test_every_hidden_state_map_and_logit(pair: Pairs, name: str, size: tuple[int, int], patches: int) -> None:
    one = pair(name)
    pixels = torch.randn(3, 2, *size, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        theirs = one.theirs(pixels, output_hidden_states=True, output_attentions=True)
        with regard.record(one.ours) as tape:
            last = one.ours(pixels)
        base = one.theirs.vit if name == "vit" else one.theirs
        close(last, base(pixels).last_hidden_state)
        if name == "vit":
            close(one.ours.classifier(last[:, 0]), theirs.logits)
    assert last.shape == (3, 1 + patches, 24)
    # The last hidden state of transformers precedes the final norm; ours includes it.
    assert len(tape.hidden()) == len(theirs.hidden_states) == 4
    for ours, expected in zip(tape.hidden()[:-1], theirs.hidden_states[:-1], strict=True):
        close(ours, expected)
    close(tape.hidden()[-1], last, 0)
    for ours, expected in zip(tape.attention(), theirs.attentions, strict=True):
        close(ours, expected)


def test_wrong_image_size_is_rejected(pair: Pairs) -> None:
    with pytest.raises(ValueError, match=r"images of \(8, 12\) pixels, got \(12, 8\)"):
        pair("vit").ours(torch.zeros(1, 2, 12, 8))


def test_bfloat16_is_close(pair: Pairs) -> None:
    one = pair("vit")
    pixels = torch.randn(3, 2, 8, 12, generator=torch.Generator().manual_seed(4))
    half, _ = regard.load(one.folder, dtype=torch.bfloat16)
    with torch.no_grad():
        close(half(pixels.bfloat16()).float(), one.ours(pixels), 0.1)

"""T5 and the Transformer: cached step-by-step decoding equals a full forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.models import T5, T5Config, Transformer, TransformerConfig
from regard.nn.masks import Padded

_SHAPE: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "dropout": 0.0,
}
_T5: dict[str, Any] = _SHAPE | {
    "head_dim": 6,
    "num_hidden_layers": 2,
    "num_decoder_layers": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
}
_TRANSFORMER: dict[str, Any] = _SHAPE | {"num_hidden_layers": 2, "layer_norm_eps": 1e-5}
KINDS: dict[str, Callable[[], Any]] = {
    "t5": lambda: T5(T5Config(**_T5)),
    "t5 v1.1": lambda: T5(
        T5Config(**_T5, is_gated_act=True, hidden_act="gelu-tanh", scale_decoder_outputs=False),
        output_heads=("output",),
    ),
    "transformer": lambda: Transformer(TransformerConfig(**_TRANSFORMER)),
    "transformer, two vocabularies": lambda: Transformer(
        TransformerConfig(**_TRANSFORMER, target_vocab_size=24, share_embeddings=False)
    ),
}


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, device: torch.device, randomized: Callable[..., Any]) -> Any:
    return randomized(KINDS[request.param]()).to(device).eval()


@pytest.mark.parametrize("ragged", [False, True])
def test_cached_decoding_equals_uncached(device: torch.device, model: Any, ragged: bool) -> None:
    """Decoding loop: each output is the next input, and the first token is `begin`."""
    source, target = torch.randint(20, (3, 5), device=device), torch.randint(20, (3, 6), device=device)
    layout = Padded.from_lengths([5, 2, 3], device=device) if ragged else None
    begin = torch.full((3, 1), model.begin, device=device)
    whole = model.logits(model(source, torch.cat([begin, target], dim=1), layout))
    logits, state = model.start(source, layout)
    for t in range(6):
        torch.testing.assert_close(logits, whole[:, t], atol=1e-5, rtol=1e-4)
        logits, state = model.step(target[:, t], state)
    torch.testing.assert_close(logits, whole[:, 6], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("steps", [0, 1])
def test_reorder_moves_rows(device: torch.device, model: Any, steps: int) -> None:
    """After `steps` steps, row i continues the source and target of row index[i]."""
    source, layout = torch.randint(20, (3, 5), device=device), Padded.from_lengths([5, 2, 3], device=device)
    index, tokens = torch.tensor([2, 0, 0], device=device), torch.tensor([4, 5, 6], device=device)
    _, state = model.start(source, layout)
    for _ in range(steps):
        _, state = model.step(tokens, state)
    state.reorder(index)
    following = torch.tensor([7, 8, 9], device=device)
    logits, _ = model.step(following, state)
    target = torch.stack([torch.full_like(tokens, model.begin), *[tokens[index]] * steps, following], dim=1)
    expected = model.logits(model(source[index], target, Padded(layout.mask[index])))[:, -1]  # type: ignore[index]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)

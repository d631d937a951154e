"""Activation patching: equal to hooks on a transformers model; everything restores 1, nothing 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.interpret.patching import ActivationPatching, patch_activations
from tests.parity.references import Pair, pair_of

CLEAN, CORRUPTED = [5, 9, 12, 7, 30], [5, 17, 12, 8, 30]
ANSWER, WRONG = 11, 23


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return pair_of(request.param, tmp_path_factory.mktemp("pair"))


def difference(logits: Tensor) -> Tensor:
    return logits[..., ANSWER] - logits[..., WRONG]


def test_everything_restores_one_and_nothing_zero(pair: Pair) -> None:
    patching = ActivationPatching(pair.ours, CLEAN, CORRUPTED)
    for layer in range(patching.num_layers + 1):
        both = patching.patch_residual(layer, [range(5), ()])
        torch.testing.assert_close(both[0], patching.clean_logits, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(both[1], patching.corrupted_logits, atol=1e-4, rtol=1e-4)
    for layer in range(1, patching.num_layers + 1):
        nothing = patching.patch_heads(layer, [()])[0]
        torch.testing.assert_close(nothing, patching.corrupted_logits, atol=1e-4, rtol=1e-4)
    # The last token is the same, so that its embedding and every head and layer carry all of the difference.
    only_last = patching.patch_residual(patching.num_layers, [{4}])[0]
    torch.testing.assert_close(only_last, patching.clean_logits, atol=1e-4, rtol=1e-4)


def their_logits(model: Any, ids: list[int], *hooks: tuple[Any, Any]) -> Tensor:
    """The last logits of a transformers model with forward pre-hooks that change the first input."""
    handles = [module.register_forward_pre_hook(hook) for module, hook in hooks]
    try:
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0, -1]  # type: ignore[no-any-return]
    finally:
        for handle in handles:
            handle.remove()


def parts(pair: Pair, layer: int) -> tuple[Any, Any]:
    """The module that reads the hidden state of a layer, and the output projection of the next layer's attention."""
    if hasattr(pair.theirs, "transformer"):
        layers, norm = pair.theirs.transformer.h, pair.theirs.transformer.ln_f
        projections = [one.attn.c_proj for one in layers]
    else:
        layers, norm = pair.theirs.model.layers, pair.theirs.model.norm
        projections = [one.self_attn.o_proj for one in layers]
    return (layers[layer] if layer < len(layers) else norm), (projections[layer] if layer < len(layers) else None)


def test_equal_to_hooks_on_transformers(pair: Pair) -> None:
    patching = ActivationPatching(pair.ours, CLEAN, CORRUPTED)
    positions = [{position} for position in range(5)]
    for layer in range(4):
        module, projection = parts(pair, layer)
        stored: dict[Any, Tensor] = {}

        def store(module: Any, inputs: tuple[Any, ...], stored: dict[Any, Tensor] = stored) -> None:
            stored[module] = inputs[0].clone()

        wanted = [one for one in (module, projection) if one is not None]
        their_logits(pair.theirs, CLEAN, *((one, store) for one in wanted))
        ours = patching.patch_residual(layer, positions)
        for position in range(5):

            def replace(
                module: Any, inputs: tuple[Any, ...], at: int = position, clean: Tensor = stored[module]
            ) -> Any:
                x = inputs[0].clone()
                x[:, at] = clean[:, at]
                return (x, *inputs[1:])

            expected = their_logits(pair.theirs, CORRUPTED, (module, replace))
            torch.testing.assert_close(ours[position], expected, atol=1e-4, rtol=1e-4)
        if projection is None:
            continue
        by_head = patching.patch_heads(layer + 1, [{head} for head in range(4)])
        for head in range(4):

            def replace_head(
                module: Any, inputs: tuple[Any, ...], head: int = head, clean: Tensor = stored[projection]
            ) -> Any:
                x = inputs[0].clone()
                width = x.shape[-1] // 4
                x[..., head * width : (head + 1) * width] = clean[..., head * width : (head + 1) * width]
                return (x, *inputs[1:])

            expected = their_logits(pair.theirs, CORRUPTED, (projection, replace_head))
            torch.testing.assert_close(by_head[head], expected, atol=1e-4, rtol=1e-4)
    spread = difference(patching.patch_residual(1, positions))
    assert float(spread.max() - spread.min()) > 0.01, "every patch gives the same: nothing is compared"


def test_result_of_a_real_model(tmp_path: Path) -> None:
    model, tokenizer = regard.load("regard-gpt")
    found = patch_activations(
        LoadedModel("gpt", model, tokenizer),
        "The king said that he",
        "The queen said that he",
        answer="was",
        wrong="had",
    )
    depth, heads, length = model.config.num_hidden_layers, model.config.num_attention_heads, len(found.clean_tokens)
    assert (len(found.residual), len(found.residual[0])) == (depth + 1, length)
    assert (len(found.heads), len(found.heads[0])) == (depth, heads)
    changed = [one != other for one, other in zip(found.clean_tokens, found.corrupted_tokens, strict=True)]
    # The embeddings differ at one position only, and nothing but the last position reaches the logits.
    assert found.residual[0] == pytest.approx([float(one) for one in changed], abs=1e-2)
    assert found.residual[-1] == pytest.approx([0.0] * (length - 1) + [1.0], abs=1e-2)
    assert len(found.to_table()[1]) == (depth + 1) * length + depth * heads
    assert "embeddings" in found.to_text() and found.page_data()["view"] == "patch"
    found.save(tmp_path / "found.html")
    found.save(tmp_path / "found.json")
    assert "layer 1" in (tmp_path / "found.html").read_text(encoding="utf-8")


def test_invalid_prompts() -> None:
    model, tokenizer = regard.load("regard-gpt")
    with pytest.raises(InputError, match=r"3 \(.*\) and 5 \(.*\) tokens.*same number"):
        patch_activations(LoadedModel("", model, tokenizer), "The king said", "The king said that he")
    with pytest.raises(InputError, match="are both ' was'"):
        patch_activations(LoadedModel("", model, tokenizer), "The king", "The queen", answer="was", wrong="was")
    with pytest.raises(InputError, match="nothing to restore"):
        patch_activations(LoadedModel("", model, tokenizer), "The king", "The king", answer="was", wrong="had")
    with pytest.raises(ValueError, match="5 and 4 tokens"):
        ActivationPatching(model, CLEAN, CORRUPTED[:-1])
    bert, words = regard.load("regard-bert")
    with pytest.raises(InputError, match=r"activation patching needs .*predicts the next token"):
        patch_activations(LoadedModel("", bert, words), "a", "b")

"""The 2017 Transformer against torch.nn.Transformer with copied weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.models import Transformer, TransformerConfig
from regard.nn.block import Block
from regard.nn.embedding import sinusoids
from regard.nn.masks import Context, Packed, Padded

CONFIG = TransformerConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    layer_norm_eps=1e-5,
    dropout=0.0,
)
Make = Callable[..., Any]


def copy_block(block: Block, theirs: Any) -> None:
    pairs = [(block.attention, theirs.self_attn)]
    norms = [block.attention_residual, block.ffn_residual]
    if block.has_cross_attention:
        pairs.append((block.cross, theirs.multihead_attn))
        norms.insert(1, block.cross_residual)
    for ours, other in pairs:
        project: Any = ours.project
        if ours is block.attention:
            project.weight.copy_(other.in_proj_weight)
            project.bias.copy_(other.in_proj_bias)
        else:
            weights, biases = other.in_proj_weight.chunk(3), other.in_proj_bias.chunk(3)
            for linear, weight, bias in zip((project.query, project.key, project.value), weights, biases, strict=True):
                linear.weight.copy_(weight)
                linear.bias.copy_(bias)
        ours.output.load_state_dict(other.out_proj.state_dict())
    block.ffn.inner.load_state_dict(theirs.linear1.state_dict())
    block.ffn.outer.load_state_dict(theirs.linear2.state_dict())
    for number, residual in enumerate(norms, start=1):
        residual.norm.load_state_dict(getattr(theirs, f"norm{number}").state_dict())


def twins(
    norm_first: bool, final_norm: bool, device: torch.device, randomized: Make
) -> tuple[Transformer, nn.Transformer]:
    options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first, "layer_norm_eps": 1e-5}
    custom: dict[str, Any] = {}
    if not final_norm:
        custom["custom_encoder"] = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 12, **options), 2, enable_nested_tensor=False
        )
        custom["custom_decoder"] = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, **options), 2)
    theirs = randomized(nn.Transformer(8, 2, 2, 2, 12, **options, **custom)).double().to(device)
    ours = Transformer(replace(CONFIG, norm_first=norm_first, final_norm=final_norm)).double().to(device)
    with torch.no_grad():
        for stack, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
            for block, layer in zip(stack.layers, other.layers, strict=True):
                copy_block(block, layer)
            if final_norm:
                stack.norm.load_state_dict(other.norm.state_dict())
    return ours, theirs


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("final_norm", [False, True], ids=["no final norm", "final norm"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_output_equals_torch_transformer(
    device: torch.device, randomized: Make, norm_first: bool, final_norm: bool, packed: bool, training: bool
) -> None:
    ours, theirs = twins(norm_first, final_norm, device, randomized)
    ours.train(training), theirs.train(training)
    reads, says = [5, 3, 1], [4, 4, 2]
    source, target = (Padded.from_lengths(lengths, device=device) for lengths in (reads, says))
    assert source.mask is not None and target.mask is not None
    x = torch.randn(3, 5, 8, dtype=torch.float64, device=device, requires_grad=True)
    y = torch.randn(3, 4, 8, dtype=torch.float64, device=device, requires_grad=True)
    expected = theirs(
        x,
        y,
        tgt_mask=torch.ones(4, 4, dtype=torch.bool, device=device).triu(1),
        src_key_padding_mask=~source.mask,
        tgt_key_padding_mask=~target.mask,
        memory_key_padding_mask=~source.mask,
    )[target.mask]
    if packed:
        line, told = Packed.from_lengths(reads, device=device), Packed.from_lengths(says, device=device)
        got = ours.decoder(y[target.mask], Context(told, ours.encoder(x[source.mask], line), line))
    else:
        got = ours.decoder(y, Context(target, ours.encoder(x, source), source))[target.mask]
    torch.testing.assert_close(got, expected, atol=1e-9, rtol=1e-9)

    weights = torch.linspace(-1, 1, got.numel(), dtype=torch.float64, device=device).view_as(got)
    slopes = torch.autograd.grad((got * weights).sum(), [x, y, *ours.encoder.parameters(), *ours.decoder.parameters()])
    names = ["x", "y", *(f"encoder.{n}" for n, _ in ours.encoder.named_parameters())]
    names += [f"decoder.{n}" for n, _ in ours.decoder.named_parameters()]
    (expected * weights).sum().backward()
    gradients = dict(zip(names, slopes, strict=True))
    assert x.grad is not None and y.grad is not None
    torch.testing.assert_close(gradients["x"][source.mask], x.grad[source.mask], atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(gradients["y"][target.mask], y.grad[target.mask], atol=1e-8, rtol=1e-8)
    for part in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(theirs, part).layers):
            compare_gradients({k.removeprefix(f"{part}.layers.{number}."): v for k, v in gradients.items()}, layer)


def compare_gradients(ours: dict[str, Tensor], theirs: Any) -> None:
    named = {
        "attention.project.weight": theirs.self_attn.in_proj_weight,
        "attention.project.bias": theirs.self_attn.in_proj_bias,
        "attention.output.weight": theirs.self_attn.out_proj.weight,
        "attention_residual.norm.weight": theirs.norm1.weight,
        "ffn.inner.weight": theirs.linear1.weight,
        "ffn.outer.bias": theirs.linear2.bias,
    }
    for name, parameter in named.items():
        torch.testing.assert_close(ours[name], parameter.grad, atol=1e-8, rtol=1e-8)
    if hasattr(theirs, "multihead_attn"):
        joined = torch.cat([ours[f"cross.project.{part}.weight"] for part in ("query", "key", "value")])
        torch.testing.assert_close(joined, theirs.multihead_attn.in_proj_weight.grad, atol=1e-8, rtol=1e-8)
        torch.testing.assert_close(ours["ffn_residual.norm.bias"], theirs.norm3.bias.grad, atol=1e-8, rtol=1e-8)


@pytest.fixture(params=[True, False], ids=["shared", "two vocabularies"])
def model(request: pytest.FixtureRequest, device: torch.device, randomized: Make) -> Any:
    config = CONFIG if request.param else replace(CONFIG, share_embeddings=False, target_vocab_size=24)
    return randomized(Transformer(config)).to(device).eval()


def test_output_does_not_depend_on_the_batch(
    device: torch.device, model: Any, check_batch_invariance: Make, texts: Make
) -> None:
    check_batch_invariance(lambda a, b: model(a[0], b[0], a[1], b[1]), texts(device, sides=2))


@pytest.mark.parametrize("arrangement", ["interleaved", "halves"])
def test_embeddings_are_scaled_and_have_positions(device: torch.device, randomized: Make, arrangement: Any) -> None:
    model = randomized(Transformer(replace(CONFIG, arrangement=arrangement))).to(device)
    ids = torch.randint(20, (2, 5), device=device)
    places = sinusoids(torch.arange(5, device=device), 8, arrangement=arrangement)
    expected = model.embedding.tokens.weight[ids] * math.sqrt(8) + places
    torch.testing.assert_close(next(model.states(ids)), expected, atol=1e-6, rtol=1e-6)


def test_logits_are_products_with_the_target_embeddings(device: torch.device, model: Any) -> None:
    hidden = torch.randn(2, 8, device=device)
    table = (model.target_embedding or model.embedding).tokens.weight
    torch.testing.assert_close(model.logits(hidden), hidden @ table.T, atol=1e-5, rtol=1e-5)
    assert model.logits(hidden).shape == (2, 20 if model.target_embedding is None else 24)


def test_later_targets_do_not_change_earlier_outputs(device: torch.device, model: Any) -> None:
    source, target = torch.randint(20, (2, 5), device=device), torch.randint(10, (2, 6), device=device)
    other = target.clone()
    other[:, 3:] += 10
    before, after = model(source, target), model(source, other)
    torch.testing.assert_close(after[:, :3], before[:, :3], atol=1e-6, rtol=0)
    assert (after[:, 3:] - before[:, 3:]).abs().amax(-1).min() > 1e-3


def test_base_model_matches_the_paper() -> None:
    config = TransformerConfig()
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.intermediate_size) == (
        512,
        6,
        8,
        2048,
    )
    with torch.device("meta"):
        model = Transformer(config)
    encoder = 4 * (512 * 512 + 512) + 512 * 2048 + 2048 + 2048 * 512 + 512 + 2 * 2 * 512
    decoder = encoder + 4 * (512 * 512 + 512) + 2 * 512
    assert sum(p.numel() for p in model.parameters()) == 37000 * 512 + 6 * (encoder + decoder)


def test_a_shared_embedding_needs_one_vocabulary() -> None:
    with pytest.raises(ValueError, match="share_embeddings=False"):
        TransformerConfig(vocab_size=20, target_vocab_size=24)


def test_gradients_reach_all_parameters(device: torch.device, model: Any) -> None:
    ids = torch.randint(20, (2, 7), device=device)
    model.logits(model(ids, ids)).pow(2).sum().backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not missing


def test_source_may_be_vectors_instead_of_ids() -> None:
    """For example frames of a video: as wide as the model, with positions added, and processed like words."""
    model = Transformer(
        TransformerConfig(
            vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12
        )
    ).eval()
    frames, ids = torch.randn(2, 5, 8), torch.randint(0, 20, (2, 4))
    assert model(frames, ids).shape == (2, 4, 8)
    words = model.embedding.tokens(torch.randint(0, 20, (2, 5)))
    assert not torch.allclose(model.encode(frames), model.encode(words))
    assert not torch.allclose(model.encode(frames), model.encode(frames.flip(1)).flip(1))

"""The single-row kernels give the results of `FusedStep`, in Triton's interpreter or on a GPU."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.engine import graph_decoder
from regard.engine.graph_decoder import cuda_graph_mode
from regard.inference.generation.sampling import Sampling, sample
from regard.models import Gpt, GptConfig, Llama, LlamaConfig
from regard.nn import fast as fast_package
from regard.nn.block import LayerConfig
from regard.nn.cache import DecoderState
from regard.nn.embedding import LearnedPositions, RelativePositionBias, TextEmbedding
from regard.nn.fast import single_row
from regard.nn.fast.fused_step import FusedStep
from regard.nn.fast.single_row import BlockSizes, SingleRowKernels, StaticCache, supports_single_row
from regard.nn.stack import Stack
from tests.nn.stacks import stacked

LAYER = LayerConfig(width=96, heads=6, ffn=200, norm_first=True, activation="gelu-tanh", eps=1e-5)
CAPACITY = 300  # positions
CUDA = torch.cuda.is_available()
TOLERANCE: dict[torch.dtype, dict[str, float]] = {
    torch.float32: {"atol": 2e-5, "rtol": 2e-5},
    torch.bfloat16: {"atol": 0.1, "rtol": 0.03},
    torch.float16: {"atol": 0.015, "rtol": 0.005},
}


@pytest.fixture(scope="module")
def kernel_device() -> Any:
    """The device that runs the kernels: a GPU, or the CPU with Triton's interpreter."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed: it comes with torch for GPUs")
    if CUDA:
        yield torch.device("cuda")
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        patch.delitem(sys.modules, "regard.nn.fast.triton_kernels", raising=False)
        patch.delattr(fast_package, "triton_kernels", raising=False)
        # The interpreter runs programs sequentially and slowly.
        patch.setattr(single_row, "BlockSizes", partial(BlockSizes, programs=4))
        if not _interpreter_works():
            pytest.skip("this version of Triton's interpreter does not work with this version of numpy")
        single_row._works.cache_clear()
        yield torch.device("cpu")
        single_row._works.cache_clear()


def _interpreter_works() -> bool:
    import triton
    import triton.language as tl

    def count(limit, out):
        for number in range(0, tl.load(limit)):
            tl.store(out, number)

    limit, out = torch.tensor([3]), torch.zeros(1, dtype=torch.long)
    try:
        triton.jit(count)[(1,)](limit, out)
    except triton.runtime.errors.InterpreterError:
        return False
    return out.item() == 2


@pytest.fixture(scope="module")
def make_stack(randomized: Callable[..., Any]) -> Callable[..., Stack]:
    def make(layer: LayerConfig = LAYER, depth: int = 2, **options: Any) -> Stack:
        torch.manual_seed(3)
        stack: Stack = randomized(stacked(layer, depth, **{"final_norm": True, **options}), std=0.1).eval()
        return stack

    return make


def filled_cache(stack: Stack, length: int, capacity: int = CAPACITY) -> StaticCache:
    """A cache filled with keys and values at all positions; those from `length` on must have no effect."""
    weight, heads = stack.layers[0].ffn.inner.weight, stack.layers[0].attention.heads
    width = stack.layers[0].attention.output.in_features // heads
    cache = StaticCache(
        len(stack.layers), rows=1, heads=heads, room=capacity, width=width, dtype=weight.dtype, device=weight.device
    )
    generator = torch.Generator().manual_seed(length)
    for tensor in (one for pair in cache.pairs for one in pair):
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
        tensor[:, :, length:] = 1e4
    cache.positions.fill_(length)
    return cache


@torch.no_grad()
def compare_with_fused_step(stack: Stack, length: int, span: int, sizes: BlockSizes | None = None) -> None:
    """Compare the output and the cache entries for the next token after `length` others."""
    width, kind = stack.norm.weight.shape[0], stack.norm.weight.dtype
    x = torch.randn(1, width, generator=torch.Generator().manual_seed(1)).to(stack.norm.weight)
    ours, theirs = filled_cache(stack, length), filled_cache(stack, length)
    expected = FusedStep(stack)(x, DecoderState(theirs.cache(span), theirs.mask(span)))
    found = SingleRowKernels(stack, sizes)(x, DecoderState(ours.cache(span), ours.mask(span)))
    assert found.shape == expected.shape and found.dtype == kind
    torch.testing.assert_close(found.float(), expected.float(), **TOLERANCE[kind])
    for pair, other in zip(ours.pairs, theirs.pairs, strict=True):
        for one, another in zip(pair, other, strict=True):
            torch.testing.assert_close(one[:, :, length].float(), another[:, :, length].float(), **TOLERANCE[kind])
            same = torch.arange(one.shape[2]) != length
            assert torch.equal(one[:, :, same], another[:, :, same])


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 127, 128, 129, 255])
def test_lengths_around_block_boundaries(
    kernel_device: torch.device, make_stack: Callable[..., Stack], length: int
) -> None:
    stack = make_stack(replace(LAYER, width=48, heads=3, ffn=64), depth=1).to(kernel_device)
    compare_with_fused_step(stack, length, span=256, sizes=BlockSizes(programs=4, attention=64 * 16))


@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu-tanh"])
def test_dtypes_and_activations(
    kernel_device: torch.device, make_stack: Callable[..., Stack], kind: torch.dtype, activation: str
) -> None:
    compare_with_fused_step(make_stack(replace(LAYER, activation=activation)).to(kernel_device, kind), 40, span=128)


@pytest.mark.parametrize(
    ("width", "heads", "ffn"), [(768, 12, 3072), (384, 6, 1536), (256, 2, 100), (80, 5, 33), (64, 2, 64)]
)
def test_shapes(
    kernel_device: torch.device, make_stack: Callable[..., Stack], width: int, heads: int, ffn: int
) -> None:
    """Model widths, including those that are not powers of two, and head widths from 16 to 128."""
    stack = make_stack(replace(LAYER, width=width, heads=heads, ffn=ffn), depth=1).to(kernel_device)
    compare_with_fused_step(stack, 40, span=64)


@pytest.mark.parametrize(
    "sizes", [BlockSizes(rows=1), BlockSizes(programs=3), BlockSizes(programs=1, rows=4, warps=1, attention=1024)]
)
def test_block_sizes_do_not_change_the_result(
    kernel_device: torch.device, make_stack: Callable[..., Stack], sizes: BlockSizes
) -> None:
    compare_with_fused_step(make_stack().to(kernel_device), 70, span=128, sizes=sizes)


def test_layer_options(kernel_device: torch.device, make_stack: Callable[..., Stack]) -> None:
    """No biases, a custom scale, wide heads, large values in the norm."""
    stack = make_stack(replace(LAYER, bias=False, scale=0.7, head_width=32)).to(kernel_device)
    compare_with_fused_step(stack, 9, span=64)
    with torch.no_grad():
        stack.layers[0].ffn.outer.weight.mul_(1000)
    compare_with_fused_step(stack, 9, span=64)


@torch.no_grad()
def test_embedding_and_logits(kernel_device: torch.device, make_stack: Callable[..., Stack]) -> None:
    embedding = TextEmbedding(133, 96, positions=LearnedPositions(50, 96, offset=2)).eval().to(kernel_device)
    stack = make_stack().to(kernel_device)
    assert supports_single_row(stack, embedding)
    weight, steps = embedding.tokens.weight, SingleRowKernels(stack)
    for token, position in ((0, 0), (132, 7), (50, 49), (50, 60)):
        tokens, positions = torch.tensor([token], device=kernel_device), torch.tensor([position], device=kernel_device)
        x = steps.embed(embedding, tokens, positions)
        expected = weight[token] + embedding.positions.weight[min(position, 49) + 2]
        assert torch.equal(x, expected[None])
    ours, theirs = filled_cache(stack, 5), filled_cache(stack, 5)
    found = steps.logits(x, DecoderState(ours.cache(8), ours.mask(8)), weight)
    hidden = FusedStep(stack)(x, DecoderState(theirs.cache(8), theirs.mask(8)))
    torch.testing.assert_close(found, hidden @ weight.T, **TOLERANCE[torch.float32])


@torch.no_grad()
def test_nan_propagates(kernel_device: torch.device, make_stack: Callable[..., Stack]) -> None:
    stack = make_stack(replace(LAYER, activation="relu")).to(kernel_device)
    cache = filled_cache(stack, 5)
    cache.pairs[1][0][0, 2, 3, 4] = torch.nan
    found = SingleRowKernels(stack)(
        torch.ones(1, 96, device=kernel_device), DecoderState(cache.cache(8), cache.mask(8))
    )
    assert found.isnan().all()


def test_supported_stacks(kernel_device: torch.device, make_stack: Callable[..., Stack]) -> None:
    assert supports_single_row(make_stack().to(kernel_device))
    others = [
        replace(LAYER, norm_first=False),
        replace(LAYER, norm="rms"),
        replace(LAYER, gated=True),
        replace(LAYER, cross=True),
        replace(LAYER, heads=8),  # head size 12
        replace(LAYER, head_width=256),
    ]
    for layer in others:
        assert not supports_single_row(make_stack(layer).to(kernel_device)), layer
    assert not supports_single_row(make_stack(final_norm=False).to(kernel_device))
    assert not supports_single_row(make_stack(relative=RelativePositionBias(6)).to(kernel_device))
    assert not supports_single_row(make_stack().to(kernel_device, torch.double))
    mixed = make_stack().to(kernel_device)
    mixed.norm.bfloat16()
    assert not supports_single_row(mixed)
    other = make_stack().to(kernel_device)
    other.layers[1].ffn.activation = torch.sigmoid
    assert not supports_single_row(other)
    transposed = make_stack(replace(LAYER, ffn=96)).to(kernel_device)
    transposed.layers[0].ffn.inner.weight = nn.Parameter(transposed.layers[0].ffn.inner.weight.detach().T)
    assert not supports_single_row(transposed)
    scaled = TextEmbedding(9, 96, positions=LearnedPositions(8, 96), scaled=True).eval().to(kernel_device)
    assert not supports_single_row(make_stack().to(kernel_device), scaled)
    assert not supports_single_row(
        make_stack().to(kernel_device), TextEmbedding(9, 96, positions=LearnedPositions(8, 96)).to(kernel_device)
    )


def test_missing_or_failing_triton_disables_the_kernels(
    monkeypatch: pytest.MonkeyPatch, make_stack: Callable[..., Stack]
) -> None:
    def broken() -> Any:
        raise RuntimeError("no compiler")

    stack = make_stack()
    single_row._works.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(single_row, "_kernels", broken)
        assert not supports_single_row(stack)
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        single_row._works.cache_clear()
        assert not supports_single_row(stack)
    single_row._works.cache_clear()


@pytest.mark.parametrize(("outputs", "inputs"), [(2304, 768), (768, 3072), (50257, 768), (1, 1), (7, 16384)])
def test_programs_cover_all_outputs(outputs: int, inputs: int) -> None:
    rows, block, warps = BlockSizes().for_product(outputs, inputs)
    assert block >= inputs and block < 2 * max(inputs, 16)
    assert {bin(number).count("1") for number in (rows, block, warps)} == {1}, "powers of two"
    assert rows * block <= single_row.MAX_WIDTH
    assert rows == 1 or -(-outputs // rows) >= 264


SHAPE: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 96,
    "max_position_embeddings": 300,
}


def tiny_gpt(kernel_device: torch.device) -> Gpt:
    return with_random_weights(Gpt(GptConfig(**SHAPE))).to(kernel_device)


def tiny_llama(kernel_device: torch.device) -> Llama:
    """A Llama with grouped queries, a window in the second layer and an output layer of its own."""
    more = {"num_attention_heads": 6, "num_key_value_heads": 2, "sliding_window": 20, "max_window_layers": 1}
    return with_random_weights(Llama(LlamaConfig(**SHAPE | more))).to(kernel_device)


def with_random_weights(model: Any) -> Any:
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def generated_by(model: Any, ids: Tensor, mode: Any, count: int) -> tuple[Any, ...]:
    """Tokens by greedy search and by sampling, and the single-row kernels used."""
    settings: dict[str, Any] = {"end": None, "max_new_tokens": count}
    with cuda_graph_mode(mode):
        certain = list(zip(*sample(model, ids, sampling=None, **settings), strict=True))
        used = graph_decoder._decoders[model][1].single_row if mode != "off" else None
        return certain, list(sample(model, ids, sampling=Sampling(temperature=0.8), seed=2, **settings)), used


def test_bursts_of_one_row_generate_the_same_tokens(kernel_device: torch.device) -> None:
    model, ids = tiny_gpt(kernel_device), torch.tensor([[3, 1, 4]], device=kernel_device)
    expected = generated_by(model, ids, "off", 10)
    found = generated_by(model, ids, "plain", 10)
    assert isinstance(found[2], SingleRowKernels) and list(graph_decoder._decoders[model][1].steps) == [128]
    assert found[:2] == expected[:2]
    assert len(set(expected[0][0])) > 3, "the tokens must differ"


@pytest.mark.skipif(not CUDA, reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("new_model", [tiny_gpt, tiny_llama])
def test_captured_bursts_generate_the_same_tokens(new_model: Callable[..., Any], rows: int) -> None:
    kernel_device = torch.device("cuda")
    model, ids = new_model(kernel_device), torch.tensor([[3, 1, 4]] * rows, device=kernel_device)
    expected = generated_by(model, ids, "off", 200)
    found = generated_by(model, ids, "graphs", 200)
    assert isinstance(found[2], SingleRowKernels) == (rows == 1 and isinstance(model, Gpt))
    assert found[:2] == expected[:2] == generated_by(model, ids, "graphs", 200)[:2]

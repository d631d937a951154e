"""Self-attention with dropout in training, forward and backward, on one GPU: our kernels against PyTorch's.

    python -m benchmarks.attention_dropout [--shapes bert512 bert128 gpt1024 packed512] [--seconds 80] [--dropout 0.1]
                                           [--save]

For each shape it checks output and gradients against explicit attention with the same mask, measures PyTorch's kernels
(SDPA by cuDNN and by FlashAttention), then each block size of our forward and backward kernels, and prints the best.
A time is that of a CUDA graph with 12 calls, from the fused projection (B, T, 3 H D) to its gradient, so for PyTorch it
includes the concatenation of the gradients of queries, keys and values. Block sizes that do not compile, need too much
shared memory or compute a wrong result are listed as failures.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.timing import describe_machine, save_results
from regard.nn.fast.dropout_attention import Blocks, KernelConfig, dropout_factors, run_backward, run_forward

CALLS = 12  # per CUDA graph, like the layers of BERT base
REPLAYS = 7
HALF = 2**31
TOLERANCE = 0.02  # of bfloat16: root mean square of the error relative to that of the result


@dataclass(frozen=True)
class Shape:
    """Rows and their length; `packed` rows are half as long on average."""

    rows: int
    length: int
    heads: int = 12
    width: int = 64
    causal: bool = False
    packed: bool = False

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.width)


SHAPES = {
    "bert512": Shape(128, 512),
    "bert128": Shape(512, 128),
    "gpt1024": Shape(32, 1024, causal=True),
    "packed512": Shape(128, 512, packed=True),
}
# Candidates: rows, columns, warps and stages. Compiled for Hopper, for bfloat16 and heads of 64, they hardly spill.
FORWARD = [
    *(Blocks(128, 64, 4, stages) for stages in (2, 3)),
    Blocks(128, 64, 8, 3),
    *(Blocks(128, 128, 8, stages) for stages in (1, 2)),
    *(Blocks(64, 64, 4, stages) for stages in (2, 3)),
    *(Blocks(64, 128, 4, stages) for stages in (1, 2)),
    Blocks(128, 32, 4, 3),
    Blocks(256, 64, 8, 2),
]
BACKWARD = [  # one program computes all gradients of a head; one block of 128 keys holds a row of BERT's first phase
    *(Blocks(64, 128, 8, stages) for stages in (1, 2, 3)),
    *(Blocks(32, 128, 8, stages) for stages in (1, 2, 3)),
    *(Blocks(64, 64, 4, stages) for stages in (1, 2)),
    Blocks(128, 128, 8, 2),
    Blocks(32, 64, 4, 2),
    Blocks(32, 256, 8, 1),
]
KEYS = [  # the gradients of keys and values ...
    Blocks(64, 128, 8, 2),
    *(Blocks(64, 64, 4, stages) for stages in (2, 3)),
    Blocks(32, 64, 4, 3),
]
QUERIES = [  # ... and of queries, in a kernel of their own
    *(Blocks(128, 64, 8, stages) for stages in (2, 3)),
    *(Blocks(64, 64, 4, stages) for stages in (2, 3)),
    Blocks(128, 128, 8, 2),
    Blocks(64, 128, 4, 2),
]


@dataclass(frozen=True)
class Inputs:
    """A fused projection (N, 3, H, D), dropout factors, a gradient of the output, and the starts of packed rows."""

    shape: Shape
    dropout: float
    qkv: Tensor
    factors: Tensor
    gradient: Tensor
    starts: Tensor | None

    @staticmethod
    def random(shape: Shape, dropout: float) -> Inputs:
        tokens, size = shape.rows * shape.length, (shape.heads, shape.width)
        qkv = torch.randn(tokens, 3, *size, device="cuda", dtype=torch.bfloat16)
        gradient = torch.randn(tokens, *size, device="cuda", dtype=torch.bfloat16)
        starts = None
        if shape.packed:  # each row is split into two at random
            ends = torch.arange(1, shape.rows + 1) * shape.length
            middles = ends - torch.randint(1, shape.length, (shape.rows,))
            starts = F.pad(torch.stack([middles, ends], 1).flatten(), (1, 0)).to("cuda", torch.int32)
        return Inputs(shape, dropout, qkv, dropout_factors(shape.heads, tokens, qkv.device), gradient, starts)

    @property
    def settings(self) -> tuple[Tensor | None, int, float, float, bool]:
        shape = self.shape
        return self.starts, shape.length, self.dropout, shape.scale, shape.causal


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["bert512", "bert128"])
    parser.add_argument("--seconds", type=float, default=80, help="skip the remaining block sizes after this time")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/attention_dropout.json")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("this benchmark needs a GPU")
    deadline = time.monotonic() + options.seconds
    torch.manual_seed(0)
    print(describe_machine(), flush=True)
    results = {name: measure(name, SHAPES[name], options.dropout, deadline) for name in options.shapes}
    if options.save:
        print(save_results("attention_dropout", {"dropout": options.dropout, "shapes": results}))
    print()
    for name, result in results.items():
        peer, baseline = min(result["pytorch"].items(), key=lambda item: item[1], default=("none", math.nan))
        ours = result["milliseconds"]
        print(f"{name}: {ours:.3f} ms, PyTorch's best ({peer}) {baseline:.3f} ms: {baseline / ours:.2f} times as fast")
        for kernel, blocks in result["config"].items():
            print(f"  {kernel:<10}{describe(blocks)}")


def measure(name: str, shape: Shape, dropout: float, deadline: float) -> dict[str, Any]:
    """Measure PyTorch's kernels and ours for one shape; print each as soon as it is measured."""
    inputs = Inputs.random(shape, dropout)
    pytorch: dict[str, float] = {}
    for peer, implementation in peers(inputs).items():
        with failures_printed(f"{name} {peer}"):
            pytorch[peer] = milliseconds(implementation)
            print(f"{name} {peer}: {pytorch[peer]:.3f} ms", flush=True)
    expected, expected_gradient = reference(inputs)

    def forward_time(blocks: Blocks) -> float:
        def call() -> Tensor:
            return run_forward(inputs.qkv, inputs.factors, *inputs.settings, KernelConfig(blocks, blocks))[0]

        check(call(), expected)
        return milliseconds(call)

    forward, best_forward = fastest(f"{name} forward", FORWARD, forward_time, deadline)
    out, lse = run_forward(inputs.qkv, inputs.factors, *inputs.settings, KernelConfig(forward, forward))

    def backward_time(backward: Blocks, queries: Blocks | None = None) -> float:
        config, saved = KernelConfig(forward, backward, queries), (inputs.qkv, out, lse, inputs.factors)

        def call() -> Tensor:
            return run_backward(inputs.gradient, *saved, *inputs.settings, config)

        check(call(), expected_gradient)
        return milliseconds(call)

    backward, best_backward = fastest(f"{name} backward", BACKWARD, backward_time, deadline)
    best = KernelConfig(forward, backward)
    if shape.length > 128:
        keys, _ = fastest(f"{name} backward, keys", KEYS, lambda blocks: backward_time(blocks, QUERIES[0]), deadline)
        queries, apart = fastest(
            f"{name} backward, queries", QUERIES, lambda blocks: backward_time(keys, blocks), deadline
        )
        if apart < best_backward:
            best, best_backward = KernelConfig(forward, keys, queries), apart

    total = milliseconds(lambda: both_passes(inputs, best))
    print(f"{name}: {best_forward:.3f} + {best_backward:.3f} ms; {total:.3f} ms with the factors", flush=True)
    return {
        "shape": asdict(shape),
        "pytorch": {peer: round(value, 4) for peer, value in pytorch.items()},
        "forward": round(best_forward, 4),
        "backward": round(best_backward, 4),
        "milliseconds": round(total, 4),
        "config": asdict(best),
    }


def fastest(
    name: str, candidates: Sequence[Blocks], measure: Callable[[Blocks], float], deadline: float
) -> tuple[Blocks, float]:
    """Return the fastest of the candidates and its time in milliseconds."""
    times: dict[Blocks, float] = {}
    for blocks in candidates:
        if times and time.monotonic() > deadline:
            print(f"{name}: out of time; the remaining block sizes are skipped", flush=True)
            break
        with failures_printed(f"{name} {describe(blocks)}"):
            times[blocks] = measure(blocks)
            print(f"{name} {describe(blocks)}: {times[blocks]:.3f} ms", flush=True)
    if not times:
        raise RuntimeError(f"no block size works for {name}")
    best = min(times, key=lambda blocks: times[blocks])
    return best, times[best]


@contextmanager
def failures_printed(name: str) -> Iterator[None]:
    """Print an error, such as too little shared memory, instead of raising it."""
    try:
        yield
    except Exception as error:
        print(f"{name} failed: {type(error).__name__}: {str(error)[:300]}", flush=True)


def both_passes(inputs: Inputs, config: KernelConfig) -> Tensor:
    """Draw the factors, and run both passes."""
    factors = dropout_factors(inputs.shape.heads, len(inputs.qkv), inputs.qkv.device)
    out, lse = run_forward(inputs.qkv, factors, *inputs.settings, config)
    return run_backward(inputs.gradient, inputs.qkv, out, lse, factors, *inputs.settings, config)


def milliseconds(call: Callable[[], Tensor]) -> float:
    """The median time of a call in a replayed CUDA graph of several calls."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    times = []
    for _ in range(REPLAYS + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / CALLS)
    return statistics.median(times[1:])


def reference(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Output and gradient of the first sequences, by explicit attention in float32 with the same mask."""
    shape = inputs.shape
    starts = [0, shape.length, 2 * shape.length] if inputs.starts is None else inputs.starts[:5].tolist()
    qkv = inputs.qkv[: starts[-1]].float().requires_grad_()
    pieces = []
    for begin, end in pairwise(starts):
        query, key, value = qkv[begin:end].permute(1, 2, 0, 3)
        scores = shape.scale * query @ key.mT
        if shape.causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
        rows, columns = inputs.factors[:, :, begin:end].long()
        products = ((rows[:, :, None] * columns[:, None, :] + HALF) % (2 * HALF)) - HALF  # signed, of 32 bits
        kept = products >= int(inputs.dropout * 2 * HALF) - HALF
        pieces.append((scores.softmax(-1) * kept / (1 - inputs.dropout) @ value).transpose(0, 1))
    expected = torch.cat(pieces)
    (gradient,) = torch.autograd.grad(expected, qkv, inputs.gradient[: len(qkv)].float())
    return expected.detach(), gradient


def check(found: Tensor, expected: Tensor) -> None:
    """Raise if the relative error, as root mean square, exceeds the tolerance of bfloat16."""
    error = ((found[: len(expected)] - expected).square().mean() / expected.square().mean()).sqrt().item()
    if not (error < TOLERANCE and found.isfinite().all()):
        raise RuntimeError(f"wrong result: relative error {error:.4f}")


def peers(inputs: Inputs) -> dict[str, Callable[[], Tensor]]:
    """PyTorch's attention with dropout, forward and backward."""
    shape = inputs.shape
    qkv = inputs.qkv.flatten(1).requires_grad_()

    def sdpa(backend: SDPBackend) -> Tensor:
        parts = qkv.view(shape.rows, shape.length, -1).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (shape.heads, -1)).transpose(1, 2) for part in parts)
        with sdpa_kernel(backend):
            mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=inputs.dropout, is_causal=shape.causal)
        above = inputs.gradient.view(shape.rows, shape.length, shape.heads, -1).transpose(1, 2)
        return torch.autograd.grad(mixed, qkv, above)[0]

    def packed_flash() -> Tensor:
        query, key, value = (part.unflatten(-1, (shape.heads, -1)) for part in qkv.chunk(3, dim=-1))
        starts = inputs.starts
        limits = starts, starts, shape.length, shape.length
        mixed = torch.ops.aten._flash_attention_forward(
            *(query, key, value, *limits, inputs.dropout, shape.causal, False), scale=shape.scale
        )[0]
        return torch.autograd.grad(mixed, qkv, inputs.gradient)[0]

    if shape.packed:
        return {"flash": packed_flash}
    return {
        "cuDNN": lambda: sdpa(SDPBackend.CUDNN_ATTENTION),
        "flash": lambda: sdpa(SDPBackend.FLASH_ATTENTION),
    }


def describe(config: Blocks | dict[str, Any] | None) -> str:
    """Rows x columns, warps and stages."""
    if config is None:
        return "none"
    values = config if isinstance(config, dict) else asdict(config)
    return "{rows} x {columns}, {num_warps} warps, {num_stages} stages".format(**values)


if __name__ == "__main__":
    main()

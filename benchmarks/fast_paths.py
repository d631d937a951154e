"""What each file of `regard.nn.fast` and the CUDA graphs buy: the same work with and without it, alternating.

    python -m benchmarks.fast_paths [--device cuda] [--rounds 30] [--only NAME ...] [--save]

On a CPU the times are CPU seconds of one thread, which other processes on the machine disturb least; the best round
counts. Models have random weights: MiniLM's shape (6 layers of 384) for texts and GPT-2 small for decoding on a CPU,
BERT-base and GPT-2 small in bf16 on a GPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.timing import describe_machine, save_results
from regard.engine import graph_decoder
from regard.engine.batches import to_device
from regard.engine.graph_decoder import cuda_graph_mode
from regard.engine.graphs import GraphedForward
from regard.engine.precision import inference_copy
from regard.inference.generation.decoder import as_decoder, fast_decoder
from regard.inference.generation.sampling import sample
from regard.models import Bert, BertConfig, Gpt, GptConfig
from regard.nn.fast import fused_kernels
from regard.nn.fast.int8_argmax import Int8ArgmaxFilter
from regard.nn.fast.packed_linear import PackedLinear
from regard.nn.pooling import pool
from regard.text import TokenIds

Work = Callable[[], object]
Pair = tuple[Work, Work]  # with the fast path and without
SHORT = [[7] * 12]  # one text of 12 tokens
MANY = [
    [7] * (36 - 3 * (index // 5)) for index in range(42)
]  # 1,000 tokens in sentences, sorted by length as batches are
TOKENS = 128  # decoded on a GPU


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="fast paths whose name begins with NAME")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/fast_paths-DEVICE.json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    paths = cpu_paths() if options.device == "cpu" else gpu_paths(torch.device("cuda"))
    print(describe_machine(), flush=True)
    results: dict[str, Any] = {}
    with torch.inference_mode():
        for name, make in paths.items():
            if options.only and not name.startswith(tuple(options.only)):
                continue
            fast, slow = best_milliseconds(make(), rounds=options.rounds, device=options.device)
            results[name] = {"with_ms": round(fast, 3), "without_ms": round(slow, 3), "ratio": round(slow / fast, 2)}
            print(f"{name:<55}{fast:9.3f} ms, without {slow:9.3f} ms: {slow / fast:.2f} times", flush=True)
    if options.save:
        print(save_results(f"fast_paths-{options.device}", {"paths": results}))


def best_milliseconds(pair: Pair, *, rounds: int, device: str) -> tuple[float, float]:
    """The best time of both over alternating rounds, after three that do not count."""

    def seconds(work: Work) -> float:
        clock = time.thread_time if device == "cpu" else time.perf_counter
        if device == "cuda":
            torch.cuda.synchronize()
        begin = clock()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        return clock() - begin

    times = [[seconds(work) for work in pair] for _ in range(rounds + 3)][3:]
    fast, slow = (1000 * min(row) for row in zip(*times, strict=True))
    return fast, slow


def cpu_paths() -> dict[str, Callable[[], Pair]]:
    minilm = Bert(
        BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536),
        output_heads=(),
    ).eval()
    gpt = Gpt(GptConfig()).eval()
    small = Gpt(
        GptConfig(vocab_size=16384, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048)
    ).eval()
    cpu = torch.device("cpu")

    def embed(model: Any, texts: list[list[int]]) -> Work:
        batch = to_device(TokenIds.from_lists(texts), cpu)
        return lambda: pool(model(batch.ids, batch.layout), batch.layout, "mean")

    def fused_layers(precision: str, texts: list[list[int]]) -> Pair:
        work = embed(inference_copy(minilm, precision), texts)
        return work, without(work, ModuleCalls(inference_copy(minilm, precision)))

    def decode(model: Gpt, rows: int, *, fused: bool) -> Work:
        decoder = fast_decoder(as_decoder(model), cpu, steps=1000) if fused else as_decoder(model)
        _, state = decoder.start(torch.full((rows, 16), 7))
        packed = PackedLinear(patience=0)

        def step() -> None:
            nonlocal state
            with packed:
                _, state = decoder.step(torch.full((rows,), 7), state)

        return step

    def argmax(rows: int) -> Pair:
        weight, packed = gpt.output_weight.detach(), PackedLinear(patience=0)
        x = weight[torch.arange(rows) * 1000] + 0.3 * weight.std() * torch.randn(rows, weight.shape[1])
        rounded = Int8ArgmaxFilter(packed.linear)
        return lambda: rounded.linear(x, weight), lambda: packed.linear(x, weight)

    def packing(rows: int) -> Pair:
        linear, x = gpt.decoder.layers[0].ffn.inner, torch.randn(rows, 768)  # type: ignore[union-attr]
        packed = PackedLinear(patience=0)
        return (
            lambda: packed.linear(x, linear.weight, linear.bias),  # type: ignore[union-attr, arg-type]
            lambda: torch.nn.functional.linear(x, linear.weight, linear.bias),  # type: ignore[union-attr, arg-type]
        )

    return {
        "fused_layer, one text, fp32": lambda: fused_layers("fp32", SHORT),
        "fused_layer, one text, int8": lambda: fused_layers("int8", SHORT),
        "fused_layer, 1,000 tokens, fp32": lambda: fused_layers("fp32", MANY),
        "fused_layer, 1,000 tokens, int8": lambda: fused_layers("int8", MANY),
        "fused_step, 8 layers of 512, 1 row": lambda: (decode(small, 1, fused=True), decode(small, 1, fused=False)),
        "fused_step, GPT-2 small, 1 row": lambda: (decode(gpt, 1, fused=True), decode(gpt, 1, fused=False)),
        "fused_step, GPT-2 small, 8 rows": lambda: (decode(gpt, 8, fused=True), decode(gpt, 8, fused=False)),
        "inference_layers, one text, fp32": lambda: (
            embed(inference_copy(minilm, "fp32"), SHORT),
            embed(minilm, SHORT),
        ),
        "inference_layers, 1,000 tokens, fp32": lambda: (
            embed(inference_copy(minilm, "fp32"), MANY),
            embed(minilm, MANY),
        ),
        "inference_layers, 1,000 tokens, int8": lambda: (
            embed(inference_copy(minilm, "int8"), MANY),
            embed(minilm, MANY),
        ),
        "packed_linear, 3072 x 768, 1 row": lambda: packing(1),
        "packed_linear, 3072 x 768, 8 rows": lambda: packing(8),
        "int8_argmax, GPT-2's output layer, 1 row": lambda: argmax(1),
        "int8_argmax, GPT-2's output layer, 8 rows": lambda: argmax(8),
    }


def gpu_paths(device: torch.device) -> dict[str, Callable[[], Pair]]:
    bert = Bert(BertConfig(), output_heads=()).eval().to(device, torch.bfloat16)
    gpt = Gpt(GptConfig()).eval().to(device, torch.bfloat16)
    short, long = ([[7] * length] * (16384 // length) for length in (24, 256))

    def compute(batch: Any) -> torch.Tensor:
        return pool(bert(batch.ids, batch.layout), batch.layout, "mean")

    def embed(texts: list[list[int]]) -> Work:
        batch = to_device(TokenIds.from_lists(texts), device)
        return lambda: compute(batch)

    def without_kernels(texts: list[list[int]]) -> Pair:
        work = embed(texts)
        return work, without(work, patch.object(fused_kernels, "_applies", lambda x: False))

    def graphs(texts: list[list[int]]) -> Pair:
        tokens = TokenIds.from_lists(texts)
        graphed = GraphedForward(compute, device, 16384)
        return lambda: graphed(tokens), lambda: compute(to_device(tokens, device))

    def decode(rows: int, mode: Any) -> Work:
        prompts = torch.full((rows, 32), 7, device=device)

        def generate() -> object:
            with cuda_graph_mode(mode):
                return list(sample(gpt, prompts, sampling=None, end=None, max_new_tokens=TOKENS))

        return generate

    def single_row() -> Pair:
        work = decode(1, "graphs")
        other = Gpt(GptConfig()).eval().to(device, torch.bfloat16)
        prompts = torch.full((1, 32), 7, device=device)

        def plain() -> object:
            with patch.object(graph_decoder, "supports_single_row", lambda *_: False):
                return list(sample(other, prompts, sampling=None, end=None, max_new_tokens=TOKENS))

        return work, plain

    return {
        "fused_kernels, texts of 24 tokens": lambda: without_kernels(short),
        "fused_kernels, texts of 256 tokens": lambda: without_kernels(long),
        "engine.graphs, texts of 24 tokens": lambda: graphs(short),
        "engine.graphs, 4,096 tokens": lambda: graphs(short[:170]),
        "engine.graph_decoder, GPT-2 small, 1 row": lambda: (decode(1, "graphs"), decode(1, "off")),
        "engine.graph_decoder, GPT-2 small, 64 rows": lambda: (decode(64, "graphs"), decode(64, "off")),
        "single_row, GPT-2 small": single_row,
    }


def without(work: Work, disabled: Any) -> Work:
    """The work while something is disabled."""

    def run() -> object:
        with disabled:
            return work()

    return run


class ModuleCalls:
    """Inside the block a hook of each stack's first layer, with which copies for inference call their modules."""

    def __init__(self, model: Any) -> None:
        self.layer = model.encoder.layers[0]

    def __enter__(self) -> None:
        self.handle = self.layer.register_forward_hook(lambda *_: None)

    def __exit__(self, *_: object) -> None:
        self.handle.remove()


if __name__ == "__main__":
    main()

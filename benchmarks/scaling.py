"""How the cost of embedding on a CPU grows with length, batch size, model size and number of texts.

    python -m benchmarks.scaling [--rounds 3] [--tokens 2048] [--save]

Models have random weights, which take the same time: six layers of hidden size 384, as all-MiniLM-L6-v2, unless the
size is what varies. Takes less than three minutes. `--save` writes benchmarks/results/scaling.json and the charts
docs/performance-*.svg.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.line_chart import Points, line_chart
from benchmarks.timing import best_times, describe_machine, save_results
from regard.engine.batches import packed_batches, run_batches, to_device
from regard.engine.precision import inference_copy, supports_int8
from regard.inference.embedding.engine import load_engine, pool
from regard.models import Bert, BertConfig
from regard.text import TokenIds

DOCS = Path(__file__).resolve().parents[1] / "docs"
CPU = torch.device("cpu")
LENGTHS = (8, 16, 32, 64, 128, 256, 512)
BATCH_SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
HIDDEN_SIZES = (128, 256, 384, 512, 768)
COUNTS = (1, 4, 16, 64, 256, 1024)
LENGTH, TOKENS_PER_BATCH, VOCABULARY = 32, 1024, 1000
SENTENCE = "the film is long , but it is never boring"
Series = dict[str, Points]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens per measurement")
    parser.add_argument("--save", action="store_true", help="write the result and docs/performance-*.svg")
    options = parser.parse_args(arguments)
    results = measure(options.tokens, rounds=options.rounds)
    print(describe_machine())
    for name, chart in charts(results).items():
        if options.save:
            path = DOCS / f"performance-{name}.svg"
            path.write_text(chart, encoding="utf-8")
            print(path)
    if options.save:
        print(save_results("scaling", {"tokens": options.tokens, "series": results}))


def measure(tokens: int, *, rounds: int) -> dict[str, Series]:
    """The points of each chart, by precision."""
    results: dict[str, Series] = {"length": {}, "batch": {}, "size": {}, "texts": {}}
    for precision in ("fp32", "int8") if supports_int8() else ("fp32",):
        model = inference_copy(create_model(384), precision)
        lengths = [length for length in LENGTHS if length <= tokens]
        times = {length: seconds(model, tokens, length, TOKENS_PER_BATCH, rounds) for length in lengths}
        results["length"][precision] = [(length, 1e6 * time / tokens) for length, time in times.items()]
        sizes = [size for size in BATCH_SIZES if size <= 2 * tokens]
        times = {size: seconds(model, max(tokens, size), LENGTH, size, rounds) for size in sizes}
        results["batch"][precision] = [(size, max(tokens, size) / time) for size, time in times.items()]
        results["size"][precision] = []
        for hidden_size in HIDDEN_SIZES:
            other = create_model(hidden_size)
            millions = sum(parameter.numel() for parameter in other.encoder.parameters()) / 1e6
            time = seconds(inference_copy(other, precision), tokens, LENGTH, TOKENS_PER_BATCH, rounds)
            results["size"][precision].append((round(millions, 2), 1e6 * time / tokens))
        results["texts"][precision] = time_per_text(precision, tokens, rounds)
        print(f"{precision}: { ({name: series[precision] for name, series in results.items()}) }", flush=True)
    return results


def charts(results: dict[str, Series]) -> dict[str, str]:
    """The SVG documents by name."""
    labels = {
        "length": ("Cost of a token by length of the text", "tokens per text", "microseconds per token"),
        "batch": ("Throughput by batch size", "tokens per batch", "tokens per second"),
        "size": ("Cost of a token by model size", "million parameters in six layers", "microseconds per token"),
        "texts": ("Cost of a text by number of texts", "texts per call", "milliseconds per text"),
    }
    return {name: line_chart(*labels[name], series) for name, series in results.items()}


def create_model(hidden_size: int) -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": hidden_size, "intermediate_size": 4 * hidden_size, "num_hidden_layers": 6}
    config = BertConfig(vocab_size=VOCABULARY, num_attention_heads=hidden_size // 32, **shape)
    return Bert(config, output_heads=()).eval()


def seconds(model: Any, tokens: int, length: int, tokens_per_batch: int, rounds: int) -> float:
    """The time for `tokens` tokens in texts of one length, from token ids to vectors."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (max(1, tokens // length), length))
    token_ids = TokenIds.from_lists(ids.tolist())

    def compute(batch_ids: TokenIds) -> torch.Tensor:
        batch = to_device(batch_ids, CPU)
        *_, hidden = model.states(batch.ids, batch.layout)
        return pool(hidden, batch.layout, "mean")

    def embed() -> None:
        for work in run_batches(packed_batches([token_ids], tokens_per_batch), CPU):
            if work.result is None:
                with torch.inference_mode():
                    work.result = compute(work.batch[1])

    return best_times({"embed": embed}, rounds=rounds)["embed"]


def time_per_text(precision: str, tokens: int, rounds: int) -> Points:
    """Milliseconds per text of calls with 1 to 1,024 short texts, from strings to vectors, with the built-in model."""
    engine = load_engine("regard-embed", device="cpu", precision=precision)
    points = []
    for count in COUNTS:
        if count <= tokens:
            texts = [SENTENCE] * count
            time = best_times({"embed": lambda texts=texts: engine.embed(texts)}, rounds=rounds)["embed"]
            points.append((count, 1000 * time / count))
    return points


if __name__ == "__main__":
    main()

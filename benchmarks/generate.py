"""Generation speed: causal models with greedy search and MarianMT with beam search, against transformers' `generate`.

    python -m benchmarks.generate [--family gpt2 llama] [--model NAME] [--batch 1 8] [--beam 5] [--sentences 8]
                                  [--device cpu] [--precision fp32] [--prompt 32] [--tokens 128] [--rounds 4]
                                  [--modes off graphs] [--tiny] [--save NAME]

`--family` is GPT-2 small (gpt2) or a Llama with the shape of SmolLM2-135M (llama). Both libraries have the same random
weights, or those of `--model`, and must generate the same tokens in float32, otherwise nothing is timed; in bfloat16
rounding differs, and the fraction of equal tokens is reported. Prefill is a call for one token; decoding is the time
of a call for many tokens minus prefill. Neither returns log-probabilities. Matrices are packed in the first call only,
as in real use. The implementations alternate, and the best round counts. Memory bandwidth is measured in the same
rounds, as the product of a matrix much larger than any cache with a vector: the lower bound of a step is reading all
weights once. On a GPU, `--modes` are those of the CUDA graph decoder in `regard.engine.graph_decoder`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.generators import BEGIN, CAUSAL, END, PADDING, checkpoint, marian
from benchmarks.timing import best_times, describe_machine, save_results
from regard.device import choose_device
from regard.engine.graph_decoder import cuda_graph_mode
from regard.inference.generation.beam_search import Beam, beam_search
from regard.inference.generation.decoder import reuse_packed_weights
from regard.inference.generation.sampling import sample
from regard.nn.masks import Padded

OURS, PEER, MEMORY = "regard", "transformers", "memory"
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

TokenRows = list[list[int]]
Call = Callable[[], object]


def create_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 8], help="rows of causal models; none skips them")
    parser.add_argument("--family", nargs="+", choices=CAUSAL, default=["gpt2"], help="causal models of random weights")
    parser.add_argument("--model", metavar="NAME", help="a causal model with its own weights, instead of --family")
    parser.add_argument("--beam", type=int, default=0, help="number of beams for MarianMT; 0 skips it")
    parser.add_argument("--sentences", type=int, default=8, help="batch size for MarianMT")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=TYPES, default="fp32")
    parser.add_argument("--prompt", type=int, default=32, help="tokens per prompt")
    parser.add_argument("--tokens", type=int, default=128, help="tokens to generate")
    parser.add_argument("--rounds", type=int, default=4, help="timed rounds per implementation")
    parser.add_argument("--modes", nargs="+", default=["graphs"], choices=["off", "graphs"], help="CUDA graphs")
    parser.add_argument("--tiny", action="store_true", help="two small layers")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json after each part")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    results = measure(create_parser().parse_args(arguments))
    failed = [name for name, result in results.items() if "error" in result]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The result of each part, or its error."""
    warnings.filterwarnings("ignore")
    device = choose_device(options.device)
    print(describe_machine(), flush=True)
    parts: dict[str, Callable[[], dict[str, Any]]] = {}
    causal: dict[str, Callable[[], tuple[Any, nn.Module]]] = {
        family: lambda family=family: CAUSAL[family](tiny=options.tiny) for family in options.family
    }
    if options.model:
        causal = {options.model: lambda: checkpoint(options.model)}
    modes = options.modes if device.type == "cuda" else ["off"]
    for (model, pair), rows, mode in product(causal.items(), options.batch, modes):
        name = f"{model} x {rows}" + (f", {mode}" if device.type == "cuda" else "")
        parts[name] = partial(benchmark_causal, name, pair, options, device, rows, mode)
    if options.beam:
        parts["marian"] = lambda: benchmark_marian("marian", options, device)
    results: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            with reuse_packed_weights():
                results[name] = part()
        except Exception as error:  # the other parts are still measured
            results[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
            print(f"{name} failed: {results[name]['error']}", flush=True)
        if options.save:
            save_results(options.save, {**_settings(options), "parts": results})
    return results


def benchmark_causal(
    name: str,
    pair: Callable[[], tuple[Any, nn.Module]],
    options: argparse.Namespace,
    device: torch.device,
    rows: int,
    mode: Any,
) -> dict[str, Any]:
    """Greedy continuations of random tokens by a causal model."""
    theirs, ours = _to_device(pair(), options, device)
    vocabulary = theirs.config.vocab_size
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(vocabulary, (rows, options.prompt), generator=generator).to(device)

    def regard_generate(count: int) -> TokenRows:
        with cuda_graph_mode(mode):
            steps = list(sample(ours, prompts, sampling=None, end=None, max_new_tokens=count))
        return [[token for token in row if token is not None] for row in zip(*steps, strict=True)]

    def transformers_generate(count: int) -> TokenRows:
        settings = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 0}
        output = theirs.generate(prompts, attention_mask=torch.ones_like(prompts), eos_token_id=None, **settings)
        tokens: TokenRows = output[:, options.prompt :].tolist()
        return tokens

    result = _compare(
        name, {OURS: regard_generate, PEER: transformers_generate}, options, device, rows, _bytes_per_step(ours)
    )
    return {"rows": rows, "mode": mode, **result}


def benchmark_marian(name: str, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Beam search by MarianMT, all hypotheses of the beam."""
    theirs, ours = _to_device(marian(tiny=options.tiny), options, device)
    generator = torch.Generator().manual_seed(2)
    shape = options.sentences, options.prompt
    sources = torch.randint(END + 1, theirs.config.vocab_size, shape, generator=generator)
    lengths = torch.randint(options.prompt // 2, options.prompt + 1, (options.sentences,), generator=generator)
    lengths[0] = options.prompt
    mask = torch.arange(options.prompt) < lengths[:, None]
    sources, mask = sources.where(mask, PADDING).to(device), mask.to(device)
    num_beams = options.beam

    def regard_generate(count: int) -> TokenRows:
        beam = Beam(num_beams=num_beams, num_return_sequences=num_beams)
        hypotheses = beam_search(ours, sources, Padded(mask), beam=beam, end=END, max_new_tokens=count)
        return [list(hypothesis.ids) for row in hypotheses for hypothesis in row]

    def transformers_generate(count: int) -> TokenRows:
        settings = {
            "num_beams": num_beams,
            "num_return_sequences": num_beams,
            "max_new_tokens": count,
            "do_sample": False,
        }
        output = theirs.generate(
            sources, attention_mask=mask.long(), early_stopping=False, length_penalty=1.0, **settings
        )
        return [[token for token in row if token not in (PADDING, BEGIN, END)] for row in output.tolist()]

    without_special = {
        OURS: lambda count: [[t for t in row if t not in (PADDING, BEGIN)] for row in regard_generate(count)]
    }
    result = _compare(
        name,
        {**without_special, PEER: transformers_generate},
        options,
        device,
        options.sentences,
        _bytes_per_step(ours),
    )
    return {"sentences": options.sentences, "beam": num_beams, **result}


def _compare(
    name: str,
    implementations: dict[str, Callable[[int], TokenRows]],
    options: argparse.Namespace,
    device: torch.device,
    rows: int,
    size: int,
) -> dict[str, Any]:
    """Tokens per second of each implementation, printed as soon as measured."""
    count, generated, result = options.tokens, {}, {}
    for library, generate in implementations.items():
        begin = time.perf_counter()
        try:
            generated[library] = generate(count)
        except Exception as error:
            print(f"{name} {library} skipped: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        print(f"{name} {library}: first call {time.perf_counter() - begin:.1f} s", flush=True)
    result["agreement"] = _agreement(name, generated, exact=options.precision == "fp32")
    timed: dict[str, Call] = {MEMORY: _memory_read(device, tiny=options.tiny)}
    for library in generated:
        timed[library] = lambda library=library: (implementations[library](count), _synchronize(device))
        timed[f"{library}, one token"] = lambda library=library: (implementations[library](1), _synchronize(device))
    seconds = best_times(timed, rounds=options.rounds)
    bandwidth = BYTES_READ[options.tiny] / seconds[MEMORY]
    result["bandwidth_gb_s"] = round(bandwidth / 1e9, 1)
    for library in generated:
        prefill = seconds[f"{library}, one token"]
        step = (seconds[library] - prefill) / (count - 1)
        utilization = size / bandwidth / step
        result[library] = {
            "tokens_per_second": round(rows / step, 1),
            "step_milliseconds": round(1000 * step, 3),
            "prefill_tokens_per_second": round(rows * options.prompt / prefill, 1),
            "prefill_milliseconds": round(1000 * prefill, 2),
            "share_of_bandwidth": round(utilization, 3),
            "seconds": round(seconds[library], 4),
        }
        decoding = f"{rows / step:,.0f} tokens/s, {1000 * step:.2f} ms per step"
        bandwidth_used = f"{utilization:.0%} of {bandwidth / 1e9:,.1f} GB/s"
        print(f"{name} {library}: {decoding} ({bandwidth_used}), prefill {1000 * prefill:.1f} ms", flush=True)
    if len(generated) == 2:
        for phase, key in (("decoding", "step_milliseconds"), ("prefill", "prefill_milliseconds"), ("all", "seconds")):
            result[f"{phase}_ratio"] = round(result[PEER][key] / result[OURS][key], 3)
        ratios = ", ".join(f"{phase} {result[f'{phase}_ratio']}x" for phase in ("decoding", "prefill", "all"))
        print(f"{name}: {ratios}", flush=True)
    return result


def _agreement(name: str, generated: dict[str, TokenRows], *, exact: bool) -> float | None:
    """The fraction of tokens that are equal to transformers' up to the first difference."""
    if len(generated) < 2:
        return None
    same = total = 0
    for ours, theirs in zip(generated[OURS], generated[PEER], strict=True):
        equal = [left == right for left, right in zip(ours, theirs, strict=False)]
        same += equal.index(False) if False in equal else len(equal)
        total += max(len(ours), len(theirs))
    variety = len({token for row in generated[PEER] for token in row}) / total
    print(
        f"{name}: {same / total:.1%} of the tokens are equal; {variety:.0%} of the generated tokens are distinct",
        flush=True,
    )
    if exact and same < total:
        raise AssertionError(f"the tokens differ: {generated[OURS][0][:20]}... and {generated[PEER][0][:20]}...")
    return same / total


BYTES_READ = {True: 40_000_000, False: 2_000_000_000}  # by _memory_read; key: --tiny


def _memory_read(device: torch.device, *, tiny: bool) -> Call:
    matrix = torch.ones(BYTES_READ[tiny] // 4000, 1000, device=device)
    vector = torch.ones(1000, device=device)
    return lambda: (torch.mv(matrix, vector), _synchronize(device))


def _to_device(pair: tuple[Any, nn.Module], options: argparse.Namespace, device: torch.device) -> tuple[Any, Any]:
    theirs, ours = pair
    return theirs.to(device, TYPES[options.precision]), ours.to(device, TYPES[options.precision])


def _bytes_per_step(model: Any) -> int:
    """Bytes read per step: the decoder layers and the output layer, which is the embedding."""
    tensors: list[Tensor] = [*model.decoder.parameters(), model.embedding.tokens.weight]
    computed_once = 0
    for block in model.decoder.layers:
        if block.has_cross_attention:  # keys and values of the source are computed once
            parts = [*block.cross.project.key.parameters(), *block.cross.project.value.parameters()]
            computed_once += sum(parameter.numel() * parameter.element_size() for parameter in parts)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) - computed_once


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    names = ("device", "precision", "prompt", "tokens", "rounds", "tiny", "model")
    return {name: getattr(options, name) for name in names}


if __name__ == "__main__":
    main()

"""Generation with 8-bit weights on a CPU: SmolLM2-135M-Instruct, Regard against llama.cpp with the same as Q8_0.

    python -m benchmarks.generate_int8 [--prompt 40] [--tokens 64] [--rounds 5] [--save]

Greedy, one row, as many threads as cores. Prefill is a call for one token; decoding is the time of a call for many
tokens minus prefill. Rounds alternate, and the best counts. The peer is the package llama-cpp-python, which pip
compiles; without it, Regard is measured alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.timing import best_times, describe_machine, save_results
from regard.checkpoints.loading import find_folder
from regard.inference.generation.beam_search import greedy_search
from regard.inference.generation.decoder import reuse_packed_weights
from regard.inference.load_model import load_model

MODEL = "SmolLM2-135M-Instruct"
OURS, PEER = "regard", "llama.cpp"
TEXT = (
    "The river rises in the mountains, flows through three countries and reaches the sea after a thousand miles. "
    "Most of the towns on its banks are older than the roads between them, because boats carried the trade. "
)
Generate = Callable[[list[int], int], list[int]]  # prompt, number of new tokens -> new tokens


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=40, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to generate")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/generate-int8.json")
    options = parser.parse_args(arguments)
    engines: dict[str, Generate] = {OURS: regard()}
    if importlib.util.find_spec("llama_cpp") is None:
        print("llama-cpp-python is not installed: no peer")
    else:
        engines[PEER] = llama_cpp(options.prompt + options.tokens + 1)
    prompt = prompt_ids(options.prompt)
    calls: dict[str, Callable[[], object]] = {}
    for name, generate in engines.items():
        calls[f"{name} prefill"] = lambda generate=generate: generate(prompt, 1)
        calls[name] = lambda generate=generate: generate(prompt, 1 + options.tokens)
    print(describe_machine(), flush=True)
    with torch.inference_mode(), reuse_packed_weights():
        texts = {name: generate(prompt, options.tokens) for name, generate in engines.items()}
        best = best_times(calls, rounds=options.rounds)
    results: dict[str, dict[str, float]] = {}
    for name in engines:
        step = (best[name] - best[f"{name} prefill"]) / options.tokens
        results[name] = {
            "tokens_per_second": round(1 / step, 1),
            "step_milliseconds": round(1000 * step, 2),
            "prefill_tokens_per_second": round(options.prompt / best[f"{name} prefill"], 1),
        }
        print(f"{name:<12}{1 / step:8.1f} tokens/s, {1000 * step:.2f} ms per token", flush=True)
    document: dict[str, object] = {**vars(options), "model": MODEL, "engines": results}
    if PEER in engines:
        document["ratio"] = round(results[OURS]["tokens_per_second"] / results[PEER]["tokens_per_second"], 3)
        same = next(
            (i for i, pair in enumerate(zip(*texts.values(), strict=True)) if len(set(pair)) > 1), options.tokens
        )
        document["same_tokens"] = same
        print(f"ratio {document['ratio']}; the first {same} of {options.tokens} tokens are the same")
    if options.save:
        print(save_results("generate-int8", document))


def prompt_ids(count: int) -> list[int]:
    tokenizer = load_model(MODEL, precision="int8").tokenizer
    assert tokenizer is not None
    ids = tokenizer.ids_batch([TEXT])[0][0]
    return (ids * (count // len(ids) + 1))[:count]


def regard() -> Generate:
    model = load_model(MODEL, precision="int8").model

    def generate(prompt: list[int], count: int) -> list[int]:
        return list(greedy_search(model, torch.tensor([prompt]), end=None, max_new_tokens=count)[0].ids)  # type: ignore[arg-type]

    return generate


def llama_cpp(room: int) -> Generate:
    import llama_cpp as engine

    source = find_folder(MODEL)
    source = source if source.is_file() else next(source.glob("*.gguf"))
    settings = engine.llama_model_quantize_default_params()
    settings.ftype, settings.allow_requantize = engine.LLAMA_FTYPE_MOSTLY_Q8_0, True
    cores = os.cpu_count()
    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch, "q8_0.gguf"))
        if engine.llama_model_quantize(str(source).encode(), path.encode(), settings):
            raise RuntimeError(f"llama.cpp cannot quantize {source}")
        model = engine.Llama(path, n_ctx=room, n_threads=cores, n_threads_batch=cores, use_mmap=False, verbose=False)

    def generate(prompt: list[int], count: int) -> list[int]:
        model.reset()
        found: list[int] = []
        for token in model.generate(prompt, temp=0.0, repeat_penalty=1.0):
            found.append(token)
            if len(found) == count:
                break
        return found

    return generate


if __name__ == "__main__":
    main()

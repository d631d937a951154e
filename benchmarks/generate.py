"""Generation speed: GPT-2 small with greedy search and MarianMT with beam search, against transformers' `generate`.

    python -m benchmarks.generate [--batch 1 8] [--beam 5] [--sentences 8] [--device cpu] [--precision fp32]
                                  [--prompt 32] [--tokens 128] [--rounds 4] [--modes off graphs] [--tiny]
                                  [--keep NAME]

Both have the same random weights and must generate the same tokens in float32, otherwise nothing is timed; in bfloat16
rounding differs, and the share of equal tokens is reported. Prefill is a call for one token; decoding is the time of a
call for many tokens minus prefill. Neither returns log-probabilities. Matrices are packed in the first call only, as
in real use. Contestants alternate, and the best round counts. Memory bandwidth is measured in the same rounds, as the
product of a matrix much larger than any cache with a vector: the lower bound of a step is reading all weights once. On
a GPU, `--modes` are those of the CUDA graph decoder in `regard.nn.fast.cuda_graphs`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.generators import BEGIN, END, PADDING, gpt2, marian
from benchmarks.race import keep, machine, race
from regard.device import choose_device
from regard.inference.generation.beam_search import Beam, beam_search
from regard.inference.generation.decoder import reuse_packed_weights
from regard.inference.generation.sampling import sample
from regard.nn.fast.cuda_graphs import cuda_graph_mode
from regard.nn.masks import Padded

OURS, PEER, MEMORY = "regard", "transformers", "memory"
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

Said = list[list[int]]
Work = Callable[[], object]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 8], help="batch sizes for GPT-2; none skips it")
    parser.add_argument("--beam", type=int, default=0, help="number of beams for MarianMT; 0 skips it")
    parser.add_argument("--sentences", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=TYPES, default="fp32")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--modes", nargs="+", default=["graphs"], choices=["off", "graphs"])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--keep", metavar="NAME", help="write benchmarks/results/NAME.json after each part")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    device = choose_device(options.device)
    print(machine(), flush=True)
    parts: dict[str, Callable[[], dict[str, Any]]] = {}
    for rows in options.batch:
        for mode in options.modes if device.type == "cuda" else ["off"]:
            name = f"gpt2 x {rows}" + (f", {mode}" if device.type == "cuda" else "")
            parts[name] = lambda name=name, rows=rows, mode=mode: completed(name, options, device, rows, mode)
    if options.beam:
        parts["marian"] = lambda: translated("marian", options, device)
    found: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            with reuse_packed_weights():
                found[name] = part()
        except Exception as error:  # the other parts are worth their time all the same
            found[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
            print(f"{name} failed: {found[name]['error']}", flush=True)
        if options.keep:
            keep(options.keep, {**_settings(options), "parts": found})


def completed(name: str, options: argparse.Namespace, device: torch.device, rows: int, mode: Any) -> dict[str, Any]:
    """Greedy continuations by GPT-2."""
    theirs, ours = _placed(gpt2(tiny=options.tiny), options, device)
    vocabulary = theirs.config.vocab_size
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(vocabulary, (rows, options.prompt), generator=generator).to(device)

    def say(count: int) -> Said:
        with cuda_graph_mode(mode):
            steps = list(sample(ours, prompts, sampling=None, end=None, max_new_tokens=count))
        return [[token for token in row if token is not None] for row in zip(*steps, strict=True)]

    def generate(count: int) -> Said:
        settings = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 0}
        said = theirs.generate(prompts, attention_mask=torch.ones_like(prompts), eos_token_id=None, **settings)
        told: Said = said[:, options.prompt :].tolist()
        return told

    result = _compared(name, {OURS: say, PEER: generate}, options, device, rows, _bytes(ours))
    return {"rows": rows, "mode": mode, **result}


def translated(name: str, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Beam search by MarianMT, all hypotheses of the beam."""
    theirs, ours = _placed(marian(tiny=options.tiny), options, device)
    generator = torch.Generator().manual_seed(2)
    shape = options.sentences, options.prompt
    sources = torch.randint(END + 1, theirs.config.vocab_size, shape, generator=generator)
    lengths = torch.randint(options.prompt // 2, options.prompt + 1, (options.sentences,), generator=generator)
    lengths[0] = options.prompt
    there = torch.arange(options.prompt) < lengths[:, None]
    sources, there = sources.where(there, PADDING).to(device), there.to(device)
    width = options.beam

    def say(count: int) -> Said:
        beam = Beam(num_beams=width, num_return_sequences=width)
        found = beam_search(ours, sources, Padded(there), beam=beam, end=END, max_new_tokens=count)
        return [list(one.ids) for row in found for one in row]

    def generate(count: int) -> Said:
        settings = {"num_beams": width, "num_return_sequences": width, "max_new_tokens": count, "do_sample": False}
        said = theirs.generate(
            sources, attention_mask=there.long(), early_stopping=False, length_penalty=1.0, **settings
        )
        return [[token for token in row if token not in (PADDING, BEGIN, END)] for row in said.tolist()]

    with_begin = {OURS: lambda count: [[t for t in row if t not in (PADDING, BEGIN)] for row in say(count)]}
    result = _compared(name, {**with_begin, PEER: generate}, options, device, options.sentences, _bytes(ours))
    return {"sentences": options.sentences, "beam": width, **result}


def _compared(
    name: str,
    contestants: dict[str, Callable[[int], Said]],
    options: argparse.Namespace,
    device: torch.device,
    rows: int,
    size: int,
) -> dict[str, Any]:
    """Tokens per second of each contestant, printed as soon as measured."""
    count, said, result = options.tokens, {}, {}
    for who, work in contestants.items():
        begin = time.perf_counter()
        try:
            said[who] = work(count)
        except Exception as error:
            print(f"{name} {who} is left out: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        print(f"{name} {who}: first call {time.perf_counter() - begin:.1f} s", flush=True)
    result["agreement"] = _agreement(name, said, exact=options.precision == "fp32")
    works: dict[str, Work] = {MEMORY: _reading(device, tiny=options.tiny)}
    for who in said:
        works[who] = lambda who=who: (contestants[who](count), _wait(device))
        works[f"{who}, one token"] = lambda who=who: (contestants[who](1), _wait(device))
    seconds = race(works, rounds=options.rounds)
    bandwidth = READ[options.tiny] / seconds[MEMORY]
    result["bandwidth_gb_s"] = round(bandwidth / 1e9, 1)
    for who in said:
        prefill = seconds[f"{who}, one token"]
        step = (seconds[who] - prefill) / (count - 1)
        share = size / bandwidth / step
        result[who] = {
            "tokens_per_second": round(rows / step, 1),
            "step_milliseconds": round(1000 * step, 3),
            "prefill_tokens_per_second": round(rows * options.prompt / prefill, 1),
            "prefill_milliseconds": round(1000 * prefill, 2),
            "share_of_bandwidth": round(share, 3),
            "seconds": round(seconds[who], 4),
        }
        told = f"{rows / step:,.0f} tokens/s, {1000 * step:.2f} ms a step ({share:.0%} of {bandwidth / 1e9:,.1f} GB/s)"
        print(f"{name} {who}: {told}, prefill {1000 * prefill:.1f} ms", flush=True)
    if len(said) == 2:
        for what, key in (("decoding", "step_milliseconds"), ("prefill", "prefill_milliseconds"), ("all", "seconds")):
            result[f"{what}_ratio"] = round(result[PEER][key] / result[OURS][key], 3)
        told = ", ".join(f"{what} {result[f'{what}_ratio']}x" for what in ("decoding", "prefill", "all"))
        print(f"{name}: {told}", flush=True)
    return result


def _agreement(name: str, said: dict[str, Said], *, exact: bool) -> float | None:
    """The share of transformers' tokens before the first difference."""
    if len(said) < 2:
        return None
    same = total = 0
    for ours, theirs in zip(said[OURS], said[PEER], strict=True):
        equal = [one == other for one, other in zip(ours, theirs, strict=False)]
        same += equal.index(False) if False in equal else len(equal)
        total += max(len(ours), len(theirs))
    variety = len({token for row in said[PEER] for token in row}) / total
    print(f"{name}: {same / total:.1%} of the tokens are the same; {variety:.0%} are different ones", flush=True)
    if exact and same < total:
        raise AssertionError(f"the tokens differ: {said[OURS][0][:20]}... and {said[PEER][0][:20]}...")
    return same / total


READ = {True: 40_000_000, False: 2_000_000_000}  # bytes


def _reading(device: torch.device, *, tiny: bool) -> Work:
    matrix = torch.ones(READ[tiny] // 4000, 1000, device=device)
    vector = torch.ones(1000, device=device)
    return lambda: (torch.mv(matrix, vector), _wait(device))


def _placed(pair: tuple[Any, nn.Module], options: argparse.Namespace, device: torch.device) -> tuple[Any, Any]:
    theirs, ours = pair
    return theirs.to(device, TYPES[options.precision]), ours.to(device, TYPES[options.precision])


def _bytes(model: Any) -> int:
    """Bytes read per step: the decoder layers and the output layer, which is the embedding."""
    tensors: list[Tensor] = [*model.decoder.parameters(), model.embedding.tokens.weight]
    unread = 0
    for block in model.decoder.layers:
        if block.looks_across:  # keys and values of the source are made once
            parts = [*block.cross.project.key.parameters(), *block.cross.project.value.parameters()]
            unread += sum(part.numel() * part.element_size() for part in parts)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) - unread


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    wanted = ("device", "precision", "prompt", "tokens", "rounds", "tiny")
    return {name: getattr(options, name) for name in wanted}


if __name__ == "__main__":
    main()

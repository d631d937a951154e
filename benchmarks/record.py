"""Cost of recording: a forward pass without recording, relative to the same pass with the recording calls removed.

    python -m benchmarks.record [--rounds 300] [--device cpu|cuda] [--save]

The first ratio must be within 1% of 1. The others measure recording itself: storing queries and keys, rebuilding every
map, and the explicit path that an edit needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from benchmarks.timing import best_times, describe_machine, save_results
from regard.models import Bert, BertConfig
from regard.nn import recording
from regard.nn.masks import Padded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="timed rounds of each pass")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/record-DEVICE.json")
    options = parser.parse_args()
    torch.manual_seed(0)
    gpu = options.device == "cuda"
    rows, length = (32, 512) if gpu else (4, 64)
    config = (
        BertConfig()
        if gpu
        else BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    )
    model = Bert(config, heads=()).eval().to(options.device, torch.bfloat16 if gpu else torch.float32)
    ids = torch.randint(0, config.vocab_size, (rows, length), device=options.device)

    def timed_call(forward: Callable[[], object]) -> Callable[[], None]:
        def call() -> None:
            with torch.inference_mode():
                forward()
            if gpu:
                torch.cuda.synchronize()

        return call

    def not_recording() -> object:
        return model(ids, Padded())

    def calls_removed() -> object:
        originals = recording.record_attention, recording.record_hidden_state
        recording.record_attention = recording.record_hidden_state = _no_op  # type: ignore[assignment]
        try:
            return model(ids, Padded())
        finally:
            recording.record_attention, recording.record_hidden_state = originals

    def recording_pass() -> object:
        with recording.record(model) as tape:
            model(ids, Padded())
        return tape

    def recording_with_maps() -> object:
        with recording.record(model) as tape:
            model(ids, Padded())
        return tape.attention()

    def recording_with_edit() -> object:
        with recording.record(model, edit=lambda weights, site: weights):
            return model(ids, Padded())

    forwards = {
        "recording taken out": calls_removed,
        "not recording": not_recording,
        "recording": recording_pass,
        "recording, every map rebuilt": recording_with_maps,
        "recording with an edit": recording_with_edit,
    }
    best = best_times({name: timed_call(forward) for name, forward in forwards.items()}, rounds=options.rounds)
    base = best["recording taken out"]
    print(
        f"BERT {config.num_hidden_layers} x {config.hidden_size}, {rows} x {length} tokens, "
        f"best of {options.rounds}, {describe_machine()}"
    )
    for name, seconds in best.items():
        print(f"{name:<30}{seconds * 1000:9.3f} ms{seconds / base:8.3f}")
    if options.save:
        ratios = {name: round(seconds / base, 4) for name, seconds in best.items()}
        milliseconds = {name: round(seconds * 1000, 3) for name, seconds in best.items()}
        print(save_results(f"record-{options.device}", {"ratios": ratios, "milliseconds": milliseconds}))


def _no_op(*arguments: object) -> None:
    return None


if __name__ == "__main__":
    main()

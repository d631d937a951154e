"""Cost of recording: a forward pass without recording, relative to the same pass with the recording calls removed.

    python -m benchmarks.record [--rounds 300] [--device cpu|cuda] [--peers] [--save]

The first ratio must be within 1% of 1. The others measure recording itself: storing queries and keys, rebuilding every
map, and the explicit path that an edit needs. `--peers` adds transformers: `sdpa`, and `eager`, which returns all maps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.timing import best_times, describe_machine, save_results
from regard.models import Bert, BertConfig
from regard.nn import recording
from regard.nn.masks import Padded


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="timed rounds of each pass")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/record-DEVICE.json")
    parser.add_argument("--peers", action="store_true", help="measure transformers as well")
    options = parser.parse_args(arguments)
    results = measure(options.device, rounds=options.rounds, peers=options.peers)
    if options.save:
        print(save_results(f"record-{options.device}", results))


def measure(device: str, *, rounds: int, peers: bool) -> dict[str, Any]:
    """Milliseconds of each pass, and its ratio to the pass without recording calls."""
    torch.manual_seed(0)
    gpu = device == "cuda"
    batch, length = (32, 512) if gpu else (4, 64)
    config = (
        BertConfig()
        if gpu
        else BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    )
    model = Bert(config, output_heads=()).eval().to(device, torch.bfloat16 if gpu else torch.float32)
    ids = torch.randint(0, config.vocab_size, (batch, length), device=device)

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
    if peers:
        forwards |= transformers_passes(config, ids, torch.bfloat16 if gpu else torch.float32)
    best = best_times({name: timed_call(forward) for name, forward in forwards.items()}, rounds=rounds)
    base = best["recording taken out"]
    print(
        f"BERT {config.num_hidden_layers} x {config.hidden_size}, {batch} x {length} tokens, "
        f"best of {rounds}, {describe_machine()}"
    )
    for name, seconds in best.items():
        print(f"{name:<30}{seconds * 1000:9.3f} ms{seconds / base:8.3f}")
    ratios = {name: round(seconds / base, 4) for name, seconds in best.items()}
    milliseconds = {name: round(seconds * 1000, 3) for name, seconds in best.items()}
    return {"ratios": ratios, "milliseconds": milliseconds}


def transformers_passes(config: BertConfig, ids: torch.Tensor, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """The same shape in transformers: without maps, and with all of them."""
    try:
        import transformers
    except ImportError as error:
        print(f"skipped: transformers ({error})")
        return {}
    library: Any = transformers  # mostly untyped
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    shape = {name: getattr(config, name) for name in names}

    def model(attention: str) -> Any:
        peer = library.BertModel(library.BertConfig(**shape, attn_implementation=attention), add_pooling_layer=False)
        return peer.to(ids.device, dtype).eval()

    plain, explicit = model("sdpa"), model("eager")
    return {
        "transformers, sdpa": lambda: plain(ids),
        "transformers, eager with maps": lambda: explicit(ids, output_attentions=True).attentions,
    }


def _no_op(*arguments: object) -> None:
    return None


if __name__ == "__main__":
    main()

"""Evaluate the built-in GPT, and write it to src/regard/builtin with a model card generated from the results.

    python -m benchmarks.builtin_gpt MODEL --events FILE ... [--device auto]     evaluate, one part at a time
    python -m benchmarks.builtin_gpt MODEL --write                               write, from the stored results

MODEL is the output of the last `regard pretrain gpt` run, FILE the events.jsonl of all runs in order. Evaluated by bits
per byte on held-out text, on LAMBADA's development passages, HellaSwag and PIQA, and with five generated texts, one per
prompt, all with the first seed; stored in benchmarks/results/regard-gpt.json. The package contains the weights in half
precision.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import regard
from benchmarks.builtin_bert import summarize_run
from benchmarks.timing import RESULTS, save_results
from regard.checkpoints.loading import write_model
from regard.device import choose_device
from regard.events import drain
from regard.inference.benchmark import benchmark_events, read_items
from regard.inference.generation.sampling import Sampling
from regard.inference.generation.text_generator import GenerationStream, TextGenerator
from regard.inference.likelihood import perplexity_events, read_text_file
from regard.models import Gpt
from regard.text import Tokenizer

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "src" / "regard" / "builtin" / "regard-gpt"
CARD = Path(__file__).with_suffix(".md")
DATA = ROOT.parent / "shared" / "data"
NAME = "regard-gpt"
TASKS = {
    "lambada": ("lambada/lambada_development_plain_text.txt", None),
    "hellaswag": ("hellaswag/hellaswag_val_full.txt.bz2", None),
    "piqa": ("piqa/dev.jsonl", "piqa/dev-labels.lst"),
}
PROMPTS = (
    "The river begins in the mountains and",
    "In 1912 the town",
    '"I do not know," said the captain,',
    "A cat is an animal that",
    "The first time I saw the sea,",
)
SAMPLING, MAX_NEW_TOKENS = Sampling(temperature=0.8, top_p=0.9), 80


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="model folder or name")
    parser.add_argument("--events", nargs="+", type=Path, default=[], metavar="FILE", help="events.jsonl of each run")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="folder with corpus/ and the tasks")
    parser.add_argument("--limit", type=int, metavar="N", help="maximum number of examples per task, for a quick run")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--write", action="store_true", help="write src/regard/builtin/regard-gpt without evaluating")
    options = parser.parse_args(arguments)
    model, tokenizer = regard.load(options.model)
    assert isinstance(model, Gpt) and tokenizer is not None
    if not options.write:
        results: dict[str, Any] = {"runs": [summarize_run(path, ["lm"]) for path in options.events]}
        for name, value in evaluate_model(
            model.to(choose_device(options.device)), tokenizer, options.data, options.limit
        ):
            results[name] = value
            print(name, value, flush=True)
            save_results(NAME, results)
        return
    card = model_card(json.loads((RESULTS / f"{NAME}.json").read_text()))
    write_model(model.half(), FOLDER, files={**tokenizer.files(), "README.md": card.encode()})
    print(f"{FOLDER}: {sum(file.stat().st_size for file in FOLDER.iterdir()) / 1e6:.1f} MB")


def evaluate_model(model: Gpt, tokenizer: Tokenizer, data: Path, limit: int | None) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each result, the fast ones first."""
    yield "samples", [generate_sample(model, tokenizer, prompt) for prompt in PROMPTS]
    text = read_text_file(data / "corpus" / "heldout.txt.xz")
    yield "held_out", drain(perplexity_events(model, tokenizer, text[: limit and limit * 1000])).to_dict()
    for task, (file, labels) in TASKS.items():
        items = read_items(task, data / file, labels=data / labels if labels else None, limit=limit)
        yield task, drain(benchmark_events(model, tokenizer, task, items)).to_dict()


def generate_sample(model: Gpt, tokenizer: Tokenizer, prompt: str) -> dict[str, str]:
    generator = TextGenerator(model, tokenizer)
    prompt_ids = generator.encode_prompt(prompt, max_new_tokens=MAX_NEW_TOKENS)
    stream = GenerationStream(generator, prompt_ids, sampling=SAMPLING, seed=0)
    for _ in stream:
        pass
    return {"prompt": prompt, "text": stream.texts[0].text}


def model_card(results: dict[str, Any]) -> str:
    runs = results["runs"]
    offsets = [sum(run["tokens"] for run in runs[:index]) for index in range(len(runs))]
    curve = (
        f"    {(offset + tokens) / 1e6:14,.0f}   {loss:.3f}"
        for run, offset in zip(runs, offsets, strict=True)
        for tokens, loss in run["curve"]
    )
    rows = (
        f"| {number} | {run['tokens']:,} | {run['seconds']:,} | {run['end']['lm']['loss']:.3f} |"
        for number, run in enumerate(runs, start=1)
    )
    samples = (f"> **{sample['prompt']}**{_quoted(sample['text'])}" for sample in results["samples"])
    return CARD.read_text(encoding="utf-8").format(
        bits=results["held_out"]["bits_per_byte"],
        perplexity=results["held_out"]["perplexity"],
        date=results["date"],
        tokens=sum(run["tokens"] for run in runs) / 1e9,
        tasks="\n".join(_task_row(results[task]) for task in TASKS),
        runs="\n".join(rows),
        curve="\n".join(curve),
        samples="\n\n".join(samples),
    )


def _task_row(result: dict[str, Any]) -> str:
    low, high = result["interval"]
    normalized, chance = result["accuracy_normalised"], result["chance"]
    cells = [
        f"{result['task']}, {result['n']:,} examples",
        f"{result['accuracy']:.1f} ({low:.1f} to {high:.1f})",
        "" if normalized is None else f"{normalized:.1f}",
        "" if chance is None else f"{chance:.1f}",
        "" if result["perplexity"] is None else f"{result['perplexity']:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _quoted(text: str) -> str:
    return text.rstrip().replace("\n", "\n> ")


if __name__ == "__main__":
    main()
